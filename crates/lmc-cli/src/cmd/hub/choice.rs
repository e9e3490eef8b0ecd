//! Which files are compressed, and from which others each is predicted, by samples of their contents.
//!
//! Deltas are made only from files that are none: what is read takes one base at most. Of the checkpoints that can be
//! bases, one after the other becomes one, each time that from which the others are predicted with the fewest bytes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use lmc::{Base, CompressOptions, Dtype};

use super::cache::{Cache, Weights};
use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;
use crate::work::bases::Bases;
use crate::work::forecast::{self, Taken, estimates};

/// The most checkpoints that each is compared with.
const COMPARED: usize = 8;

/// Bits of the elements that are predicted from those of other dtypes.
const PLAIN: RangeInclusive<u32> = 16..=64;

/// A file to compress.
pub(super) struct Choice {
    pub(super) file: usize,
    /// The files that it may be predicted from.
    pub(super) bases: Vec<usize>,
    /// The size of its compressed file.
    pub(super) estimate: u64,
    /// Whether others are to be predicted from it.
    pub(super) is_base: bool,
}

impl Choice {
    /// Whether it is worth its trouble: of files that hardly shrink, those who know nothing of lmc keep the bytes.
    pub(super) fn is_worth_it(&self, raw_size: u64) -> bool {
        is_worth_it(self.estimate, raw_size)
    }
}

/// Whether a file of `size` bytes in place of one of `raw_size` saves a hundredth, and a block of the file system.
pub(super) fn is_worth_it(size: u64, raw_size: u64) -> bool {
    size.saturating_add((raw_size / 100).max(4096)) <= raw_size
}

/// Files that are loaded together.
struct Checkpoint {
    files: Vec<usize>,
    /// How many tensors it has of each number of elements; of those that are no plain numbers, with their dtype.
    tensors: HashMap<(u64, Option<Dtype>), u64>,
    elements: u64,
    /// What it takes with what was chosen so far.
    cost: u64,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Alone,
    /// Others are predicted from it.
    Base,
    /// It is predicted from another one.
    Of(usize),
    /// It is a delta, or has files that may not become bases.
    Never,
}

/// Looks at samples of files, which are to be compressed, and chooses. Bases come first. What cannot be read is said,
/// and left out.
pub(super) fn choose(cache: &Cache, files: &[usize], options: &CompressOptions, ui: &Ui) -> Vec<Choice> {
    let mut new: HashSet<usize> = files.iter().copied().filter(|&f| cache.files[f].compressed.is_none()).collect();
    let mut chooser = Chooser { cache, options, sizes: HashMap::new() };
    let mut sorted: Vec<usize> = new.iter().copied().collect();
    sorted.sort_unstable();
    let alone = sorted.iter().map(|&file| (file, None));
    for (file, failure) in chooser.sample(alone, |_| &[], ui) {
        ui.fail(&failure);
        new.remove(&file);
    }
    let mut all = chooser.checkpoints(&new);
    chooser.predict(&mut all, &new, ui);
    let mut choices: Vec<Choice> =
        sorted.into_iter().filter(|f| new.contains(f)).map(|f| chooser.of(f, &all)).collect();
    choices.sort_by_key(|choice| (!choice.is_base, choice.file));
    choices
}

struct Chooser<'a> {
    cache: &'a Cache,
    options: &'a CompressOptions,
    /// Estimated sizes of files, alone and from a checkpoint.
    sizes: HashMap<(usize, Option<usize>), u64>,
}

