//! Rounds in which every contender runs once, medians over the rounds.

use std::hint::black_box;
use std::time::Instant;

use lmc::{Error, ErrorKind, Result};

use crate::codec::room_for;
use crate::contender::Contender;
use crate::timing::timed;

/// Rounds after which more precision is not worth the time.
const MAX_ROUNDS: usize = 2000;

/// The time and the rounds that a contender has at least.
#[derive(Clone, Copy)]
pub(crate) struct Least {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
}

/// Runs the contenders in rounds until each has had its time and its rounds. Buffers are shared and reused, and every
/// round trip is checked. Fills the contenders' times.
pub(crate) fn run(raw: &[u8], contenders: &mut [Contender], least: Least) -> Result<()> {
    let mut packed = room_for(raw.len());
    let mut out = vec![1u8; raw.len()];
    for _ in 0..MAX_ROUNDS {
        let mut ran = false;
        for c in contenders.iter_mut() {
            if c.spent >= least.seconds && c.compress.rounds() >= least.rounds {
                continue;
            }
            ran = true;
            one_round(raw, c, &mut packed, &mut out)?;
        }
        if !ran {
            break;
        }
    }
    Ok(())
}

fn one_round(raw: &[u8], c: &mut Contender, packed: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
    let start = Instant::now();
    let raw = c.sample.as_deref().unwrap_or(raw);
    let out = &mut out[..raw.len()];
    packed.resize(packed.capacity(), 1);
    // At the same moment, and of the same bytes: other programs may slow both.
    let (copied, ()) = timed(|| black_box(&mut *out).copy_from_slice(black_box(raw)));
    let (compress, result) = timed(|| c.codec.compress(raw, packed));
    result?;
    // Bytes that a codec fails to write must not be mistaken for its output.
    out.fill(0xa5);
    let (decompress, result) = timed(|| c.codec.decompress(packed, out));
    result?;
    if out != raw {
        return Err(Error::new(ErrorKind::Damaged, format!("{} did not restore the data; this is a bug", c.name)));
    }
    c.size = packed.len();
    c.compress.push(compress, copied);
    c.decompress.push(decompress, copied);
    // Also what is between: for small samples it is most.
    c.spent += start.elapsed().as_secs_f64();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

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
        run(&raw, &mut contenders, Least { seconds: 0.0, rounds: 3 }).unwrap();
        assert_eq!(contenders.map(|c| (c.size, c.compress.rounds())), [(1000, 3), (10, 3)]);
    }
}
