//! 16-bit weights that were cut by flat tensors in the snapshot before ([`super::flat`]), and are saved without these
//! now: they are cut in the same way, so that they find their bases.

use std::collections::{BTreeMap, HashMap, HashSet};

use lmc::Segment;

use super::all_tensors::Planned;
use super::choice::Choice;
use super::flat::Elsewhere;
use super::repeats::Place;
use crate::chunks::catalog::SetId;
use crate::chunks::cut::{Chunk, Range};
use crate::error::Result;

/// The chunks of each file that are cut so. Their bytes are added to `elsewhere`. `fixed`: tensors that are not cut.
pub(super) fn find(
    files: &[Planned<'_>],
    choice: Choice<'_>,
    fixed: impl Fn(Place) -> bool,
    elsewhere: &mut Elsewhere,
) -> Result<Vec<(usize, Chunk)>> {
    let mut found = vec![];
    for (file, (input, segments)) in files.iter().enumerate() {
        // The parts in each set: offset there, number of the segment, and range.
        let mut sets: BTreeMap<SetId, Vec<(u64, usize, Range)>> = BTreeMap::new();
        for (i, s) in segments.iter().enumerate().filter(|(i, s)| is_narrow(s) && !fixed((file, *i))) {
            if !elsewhere[file].contains_key(&i) {
                for part in choice.bases.cuts(&input.name, s) {
                    sets.entry(part.set).or_default().push((part.first, i, part.range));
                }
            }
        }
        for mut parts in sets.into_values() {
            parts.sort_unstable_by_key(|p| p.0);
            // Each name has one place, and each place one tensor.
            let (mut names, mut end) = (HashSet::new(), 0);
            parts.retain(|&(first, i, range)| {
                let whole = range.offset.is_multiple_of(2) && range.len.is_multiple_of(2);
                let fits = whole && first >= end && names.insert(i);
                end = if fits { first + range.len } else { end };
                fits
            });
            if parts.is_empty() {
                continue;
            }
            let parts: Vec<_> = parts.into_iter().map(|(_, i, range)| (i, range)).collect();
            let chunk = Chunk::of_parts(&input.name, segments, &parts).map_err(|e| e.at(&input.name))?;
            if choice.choose(&chunk)?.is_some() {
                for (i, range) in parts {
                    elsewhere[file].entry(i).or_default().push(range);
                }
                found.push((file, chunk));
            }
        }
    }
    elsewhere.iter_mut().flat_map(HashMap::values_mut).for_each(|ranges| ranges.sort_by_key(|r| r.offset));
    Ok(found)
}

fn is_narrow(s: &Segment) -> bool {
    s.len > 0 && s.dtype.is_some_and(|d| d.bits() == 16)
}
