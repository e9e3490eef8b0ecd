//! Which of several snapshots the files of a new one are most like.

use std::cmp::Reverse;

use super::all_tensors::Planned;
use super::bases::Bases;
use super::choice::Choice;
use super::clocks::Clocks;
use super::encode::{Claims, Encoded, Encoder, Shared};
use super::input::Input;
use super::options::SaveOptions;
use super::plan::Plan;
use crate::error::Result;
use crate::objects::buffer::Pool;
use crate::objects::remote::Remote;
use crate::ops::previous::Previous;

/// Groups of chunks that are compressed against each snapshot: of the largest ones, in different places of the files.
const SAMPLES: usize = 3;

/// The one of some snapshots against which a sample of the files takes the fewest bytes; the first of equal ones.
///
/// # Errors
/// Those of reading the files, and the sets that they would be predicted from.
pub(crate) fn nearest(
    remote: &Remote,
    inputs: &[Input<'_>],
    candidates: Vec<Previous>,
    o: &SaveOptions,
) -> Result<Option<Previous>> {
    let files = inputs.iter().map(|input| Ok((input, super::begin(input)?.1)));
    let files: Vec<Planned<'_>> = files.collect::<Result<_>>()?;
    let mut best: Option<(u64, Previous)> = None;
    for candidate in candidates {
        let cost = cost(remote, inputs, &files, &candidate, o)?;
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, candidate));
        }
    }
    Ok(best.map(|(_, before)| before))
}

/// The bytes of a sample of the files, predicted from a snapshot.
fn cost(remote: &Remote, inputs: &[Input<'_>], files: &[Planned<'_>], from: &Previous, o: &SaveOptions) -> Result<u64> {
    let shards = from.snapshot.as_ref().map_or(&[][..], |s| &s.shards);
    let bases = Bases::new(remote, from.catalog.clone(), shards, inputs)?;
    let choice = Choice { bases: &bases, options: o };
    let plan = Plan::new(files, choice)?;
    let (clocks, buffers, claims) = (Clocks::default(), Pool::default(), Claims::default());
    let shared = Shared { remote, choice, cache: None, clocks: &clocks, buffers: &buffers };
    let mut encoder = Encoder::new(&shared, &claims)?;
    let mut cost = 0;
    for group in sample(&plan) {
        for encoded in encoder.encode(group.start, &plan.jobs[group])? {
            cost += match encoded {
                Encoded::New(new) => new.bytes.len() as u64,
                Encoded::Earlier(..) | Encoded::Repeated(_) => 0,
            };
        }
    }
    Ok(cost)
}

/// Some of the largest groups, which are the same for all snapshots that cut the files alike.
fn sample(plan: &Plan<'_>) -> Vec<std::ops::Range<usize>> {
    let len = |group: &std::ops::Range<usize>| plan.jobs[group.clone()].iter().map(|job| job.chunk.len()).sum::<u64>();
    let mut groups = plan.groups.clone();
    groups.sort_by_key(|group| Reverse(len(group)));
    let half = groups.first().map_or(0, len) / 2;
    groups.retain(|group| len(group) > half);
    groups.sort_by_key(|group| group.start);
    let step = groups.len().div_ceil(SAMPLES).max(1);
    groups.into_iter().step_by(step).collect()
}
