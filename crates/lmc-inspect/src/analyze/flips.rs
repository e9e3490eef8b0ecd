//! Which bits of elements changed.

/// Words of eight bytes that are counted before a counter of eight bits may overflow.
const WORDS: usize = 255;
const ONES: u64 = 0x0101_0101_0101_0101;

/// For each bit of an element of `width` bytes, lowest first: in how many elements it is not the same.
///
/// # Panics
/// If both are not of one length, or `width` is not 1, 2, 4 or 8.
pub(crate) fn count(width: usize, new: &[u8], old: &[u8]) -> Vec<u64> {
    assert!(new.len() == old.len() && matches!(width, 1 | 2 | 4 | 8), "element for element");
    let mut total = vec![0; 8 * width];
    for (new, old) in new.chunks(8 * WORDS).zip(old.chunks(8 * WORDS)) {
        if new == old {
            continue;
        }
        // For each bit of a byte, counters for the eight bytes of a word, side by side.
        let mut counters = [0u64; 8];
        let (words, rest) = new.as_chunks::<8>();
        let (old_words, old_rest) = old.as_chunks::<8>();
        for (a, b) in words.iter().zip(old_words) {
            add(&mut counters, u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b));
        }
        if !rest.is_empty() {
            let mut last = [[0; 8]; 2];
            last[0][..rest.len()].copy_from_slice(rest);
            last[1][..rest.len()].copy_from_slice(old_rest);
            add(&mut counters, u64::from_le_bytes(last[0]) ^ u64::from_le_bytes(last[1]));
        }
        for (bit, counters) in counters.iter().enumerate() {
            for (byte, n) in counters.to_le_bytes().into_iter().enumerate() {
                total[8 * (byte % width) + bit] += u64::from(n);
            }
        }
    }
    total
}

#[inline(always)]
fn add(counters: &mut [u64; 8], flipped: u64) {
    for (bit, counter) in counters.iter_mut().enumerate() {
        *counter += (flipped >> bit) & ONES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_counted() {
        for width in [1, 2, 4, 8] {
            for elements in [0, 1, 3, 300, 5000] {
                let old: Vec<u8> = (0..elements * width).map(|i| (i * 31 % 251) as u8).collect();
                let mut new = old.clone();
                let mut expected = vec![0; 8 * width];
                for (bit, expected) in expected.iter_mut().enumerate() {
                    for e in (0..elements).filter(|e| (e * 7 + bit).is_multiple_of(bit + 2)) {
                        new[e * width + bit / 8] ^= 1 << (bit % 8);
                        *expected += 1;
                    }
                }
                assert_eq!(count(width, &new, &old), expected, "{width} bytes, {elements} elements");
            }
        }
    }
}
