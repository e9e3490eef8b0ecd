//! Huffman tables: code lengths of at most seven bits, from a histogram.

use super::coder::Entries;
use super::cost::BIT;
use super::table::{CoarseKind, CoarseTable, ESCAPE, by_symbol, pad_symbol, unused_byte};
use super::{Histogram, SLOTS, by_count};
use crate::error::{Error, Result};
use crate::format::varint::Cursor;

const MAX_LEN: u8 = 7;

/// Reads code lengths of four bits.
pub(super) fn read(c: &mut Cursor<'_>, lens: &mut [u16]) -> Result<()> {
    let bytes = c.bytes(lens.len().div_ceil(2))?;
    let nibble = |i: usize| bytes[i / 2] >> (4 * (i % 2)) & 15;
    lens.iter_mut().enumerate().for_each(|(i, len)| *len = u16::from(nibble(i)));
    if !lens.len().is_multiple_of(2) && nibble(lens.len()) != 0 {
        return Err(Error::damaged("a table has bits left over"));
    }
    Ok(())
}

pub(super) fn write(lens: &[u16], out: &mut Vec<u8>) {
    out.extend(lens.chunks(2).map(|p| (p[0] | p.get(1).copied().unwrap_or(0) << 4) as u8));
}

/// The pad symbol: that with the shortest code.
pub(super) fn pad(e: &Entries) -> u8 {
    pad_symbol(e, |a, b| a < b)
}

pub(super) fn decode_table(e: &Entries) -> Result<CoarseTable> {
    if e.all().any(|(_, len)| len > u16::from(MAX_LEN)) || e.all().map(|(_, len)| SLOTS >> len).sum::<usize>() != SLOTS
    {
        return Err(Error::damaged("the code of a table is not complete"));
    }
    let codes = codes(e);
    let mark = unused_byte(e).expect("a table has at most 128 symbols");
    let mut t = CoarseTable::empty(mark, pad(e));
    for (symbol, len) in e.all() {
        for slot in (usize::from(codes[symbol])..SLOTS).step_by(1 << len) {
            t.symbol[slot] = if symbol == ESCAPE { mark } else { symbol as u8 };
            (t.freq[slot], t.offset[slot]) = (1 << (u16::from(MAX_LEN) - len), (slot >> len) as u8);
        }
    }
    Ok(t)
}

pub(super) fn encode_table(e: &Entries) -> CoarseKind {
    let codes = codes(e);
    let len = |s: usize| if s == ESCAPE { e.escape } else { e.of[s] };
    CoarseKind::Huffman { len: by_symbol(e, |s| len(s) as u8), code: by_symbol(e, |s| codes[s]) }
}

/// The bit-reversed canonical code of every symbol, the escape at 256 (`docs/format.md` §5.3).
fn codes(e: &Entries) -> [u8; 257] {
    let mut codes = [0; 257];
    let mut next = 0u16;
    for len in 1..=MAX_LEN {
        next <<= 1;
        for (symbol, code) in codes.iter_mut().enumerate() {
            if (if symbol == ESCAPE { e.escape } else { e.of[symbol] }) == u16::from(len) {
                *code = (next << (8 - len)) as u8;
                *code = code.reverse_bits();
                next += 1;
            }
        }
    }
    codes
}

