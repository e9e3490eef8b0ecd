//! Plans which chunks are compressed, in which order: chunks of copies in another precision right after those of the
//! weights that they are rounded or quantised from.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::all_tensors::{Planned, Together, unit_of};
use super::choice::Choice;
use super::flat;
use super::input::Input;
use super::moments;
use super::recut;
use super::repeats::{self, Place};
use crate::chunks::cut::{Chunk, Range, cut, cuts_of, is_small};
use crate::error::Result;
use crate::format::ids::Hash;

/// A chunk of one of the files.
pub(super) struct Job<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) chunk: Chunk,
    /// The number in the group of the chunk that it is predicted from, if there is one.
    pub(super) lead: Option<usize>,
    /// Which of its segments are rounded from that: by offset of the elements in that chunk.
    pub(super) rounded: HashMap<u64, usize>,
    /// Elements of a row there, if it is of a single tensor: rows may stand in another order.
    pub(super) row: Option<u64>,
    /// Small tensors of the chunk that stand for those of other files, which are not read again: place and hash.
    pub(super) repeated: Vec<(Range, Hash)>,
}

impl<'a> Job<'a> {
    fn new(input: &'a Input<'a>, chunk: Chunk) -> Self {
        Self { input, chunk, lead: None, rounded: HashMap::new(), row: None, repeated: vec![] }
    }
}

/// A small tensor that another file has, too.
pub(super) struct Repeat<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) range: Range,
    /// Index of the job that has its bytes, and their offset in the chunk.
    pub(super) job: usize,
    pub(super) first: u64,
    pub(super) elements: u64,
}

/// Chunks in the order of compression.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// They cover the jobs. One thread encodes a group. Those that others are predicted from come first: one, or the parts of one
    /// parameter that a step of an optimizer changes ([`moments::find`]), averages of gradients first.
    pub(super) groups: Vec<std::ops::Range<usize>>,
    pub(super) repeats: Vec<Repeat<'a>>,
}