impl Chooser<'_> {
    /// Estimates the sizes of files, alone or from checkpoints, whose files are `files_of` them. Returns what failed.
    fn sample<'f>(
        &mut self,
        jobs: impl ExactSizeIterator<Item = (usize, Option<usize>)> + Clone,
        files_of: impl Fn(usize) -> &'f [usize],
        ui: &Ui,
    ) -> Vec<(usize, Failure)> {
        let progress = ui.progress("sampling", None);
        let taken = jobs.clone().map(|(file, from)| {
            let source = Source::open(&self.cache.files[file].path)?;
            let bases = from.map_or(Ok(Vec::new()), |from| open(self.cache, files_of(from)))?;
            Ok(Taken { source, bases })
        });
        let mut found = Vec::new();
        let sample = forecast::sample(taken.len());
        estimates(taken, self.options, sample, |estimate| {
            progress.at(0);
            found.push(estimate);
        });
        let mut failed = Vec::new();
        for (job, estimate) in jobs.zip(found) {
            match estimate {
                Ok(estimate) => _ = self.sizes.insert(job, estimate.compressed_size),
                Err(failure) => failed.push((job.0, failure)),
            }
        }
        failed
    }

    /// The checkpoints with files that are `new`, or that they may be predicted from.
    fn checkpoints(&self, new: &HashSet<usize>) -> Vec<Checkpoint> {
        let mut all: Vec<Checkpoint> = Vec::new();
        for files in self.cache.models.iter().flat_map(|model| &model.checkpoints) {
            let can_be_base = |&f: &usize| {
                let Weights { is_blob, compressed, .. } = &self.cache.files[f];
                *is_blob && (compressed.as_ref().is_some_and(|c| c.bases.is_empty()) || new.contains(&f))
            };
            let can_be_base = files.iter().all(can_be_base);
            let has_new = files.iter().any(|f| new.contains(f));
            if !(can_be_base || has_new) || all.iter().any(|known| known.files == *files) {
                continue;
            }
            let role = match (can_be_base, has_new) {
                (true, false) => Role::Base,
                (true, true) => Role::Alone,
                (false, _) => Role::Never,
            };
            let readable: Vec<usize> = files.iter().copied().filter(|&f| !self.cache.files[f].is_delta()).collect();
            // What cannot be read is no base.
            let Ok(bases) = open(self.cache, &readable) else { continue };
            let mut tensors = HashMap::new();
            for base in bases {
                for segment in base.segments() {
                    let Some(dtype) = segment.dtype else { continue };
                    // Bytes may be pairs of codes.
                    let of_one = if dtype == Dtype::U8 { 2 } else { 1 };
                    let elements = segment.shape.iter().fold(of_one, |n: u64, side| n.saturating_mul(*side));
                    let dtype = Some(dtype).filter(|d| d.is_block() || !PLAIN.contains(&d.bits()));
                    *tensors.entry((elements, dtype)).or_insert(0) += 1;
                }
            }
            let elements = sum(tensors.iter().map(|((elements, _), count)| elements.saturating_mul(*count)));
            let cost = files.iter().filter_map(|&f| self.sizes.get(&(f, None))).sum();
            all.push(Checkpoint { files: files.clone(), tensors, elements, cost, role });
        }
        all
    }

    /// Chooses the checkpoints that become bases, and what is predicted from each.
    fn predict(&mut self, all: &mut [Checkpoint], new: &HashSet<usize>, ui: &Ui) {
        let is_sampled = |f: &&usize| new.contains(f) && self.cache.files[**f].is_blob;
        let mut compared: Vec<Vec<usize>> = Vec::new();
        let mut jobs = BTreeSet::new();
        for (number, one) in all.iter().enumerate() {
            let mut others: Vec<usize> =
                (0..all.len()).filter(|&other| other != number && is_alike(one, &all[other])).collect();
            // Those that are compressed are bases at no cost.
            others.sort_by_key(|&other| (all[other].role != Role::Base, other));
            others.truncate(if one.files.iter().any(|f| is_sampled(&f)) { COMPARED } else { 0 });
            for &other in &others {
                let files = one.files.iter().filter(is_sampled).filter(|f| !all[other].files.contains(f));
                jobs.extend(files.map(|&f| (f, Some(other))));
            }
            compared.push(others);
        }
        // What cannot be predicted is compressed alone.
        _ = self.sample(jobs.iter().copied(), |from| &all[from].files, ui);
        // What each would take, by checkpoint and base.
        let cost = |one: &Checkpoint, other: usize| -> u64 {
            let of = |f: &usize| {
                let alone = self.sizes[&(*f, None)];
                self.sizes.get(&(*f, Some(other))).map_or(alone, |size| alone.min(*size))
            };
            one.files.iter().filter(|f| new.contains(f)).map(of).sum()
        };
        let costs: Vec<HashMap<usize, u64>> = all
            .iter()
            .zip(compared)
            .map(|(one, others)| others.into_iter().map(|other| (other, cost(one, other))).collect())
            .collect();
        let mut next = Some((0..all.len()).filter(|&n| all[n].role == Role::Base).collect::<Vec<_>>());
        while let Some(bases) = next {
            for base in bases {
                all[base].role = Role::Base;
                for (number, cost) in gains(all, &costs, base) {
                    (all[number].cost, all[number].role) = (cost, Role::Of(base));
                }
            }
            let gain = |&base: &usize| -> u64 {
                gains(all, &costs, base).iter().map(|&(number, cost)| all[number].cost - cost).sum()
            };
            let alone = (0..all.len()).filter(|&n| all[n].role == Role::Alone);
            next = alone.rev().max_by_key(gain).filter(|base| gain(base) > 0).map(|base| vec![base]);
        }
    }

    /// What is chosen for a file.
    fn of(&self, file: usize, all: &[Checkpoint]) -> Choice {
        let with_it = || all.iter().filter(|one| one.files.contains(&file));
        let is_base = with_it().any(|one| one.role == Role::Base);
        let alone = self.sizes[&(file, None)];
        let from = with_it().find_map(|one| match one.role {
            Role::Of(base) if !is_base => {
                let size = *self.sizes.get(&(file, Some(base)))?;
                is_better(size, alone).then_some((base, size))
            }
            _ => None,
        });
        let (bases, estimate) = from.map_or((Vec::new(), alone), |(base, size)| (all[base].files.clone(), size));
        Choice { file, bases, estimate, is_base }
    }
}

