//! Rounds in which every contender runs once, medians over the rounds.

use lmc::{Error, ErrorKind, Result};

use super::codec::room_for;
use super::contender::Contender;
use super::memory::Memcpy;
use super::timing::timed;

/// Rounds that a contender runs at least, however slow it is, unless it has no time at all.
const MIN_ROUNDS: usize = 3;
/// Rounds after which more precision is not worth the time.
const MAX_ROUNDS: usize = 2000;

/// Runs the contenders in rounds until each has had `seconds` of time. Buffers are shared and reused, and every round
/// trip is checked. Fills the contenders' and the memcpys' times.
pub(super) fn run(
    raw: &[u8],
    contenders: &mut [Contender],
    memcpys: &mut [Memcpy],
    seconds: f64,
    progress: &mut dyn FnMut(usize, &str),
) -> Result<()> {
    let mut packed = room_for(raw.len());
    let mut out = vec![1u8; raw.len()];
    let min_rounds = if seconds > 0.0 { MIN_ROUNDS } else { 1 };
    for round in 0..MAX_ROUNDS {
        let mut ran = false;
        for m in memcpys.iter_mut() {
            m.round(raw, &mut out);
        }
        for c in contenders.iter_mut() {
            if c.spent >= seconds && c.compress.rounds() >= min_rounds {
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
    let raw = c.sample.as_deref().unwrap_or(raw);
    let out = &mut out[..raw.len()];
    packed.resize(packed.capacity(), 1);
    let (compress, result) = timed(|| c.codec.compress(raw, packed));
    result?;
    // Bytes that a codec fails to write must not be mistaken for its output.
    out.fill(0xa5);
    let (decompress, result) = timed(|| c.codec.decompress(packed, out));
    result?;
    if out != raw {
        return Err(Error::new(ErrorKind::Damaged, format!("{} did not restore the data; this is a bug", c.label())));
    }
    let memcpy = memcpys.iter().find(|m| m.threads == c.threads).map_or(f64::NAN, Memcpy::latest_gb_per_s);
    c.size = packed.len();
    c.compress.push(compress, raw.len(), memcpy);
    c.decompress.push(decompress, raw.len(), memcpy);
    c.spent += (compress + decompress).as_secs_f64();
    Ok(())
}
