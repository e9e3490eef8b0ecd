//! The order of compression: chunks of 16-bit weights right after the chunks of the 32-bit weights that they are rounded from.

use std::collections::HashMap;
use std::ops::Range;

use lmc::Segment;

use super::input::Input;
use crate::chunks::Chunk;
use crate::error::{Error, Result};

/// A chunk of one of the files.
pub(super) struct Job<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) chunk: Chunk,
}

/// Chunks in the order of compression.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// They cover the jobs. One thread encodes a group: all chunks but the first are predicted from the first.
    pub(super) groups: Vec<Range<usize>>,
}

impl<'a> Plan<'a> {
    /// Plans the chunks of files with known segments.
    pub(super) fn new(files: Vec<(&'a Input<'a>, Vec<Segment>, Vec<Chunk>)>) -> Result<Self> {
        let wide = wide_of(&files)?;
        // Index of the chunks of tensors that others are rounded from.
        let mut leads: HashMap<(usize, usize, u64), usize> = HashMap::new();
        let mut chunks = Vec::new();
        for (file, (input, _, cut)) in files.into_iter().enumerate() {
            for chunk in cut {
                if let Some((segment, element)) = chunk.of {
                    leads.insert((file, segment, element), chunks.len());
                }
                let wide = chunk.of.and_then(|(s, element)| wide[file][s].map(|(file, s)| (file, s, element)));
                chunks.push((wide, Some(Job { input, chunk })));
            }
        }
        let mut following: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, (wide, _)) in chunks.iter().enumerate() {
            if let Some(&lead) = wide.as_ref().and_then(|w| leads.get(w)) {
                following.entry(lead).or_default().push(i);
            }
        }
        let follows: Vec<bool> = chunks.iter().map(|(wide, _)| wide.is_some_and(|w| leads.contains_key(&w))).collect();
        let mut plan = Self { jobs: Vec::with_capacity(chunks.len()), groups: vec![] };
        for lead in (0..chunks.len()).filter(|&i| !follows[i]) {
            let start = plan.jobs.len();
            for i in std::iter::once(lead).chain(following.remove(&lead).unwrap_or_default()) {
                plan.jobs.extend(chunks[i].1.take());
            }
            plan.groups.push(start..plan.jobs.len());
        }
        Ok(plan)
    }
}

/// For each file and segment, the file and segment of the tensor that it is rounded from.
type Wide = Vec<Vec<Option<(usize, usize)>>>;

/// Compares samples of all 32- and 16-bit tensors, as if the files were one.
fn wide_of(files: &[(&Input<'_>, Vec<Segment>, Vec<Chunk>)]) -> Result<Wide> {
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
