//! Finds bytes that repeat earlier ones of the same block: tied tensors, an average beside its original, and parts of
//! a tensor that are tensors of their own.
//!
//! Keys of places at equal distances are remembered, and every place of a window, which is as long as that distance, is
//! looked up (baby steps and giant steps): a repeat that begins before a window and ends far enough behind it is found,
//! wherever the tensors begin.

use crate::block::structure::{KEY, key};

/// Least bytes of a copy.
const LEAST: usize = 4096;
/// Bytes between remembered places, at most, and of a window.
const STEP: usize = 512;
/// Bytes between windows where nothing repeats: in one tensor, and where tensors may begin anywhere.
const STRIDE: usize = 64 << 10;
const STRIDE_OF_MANY: usize = 16 << 10;
/// Bytes of the largest blocks that are searched: in longer ones there is one tensor, or a base predicts most.
const MOST: usize = 2 << 20;
/// Keys of a window that may be found elsewhere without a copy: more are of elements with few values.
const FAILURES: usize = 8;
/// log2 of the number of slots of the table: some for each place of a block.
const LOG: u32 = 13;

/// Bytes in which copies are searched for.
#[derive(Clone, Copy, Debug)]
pub(in crate::block) struct Searched {
    /// In the block.
    pub(in crate::block) start: usize,
    pub(in crate::block) len: usize,
    /// Bytes of an element, or of a block of quantised ones: copies consist of whole ones.
    pub(in crate::block) unit: usize,
    /// Whether they may be several tensors.
    pub(in crate::block) many: bool,
}

/// Bytes of a block that repeat those `distance` bytes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::block) struct Copied {
    pub(in crate::block) start: usize,
    pub(in crate::block) len: usize,
    pub(in crate::block) distance: usize,
}

/// Finds copies, keeping its working memory.
#[derive(Default)]
pub(in crate::block) struct CopyFinder {
    /// Places in the block by their keys, from 1 on.
    places: Vec<u32>,
}

impl CopyFinder {
    /// The copies of a block, in order.
    pub(in crate::block) fn find(&mut self, raw: &[u8], all: &[Searched]) -> Vec<Copied> {
        let mut found = Vec::new();
        // Repeats within one tensor are for zstd.
        let alone = matches!(all, [one] if !one.many);
        if raw.len() > MOST || alone || all.iter().map(|s| s.len).sum::<usize>() < 2 * LEAST {
            return found;
        }
        self.places.clear();
        self.places.resize(1 << LOG, 0);
        for s in all.iter().filter(|s| s.len >= LEAST) {
            self.search(raw, s, &mut found);
        }
        found
    }

    /// Appends the copies in some bytes; remembers their places.
    fn search(&mut self, raw: &[u8], s: &Searched, found: &mut Vec<Copied>) {
        let end = s.start + s.len;
        let stride = if s.many { STRIDE_OF_MANY } else { STRIDE };
        let step = STEP.div_ceil(s.unit) * s.unit;
        // The end of the copy before, and the first place that is not remembered.
        let (mut from, mut new) = (s.start, s.start);
        let mut at = s.start;
        while at + KEY < end {
            while new < at {
                self.remember(raw, new);
                new += step;
            }
            let window = (at..(at + step).min(end - KEY)).step_by(s.unit);
            match self.first_in(raw, window, (from, end), s) {
                Some(copy) => {
                    from = copy.start + copy.len;
                    at = from;
                    found.push(copy);
                }
                None => at += stride.next_multiple_of(s.unit),
            }
        }
        while new + KEY <= end {
            self.remember(raw, new);
            new += step;
        }
    }

    /// The first copy that is found at one of these places; it lies between `from` and `end`.
    fn first_in(
        &self,
        raw: &[u8],
        places: impl Iterator<Item = usize>,
        (from, end): (usize, usize),
        s: &Searched,
    ) -> Option<Copied> {
        let mut failures = 0;
        for at in places {
            let Some(slot) = slot(&raw[at..][..KEY]) else { continue };
            let known = [slot, slot ^ 1].into_iter().filter_map(|slot| (self.places[slot] as usize).checked_sub(1));
            let equal = known.filter(|&earlier| earlier < at && raw[earlier..][..KEY] == raw[at..][..KEY]);
            let Some(earlier) = equal.max() else { continue };
            let distance = at - earlier;
            let before =
                raw[from..at].iter().rev().zip(raw[..earlier].iter().rev()).take_while(|(a, b)| a == b).count();
            let first = (at - before - s.start).next_multiple_of(s.unit) + s.start;
            let len = at - first.min(at) + equal_len(&raw[earlier..], &raw[at..end]);
            let len = len - len % s.unit;
            if first <= at && len >= LEAST {
                return Some(Copied { start: first, len, distance });
            }
            failures += 1;
            if failures == FAILURES {
                break;
            }
        }
        None
    }

