//! The changes in a run of a tensor: the indices and new values of elements, or all of its bytes where that is smaller.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;
use lmc::{ChangedElements, Dtype, ReadAt};

use crate::error::{Error, Result};
use crate::objects::buffer::Pool;

/// Changed elements of a tensor.
///
/// Elements of fewer than 8 bits, and blocks of quantised formats, count as their bytes: [`Self::width`] is 1. So do those of a run that
/// does not begin and end at elements, which no `lmc` writes.
#[derive(Clone, Debug)]
pub struct Patch {
    pub(super) tensor: usize,
    width: usize,
    elements: Range<u64>,
    /// Which of these changed, from the first one on, ascending; `None` for all.
    changed: Option<Vec<u32>>,
    values: Vec<u8>,
    /// Whether the next list is read into its memory.
    is_read: bool,
}

/// Two that make the same changes are equal, whatever memory they are in.
impl PartialEq for Patch {
    fn eq(&self, other: &Self) -> bool {
        let changes = |p: &Self| (p.tensor, p.width, p.elements.clone());
        changes(self) == changes(other) && self.changed == other.changed && self.values == other.values
    }
}

impl Eq for Patch {}

/// Bytes of the unit that is compared and replaced: an element, if it has 1, 2, 4 or 8.
pub(super) fn width(dtype: Dtype) -> usize {
    match dtype.bits() {
        16 => 2,
        32 => 4,
        64 => 8,
        _ => 1,
    }
}

/// Calls a function that is generic over the width, which is one of [`width`]'s.
macro_rules! of_width {
    ($width:expr, $f:ident($($argument:expr),*)) => {
        match $width {
            1 => $f::<1>($($argument),*),
            2 => $f::<2>($($argument),*),
            4 => $f::<4>($($argument),*),
            _ => $f::<8>($($argument),*),
        }
    };
}

/// Bytes compared at once, so that the old bytes stay in the cache.
const PIECE: usize = 1 << 15;
/// Bytes that are skipped at once if they are equal.
const LINE: usize = 64;

impl Patch {
    /// The patch from the bytes that `old` has from `start` on to `new`; `None` if they are equal. The run has fewer
    /// than 2^32 elements of `width` bytes.
    pub(super) fn between(
        tensor: usize,
        width: usize,
        old: &dyn ReadAt,
        start: u64,
        new: &[u8],
    ) -> io::Result<Option<Self>> {
        let width = width_of(width, start, new);
        let (mut changed, mut values) = (Vec::new(), Vec::new());
        let mut scratch = [0; PIECE];
        for (i, piece) in new.chunks(PIECE).enumerate() {
            let offset = i * PIECE;
            let at = start + offset as u64;
            let before = match old.slice_at(at, piece.len()) {
                Some(before) => before,
                None => {
                    let before = &mut scratch[..piece.len()];
                    old.read_exact_at(before, at)?;
                    before
                }
            };
            of_width!(width, compare(before, piece, offset / width, &mut changed, &mut values));
            if 4 * changed.len() + values.len() >= new.len() {
                return Ok(Some(Self::whole(tensor, width, start, new)));
            }
        }
        let elements = start / width as u64..(start + new.len() as u64) / width as u64;
        Ok((!changed.is_empty()).then_some(Self {
            tensor,
            width,
            elements,
            changed: Some(changed),
            values,
            is_read: false,
        }))
    }

