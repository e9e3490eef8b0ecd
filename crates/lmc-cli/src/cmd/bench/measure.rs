//! Rounds in which every contender runs once, medians over the rounds.

use std::time::Instant;

use lmc::{Error, ErrorKind, Result};

use super::codec::room_for;
use super::contender::Contender;
use super::memory::Memcpy;
use super::timing::timed;

/// Rounds after which more precision is not worth the time.
const MAX_ROUNDS: usize = 2000;

/// The time and the rounds that a contender has at least.
#[derive(Clone, Copy)]
pub(super) struct Least {
    pub(super) seconds: f64,
    pub(super) rounds: usize,
}

/// Runs the contenders in rounds until each has had its time and its rounds. Buffers are shared and reused, and every
/// round trip is checked. Fills the contenders' and the memcpys' times.
pub(super) fn run(
    raw: &[u8],
    contenders: &mut [Contender],
    memcpys: &mut [Memcpy],
    least: Least,
    progress: &mut dyn FnMut(usize, &str),
) -> Result<()> {
    let mut packed = room_for(raw.len());
    let mut out = vec![1u8; raw.len()];
    for round in 0..MAX_ROUNDS {
        let mut ran = false;
        for m in memcpys.iter_mut() {
            m.round(raw, &mut out);
        }
        for c in contenders.iter_mut() {
            if c.spent >= least.seconds && c.compress.rounds() >= least.rounds {
                continue;
            }
            ran = true;
            progress(round, &c.label());
            one_round(raw, c, memcpys, &mut packed, &mut out)?;
        }
        if !ran {
            break;
        }
    }
    Ok(())
}

fn one_round(raw: &[u8], c: &mut Contender, memcpys: &[Memcpy], packed: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
    let start = Instant::now();
    let raw = c.sample.as_deref().unwrap_or(raw);
    let out = &mut out[..raw.len()];
    packed.resize(packed.capacity(), 1);
    // At the same moment, and of the same bytes: other programs may slow both.
    let memcpy = memcpys.iter().find(|m| m.threads == c.threads).map_or(f64::NAN, |m| m.gb_per_s(raw, out));
    let (compress, result) = timed(|| c.codec.compress(raw, packed));
    result?;
    // Bytes that a codec fails to write must not be mistaken for its output.
    out.fill(0xa5);
    let (decompress, result) = timed(|| c.codec.decompress(packed, out));
    result?;
    if out != raw {
        return Err(Error::new(ErrorKind::Damaged, format!("{} did not restore the data; this is a bug", c.label())));
    }
    c.size = packed.len();
    c.compress.push(compress, raw.len(), memcpy);
    c.decompress.push(decompress, raw.len(), memcpy);
    // Also what is between: for small samples it is most.
    c.spent += start.elapsed().as_secs_f64();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::codec::Codec;
    use super::*;

    /// Stores the data.
    struct Copy;

    impl Codec for Copy {
        fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
            packed.clear();
            packed.extend_from_slice(raw);
            Ok(())
        }
        fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
            out.copy_from_slice(packed);
            Ok(())
        }
    }

    #[test]
    fn everyone_has_the_least_of_rounds() {
        let raw = vec![7; 1000];
        let mut contenders = [Contender::new("a", "", Box::new(Copy)), Contender::new("b", "", Box::new(Copy))];
        contenders[1].sample = Some(raw[..10].into());
        contenders[1].threads = 2;
        let mut memcpys = [Memcpy::new(1).unwrap()];
        run(&raw, &mut contenders, &mut memcpys, Least { seconds: 0.0, rounds: 3 }, &mut |_, _| ()).unwrap();
        let [a, b] = contenders.map(|c| (c.size, c.compress.rounds(), c.decompress.speed(1000).of_memcpy.is_finite()));
        assert_eq!((a, b), ((1000, 3, true), (10, 3, false)), "two threads have no memcpy beside them");
        assert_eq!(memcpys[0].speed().rounds, 4, "it ends with a round in which no one runs");
    }
}
