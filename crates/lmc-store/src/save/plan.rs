//! The order of compression: pieces of 16-bit weights right after the pieces of the 32-bit weights that they are rounded from.

use std::collections::HashMap;
use std::ops::Range;

use lmc::Segment;

use super::input::Input;
use crate::error::{Error, Result};
use crate::pieces::Piece;

/// A piece of one of the files.
pub(super) struct Job<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) piece: Piece,
}

/// Pieces in the order of compression.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// They cover the jobs. One thread encodes a group: all pieces but the first are predicted from the first.
    pub(super) groups: Vec<Range<usize>>,
}

impl<'a> Plan<'a> {
    /// Plans the pieces of files with known segments.
    pub(super) fn new(files: Vec<(&'a Input<'a>, Vec<Segment>, Vec<Piece>)>) -> Result<Self> {
        let wide = wide_of(&files)?;
        // Index of the pieces of tensors that others are rounded from.
        let mut leads: HashMap<(usize, usize, u64), usize> = HashMap::new();
        let mut pieces = Vec::new();
        for (file, (input, _, cut)) in files.into_iter().enumerate() {
            for piece in cut {
                if let Some((segment, element)) = piece.of {
                    leads.insert((file, segment, element), pieces.len());
                }
                let wide = piece.of.and_then(|(s, element)| wide[file][s].map(|(file, s)| (file, s, element)));
                pieces.push((wide, Some(Job { input, piece })));
            }
        }
        let mut following: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, (wide, _)) in pieces.iter().enumerate() {
            if let Some(&lead) = wide.as_ref().and_then(|w| leads.get(w)) {
                following.entry(lead).or_default().push(i);
            }
        }
        let follows: Vec<bool> = pieces.iter().map(|(wide, _)| wide.is_some_and(|w| leads.contains_key(&w))).collect();
        let mut plan = Self { jobs: Vec::with_capacity(pieces.len()), groups: vec![] };
        for lead in (0..pieces.len()).filter(|&i| !follows[i]) {
            let start = plan.jobs.len();
            for i in std::iter::once(lead).chain(following.remove(&lead).unwrap_or_default()) {
                plan.jobs.extend(pieces[i].1.take());
            }
            plan.groups.push(start..plan.jobs.len());
        }
        Ok(plan)
    }
}

/// For each file and segment, the file and segment of the tensor that it is rounded from.
type Wide = Vec<Vec<Option<(usize, usize)>>>;

/// Compares samples of all 32- and 16-bit tensors, as if the files were one.
fn wide_of(files: &[(&Input<'_>, Vec<Segment>, Vec<Piece>)]) -> Result<Wide> {
    let (mut tensors, mut numbers, mut starts, mut end) = (vec![], vec![], vec![], 0);
    for (file, (_, segments, _)) in files.iter().enumerate() {
        starts.push(end);
        for (i, s) in segments.iter().enumerate().filter(|(_, s)| s.dtype.is_some()) {
            tensors.push(
                Segment::new(s.name.clone(), s.dtype, s.shape.clone(), end + s.offset, s.len).map_err(Error::codec)?,
            );
            numbers.push((file, i));
        }
        end += segments.last().map_or(0, Segment::end);
    }
    let found = lmc::rounded_from(&tensors, |offset, buf| {
        let file = starts.partition_point(|&start| start <= offset) - 1;
        let input = files[file].0;
        input.read_exact_at(buf, offset - starts[file]).map_err(|e| e.at(&input.name))
    })?;
    let mut wide: Wide = files.iter().map(|(_, segments, _)| vec![None; segments.len()]).collect();
    for (&(file, segment), found) in numbers.iter().zip(found) {
        wide[file][segment] = found.map(|i| numbers[i]);
    }
    Ok(wide)
}
