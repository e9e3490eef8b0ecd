//! Runs equal to their predictions: found, left out, and put back.

use crate::cluster::RUN;

/// Appends for every run of elements of `width` bytes 1 if it equals its prediction, else 0.
#[inline(always)]
pub(crate) fn find(width: usize, elements: &[u8], prediction: &[u8], map: &mut Vec<u8>) {
    let run = RUN * width;
    for (i, e) in elements.chunks(run).enumerate() {
        map.push(u8::from(differing(e, &prediction[i * run..][..e.len()]) == 0));
    }
}

/// The OR of the differing bits of all words of two runs. Without an early exit, which would stall vector code.
#[inline(always)]
pub(crate) fn differing(a: &[u8], b: &[u8]) -> u64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let (b, b_rest) = (&b[..a.len()], &b_rest[..a_rest.len()]);
    let words = a.iter().enumerate().fold(0, |d, (i, a)| d | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(b[i])));
    a_rest.iter().enumerate().fold(words, |d, (i, a)| d | u64::from(a ^ b_rest[i]))
}

/// Number of elements in the unchanged runs of a map, of `n` in all.
pub(crate) fn elements(map: &[u8], n: usize) -> usize {
    let runs = map.iter().filter(|&&u| u == 1).count();
    let partial = n % RUN;
    let short = if partial > 0 && map.last() == Some(&1) { RUN - partial } else { 0 };
    runs * RUN - short
}

/// Replaces `out` by the changed runs.
pub(crate) fn leave_out(width: usize, map: &[u8], elements: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for (run, &unchanged) in elements.chunks(RUN * width).zip(map) {
        if unchanged == 0 {
            out.extend_from_slice(run);
        }
    }
}

/// Merges the changed runs with the unchanged ones.
///
/// # Panics
/// If `changed` is not as long as the map says.
pub(crate) fn put_back(width: usize, map: &[u8], prediction: &[u8], mut changed: &[u8], out: &mut [u8]) {
    let run = RUN * width;
    for ((to, p), &unchanged) in out.chunks_mut(run).zip(prediction.chunks(run)).zip(map) {
        if unchanged == 1 {
            to.copy_from_slice(p);
        } else {
            let from;
            (from, changed) = changed.split_at(to.len());
            to.copy_from_slice(from);
        }
    }
    assert!(changed.is_empty(), "the map has a place for every changed run");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_put_back() {
        for n in [1usize, 127, 128, 129, 1000, 1024] {
            let old: Vec<u8> = (0..2 * n).map(|i| (i * 7 / 3) as u8).collect();
            let mut new = old.clone();
            new.iter_mut().step_by(600).for_each(|b| *b ^= 1);
            for (a, b) in [(&new, &old), (&old, &old)] {
                let mut map = vec![];
                find(2, a, b, &mut map);
                assert_eq!(map.len(), n.div_ceil(RUN));
                let mut changed = vec![];
                leave_out(2, &map, a, &mut changed);
                assert_eq!(changed.len() / 2 + elements(&map, n), n);
                let mut back = vec![0; 2 * n];
                put_back(2, &map, b, &changed, &mut back);
                assert_eq!(back, *a);
            }
        }
    }
}
