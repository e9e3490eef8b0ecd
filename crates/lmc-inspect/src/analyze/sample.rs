//! A sample of a checkpoint, for compressors that are too slow for all of it.

use std::collections::HashMap;
use std::ops::Range;

use lmc::internals::read_base;
use lmc::{Base, Dtype, Result, Segment};

use super::names::order_for;

/// Pieces of a sample.
const PIECES: u64 = 16;

/// Elements of a checkpoint's most common dtype, and their counterparts in the checkpoint before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// Their type.
    pub dtype: Dtype,
    /// Their bytes.
    pub new: Vec<u8>,
    /// As many bytes of the checkpoint before; `None` if there is none.
    pub old: Option<Vec<u8>>,
    /// How many evenly spread pieces they are.
    pub pieces: u64,
}

/// A tensor, and the one of the same name, dtype and shape before, in the first file that has one of its name.
struct Place<'s> {
    file: usize,
    segment: &'s Segment,
    before: Option<(usize, &'s Segment)>,
}

/// Takes about `bytes` bytes of a checkpoint, evenly spread over the tensors of its most common dtype; with an earlier checkpoint over those that
/// it has, too. `None` if there are none.
///
/// # Errors
/// When a file cannot be read.
pub fn sample(new: &[Base<'_>], old: &[Base<'_>], bytes: u64) -> Result<Option<Sample>> {
    let mut before: HashMap<&str, Vec<(usize, &Segment)>> = HashMap::new();
    for (i, (segment, name)) in old.iter().enumerate().flat_map(|(i, file)| named(file).map(move |s| (i, s))) {
        before.entry(name).or_default().push((i, segment));
    }
    let places = new.iter().enumerate().flat_map(|(file, base)| {
        let mut rank = vec![0; old.len()];
        order_for(base, old).into_iter().enumerate().for_each(|(place, i)| rank[i] = place);
        let before = &before;
        named(base).map(move |(segment, name)| {
            let all = before.get(name).into_iter().flatten();
            let same = |b: &&(usize, &Segment)| b.1.dtype == segment.dtype && b.1.shape == segment.shape;
            Place { file, segment, before: all.min_by_key(|b| rank[b.0]).filter(same).copied() }
        })
    });
    let places: Vec<Place<'_>> = places.filter(|p| old.is_empty() || p.before.is_some()).collect();
    let mut sizes: HashMap<Dtype, u64> = HashMap::new();
    for p in &places {
        *sizes.entry(p.segment.dtype.unwrap_or(Dtype::U8)).or_default() += p.segment.len;
    }
    let Some((&dtype, &total)) = sizes.iter().max_by_key(|(dtype, size)| (**size, **dtype)) else { return Ok(None) };
    let places: Vec<Place<'_>> = places.into_iter().filter(|p| p.segment.dtype == Some(dtype)).collect();
    let width = dtype.coding_width() as u64;
    let pieces = spread(total, bytes, width);
    let old_bytes = (!old.is_empty()).then(Vec::new);
    let mut sample = Sample { dtype, new: vec![], old: old_bytes, pieces: pieces.len() as u64 };
    for piece in pieces {
        let mut at = 0;
        for p in &places {
            let (from, to) = (piece.start.max(at), piece.end.min(at + p.segment.len));
            if from < to {
                let offset = from - at;
                let read = |file: &Base<'_>, s: &Segment, out: &mut Vec<u8>| {
                    let before = out.len();
                    out.resize(before + (to - from) as usize, 0);
                    read_base(file, s.offset + offset, &mut out[before..])
                };
                read(&new[p.file], p.segment, &mut sample.new)?;
                if let (Some(out), Some((file, s))) = (&mut sample.old, p.before) {
                    read(&old[file], s, out)?;
                }
            }
            at += p.segment.len;
        }
    }
    Ok(Some(sample))
}

/// The tensors of a file that have elements, and their names.
fn named<'f>(file: &'f Base<'_>) -> impl Iterator<Item = (&'f Segment, &'f str)> {
    let tensors = file.segments().iter().filter(|s| s.dtype.is_some() && s.len > 0);
    tensors.filter_map(|s| Some((s, s.name.as_deref()?)))
}

