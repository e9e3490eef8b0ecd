//! Cuts files into chunks; each chunk becomes a block set (`docs/store.md` §4).

use std::sync::Arc;

use lmc::{Dtype, Segment};

use crate::error::{Error, Result};
use crate::format::ids::Hash;

/// The most raw bytes of a chunk.
pub(crate) const MAX_CHUNK: u64 = 1 << 24;
/// The most elements of a chunk of a tensor. It counts elements, so that tensors of equal shape are cut alike whatever their dtypes.
const ELEMENTS: u64 = 1 << 22;
/// Tensors with fewer elements share a block set, and so do opaque bytes with fewer between tensors. It counts elements, so that tensors of
/// equal shape are treated alike whatever their dtypes.
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
    pub(crate) file: Arc<str>,
    pub(crate) ranges: Vec<Range>,
    /// The segments of the bytes; none if they are opaque.
    pub(crate) segments: Vec<Segment>,
    /// For each of them, the index of the file's segment, and the bytes of that one before it.
    pub(crate) numbers: Vec<usize>,
    starts: Vec<u64>,
    /// If it is of a single tensor that is not small: index of its segment in the file, and of its first element.
    pub(crate) of: Option<(usize, u64)>,
}

impl Chunk {
    fn new(file: &Arc<str>) -> Self {
        let (ranges, segments, numbers, starts) = (vec![], vec![], vec![], vec![]);
        Self { file: file.clone(), ranges, segments, numbers, starts, of: None }
    }

    /// Parts of tensors of a file in the given order: the index of each one's segment, and its bytes there.
    pub(crate) fn of_parts(file: &str, segments: &[Segment], parts: &[(usize, Range)]) -> Result<Self> {
        let mut chunk = Self::new(&file.into());
        for (number, r) in parts {
            chunk.tensor(*number, &segments[*number], r.offset, r.len)?;
        }
        Ok(chunk)
    }

    pub(crate) fn len(&self) -> u64 {
        self.ranges.iter().map(|r| r.len).sum()
    }

    /// The part of a tensor that it is, and where that begins there, in bytes; none if it is of several.
    pub(crate) fn part(&self) -> Option<(&Segment, u64)> {
        self.of?;
        Some((self.segments.first()?, *self.starts.first()?))
    }

    /// What identifies it: a key for each range of opaque bytes, or for each tensor.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Keys> {
        let opaque = self.opaque().iter().map(|r| Keys::opaque(&self.file, r.offset, r.len));
        let tensors = self.segments.iter().zip(&self.starts);
        opaque.chain(tensors.map(|(s, &start)| Keys::tensor(&self.file, s, start, s.len)))
    }

    /// The bytes that each of the keys is for.
    pub(crate) fn lens(&self) -> impl Iterator<Item = u64> {
        self.opaque().iter().map(|r| r.len).chain(self.segments.iter().map(|s| s.len))
    }

    /// The ranges, if they are opaque.
    fn opaque(&self) -> &[Range] {
        if self.segments.is_empty() { &self.ranges } else { &[] }
    }

    /// Adds elements of a tensor, starting at its byte `start`.
    fn tensor(&mut self, number: usize, s: &Segment, start: u64, len: u64) -> Result<()> {
        let (name, dtype) = (s.name.clone().unwrap_or_default(), s.dtype.expect("a tensor has a dtype"));
        let shape = [len * 8 / u64::from(dtype.bits())].into();
        let at = self.segments.last().map_or(0, Segment::end);
        self.segments.push(Segment::new(Some(name), Some(dtype), shape, at, len).map_err(Error::codec)?);
        self.numbers.push(number);
        self.starts.push(start);
        self.range(s.offset + start, len);
        Ok(())
    }

    fn range(&mut self, offset: u64, len: u64) {
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => self.ranges.push(Range { offset, len }),
        }
    }
}

/// In place of the length of a tensor, in the keys of what is known whatever that is.
pub(crate) const ANY: u64 = u64::MAX;

/// The keys that identify bytes of a file in the next snapshot, best first: by file and name, by name, and both with
/// the name without wrappers. Opaque bytes have their place for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) exact: [Hash; 2],
    /// They count if only one has them.
    pub(crate) unwrapped: [Hash; 2],
}

impl Keys {
    /// The keys of `len` bytes of a tensor from its byte `start` on.
    pub(crate) fn tensor(file: &str, s: &Segment, start: u64, len: u64) -> Self {
        let name = s.name.as_deref().unwrap_or_default();
        let dtype = s.dtype.as_ref().map_or("", |d| d.name());
        let key = |kind: u8, file: &str, name: &str| {
            let mut holds = vec![kind];
            for text in [name, dtype] {
                holds.extend((text.len() as u64).to_le_bytes());
                holds.extend(text.bytes());
            }
            holds.extend([start.to_le_bytes(), len.to_le_bytes()].as_flattened());
            holds.extend(file.bytes());
            Hash::of(&holds)
        };
        let unwrapped = lmc_layout::wrappers::without_wrappers(name);
        Self {
            exact: [key(0, file, name), key(1, "", name)],
            unwrapped: [key(2, file, &unwrapped), key(3, "", &unwrapped)],
        }
    }

