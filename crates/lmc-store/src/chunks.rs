//! Cutting files into chunks, each of which becomes a block set (`docs/store.md` §4).

use lmc::Segment;

use crate::error::{Error, Result};
use crate::ids::Hash;

/// The most raw bytes of a chunk.
pub(crate) const MAX_CHUNK: u64 = 1 << 24;
/// The most elements of a chunk of a tensor. It counts elements, so that tensors of equal shape are cut alike whatever their dtypes.
const ELEMENTS: u64 = 1 << 22;
/// Tensors with fewer elements share a block set. It counts elements, so that tensors of equal shape are treated alike whatever their
/// dtypes.
const SMALL: u64 = 1 << 16;

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Bytes of a file that are compressed together: ranges, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) ranges: Vec<Range>,
    /// The segments of the bytes; none if they are opaque.
    pub(crate) segments: Vec<Segment>,
    /// Equal for chunks of the same name and file name with the same segments.
    pub(crate) key: Hash,
    /// Equal for chunks of any file with the same tensors; for opaque bytes it equals `key`.
    pub(crate) tensors_key: Hash,
    /// If it is of a single tensor: index of its segment in the file, and of its first element.
    pub(crate) of: Option<(usize, u64)>,
}

impl Chunk {
    pub(crate) fn len(&self) -> u64 {
        self.ranges.iter().map(|r| r.len).sum()
    }
}

/// A chunk under construction.
#[derive(Default)]
struct Builder {
    ranges: Vec<Range>,
    segments: Vec<Segment>,
    /// Unambiguous encoding of what the chunk holds, to be hashed into keys.
    holds: Vec<u8>,
    len: u64,
}

impl Builder {
    /// Adds elements of a tensor, starting at its byte `start`.
    fn tensor(&mut self, s: &Segment, start: u64, len: u64) -> Result<()> {
        let (name, dtype) = (s.name.clone().unwrap_or_default(), s.dtype.expect("a tensor has a dtype"));
        self.holds(&name);
        self.holds(dtype.name());
        self.holds.extend([start.to_le_bytes(), len.to_le_bytes()].as_flattened());
        let shape = [len * 8 / u64::from(dtype.bits())].into();
        self.segments.push(Segment::new(Some(name), Some(dtype), shape, self.len, len).map_err(Error::codec)?);
        self.range(s.offset + start, len);
        Ok(())
    }

    fn holds(&mut self, text: &str) {
        self.holds.extend((text.len() as u64).to_le_bytes());
        self.holds.extend(text.bytes());
    }

    fn range(&mut self, offset: u64, len: u64) {
        self.len += len;
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => self.ranges.push(Range { offset, len }),
        }
    }

    fn finish(self, file: &str) -> Chunk {
        let key = Hash::of(&[&self.holds[..], file.as_bytes()].concat());
        let tensors_key = if self.segments.is_empty() { key } else { Hash::of(&self.holds) };
        Chunk { ranges: self.ranges, segments: self.segments, key, tensors_key, of: None }
    }
}

/// Cuts a file: every byte is in exactly one chunk.
pub(crate) fn cut(file: &str, segments: &[Segment]) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    let mut pack = Builder::default();
    for (number, s) in segments.iter().enumerate().filter(|(_, s)| s.len > 0) {
        let Some(dtype) = s.dtype else {
            for (start, len) in cuts(s.len, MAX_CHUNK, 1) {
                let mut chunk = Builder::default();
                chunk.holds.extend(s.offset.wrapping_add(start).to_le_bytes());
                chunk.holds.extend(len.to_le_bytes());
                chunk.range(s.offset + start, len);
                chunks.push(chunk.finish(file));
            }
            continue;
        };
        let elements = |bytes: u64| bytes * 8 / u64::from(dtype.bits());
        if elements(s.len) < SMALL {
            if pack.len + s.len > MAX_CHUNK {
                chunks.push(std::mem::take(&mut pack).finish(file));
            }
            pack.tensor(s, 0, s.len)?;
            continue;
        }
        let most = (ELEMENTS * u64::from(dtype.bits()) / 8).min(MAX_CHUNK);
        // Whole runs of 128 elements.
        for (start, len) in cuts(s.len, most, 16 * u64::from(dtype.bits())) {
            let mut chunk = Builder::default();
            chunk.tensor(s, start, len)?;
            chunks.push(Chunk { of: Some((number, elements(start))), ..chunk.finish(file) });
        }
    }
    if pack.len > 0 {
        chunks.push(pack.finish(file));
    }
    Ok(chunks)
}

