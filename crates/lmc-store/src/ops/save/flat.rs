//! 16-bit weights that are rounded from parts of flat 32-bit tensors, as optimisers keep those of many parameters: which of them are
//! compressed after which chunk of those.
//!
//! Flat tensors are cut as usual, so that their deltas are those of any other tensor. The 16-bit weights are cut at the
//! ends of their chunks.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::all_tensors::{Together, Wide};
use super::repeats::{Place, Repeats};
use super::rounded::rounded_parts;
use crate::chunks::cut::{Range, cuts_of, is_small};
use crate::error::Result;

/// Fewer bytes of 16-bit weights are no chunk of their own.
const LEAST: u64 = 1 << 13;

/// Parts of 16-bit tensors of one file that are predicted from one chunk.
pub(super) struct Rounded {
    pub(super) file: usize,
    /// The flat tensor; and, if it is not small, the element with which its chunk begins.
    pub(super) of: (Place, Option<u64>),
    /// Index of each one's segment, and its bytes there.
    pub(super) parts: Vec<(usize, Range)>,
    /// Where the 32-bit elements of each part are, in bytes from the beginning of that chunk or small tensor on. They do not overlap.
    pub(super) offsets: Vec<u64>,
}

/// For each file, by number of the segment, the bytes that its own chunks do not hold: ranges in order.
pub(super) type Elsewhere = Vec<HashMap<usize, Vec<Range>>>;

/// Finds the 16-bit weights that are rounded from chunks of flat tensors; and the bytes that are stored there, or in
/// other files. `referred` lists the tensors that repeats refer to.
pub(super) fn find(
    together: &Together<'_>,
    repeats: &Repeats,
    referred: &HashSet<Place>,
    wide: &Wide,
) -> Result<(Elsewhere, Vec<Rounded>)> {
    let files = together.files;
    let whole = |(file, of): (usize, &HashMap<usize, (Place, _)>)| {
        of.keys().map(|&i| (i, vec![Range { offset: 0, len: together.segment((file, i)).len }])).collect()
    };
    let mut elsewhere: Elsewhere = repeats.iter().enumerate().map(whole).collect();
    let mut groups = vec![vec![]; files.len()];
    for (i, &(file, segment)) in together.places.iter().enumerate() {
        if wide[file][segment].is_none() {
            groups[file].push(i);
        }
    }
    let found = rounded_parts(&together.tensors, &groups, |offset, buf| together.read(offset, buf))?;
    // By flat tensor, the beginning of its chunk, file, dtype and layer: by offset of the 32-bit elements.
    let mut chunks: BTreeMap<_, BTreeMap<u64, (usize, Range)>> = BTreeMap::new();
    let mut cuts: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
    for part in found {
        let (place, flat) = (together.places[part.tensor], together.places[part.flat]);
        let ((file, segment), dtype) = (place, together.segment(place).dtype);
        if repeats[file].contains_key(&segment) {
            continue;
        }
        let (at, end) = (4 * part.at, 4 * (part.at + part.elements));
        let of = together.segment(flat);
        let cuts = cuts.entry(part.flat).or_insert_with(|| match of.dtype {
            Some(dtype) if !is_small(of) => cuts_of(of.len, dtype).collect(),
            _ => vec![(0, of.len)],
        });
        let flat = repeats[flat.0].get(&flat.1).map_or(flat, |of| of.0);
        for &(start, len) in &cuts[cuts.partition_point(|c| c.0 + c.1 <= at)..] {
            if start >= end {
                break;
            }
            let (from, to) = (at.max(start), end.min(start + len));
            let range = Range { offset: 2 * part.first + (from - at) / 2, len: (to - from) / 2 };
            // Tensors that other files refer to are not cut.
            if !referred.contains(&place) || range.len == together.segment(place).len {
                let first = (!is_small(of)).then_some(start / 4);
                let chunk = chunks.entry((flat, first, file, dtype, part.layer)).or_default();
                chunk.entry(from - start).or_insert((segment, range));
            }
        }
    }
    let mut all = vec![];
    for ((flat, first, file, ..), parts) in chunks {
        let mut rounded = Rounded { file, of: (flat, first), parts: vec![], offsets: vec![] };
        // Each name has one place, and each place one name, though equal flat tensors may be stored once.
        let (mut names, mut end) = (HashSet::new(), 0);
        for (offset, (segment, range)) in parts {
            if offset >= end && names.insert(segment) {
                end = offset + 2 * range.len;
                rounded.offsets.push(offset);
                rounded.parts.push((segment, range));
            }
        }
        if rounded.parts.iter().map(|p| p.1.len).sum::<u64>() >= LEAST {
            for &(segment, range) in &rounded.parts {
                elsewhere[file].entry(segment).or_default().push(range);
            }
            all.push(rounded);
        }
    }
    elsewhere.iter_mut().flat_map(HashMap::values_mut).for_each(|ranges| ranges.sort_by_key(|r| r.offset));
    Ok((elsewhere, all))
}