/// Code lengths for a histogram, and the cost of coding it with them in 1/256 bit; see [`super::rans::build`].
pub(crate) fn build(hist: &Histogram, complete: bool) -> (Entries, u64) {
    let order = by_count(hist);
    assert!(!order.is_empty(), "a table needs a symbol");
    let total: u32 = order.iter().map(|o| o.0).sum();
    let mut best: Option<(Entries, u64)> = None;
    let mut tried = usize::MAX;
    for share in [1200, 300] {
        let keep = order.partition_point(|o| u64::from(o.0) * share >= u64::from(total)).clamp(1, 126);
        if keep == tried {
            continue;
        }
        tried = keep;
        let mut kept = order[..keep].to_vec();
        let escaped: u32 = order[keep..].iter().map(|o| o.0).sum();
        if !(complete && keep == order.len()) || keep == 1 {
            kept.push((escaped.max(1), ESCAPE as u16));
            kept.sort_unstable_by(|a, b| b.cmp(a));
        }
        let lens = limited_lengths(&kept, MAX_LEN);
        let mut e = Entries::none();
        let mut bits = u64::from(escaped) * 8 * BIT;
        for (&(count, symbol), &len) in kept.iter().zip(&lens) {
            bits += u64::from(count) * u64::from(len) * BIT;
            let len = u16::from(len);
            if usize::from(symbol) == ESCAPE { e.escape = len } else { e.of[usize::from(symbol)] = len }
        }
        if best.as_ref().is_none_or(|b| bits < b.1) {
            best = Some((e, bits));
        }
    }
    best.expect("at least one split was tried")
}

/// Huffman's lengths for counts in falling order, held to `max_len` by moving the cheapest codes down until the code is complete.
pub(super) fn limited_lengths(kept: &[(u32, u16)], max_len: u8) -> Vec<u8> {
    let n = kept.len();
    debug_assert!((2..=1 << max_len).contains(&n));
    // Two queues: leaves in rising order, and inner nodes, which are made in rising order.
    let mut parent = vec![0usize; 2 * n - 1];
    let mut weight: Vec<u64> = kept.iter().rev().map(|k| u64::from(k.0)).collect();
    let (mut leaf, mut inner) = (0, n);
    for node in n..2 * n - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            let take_leaf = leaf < n && (inner >= node || weight[leaf] <= weight[inner]);
            let i = if take_leaf { leaf } else { inner };
            if take_leaf {
                leaf += 1
            } else {
                inner += 1
            }
            parent[i] = node;
            sum += weight[i];
        }
        weight.push(sum);
    }
    let mut depth = vec![0u8; 2 * n - 1];
    for i in (0..2 * n - 2).rev() {
        depth[i] = depth[parent[i]].saturating_add(1);
    }
    let mut lens: Vec<u8> = depth[..n].iter().rev().map(|&d| d.min(max_len)).collect();
    // Kraft's sum in units of the longest code. Too much: lengthen the rarest code that can be. Too little: shorten the most frequent one that fits.
    let all = 1i32 << max_len;
    let units = |len: u8| all >> len;
    let mut sum: i32 = lens.iter().map(|&l| units(l)).sum();
    while sum > all {
        let i = lens.iter().rposition(|&l| l < max_len).expect("so many codes of the longest length fit");
        sum -= units(lens[i]) - units(lens[i] + 1);
        lens[i] += 1;
    }
    while sum < all {
        let i = lens.iter().position(|&l| l > 1 && units(l) <= all - sum).expect("a longest code can be shortened");
        sum += units(lens[i]);
        lens[i] -= 1;
    }
    lens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_histogram_gives_a_complete_code() {
        let mut seed = 7u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u32
        };
        for n in 1..=256usize {
            for skew in [0u32, 1, 4, 16] {
                let mut h = [0u32; 256];
                for i in 0..n {
                    h[(i * 91) % 256] = 1 + (random() >> (8 + skew * i as u32 / 8).min(31));
                }
                for complete in [false, true] {
                    let (e, _) = build(&h, complete);
                    decode_table(&e).unwrap();
                    assert!((0..256).all(|s| h[s] == 0 || e.of[s] > 0 || e.escape > 0));
                }
            }
        }
    }

    #[test]
    fn codes_are_canonical_and_reversed() {
        let mut e = Entries { escape: 3, ..Entries::none() };
        (e.of[5], e.of[9], e.of[4]) = (1, 2, 3);
        let c = codes(&e);
        assert_eq!([c[5], c[9], c[4], c[ESCAPE]], [0b0, 0b01, 0b011, 0b111]);
    }
}