    /// The changes that deltas, each from the one before, make in the `len` bytes that `old` has from `start` on, if
    /// all are lists of elements of this width. One of all bytes has those of `old` that are not listed: the caller compares
    /// their hash.
    pub(super) fn listed(
        tensor: usize,
        width: usize,
        old: &dyn ReadAt,
        start: u64,
        len: u64,
        deltas: &[Bytes],
        spares: &Spares,
    ) -> Result<Option<Self>> {
        if !start.is_multiple_of(width as u64) {
            return Ok(None);
        }
        let part = Part { of: old, start, len };
        let mut changed = spares.take();
        let elements = start / width as u64..(start + len) / width as u64;
        let list = |changed: ChangedElements| {
            let (indices, values) = (Some(changed.indices), changed.values);
            Self { tensor, width, elements: elements.clone(), changed: indices, values, is_read: true }
        };
        let (first, later) = deltas.split_first().expect("a chain has deltas");
        let is_list = changed.read(&&first[..], &part).map_err(Error::codec)? && changed.width == width;
        // One that is no smaller than the bytes themselves is not worth having.
        if !is_list || 4 * changed.indices.len() + changed.values.len() >= len as usize {
            spares.put(changed);
            return Ok(None);
        }
        if later.is_empty() {
            return Ok(Some(list(changed)));
        }
        // Each is applied to a copy, which the next one reads.
        let mut now = spares.copies.take(len as usize);
        now.resize(len as usize, 0);
        part.read_exact_at(&mut now, 0).map_err(|e| Error::io("cannot read a tensor", e))?;
        let mut marks = vec![0u64; (len as usize / width).div_ceil(64)];
        let apply = |changed: &ChangedElements, now: &mut [u8], marks: &mut [u64]| {
            changed.apply(now);
            changed.indices.iter().for_each(|&i| marks[i as usize / 64] |= 1 << (i % 64));
        };
        apply(&changed, &mut now, &mut marks);
        for delta in later {
            if !changed.read(&&delta[..], &&now[..]).map_err(Error::codec)? || changed.width != width {
                spares.copies.put(now);
                spares.put(changed);
                return Ok(None);
            }
            apply(&changed, &mut now, &mut marks);
        }
        let count: usize = marks.iter().map(|marks| marks.count_ones() as usize).sum();
        if count * (4 + width) >= len as usize {
            spares.put(changed);
            return Ok(Some(Self { tensor, width, elements, changed: None, values: now, is_read: false }));
        }
        of_width!(width, gather(&marks, count, &now, &mut changed));
        spares.copies.put(now);
        Ok(Some(list(changed)))
    }

    /// The changes in a `range` of its bytes, for a tensor that has these from `offset` on; `None` if the range does not
    /// consist of whole elements.
    pub(super) fn part(&self, tensor: usize, offset: u64, range: Range<usize>) -> Option<Self> {
        let width = self.width;
        let is_whole = |n: usize| n.is_multiple_of(width);
        if !is_whole(range.start) || !is_whole(range.end) || !offset.is_multiple_of(width as u64) {
            return None;
        }
        let Some(changed) = &self.changed else { return Some(Self::whole(tensor, width, offset, &self.values[range])) };
        let start = (range.start / width) as u64;
        let at = |byte: usize| changed.partition_point(|&i| (i as usize) < byte / width);
        let (first, last) = (at(range.start), at(range.end));
        let elements = offset / width as u64..(offset + range.len() as u64) / width as u64;
        let indices = changed[first..last].iter().map(|&i| i - start as u32).collect();
        let values = self.values[first * width..last * width].to_vec();
        Some(Self { tensor, width, elements, changed: Some(indices), values, is_read: false })
    }

    /// The patch to `new`, whatever the tensor has from `start` on.
    pub(super) fn all(tensor: usize, width: usize, start: u64, new: &[u8]) -> Option<Self> {
        (!new.is_empty()).then(|| Self::whole(tensor, width_of(width, start, new), start, new))
    }

    /// New bytes for all of a run.
    fn whole(tensor: usize, width: usize, start: u64, new: &[u8]) -> Self {
        let elements = start / width as u64..(start + new.len() as u64) / width as u64;
        Self { tensor, width, elements, changed: None, values: new.to_vec(), is_read: false }
    }

    /// Index of the tensor, in the order in which [`TensorFollower::new`](super::TensorFollower::new) got them.
    pub fn tensor(&self) -> usize {
        self.tensor
    }

    /// Bytes of an element: 1, 2, 4 or 8.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The elements that it covers, counted through the whole tensor. Patches do not overlap.
    pub fn elements(&self) -> Range<u64> {
        self.elements.clone()
    }

