//! What is compressed, in which order: chunks of 16-bit weights right after the chunks of the 32-bit weights that they are rounded from.

use std::cmp::Reverse;
use std::collections::HashMap;

use lmc::Segment;

use super::input::Input;
use super::repeats;
use crate::chunks::{Chunk, Range, cut};
use crate::error::{Error, Result};
use crate::ids::Hash;

/// A chunk of one of the files.
pub(super) struct Job<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) chunk: Chunk,
    /// Which of its segments are rounded from the first chunk of the group: by offset of the 32-bit one in that chunk.
    pub(super) rounded: HashMap<u64, usize>,
    /// Small tensors of the chunk that stand for those of other files, which are not read again: place and hash.
    pub(super) repeated: Vec<(Range, Hash)>,
}

/// A small tensor that another file has, too.
pub(super) struct Repeat<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) range: Range,
    /// Index of the job that has its bytes, and their offset in the chunk.
    pub(super) job: usize,
    pub(super) first: u64,
}

/// Chunks in the order of compression.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// They cover the jobs. One thread encodes a group: all chunks but the first are predicted from the first.
    pub(super) groups: Vec<std::ops::Range<usize>>,
    pub(super) repeats: Vec<Repeat<'a>>,
}

/// A file with its segments.
pub(super) type Planned<'a> = (&'a Input<'a>, Vec<Segment>);

impl<'a> Plan<'a> {
    /// Plans the chunks of files with known segments.
    pub(super) fn new(files: &[Planned<'a>]) -> Result<Self> {
        let repeats = repeats::find(files)?;
        let (mut jobs, mut file_of) = (Vec::new(), Vec::new());
        // Index of the chunks of large tensors, by file, segment and first element; and of those of small ones, with the number there.
        let (mut large, mut small) = (HashMap::new(), HashMap::new());
        for (file, (input, segments)) in files.iter().enumerate() {
            let chunks =
                cut(&input.name, segments, |i| repeats[file].contains_key(&i)).map_err(|e| e.at(&input.name))?;
            for chunk in chunks {
                match chunk.of {
                    Some((segment, element)) => {
                        large.insert((file, segment, element), jobs.len());
                    }
                    None => small.extend(chunk.numbers.iter().enumerate().map(|(k, &i)| ((file, i), (jobs.len(), k)))),
                }
                file_of.push(file);
                jobs.push(Job { input, chunk, rounded: HashMap::new(), repeated: vec![] });
            }
        }
        let wide = wide_of(files)?;
        let mut leads: Vec<Option<usize>> = vec![None; jobs.len()];
        let mut followed = vec![false; jobs.len()];
        for i in 0..jobs.len() {
            let chunk = &jobs[i].chunk;
            let file = file_of[i];
            let mut found: Vec<(usize, u64, usize)> = Vec::new();
            for (own, &number) in chunk.numbers.iter().enumerate() {
                let Some(place) = wide[file][number] else { continue };
                let place = repeats[place.0].get(&place.1).map_or(place, |of| of.0);
                found.extend(match chunk.of {
                    Some((_, element)) => large.get(&(place.0, place.1, element)).map(|&lead| (lead, 0, own)),
                    None => small.get(&place).map(|&(lead, k)| (lead, jobs[lead].chunk.segments[k].offset, own)),
                });
            }
            // The chunk that most of it is rounded from, and at least half. A pack that is itself rounded leads none.
            let mut votes: HashMap<usize, u64> = HashMap::new();
            found.iter().for_each(|&(lead, _, own)| *votes.entry(lead).or_default() += chunk.segments[own].len);
            let best = votes.into_iter().max_by_key(|&(lead, bytes)| (bytes, Reverse(lead)));
            if let Some((lead, bytes)) = best
                && bytes >= chunk.len().div_ceil(2)
                && lead != i
                && leads[lead].is_none()
                && !followed[i]
            {
                leads[i] = Some(lead);
                followed[lead] = true;
                let rounded = found.iter().filter(|f| f.0 == lead).map(|&(_, offset, own)| (offset, own));
                jobs[i].rounded = rounded.collect();
            }
        }
        let mut found = Vec::new();
        for (file, (input, segments)) in files.iter().enumerate() {
            for (&i, (of, hash)) in &repeats[file] {
                let s = &segments[i];
                let (job, k) = small[of];
                let first = jobs[job].chunk.segments[k].offset;
                jobs[job].repeated.push((Range { offset: first, len: s.len }, *hash));
                found.push(Repeat { input, range: Range { offset: s.offset, len: s.len }, job, first });
            }
        }
        Ok(Self::in_order(jobs, &leads, found))
    }

    /// Puts those that follow another one behind it.
    fn in_order(jobs: Vec<Job<'a>>, leads: &[Option<usize>], repeats: Vec<Repeat<'a>>) -> Self {
        let mut following: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, lead) in leads.iter().enumerate() {
            if let Some(lead) = lead {
                following.entry(*lead).or_default().push(i);
            }
        }
        let n = jobs.len();
        let mut jobs: Vec<_> = jobs.into_iter().map(Some).collect();
        let mut number = vec![0; n];
        let mut plan = Self { jobs: Vec::with_capacity(n), groups: vec![], repeats };
        for lead in (0..n).filter(|&i| leads[i].is_none()) {
            let start = plan.jobs.len();
            for i in std::iter::once(lead).chain(following.remove(&lead).unwrap_or_default()) {
                number[i] = plan.jobs.len();
                plan.jobs.extend(jobs[i].take());
            }
            plan.groups.push(start..plan.jobs.len());
        }
        plan.repeats.iter_mut().for_each(|r| r.job = number[r.job]);
        plan
    }
}

/// For each file and segment, the file and segment of the tensor that it is rounded from.
type Wide = Vec<Vec<Option<(usize, usize)>>>;

/// Compares samples of all 32- and 16-bit tensors, as if the files were one.
fn wide_of(files: &[Planned<'_>]) -> Result<Wide> {
    let (mut tensors, mut numbers, mut starts, mut end) = (vec![], vec![], vec![], 0);
    for (file, (_, segments)) in files.iter().enumerate() {
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
    let mut wide: Wide = files.iter().map(|(_, segments)| vec![None; segments.len()]).collect();
    for (&(file, segment), found) in numbers.iter().zip(found) {
        wide[file][segment] = found.map(|i| numbers[i]);
    }
    Ok(wide)
}