/// Opens files as bases; the encoder may use none of them.
pub(super) fn open(cache: &Cache, files: &[usize]) -> Result<Vec<Base<'static>>> {
    let paths: Vec<_> = files.iter().map(|&f| cache.files[f].path.clone()).collect();
    Ok(Bases::open(&paths, true, 0)?.all().to_vec())
}

/// Whether one could be predicted from another by the sizes of its tensors: half of its elements are in tensors that
/// both have.
fn is_alike(one: &Checkpoint, from: &Checkpoint) -> bool {
    // What is no plain number may be derived from numbers that are.
    let common = |(tensor, count): (&(u64, Option<Dtype>), &u64)| {
        let there = [*tensor, (tensor.0, None)].iter().find_map(|t| from.tensors.get(t)).copied().unwrap_or(0);
        tensor.0.saturating_mul((*count).min(there))
    };
    let may_be = matches!(from.role, Role::Base | Role::Alone);
    may_be && one.elements > 0 && sum(one.tensors.iter().map(common)) >= one.elements.div_ceil(2)
}

/// A sum of numbers that files claim.
fn sum(of: impl Iterator<Item = u64>) -> u64 {
    of.fold(0, u64::saturating_add)
}

/// Whether a delta saves enough to be worth reading its base, too: a tenth.
fn is_better(delta: u64, alone: u64) -> bool {
    delta < alone - alone / 10
}

/// The checkpoints that would be smaller from a base than they are by now, and what they would take.
fn gains(all: &[Checkpoint], costs: &[HashMap<usize, u64>], base: usize) -> Vec<(usize, u64)> {
    let each = all.iter().enumerate().filter(|(number, one)| *number != base && one.role != Role::Base);
    let cost = |(number, one): (usize, &Checkpoint)| {
        let cost = *costs[number].get(&base)?;
        let smaller = match one.role {
            Role::Of(_) => cost < one.cost,
            _ => is_better(cost, one.cost),
        };
        smaller.then_some((number, cost))
    };
    each.filter_map(cost).collect()
}