    /// The elements that changed, counted through the whole tensor, ascending; `None` for all that it covers.
    pub fn indices(&self) -> Option<impl ExactSizeIterator<Item = u64> + '_> {
        let first = self.elements.start;
        self.changed.as_ref().map(|changed| changed.iter().map(move |&i| first + u64::from(i)))
    }

    /// The new bytes of these elements, one after the other.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The bytes that it covers.
    pub(super) fn bytes(&self) -> Range<usize> {
        let byte = |element: u64| element as usize * self.width;
        byte(self.elements.start)..byte(self.elements.end)
    }

    /// Writes the new values; `out` is the bytes that it covers.
    pub(super) fn apply(&self, out: &mut [u8]) {
        match &self.changed {
            None => out.copy_from_slice(&self.values),
            Some(changed) => of_width!(self.width, scatter(changed, &self.values, out)),
        }
    }
}

/// The width of elements in a run: of one that does not begin and end at elements, 1.
fn width_of(width: usize, start: u64, new: &[u8]) -> usize {
    let is_whole = |n: u64| n.is_multiple_of(width as u64);
    if is_whole(start) && is_whole(new.len() as u64) { width } else { 1 }
}

/// The memory of the lists of the update that was dropped last, for those of the next one: getting new pages takes longer than decoding.
#[derive(Debug, Default)]
pub(super) struct Spares {
    lists: Mutex<Vec<ChangedElements>>,
    /// Memory for copies of what the tensors hold.
    copies: Pool,
}

impl Spares {
    /// Memory for a list.
    fn take(&self) -> ChangedElements {
        self.lists.lock().expect("no panic while it is held").pop().unwrap_or_default()
    }

    /// Takes memory back that holds no list.
    fn put(&self, memory: ChangedElements) {
        self.lists.lock().expect("no panic while it is held").push(memory);
    }

    /// Replaces what is here by the memory of these, as far as lists were read into it.
    pub(super) fn replace(&self, patches: Vec<Patch>) {
        let lists = patches.into_iter().filter(|p| p.is_read).filter_map(|Patch { changed, values, .. }| {
            let mut list = ChangedElements::default();
            (list.indices, list.values) = (changed?, values);
            Some(list)
        });
        let lists = lists.collect();
        *self.lists.lock().expect("no panic while it is held") = lists;
    }
}

/// A part of a source.
struct Part<'a> {
    of: &'a dyn ReadAt,
    start: u64,
    len: u64,
}

/// Offsets that are translated at once.
const OFFSETS: usize = 256;

impl ReadAt for Part<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.of.read_exact_at(buf, self.start + offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_elements_at(&self, width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        let mut there = [0; OFFSETS];
        for (offsets, out) in offsets.chunks(OFFSETS).zip(out.chunks_mut(OFFSETS * width)) {
            let there = &mut there[..offsets.len()];
            there.iter_mut().zip(offsets).for_each(|(to, &offset)| *to = self.start + offset);
            self.of.read_elements_at(width, there, out)?;
        }
        Ok(())
    }
}

/// Appends the elements that differ. `first` is the index of the first element.
fn compare<const W: usize>(old: &[u8], new: &[u8], first: usize, changed: &mut Vec<u32>, values: &mut Vec<u8>) {
    let mut list = |old: &[u8], new: &[u8], first: usize| {
        let elements = old.as_chunks::<W>().0.iter().zip(new.as_chunks::<W>().0);
        for (i, (_, value)) in elements.enumerate().filter(|(_, (old, new))| old != new) {
            changed.push((first + i) as u32);
            values.extend_from_slice(value);
        }
    };
    let (old_lines, old_rest) = old.as_chunks::<LINE>();
    let (new_lines, new_rest) = new.as_chunks::<LINE>();
    for (i, (old, new)) in old_lines.iter().zip(new_lines).enumerate() {
        if old != new {
            list(old, new, first + i * (LINE / W));
        }
    }
    list(old_rest, new_rest, first + old_lines.len() * (LINE / W));
}

