//! Runs equal to their predictions.

use crate::cluster::RUN;

/// Appends for every run of elements of `width` bytes 1 if it equals its prediction, else 0.
pub fn find(width: usize, elements: &[u8], prediction: &[u8], map: &mut Vec<u8>) {
    let run = RUN * width;
    for (i, e) in elements.chunks(run).enumerate() {
        map.push(u8::from(differing(e, &prediction[i * run..][..e.len()]) == 0));
    }
}

/// The OR of the differing bits of all words of two runs. Without an early exit, which would stall vector code.
fn differing(a: &[u8], b: &[u8]) -> u64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let (b, b_rest) = (&b[..a.len()], &b_rest[..a_rest.len()]);
    let words = a.iter().enumerate().fold(0, |d, (i, a)| d | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(b[i])));
    a_rest.iter().enumerate().fold(words, |d, (i, a)| d | u64::from(a ^ b_rest[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_changed_are_found() {
        for (width, n) in [1, 2, 4, 8].into_iter().flat_map(|w| [1usize, 7, 127, 128, 129, 1000, 1024].map(|n| (w, n)))
        {
            let old: Vec<u8> = (0..width * n).map(|i| (i * 7 / 3) as u8).collect();
            let mut new = old.clone();
            new.iter_mut().step_by(300 * width).for_each(|b| *b ^= 1);
            let mut map = vec![2];
            find(width, &new, &old, &mut map);
            let runs = new.chunks(width * RUN).zip(old.chunks(width * RUN));
            let expected: Vec<u8> = [2].into_iter().chain(runs.map(|(a, b)| u8::from(a == b))).collect();
            assert_eq!(map, expected, "{n} elements of {width} bytes");
        }
    }
}