/// The pieces of a sample of about `bytes` of `total` bytes, evenly spread, each of the same multiple of `width` bytes,
/// and none overlapping another: one if all bytes are wanted, else 16 unless there is room for fewer.
fn spread(total: u64, bytes: u64, width: u64) -> Vec<Range<u64>> {
    let wanted = if bytes >= total { 1 } else { PIECES };
    let piece = (bytes.min(total) / wanted).max(width).next_multiple_of(width).min(total);
    let pieces = (total / piece.max(1)).clamp(1, wanted);
    let starts = (0..pieces).map(|i| (total - piece) / (pieces - 1).max(1) * i);
    starts.map(|start| start - start % width).map(|start| start..start + piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_spread_and_belong_together() {
        let n = 10_000u32;
        let raw: Vec<u8> = (0..n).flat_map(u32::to_le_bytes).collect();
        let name = |i: u64| Some(format!("t{i}").as_str().into());
        let segment = |i: u64| Segment::new(name(i), Some(Dtype::U32), [1000].into_iter().collect(), 4000 * i, 4000);
        let segments: Vec<Segment> = (0..10).map(|i| segment(i).unwrap()).collect();
        let new = [Base::of_segments(&raw[..], &segments).unwrap()];
        let moved: Vec<u8> = (0..n).flat_map(|i| (i + 7).to_le_bytes()).collect();
        let old = [Base::of_segments(&moved[..], &segments).unwrap()];
        let s = sample(&new, &old, 4000).unwrap().unwrap();
        assert_eq!((s.dtype, s.pieces, s.new.len()), (Dtype::U32, 16, 16 * 252));
        let values =
            |bytes: &[u8]| bytes.chunks(4).map(|e| u32::from_le_bytes(e.try_into().unwrap())).collect::<Vec<_>>();
        let (new_values, old_values) = (values(&s.new), values(s.old.as_ref().unwrap()));
        assert!(new_values.iter().zip(&old_values).all(|(a, b)| a + 7 == *b) && new_values.is_sorted());
        assert!(new_values[0] == 0 && *new_values.last().unwrap() > n - 100);
        let all = sample(&new, &[], 1 << 30).unwrap().unwrap();
        assert_eq!((all.new, all.old, all.pieces), (raw.clone(), None, 1));
        assert!(sample(&[], &[], 100).unwrap().is_none());
        // No piece is smaller than an element, and none overlaps another.
        for bytes in [0, 1, 40, 63, 39_999] {
            let s = sample(&new, &[], bytes).unwrap().unwrap();
            let v = values(&s.new);
            assert!(!v.is_empty() && v.is_sorted_by(|a, b| a < b), "{bytes}: {v:?}");
        }
        let small = [Base::of_segments(&raw[..4000], &segments[..1]).unwrap()];
        let tiny = [Base::new(&raw[..24]).unwrap()];
        assert!(sample(&tiny, &[], 20).unwrap().is_none());
        assert_eq!(sample(&small, &[], 3999).unwrap().unwrap().new.len(), 15 * 252);
    }

    #[test]
    fn files_of_ranks_are_sampled_beside_those_of_the_same_rank() {
        let segment = Segment::new(Some("w".into()), Some(Dtype::U8), [8].into_iter().collect(), 0, 8).unwrap();
        let segments = [segment];
        let file = |name: &str, value: u8| {
            let raw = Box::leak(Box::new([value; 8]));
            Base::of_segments(&raw[..], &segments).unwrap().with_name(name)
        };
        let old = [file("s1/model", 1), file("s1/rank0", 2), file("s1/rank1", 3), file("s2/rank1.lmc", 4)];
        for (new, first) in [("s2/rank0.lmc", 2), ("s3/rank1", 3), ("s2/rank1", 4), ("s1/model", 1), ("other", 1)] {
            let s = sample(&[file(new, 9)], &old, 8).unwrap().unwrap();
            assert_eq!((s.new, s.old), (vec![9; 8], Some(vec![first; 8])), "{new}");
        }
    }
}