    /// The keys of opaque bytes.
    pub(crate) fn opaque(file: &str, offset: u64, len: u64) -> Self {
        let key = |kind: u8, file: &str| {
            Hash::of(&[&[kind][..], &offset.to_le_bytes(), &len.to_le_bytes(), file.as_bytes()].concat())
        };
        Self { exact: [key(4, file); 2], unwrapped: [key(5, ""); 2] }
    }
}

/// Whether a segment is a tensor that shares a block set with others.
pub(crate) fn is_small(s: &Segment) -> bool {
    s.dtype.is_some_and(|dtype| s.len > 0 && shares(s.len, dtype))
}

/// Whether bytes of a tensor share a block set with others. Few elements of named dtypes may be too long for one set.
fn shares(len: u64, dtype: Dtype) -> bool {
    len * 8 / u64::from(dtype.bits()) < SMALL && len <= MAX_CHUNK
}

/// The chunks of a tensor that is not small: the first bytes and the lengths.
pub(crate) fn cuts_of(len: u64, dtype: Dtype) -> impl Iterator<Item = (u64, u64)> {
    // Whole runs of 128 elements, which take 1 MiB at most.
    let run = 16 * u64::from(dtype.bits());
    let most = (ELEMENTS * u64::from(dtype.bits()) / 8).min(MAX_CHUNK / run * run);
    cuts(len, most, run)
}

/// Cuts a file: every byte is in exactly one chunk, except bytes that are stored elsewhere. `elsewhere` returns the
/// ranges of these in a tensor, given by number, in order; `ends`, of a tensor of which nothing is elsewhere, where else than usual it is
/// cut: bytes, ascending. A small one that has some shares no chunk.
pub(crate) fn cut<'r>(
    file: &str,
    segments: &[Segment],
    elsewhere: impl Fn(usize) -> &'r [Range],
    ends: impl Fn(usize) -> Vec<u64>,
) -> Result<Vec<Chunk>> {
    let file: Arc<str> = file.into();
    let mut chunks = Vec::new();
    let (mut gaps, mut pack) = (Pack::new(&file), Pack::new(&file));
    for (number, s) in segments.iter().enumerate().filter(|(_, s)| s.len > 0) {
        let Some(dtype) = s.dtype else {
            if s.len < SMALL {
                // Each by itself: the next snapshot may lack what is between.
                gaps.room(s.len, &mut chunks).ranges.push(Range { offset: s.offset, len: s.len });
                continue;
            }
            for (start, len) in cuts(s.len, MAX_CHUNK, 1) {
                let mut chunk = Chunk::new(&file);
                chunk.range(s.offset + start, len);
                chunks.push(chunk);
            }
            continue;
        };
        let apart = elsewhere(number);
        let ends = if apart.is_empty() { ends(number) } else { vec![] };
        let is_own = is_small(s) && !ends.is_empty();
        for Range { offset: first, len } in others(s.len, apart).flat_map(|part| at_ends(part, &ends)) {
            // So is what is left of a large one.
            if shares(len, dtype) && !is_own {
                pack.room(len, &mut chunks).tensor(number, s, first, len)?;
                continue;
            }
            for (start, len) in cuts_of(len, dtype) {
                let mut chunk = Chunk::new(&file);
                chunk.tensor(number, s, first + start, len)?;
                chunk.of = Some((number, (first + start) * 8 / u64::from(dtype.bits())));
                chunks.push(chunk);
            }
        }
    }
    chunks.extend([gaps, pack].into_iter().filter(|p| p.len > 0).map(|p| p.chunk));
    Ok(chunks)
}

/// A chunk of what is small.
struct Pack {
    chunk: Chunk,
    len: u64,
}

impl Pack {
    fn new(file: &Arc<str>) -> Self {
        Self { chunk: Chunk::new(file), len: 0 }
    }

    /// The chunk, which has room for `len` bytes more, at most [`MAX_CHUNK`]: what was in it may be one of the `chunks` now.
    fn room(&mut self, len: u64, chunks: &mut Vec<Chunk>) -> &mut Chunk {
        if self.len + len > MAX_CHUNK {
            let empty = Chunk::new(&self.chunk.file);
            chunks.push(std::mem::replace(&mut self.chunk, empty));
            self.len = 0;
        }
        self.len += len;
        &mut self.chunk
    }
}