fn scatter<const W: usize>(changed: &[u32], values: &[u8], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<W>();
    for (&i, value) in changed.iter().zip(values.as_chunks::<W>().0) {
        out[i as usize] = *value;
    }
}

/// The list of marked elements, in place of what is there. `count`: how many they are.
fn gather<const W: usize>(marks: &[u64], count: usize, now: &[u8], list: &mut ChangedElements) {
    list.indices.clear();
    list.values.clear();
    list.indices.reserve_exact(count);
    list.values.reserve_exact(count * W);
    let (now, _) = now.as_chunks::<W>();
    for (word, &marks) in marks.iter().enumerate().filter(|(_, marks)| **marks != 0) {
        let mut left = marks;
        while left != 0 {
            let i = 64 * word + left.trailing_zeros() as usize;
            list.indices.push(i as u32);
            list.values.extend_from_slice(&now[i]);
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delta at level `fast`.
    fn delta(dtype: Dtype, old: &[u8], new: &[u8]) -> Bytes {
        let options = lmc::CompressOptions::default().with_level(lmc::Level::Fast).with_dtype(dtype);
        let mut delta = Vec::new();
        lmc::Compressor::new(&options).unwrap().compress(new, &[lmc::Base::new(old).unwrap()], &mut delta).unwrap();
        delta.into()
    }

    #[test]
    fn lists_get_the_memory_of_those_that_are_gone() {
        let spares = Spares::default();
        let old: Vec<u8> = (0..1u32 << 16).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let list = |at: &[usize]| {
            let mut new = old.clone();
            at.iter().for_each(|&i| new[2 * i] ^= 1);
            let delta = delta(Dtype::U16, &old, &new);
            let patch = Patch::listed(0, 2, &old, 0, old.len() as u64, &[delta], &spares).unwrap().unwrap();
            assert!(patch.indices().unwrap().eq(at.iter().map(|&i| i as u64)));
            patch
        };
        let long: Vec<usize> = (0..100).map(|i| 7 * i).collect();
        let (first, second) = (list(&long), list(&[3]));
        let memory = |patch: &Patch| patch.changed.as_ref().unwrap().as_ptr();
        let of_first = memory(&first);
        // None of these was read.
        let (whole, part) = (Patch::whole(0, 2, 0, &old), first.part(1, 0, 0..100).unwrap());
        let mut new = old.clone();
        new[8] ^= 1;
        let compared = Patch::between(0, 2, &old, 0, &new).unwrap().unwrap();
        // How it was made is no part of what it changes.
        assert_eq!(list(&[4]), compared);
        spares.replace(vec![second, first, whole, part, compared]);
        assert_eq!(spares.lists.lock().unwrap().len(), 2);
        // What is no list, or one of another width, leaves the memory where it is.
        let noise: Vec<u8> = old.iter().map(|b| b.wrapping_mul(77) ^ 0x5a).collect();
        let dense = delta(Dtype::U16, &old, &noise);
        assert_eq!(Patch::listed(0, 2, &old, 0, old.len() as u64, &[dense], &spares).unwrap(), None);
        assert_eq!(spares.lists.lock().unwrap().len(), 2);
        let third = list(&[5, 6]);
        assert_eq!(memory(&third), of_first);
        spares.replace(vec![third]);
        assert_eq!(spares.lists.lock().unwrap().len(), 1);
    }

    /// Bytes that are read only by copies.
    struct Copied<'a>(&'a [u8]);

    impl ReadAt for Copied<'_> {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_exact_at(buf, offset)
        }

        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
    }

    #[test]
    fn a_patch_makes_the_new_bytes_of_the_old() {
        let elements = PIECE / 4 + 1000;
        for width in [1, 2, 4, 8] {
            let len = elements * width;
            let old: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
            // No changes, one at either end, few, many, and all.
            for every in [usize::MAX, len, len - 1, 997, 64, 3, 1] {
                let mut new = old.clone();
                new.iter_mut().skip(usize::from(every == len - 1)).step_by(every).for_each(|b| *b ^= 0x40);
                if every == usize::MAX {
                    new.clone_from(&old);
                }
                let start = 3 * width;
                let patch = Patch::between(5, width, &old, start as u64, &new[start..]).unwrap();
                let copied = Patch::between(5, width, &Copied(&old), start as u64, &new[start..]).unwrap();
                assert_eq!(patch, copied);
                let differing: Vec<u64> = (3..elements)
                    .filter(|i| old[i * width..][..width] != new[i * width..][..width])
                    .map(|i| i as u64)
                    .collect();
                let Some(patch) = patch else {
                    assert!(differing.is_empty());
                    continue;
                };
                assert_eq!((patch.tensor(), patch.width(), patch.elements()), (5, width, 3..elements as u64));
                match patch.indices() {
                    Some(indices) => {
                        assert_eq!(indices.collect::<Vec<_>>(), differing);
                        assert!(patch.values().len() == differing.len() * width && differing.len() * (4 + width) < len);
                    }
                    None => assert!(patch.values() == &new[start..] && differing.len() * (4 + width) >= len - start),
                }
                let mut out = old.clone();
                patch.apply(&mut out[patch.bytes()]);
                assert!(out[start..] == new[start..], "width {width}, every {every}");
            }
        }
    }

    #[test]
    fn a_part_of_a_source_has_elements_of_its_own() {
        let old: Vec<u8> = (0..9000).map(|i| (i * i / 7) as u8).collect();
        for of in [&old as &dyn ReadAt, &Copied(&old)] {
            let part = Part { of, start: 6, len: 8994 };
            for every in [1, 2, 3, 100, 4000] {
                let offsets: Vec<u64> = (0..4497).step_by(every).map(|i| i * 2).collect();
                let expected: Vec<u8> =
                    offsets.iter().flat_map(|&o| old[6 + o as usize..][..2].iter().copied()).collect();
                let mut out = vec![0; offsets.len() * 2];
                part.read_elements_at(2, &offsets, &mut out).unwrap();
                assert!(out == expected, "every {every}");
            }
            assert!(part.read_elements_at(2, &[8994], &mut [0; 2]).is_err(), "behind the end");
        }
    }

    /// Whether a version changes an element.
    type Changes<'a> = &'a dyn Fn(usize, usize) -> bool;

    /// Versions, each with changes of the one before at some of its elements, and the deltas from one to the next.
    fn chain(versions: usize, width: usize, changes: impl Fn(usize, usize) -> bool) -> (Vec<Vec<u8>>, Vec<Bytes>) {
        let dtype = [Dtype::U8, Dtype::U16, Dtype::U32, Dtype::U64][width.ilog2() as usize];
        let mut all =
            vec![(0..(1u32 << 16) * width as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()];
        let mut deltas = Vec::new();
        for version in 1..=versions {
            let before: &Vec<u8> = &all[version - 1];
            let mut new = before.clone();
            new.chunks_mut(width).enumerate().filter(|(i, _)| changes(version, *i)).for_each(|(_, e)| e[0] ^= 1);
            deltas.push(delta(dtype, before, &new));
            all.push(new);
        }
        (all, deltas)
    }

    #[test]
    fn lists_of_several_versions_make_one_patch() {
        let spares = Spares::default();
        // Other elements in each version; the same ones, which go back and forth; none; a third of all in the end.
        let some = |version: usize, i: usize| i % 97 == version;
        let same = |_: usize, i: usize| i % 150 == 3;
        let many = |version: usize, i: usize| i % 33 == version;
        let none = |_: usize, _: usize| false;
        let cases: [(&str, Changes<'_>); 4] = [("some", &some), ("same", &same), ("none", &none), ("many", &many)];
        let mut whole = 0;
        for width in [1, 2, 4, 8] {
            for (name, changes) in cases {
                for versions in [2, 3, 12] {
                    let (all, deltas) = chain(versions, width, changes);
                    let (first, last) = (&all[0], &all[versions]);
                    let start = 2 * width;
                    let tensor = [&[7; 16][..start], first].concat();
                    let (at, len) = (start as u64, first.len() as u64);
                    let patch = Patch::listed(4, width, &tensor, at, len, &deltas, &spares).unwrap();
                    let patch = patch.unwrap_or_else(|| panic!("{name}, width {width}: no lists"));
                    assert_eq!((patch.tensor(), patch.width(), patch.bytes()), (4, width, start..tensor.len()));
                    let listed = (0..1 << 16).filter(|&i| (1..=versions).any(|version| changes(version, i))).count();
                    let is_list = listed * (4 + width) < first.len();
                    assert_eq!(patch.indices().map(|i| i.len()), is_list.then_some(listed), "{name}, width {width}");
                    whole += usize::from(!is_list);
                    let mut out = tensor.clone();
                    patch.apply(&mut out[patch.bytes()]);
                    assert!(out[start..] == last[..], "{name}, width {width}, {versions} versions");
                    assert!(out[..start] == tensor[..start]);
                    // Parts of it, as tensors have that share a block set.
                    let part = patch.part(9, 0, 10 * width..1000 * width).unwrap();
                    let mut out = first[10 * width..1000 * width].to_vec();
                    part.apply(&mut out[part.bytes()]);
                    assert!(out == last[10 * width..1000 * width], "{name}, width {width}");
                    spares.replace(vec![patch]);
                }
            }
        }
        assert!(whole > 0, "some are all bytes");
    }

    #[test]
    fn several_versions_of_which_one_is_no_list_are_none() {
        let spares = Spares::default();
        let (all, mut deltas) = chain(3, 2, |_, i| i % 100 == 0);
        let noise: Vec<u8> = all[0].iter().map(|b| b.wrapping_mul(77) ^ 0x5a).collect();
        deltas[1] = delta(Dtype::U16, &all[0], &noise);
        let listed = |deltas: &[Bytes]| Patch::listed(0, 2, &all[0], 0, all[0].len() as u64, deltas, &spares);
        assert_eq!(listed(&deltas).unwrap(), None);
        assert_eq!(spares.lists.lock().unwrap().len(), 1, "its memory is kept");
        // A damaged one is an error.
        let mut damaged = deltas[2].to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 4;
        assert!(listed(&[deltas[0].clone(), damaged.into()]).is_err());
    }

    #[test]
    fn a_list_has_parts() {
        let (changed, values) = (Some(vec![1, 4, 9]), vec![1, 1, 4, 4, 9, 9]);
        let list = Patch { tensor: 0, width: 2, elements: 0..10, changed, values, is_read: false };
        let part = |offset, range| list.part(7, offset, range);
        let of = |elements, changed: &[u32], values: &[u8]| {
            Some(Patch {
                tensor: 7,
                width: 2,
                elements,
                changed: Some(changed.into()),
                values: values.into(),
                is_read: false,
            })
        };
        assert_eq!(part(0, 0..20), of(0..10, &[1, 4, 9], &[1, 1, 4, 4, 9, 9]));
        assert_eq!(part(100, 8..18), of(50..55, &[0], &[4, 4]));
        assert_eq!(part(100, 10..18), of(50..54, &[], &[]));
        assert_eq!(part(2, 2..20), of(1..10, &[0, 3, 8], &[1, 1, 4, 4, 9, 9]));
        assert_eq!((part(1, 0..20), part(0, 1..20), part(0, 0..19)), (None, None, None));
        let all = Patch::whole(0, 2, 0, &[5; 20]).part(7, 100, 8..18);
        assert_eq!(all, Some(Patch::whole(7, 2, 100, &[5; 10])));
    }

    #[test]
    fn elements_that_are_no_whole_bytes_are_compared_as_bytes() {
        let widths = [Dtype::Bf16, Dtype::F32, Dtype::F64, Dtype::C64, Dtype::F4, Dtype::U8].map(width);
        assert_eq!(widths, [2, 4, 8, 8, 1, 1]);
    }
}
