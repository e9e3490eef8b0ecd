//! Code lengths of a prefix code: from counts, and as a file stores them.

use crate::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// Reads code lengths of four bits.
pub(super) fn read(c: &mut Cursor<'_>, lens: &mut [u16]) -> Result<()> {
    let bytes = c.bytes(lens.len().div_ceil(2))?;
    let nibble = |i: usize| bytes[i / 2] >> (4 * (i % 2)) & 15;
    lens.iter_mut().enumerate().for_each(|(i, len)| *len = u16::from(nibble(i)));
    if !lens.len().is_multiple_of(2) && nibble(lens.len()) != 0 {
        return Err(Error::damaged(format!("the unused last nibble of a table is {}, not 0", nibble(lens.len()))));
    }
    Ok(())
}

pub(super) fn write(lens: &[u16], out: &mut Vec<u8>) {
    out.extend(lens.chunks(2).map(|p| (p[0] | p.get(1).copied().unwrap_or(0) << 4) as u8));
}

/// Checks that lengths are at most `max_len`, and that their code is complete. `what` has it.
pub(super) fn check(what: &str, lens: impl Iterator<Item = u16> + Clone, max_len: u8) -> Result<()> {
    let longest = lens.clone().max().unwrap_or(0);
    let (sum, all) = (lens.map(|len| 1 << max_len >> len).sum::<usize>(), 1 << max_len);
    if longest <= max_len.into() && sum == all {
        return Ok(());
    }
    Err(Error::damaged(format!(
        "{what} is not complete: its longest code has {longest} bits, its Kraft sum is {sum}/{all}"
    )))
}

/// The bit-reversed canonical code of every length that is not 0 (`docs/format.md` §5.3), of at most 16 bits.
pub(super) fn codes<const N: usize>(lens: &[u16; N], max_len: u8) -> [u16; N] {
    let mut codes = [0; N];
    let mut next = 0u16;
    for len in 1..=u16::from(max_len) {
        next <<= 1;
        for (code, _) in codes.iter_mut().zip(lens).filter(|(_, l)| **l == len) {
            *code = next.reverse_bits() >> (16 - len);
            next += 1;
        }
    }
    codes
}

/// Huffman's code lengths for counts in falling order, limited to `max_len` by lengthening the cheapest codes until the code is complete.
pub(super) fn limited(kept: &[(u32, u16)], max_len: u8) -> Vec<u8> {
    let n = kept.len();
    debug_assert!((2..=1 << max_len).contains(&n));
    // Two queues: leaves in rising order, and inner nodes, which are created in rising order.
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
    // Kraft's sum in units of the longest code. Above 1: lengthen the rarest code that is not the longest. Below 1: shorten the most
    // frequent one that fits.
    let all = 1i32 << max_len;
    let units = |len: u8| all >> len;
    let mut sum: i32 = lens.iter().map(|&l| units(l)).sum();
    while sum > all {
        let i = lens.iter().rposition(|&l| l < max_len).expect("at most 2^max_len codes");
        sum -= units(lens[i]) - units(lens[i] + 1);
        lens[i] += 1;
    }
    while sum < all {
        let i = lens
            .iter()
            .position(|&l| l > 1 && units(l) <= all - sum)
            .expect("an incomplete code has a code that can be shortened");
        sum += units(lens[i]);
        lens[i] -= 1;
    }
    lens
}
