//! Small tensors that an earlier file of the same save has, too: they are stored once.
//!
//! Larger ones have block sets of their own, which are compared by their hashes. Small ones share sets with their
//! neighbours, which differ from file to file.

use std::collections::HashMap;

use lmc::Segment;

use super::input::Input;
use crate::chunks::cut::is_small;
use crate::error::Result;
use crate::format::ids::Hash;
use crate::objects::buffer::Buffer;

/// Naming the place of fewer bytes costs more than storing them again.
const MIN: u64 = 64;

/// Index of a file, and of a segment of it.
pub(super) type Place = (usize, usize);

/// For each file, by number of the segment: the tensor of an earlier file with the same bytes, and their hash. That one is in no list
/// itself.
pub(super) type Repeats = Vec<HashMap<usize, (Place, Hash)>>;

/// Compares hashes of all small tensors whose lengths occur in several files. Tensors of one file are not compared: the
/// first files of a run, where many tensors are zero, would be cut differently from later ones.
pub(super) fn find(files: &[(&Input<'_>, Vec<Segment>)]) -> Result<Repeats> {
    let small = |(_, s): &(usize, &Segment)| s.len >= MIN && is_small(s);
    // For each length the file that has it; `None` for several.
    let mut lengths: HashMap<u64, Option<usize>> = HashMap::new();
    for (file, (_, segments)) in files.iter().enumerate() {
        for (_, s) in segments.iter().enumerate().filter(small) {
            let of = lengths.entry(s.len).or_insert(Some(file));
            *of = of.filter(|&f| f == file);
        }
    }
    let mut first: HashMap<Hash, Place> = HashMap::new();
    let mut repeats = vec![HashMap::new(); files.len()];
    let mut buf = Buffer::default();
    for (file, (input, segments)) in files.iter().enumerate() {
        for (i, s) in segments.iter().enumerate().filter(small).filter(|(_, s)| lengths[&s.len].is_none()) {
            let raw = match input.source.slice_at(s.offset, s.len as usize) {
                Some(raw) => raw,
                None => {
                    input.read_exact_at(buf.reset(s.len as usize), s.offset).map_err(|e| e.at(&input.name))?;
                    &buf
                }
            };
            let hash = Hash::of(raw);
            let place = *first.entry(hash).or_insert((file, i));
            if place.0 != file {
                repeats[file].insert(i, (place, hash));
            }
        }
    }
    Ok(repeats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc::Dtype;

    #[test]
    fn small_tensors_of_other_files_are_found() {
        let tensors = |lens: &[u64]| -> Vec<Segment> {
            let mut at = 0;
            let tensor = |&len: &u64| {
                at += len;
                Segment::new(Some("t".into()), Some(Dtype::U8), [len].into(), at - len, len).unwrap()
            };
            lens.iter().map(tensor).collect()
        };
        let bytes = |parts: &[(u8, usize)]| parts.iter().flat_map(|&(b, n)| vec![b; n]).collect::<Vec<u8>>();
        let a = bytes(&[(1, 100), (1, 100), (2, 300), (3, 70_000), (4, 8)]);
        let b = bytes(&[(2, 300), (5, 100), (3, 70_000), (4, 8), (1, 100)]);
        let c = bytes(&[(1, 100), (5, 100)]);
        let inputs = [Input::new("a", &a), Input::new("b", &b), Input::new("c", &c)];
        let segments =
            [tensors(&[100, 100, 300, 70_000, 8]), tensors(&[300, 100, 70_000, 8, 100]), tensors(&[100, 100])];
        let files: Vec<_> = inputs.iter().zip(&segments).map(|(i, s)| (i, s.clone())).collect();
        let found: Vec<HashMap<usize, Place>> = find(&files)
            .unwrap()
            .into_iter()
            .map(|f| f.into_iter().map(|(i, (place, _))| (i, place)).collect())
            .collect();
        let expected = [vec![], vec![(0, (0, 2)), (4, (0, 0))], vec![(0, (0, 0)), (1, (1, 1))]];
        assert_eq!(found, expected.map(HashMap::from_iter));
        // Nothing is read of a single file.
        let short = [Input::new("a", &c)];
        assert!(find(&[(&short[0], segments[0].clone())]).unwrap()[0].is_empty());
        assert!(find(&[(&short[0], segments[0].clone()), (&inputs[1], segments[1].clone())]).is_err());
    }
}