    fn remember(&mut self, raw: &[u8], place: usize) {
        if let Some(slot) = slot(&raw[place..][..KEY]) {
            // Two slots for each key: a place that is lost may be the only one that a copy would be found by.
            let slot = if self.places[slot] == 0 { slot } else { slot ^ 1 };
            self.places[slot] = place as u32 + 1;
        }
    }
}

/// The slot of some bytes; `None` if the second half is the first: constants are no copies of each other.
fn slot(bytes: &[u8]) -> Option<usize> {
    let (first, second) = bytes.split_at(KEY / 2);
    (first != second).then(|| key(bytes)).flatten().map(|key| (key >> (64 - LOG)) as usize)
}

/// How many bytes of `b`, from the first one on, are those of `a`.
fn equal_len(a: &[u8], b: &[u8]) -> usize {
    const CHUNK: usize = 256;
    let chunks = a.chunks_exact(CHUNK).zip(b.chunks_exact(CHUNK)).take_while(|(a, b)| a == b).count();
    let whole = chunks * CHUNK;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    /// Adjacent tensors of elements of `unit` bytes, and the copies that are found.
    fn copies(tensors: &[&[u8]], unit: usize, many: bool) -> Vec<(usize, usize, usize)> {
        let raw = tensors.concat();
        let mut start = 0;
        let searched = |t: &&[u8]| {
            start += t.len();
            Searched { start: start - t.len(), len: t.len(), unit, many }
        };
        let searched: Vec<Searched> = tensors.iter().map(searched).collect();
        let found = CopyFinder::default().find(&raw, &searched);
        for c in &found {
            assert!(raw[c.start..][..c.len] == raw[c.start - c.distance..][..c.len], "{c:?}");
        }
        found.into_iter().map(|c| (c.start, c.len, c.distance)).collect()
    }

    #[test]
    fn equal_tensors_are_copies() {
        let mut random = Random::new(1);
        let [a, b, c] = [5000, 150_002, 20_000].map(|n| random.bytes(n));
        assert_eq!(copies(&[&a, &b, &c], 2, false), []);
        assert_eq!(copies(&[&a, &a], 2, false), [(5000, 5000, 5000)]);
        assert_eq!(copies(&[&a, &a, &a], 2, false), [(5000, 5000, 5000), (10_000, 5000, 5000)]);
        let found = copies(&[&b, &a, &c, &a, &b], 2, false);
        assert_eq!(found, [(175_002, 5000, 25_000), (180_002, 150_002, 180_002)]);
        assert_eq!(copies(&[&a[..4000], &a[..4000], &a[..4000]], 2, false), [], "too small");
    }

    #[test]
    fn parts_of_a_tensor_are_copies() {
        let mut random = Random::new(2);
        let [q, k, v] = [30_000, 10_000, 10_000].map(|n| random.bytes(n));
        let all = [&q[..], &k, &v].concat();
        let sum = |tensors: &[&[u8]]| copies(tensors, 4, false).iter().map(|c| c.1).sum::<usize>();
        for order in
            [[&q[..], &k, &v, &all], [&all, &q, &k, &v], [&k, &q, &all, &v], [&all, &v, &q, &k], [&q, &all, &v, &k]]
        {
            assert_eq!(sum(&order), 50_000);
        }
        // One that begins within a tensor whose beginning is new.
        let long = random.bytes(100_000);
        let new = [&random.bytes(100_000)[..], &long, &random.bytes(5000)].concat();
        assert_eq!(copies(&[&long, &new], 4, false), [(200_000, 100_000, 200_000)]);
    }

    #[test]
    fn copies_consist_of_whole_elements() {
        let mut random = Random::new(3);
        let a = random.bytes(34 * 800);
        // Elements of 8 bytes, of which the first differs in its last byte.
        let long = random.bytes(200_000);
        let mut other = long.clone();
        other[7] ^= 1;
        assert_eq!(copies(&[&long, &other], 8, false), [(200_008, 199_992, 200_000)]);
        // Of a file of unknown format, whose tensors follow each other in one piece.
        let raw = [&a[..], &[1; 12], &a, &[4; 8]].concat();
        assert_eq!(copies(&[&raw], 8, true), []);
        assert_eq!(copies(&[&raw], 4, true), [(27_212, 27_200, 27_212)]);
        // Those within one tensor are for zstd.
        assert_eq!(copies(&[&raw], 4, false), []);
    }

    #[test]
    fn constant_elements_are_no_copies() {
        for element in [&[7; 8][..], &[0x80, 0x3f], &[0, 0, 0x80, 0x3f], &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f]] {
            let ones = element.repeat(10_000);
            assert_eq!(copies(&[&ones, &ones], element.len(), false), []);
        }
    }
}