/// Offsets and lengths of chunks of at most `most` bytes. The last two share the rest, split at a multiple of `unit`.
fn cuts(len: u64, most: u64, unit: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = len - at;
        let next = match left {
            0 => return None,
            _ if left <= most => left,
            _ if left < 2 * most => (left / 2).next_multiple_of(unit),
            _ => most,
        };
        at += next;
        Some((at - next, next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc::Dtype;

    fn file(tensors: &[(&str, Option<Dtype>, u64)]) -> Vec<Segment> {
        let mut at = 0;
        let segment = |&(name, dtype, len): &(&str, Option<Dtype>, u64)| {
            let shape = dtype.map(|d: Dtype| [len * 8 / u64::from(d.bits())].into()).unwrap_or_default();
            at += len;
            Segment::new(dtype.map(|_| name.into()), dtype, shape, at - len, len).unwrap()
        };
        tensors.iter().map(segment).collect()
    }

    /// Every byte is in exactly one chunk, and the segments of a chunk cover it.
    fn check(segments: &[Segment]) -> Vec<Chunk> {
        let chunks = cut("f", segments).unwrap();
        let mut ranges: Vec<Range> = chunks.iter().flat_map(|p| p.ranges.clone()).collect();
        ranges.sort_by_key(|r| r.offset);
        let end = ranges.iter().fold(0, |at, r| {
            assert_eq!(r.offset, at);
            at + r.len
        });
        assert_eq!(end, segments.iter().map(|s| s.len).sum::<u64>());
        for p in &chunks {
            assert!(p.len() > 0 && p.len() <= MAX_CHUNK);
            if !p.segments.is_empty() {
                lmc::Base::of_segments(vec![0; p.len() as usize], &p.segments).unwrap();
            }
        }
        chunks
    }

    #[test]
    fn tensors_are_cut_by_elements_and_small_ones_packed() {
        let f = file(&[
            ("", None, 1000),
            ("a", Some(Dtype::F32), 40 << 20),
            ("s", Some(Dtype::F32), 128),
            ("b", Some(Dtype::Bf16), 20 << 20),
            ("t", Some(Dtype::U8), 0),
            ("u", Some(Dtype::U8), 77),
            ("c", Some(Dtype::F64), 8 * SMALL),
        ]);
        let chunks = check(&f);
        let names: Vec<Vec<&str>> =
            chunks.iter().map(|p| p.segments.iter().map(|s| s.name.as_deref().unwrap()).collect()).collect();
        assert_eq!(names, [&[][..], &["a"], &["a"], &["a"], &["b"], &["b"], &["b"], &["c"], &["s", "u"]]);
        // Equal shapes are cut at equal elements.
        let elements = |i: usize| chunks[i].segments[0].shape[0];
        assert_eq!([elements(1), elements(2), elements(3)], [elements(4), elements(5), elements(6)]);
        assert_eq!(chunks.last().unwrap().ranges.len(), 2);
    }

    #[test]
    fn many_small_tensors_take_several_packs() {
        let names: Vec<String> = (0..300).map(|i| format!("t{i}")).collect();
        let tensors: Vec<_> = names.iter().map(|n| (n.as_str(), Some(Dtype::F16), 2 * SMALL - 2)).collect();
        let chunks = check(&file(&tensors));
        assert_eq!(chunks.len(), 3);
        // Adjacent ranges are merged.
        assert!(chunks.iter().all(|p| p.ranges.len() == 1 && p.of.is_none()));
        assert!(check(&[]).is_empty());
    }

    #[test]
    fn tensors_of_equal_shape_are_cut_alike() {
        for elements in [SMALL, SMALL + 1, ELEMENTS, ELEMENTS + 1, 2 * ELEMENTS - 77, 3 * ELEMENTS + 12_345] {
            let cuts_of = |dtype: Dtype| -> Vec<(u64, u64)> {
                let len = elements * u64::from(dtype.bits()) / 8;
                let chunks = check(&file(&[("", None, 24), ("a", Some(dtype), len)]));
                let of = |p: &Chunk| Some((p.of.filter(|of| of.0 == 1)?.1, p.segments[0].shape[0]));
                chunks[1..].iter().map(|p| of(p).unwrap()).collect()
            };
            assert_eq!(cuts_of(Dtype::F32), cuts_of(Dtype::Bf16), "{elements}");
            assert_eq!(cuts_of(Dtype::F32).iter().map(|c| c.1).sum::<u64>(), elements);
        }
    }

    #[test]
    fn chunks_are_known_by_what_they_hold() {
        let f = file(&[("", None, 16), ("a", Some(Dtype::F32), 4 * SMALL)]);
        let moved = file(&[("", None, 24), ("a", Some(Dtype::F32), 4 * SMALL)]);
        let other = file(&[("", None, 16), ("a", Some(Dtype::Bf16), 4 * SMALL)]);
        let keys = |name: &str, f: &[Segment]| -> Vec<(Hash, Hash)> {
            cut(name, f).unwrap().iter().map(|p| (p.key, p.tensors_key)).collect()
        };
        let (a, moved, other, renamed) = (keys("f", &f), keys("f", &moved), keys("f", &other), keys("g", &f));
        assert!(a[1] == moved[1] && a[0] != moved[0]);
        assert!(a[1].0 != other[1].0 && a[1].1 != other[1].1);
        assert!(a[1].0 != renamed[1].0 && a[1].1 == renamed[1].1 && a[0].1 != renamed[0].1);
    }
}