/// The parts of a range that is cut at these offsets.
fn at_ends(range: Range, ends: &[u64]) -> impl Iterator<Item = Range> {
    let end = range.offset + range.len;
    let inside = ends.iter().copied().filter(move |at| (range.offset + 1..end).contains(at));
    let mut from = range.offset;
    inside.chain([end]).map(move |to| {
        let part = Range { offset: from, len: to - from };
        from = to;
        part
    })
}

/// The gaps between `ranges` within `0..len`.
fn others(len: u64, ranges: &[Range]) -> impl Iterator<Item = Range> {
    let starts = std::iter::once(0).chain(ranges.iter().map(|r| r.offset + r.len));
    let ends = ranges.iter().map(|r| r.offset).chain([len]);
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| Range { offset: start, len: end - start })
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
    use lmc::layout::NamedDtype;

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
        let chunks = cut("f", segments, |_| &[], |_| vec![]).unwrap();
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
        assert_eq!(names, [&["a"][..], &["a"], &["a"], &["b"], &["b"], &["b"], &["c"], &[], &["s", "u"]]);
        // Equal shapes are cut at equal elements.
        let elements = |i: usize| chunks[i].segments[0].shape[0];
        assert_eq!([elements(0), elements(1), elements(2)], [elements(3), elements(4), elements(5)]);
        assert_eq!(chunks.last().unwrap().ranges.len(), 2);
    }

    /// A `.pt` file has a header before each of its tensors.
    #[test]
    fn what_is_between_tensors_shares_chunks() {
        let names: Vec<String> = (0..400).map(|i| format!("t{i}")).collect();
        let large = |n| (n as &str, Some(Dtype::F16), 2 * SMALL);
        let mut tensors: Vec<_> = names.iter().flat_map(|n| [("", None, 64), large(n)]).collect();
        // Two in a row stay two.
        tensors.splice(0..0, [("", None, 100), ("", Some(Dtype::U8), 0)]);
        tensors.extend([("", None, SMALL), ("x", Some(Dtype::U8), 1), ("", None, 2 * MAX_CHUNK + 5)]);
        let chunks = check(&file(&tensors));
        let opaque: Vec<_> =
            chunks.iter().filter(|c| c.segments.is_empty()).map(|c| (c.ranges.len(), c.len())).collect();
        let half = MAX_CHUNK / 2 + 3;
        assert_eq!(opaque, [(1, SMALL), (1, MAX_CHUNK), (1, half - 1), (1, half), (401, 100 + 400 * 64)]);
        let gaps = chunks.iter().find(|c| c.ranges.len() == 401).unwrap();
        assert!(gaps.keys().count() == 401 && gaps.lens().eq([100].into_iter().chain([64; 400])));
        // What is small fills chunks, and then others.
        let gaps: Vec<_> = names.iter().flat_map(|n| [("", None, SMALL - 1), (n, Some(Dtype::U8), 1)]).collect();
        assert_eq!(check(&file(&gaps)).iter().filter(|c| c.segments.is_empty()).count(), 2);
    }

    /// Quantised blocks, and elements of kilobytes: a chunk ends at a whole one, below the most bytes of a chunk.
    #[test]
    fn elements_of_many_bytes_are_not_cut() {
        let named = |bits| Some(Dtype::Named(NamedDtype::new("X", bits).unwrap()));
        for (bits, elements) in [
            (144, 4 << 20),
            (272, 1 << 20),
            (1152, 300_000),
            (1680, 512_000),
            (1680, SMALL - 1),
            (40_960, 4096),
            (65_536, 20_001),
            (65_536, 1),
            (65_535, 8 * 3000),
        ] {
            let len = elements * u64::from(bits) / 8;
            let chunks = check(&file(&[("", None, 24), ("s", Some(Dtype::U8), 5), ("q", named(bits), len)]));
            let of = |c: &Chunk| {
                c.segments.iter().filter(|s| s.name.as_deref() == Some("q")).map(|s| s.shape[0]).sum::<u64>()
            };
            assert_eq!(chunks.iter().map(of).sum::<u64>(), elements, "{bits}");
            let expected = len.div_ceil(MAX_CHUNK);
            let found = chunks.iter().filter(|c| of(c) > 0).count() as u64;
            assert!((expected..=expected + 1 + expected / 16).contains(&found), "{found} chunks of {len} bytes");
        }
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
                chunks[..chunks.len() - 1].iter().map(|p| of(p).unwrap()).collect()
            };
            assert_eq!(cuts_of(Dtype::F32), cuts_of(Dtype::Bf16), "{elements}");
            assert_eq!(cuts_of(Dtype::F32).iter().map(|c| c.1).sum::<u64>(), elements);
        }
    }

    #[test]
    fn tensors_are_cut_where_it_is_said() {
        let f = file(&[("a", Some(Dtype::F32), 20 << 20), ("b", Some(Dtype::F32), 200), ("c", Some(Dtype::F32), 100)]);
        let ends = [&[0, 4 << 20, (4 << 20) + 512, 19 << 20, 20 << 20][..], &[], &[40, 100]];
        let chunks = cut("f", &f, |_| &[], |i| ends[i].to_vec()).unwrap();
        let cut: Vec<_> = chunks.iter().map(|c| (&c.starts[..], c.len())).collect();
        let large = [(0, 4 << 20), ((4 << 20) + 512, (15 << 20) - 512), (19 << 20, 1 << 20)];
        assert_eq!(cut[..3], large.each_ref().map(|(start, len)| (std::slice::from_ref(start), *len)));
        // What is small is in a pack, unless it is cut itself.
        assert_eq!(cut[3..], [(&[0][..], 40), (&[40], 60), (&[4 << 20, 0], 512 + 200)]);
        let parts: Vec<_> = chunks.iter().map(|c| c.part().map(|(_, start)| start)).collect();
        assert_eq!(parts[1..], [Some((4 << 20) + 512), Some(19 << 20), Some(0), Some(40), None]);
    }

    #[test]
    fn what_is_elsewhere_is_in_no_chunk() {
        let f = file(&[("a", Some(Dtype::F32), 100), ("b", Some(Dtype::F32), 200), ("c", Some(Dtype::F32), 4 * SMALL)]);
        let all = [Range { offset: 0, len: 100 }];
        let chunks = cut("f", &f, |i| if i == 0 { &all } else { &[] }, |_| vec![]).unwrap();
        let numbers: Vec<&[usize]> = chunks.iter().map(|c| &c.numbers[..]).collect();
        assert_eq!(numbers, [[2], [1]]);
        // Parts of a large tensor: the rest counts as small or large by its own size.
        let parts = [Range { offset: 4, len: 4 * (SMALL - 7) }, Range { offset: 4 * (SMALL - 4), len: 12 }];
        let f = file(&[("a", Some(Dtype::F32), 8 * SMALL - 4), ("b", Some(Dtype::F32), 200)]);
        let chunks = cut("f", &f, |i| if i == 0 { &parts } else { &[] }, |_| vec![]).unwrap();
        let cut: Vec<_> = chunks.iter().map(|c| (&c.numbers[..], &c.starts[..], c.len())).collect();
        let left = (&[0][..], &[4 * (SMALL - 1)][..], 4 * SMALL);
        assert_eq!(cut, [left, (&[0, 0, 1], &[0, 4 * (SMALL - 6), 0], 4 + 8 + 200)]);
        assert_eq!(chunks[0].of, Some((0, SMALL - 1)));
    }

    #[test]
    fn chunks_are_known_by_what_they_hold() {
        let f = file(&[("", None, 16), ("model.a", Some(Dtype::F32), 4 * SMALL)]);
        let moved = file(&[("", None, 24), ("model.a", Some(Dtype::F32), 4 * SMALL)]);
        let other = file(&[("", None, 16), ("model.a", Some(Dtype::Bf16), 4 * SMALL)]);
        let wrapped = file(&[("", None, 16), ("module.a", Some(Dtype::F32), 4 * SMALL)]);
        let keys = |name: &str, f: &[Segment]| -> Vec<Keys> {
            cut(name, f, |_| &[], |_| vec![]).unwrap().iter().flat_map(Chunk::keys).collect()
        };
        let (a, moved, other) = (keys("f", &f), keys("f", &moved), keys("f", &other));
        let (renamed, wrapped) = (keys("g", &f), keys("f", &wrapped));
        assert!(a[0] == moved[0] && a[1] != moved[1] && a[1] == other[1]);
        let equal = |x: &Keys, y: &Keys| -> Vec<bool> {
            let all = |k: &Keys| [k.exact, k.unwrapped].concat();
            all(x).iter().zip(all(y)).map(|(x, y)| *x == y).collect()
        };
        assert_eq!(equal(&a[0], &other[0]), [false; 4]);
        assert_eq!(equal(&a[0], &renamed[0]), [false, true, false, true]);
        assert_eq!(equal(&a[0], &wrapped[0]), [false, false, true, true]);
        assert_eq!(equal(&a[1], &renamed[1]), [false, false, true, true]);
        // Parts of a tensor differ.
        let large = keys("f", &file(&[("a", Some(Dtype::F32), 40 << 20)]));
        assert!(large.len() == 3 && equal(&large[0], &large[1]) == [false; 4]);
    }
}