impl<'a> Plan<'a> {
    /// Plans the chunks of files with known segments.
    pub(super) fn new(files: &[Planned<'a>], choice: Choice<'_>) -> Result<Self> {
        let repeats = repeats::find(files)?;
        let together = Together::new(files)?;
        let wide = together.rounded_from()?;
        let referred: HashSet<Place> = repeats.iter().flat_map(HashMap::values).map(|of| of.0).collect();
        let (mut elsewhere, rounded_of_flat) = flat::find(&together, &repeats, &referred, &wide)?;
        let fixed = |place: Place| wide[place.0][place.1].is_some() || referred.contains(&place);
        let recut = recut::find(files, choice, fixed, &mut elsewhere)?;
        let flat: HashSet<Place> = rounded_of_flat.iter().map(|f| f.of.0).collect();
        // What is rounded is cut like what it is rounded from.
        let ends = |place: Place| {
            let of = wide[place.0][place.1].unwrap_or(place);
            let (s, wide) = (together.segment(place), together.segment(of));
            let (bits, elements) = if of == place { (unit_of(s).0, 1) } else { unit_of(s) };
            // Blocks are fewer than the elements: without ends they would be cut otherwise, or not be alone.
            let is_copy = elements > 1 && !is_small(wide);
            if is_small(s) && !is_copy {
                return vec![];
            }
            let mut ends = match flat.contains(&of) {
                true => vec![],
                false => choice.bases.ends(&files[of.0].0.name, wide),
            };
            if let (true, true, Some(dtype)) = (is_copy, ends.is_empty(), wide.dtype) {
                ends.extend(cuts_of(wide.len, dtype).map(|(start, len)| (start + len) * 8 / u64::from(dtype.bits())));
            }
            let whole = ends.into_iter().filter(|n| n.is_multiple_of(elements)).map(|n| n / elements * bits);
            whole.filter(|at| at.is_multiple_of(8)).map(|at| at / 8).collect()
        };
        let (mut jobs, mut file_of) = (Vec::new(), Vec::new());
        // Index of the chunks of large tensors, by file, segment and first element; and of those of small ones, with the number there.
        let (mut large, mut small) = (HashMap::new(), HashMap::new());
        for (file, (input, segments)) in files.iter().enumerate() {
            let elsewhere = |i| elsewhere[file].get(&i).map_or(&[][..], |ranges| ranges);
            let ends = |i| ends((file, i));
            for chunk in cut(&input.name, segments, elsewhere, ends).map_err(|e| e.at(&input.name))? {
                match chunk.of {
                    Some((segment, element)) => {
                        large.insert((file, segment, element), jobs.len());
                    }
                    None => small.extend(chunk.numbers.iter().enumerate().map(|(k, &i)| ((file, i), (jobs.len(), k)))),
                }
                file_of.push(file);
                jobs.push(Job::new(input, chunk));
            }
        }
        for (file, chunk) in recut {
            file_of.push(file);
            jobs.push(Job::new(files[file].0, chunk));
        }
        let n = jobs.len() + rounded_of_flat.len();
        let (mut leads, mut followed): (Vec<Option<usize>>, _) = (vec![None; n], vec![false; n]);
        for f in rounded_of_flat {
            let (input, segments) = &files[f.file];
            let chunk = Chunk::of_parts(&input.name, segments, &f.parts).map_err(|e| e.at(&input.name))?;
            small.extend(chunk.numbers.iter().enumerate().map(|(k, &i)| ((f.file, i), (jobs.len(), k))));
            let lead = match f.of {
                (place, Some(element)) => large.get(&(place.0, place.1, element)).map(|&lead| (lead, 0)),
                (place, None) => small.get(&place).map(|&(lead, k)| (lead, jobs[lead].chunk.segments[k].offset)),
            };
            let mut rounded = HashMap::new();
            if let Some((lead, offset)) = lead {
                leads[jobs.len()] = Some(lead);
                followed[lead] = true;
                rounded = f.offsets.iter().enumerate().map(|(own, o)| (offset + o, own)).collect();
            }
            file_of.push(f.file);
            jobs.push(Job { rounded, ..Job::new(input, chunk) });
        }
        for i in 0..n {
            let chunk = &jobs[i].chunk;
            let file = file_of[i];
            let mut found: Vec<(usize, u64, usize)> = Vec::new();
            let mut row = None;
            for (own, &number) in chunk.numbers.iter().enumerate() {
                let Some(place) = wide[file][number] else { continue };
                row = together.segment(place).shape.last().copied();
                let place = repeats[place.0].get(&place.1).map_or(place, |of| of.0);
                found.extend(match chunk.of {
                    Some((_, n)) => {
                        let element = n * unit_of(&chunk.segments[own]).1;
                        large.get(&(place.0, place.1, element)).map(|&lead| (lead, 0, own))
                    }
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
                (jobs[i].rounded, jobs[i].row) = (rounded.collect(), row);
            }
        }
        let mut found = Vec::new();
        for (file, (input, segments)) in files.iter().enumerate() {
            for (&i, (of, hash)) in &repeats[file] {
                let s = &segments[i];
                let (job, k) = small[of];
                let first = jobs[job].chunk.segments[k].offset;
                jobs[job].repeated.push((Range { offset: first, len: s.len }, *hash));
                let elements = s.dtype.map_or(0, |d| s.len * 8 / u64::from(d.bits()));
                found.push(Repeat { input, range: Range { offset: s.offset, len: s.len }, job, first, elements });
            }
        }
        let chunks: Vec<&Chunk> = jobs.iter().map(|job| &job.chunk).collect();
        let parameters = moments::find(files, &chunks, &file_of, &leads, choice);
        Ok(Self::in_order(jobs, &leads, &parameters, found))
    }

    /// Puts the parts of parameters together, and behind them, or others, those that follow them.
    fn in_order(
        jobs: Vec<Job<'a>>,
        leads: &[Option<usize>],
        parameters: &[Vec<usize>],
        repeats: Vec<Repeat<'a>>,
    ) -> Self {
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
        let in_parameter: HashSet<usize> = parameters.iter().flatten().copied().collect();
        let mut first: Vec<Vec<usize>> = parameters.to_vec();
        first.extend((0..n).filter(|i| leads[*i].is_none() && !in_parameter.contains(i)).map(|i| vec![i]));
        first.sort_unstable();
        for first in first {
            let start = plan.jobs.len();
            let followers = first.iter().enumerate();
            let followers =
                followers.flat_map(|(lead, i)| following.remove(i).into_iter().flatten().map(move |i| (i, lead)));
            let followers: Vec<(usize, usize)> = followers.collect();
            for (i, lead) in
                first.into_iter().map(|i| (i, None)).chain(followers.into_iter().map(|(i, l)| (i, Some(l))))
            {
                number[i] = plan.jobs.len();
                plan.jobs.extend(jobs[i].take().map(|job| Job { lead, ..job }));
            }
            plan.groups.push(start..plan.jobs.len());
        }
        plan.repeats.iter_mut().for_each(|r| r.job = number[r.job]);
        plan
    }
}
