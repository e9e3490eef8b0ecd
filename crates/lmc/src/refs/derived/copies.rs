//! Which tensors of a snapshot are copies of others in another precision. Stores compress each by itself.

use super::{Found, find};
use crate::block::{DerivedFrom, Recipe};
use crate::refs::base::Base;
use lmc_kernels::predict::derived::Number;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;
use lmc_layout::segment::Segment;

/// Finds tensors that are copies of others in another precision, cast or in blocks that have their scales: sets the index of the other one
/// for each tensor that has none, of the most precise first. None is a copy of a copy. Order and names do not matter.
/// `source` has the tensors at their offsets, which rise.
///
/// # Errors
/// `Io` when the size of the source is unknown.
pub fn copied_from(tensors: &[Segment], source: &dyn ReadAt, from: &mut [Option<usize>]) -> Result<()> {
    let size = source.size().map_err(|e| Error::io("cannot get the size of the input", e))?;
    for of in Number::FLOATS.into_iter().rev().map(|number| Some(number.dtype())) {
        let is_one = |i: &usize| tensors[*i].dtype == of && from[*i].is_none();
        let is_open = |i: usize| from[i].is_none() && ![of, Some(Dtype::F32)].contains(&tensors[i].dtype);
        if !(0..tensors.len()).any(is_open) {
            continue;
        }
        // All else is opaque.
        let (mut segments, mut end) = (vec![], 0);
        let opaque = |from: u64, to: u64| (from < to).then(|| Segment::opaque(from, to - from));
        for s in (0..tensors.len()).filter(is_one).map(|i| &tensors[i]) {
            segments.extend(opaque(end, s.offset));
            segments.push(s.clone());
            end = s.end();
        }
        if segments.is_empty() {
            continue;
        }
        segments.extend(opaque(end, size));
        let base = Base::of_segments(source, &segments)?;
        for (i, found) in find(tensors, &[&base], is_open, &mut |offset, buf| base.read(offset, buf)) {
            let offset = match found {
                Found::Cast(reference) => reference.offset,
                Found::Derived(DerivedFrom { recipe: Recipe::Cast(_) | Recipe::Blocks(..), offset, .. }) => offset,
                Found::Derived(_) => continue,
            };
            from[i] = Some(tensors.partition_point(|t| t.end() <= offset));
        }
    }
    Ok(())
}
