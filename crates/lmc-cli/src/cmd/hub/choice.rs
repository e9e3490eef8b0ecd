//! Which files are compressed, and from which others each is predicted, by samples of their contents.
//!
//! Deltas are made only from files that are none: what is read takes one base at most. Of the checkpoints that can be
//! bases, one after the other becomes one, each time that from which the others are predicted with the fewest bytes.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use lmc::{Base, Compressor, Dtype};

use super::cache::{Cache, Weights};
use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;
use crate::work::bases::Bases;

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
    /// How many tensors it has of each number of elements; of those that are no plain numbers, of bytes, with their
    /// dtype.
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
pub(super) fn choose(cache: &Cache, files: &[usize], compressor: &mut Compressor, ui: &Ui) -> Vec<Choice> {
    let mut new: HashSet<usize> = files.iter().copied().filter(|&f| cache.files[f].compressed.is_none()).collect();
    let mut chooser = Chooser { cache, compressor, sizes: HashMap::new() };
    let mut sorted: Vec<usize> = new.iter().copied().collect();
    sorted.sort_unstable();
    for &file in &sorted {
        let progress = ui.progress(&format!("sampling {}", cache.files[file].name), None);
        if let Err(failure) = chooser.sample(file, None, &[]) {
            ui.fail(&failure);
            new.remove(&file);
        }
        drop(progress);
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
    compressor: &'a mut Compressor,
    /// Estimated sizes of files, alone and from a checkpoint.
    sizes: HashMap<(usize, Option<usize>), u64>,
}

impl Chooser<'_> {
    /// Estimates the size of a file from a checkpoint of these files.
    fn sample(&mut self, file: usize, from: Option<usize>, files: &[usize]) -> Result<u64> {
        let path = &self.cache.files[file].path;
        let source = Source::open(path)?;
        let estimate = self.compressor.estimate(&source, &open(self.cache, files)?);
        let size = estimate.map_err(|e| Failure::codec(path, &e))?.compressed_size;
        self.sizes.insert((file, from), size);
        Ok(size)
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
                    let is_plain = PLAIN.contains(&dtype.bits());
                    let tensor = match is_plain {
                        true => (segment.len / u64::from(dtype.bits() / 8), None),
                        false => (segment.len, Some(dtype)),
                    };
                    *tensors.entry(tensor).or_insert(0) += 1;
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
        // What each would take, by checkpoint and base.
        let mut costs: Vec<HashMap<usize, u64>> = Vec::new();
        for (number, one) in all.iter().enumerate() {
            let mut others: Vec<usize> =
                (0..all.len()).filter(|&other| other != number && is_alike(one, &all[other])).collect();
            // Those that are compressed are bases at no cost.
            others.sort_by_key(|&other| (all[other].role != Role::Base, other));
            let mut of_one = HashMap::new();
            let has_new = one.files.iter().any(|&f| new.contains(&f) && self.cache.files[f].is_blob);
            for other in others.into_iter().take(if has_new { COMPARED } else { 0 }) {
                let mut cost = 0;
                for &file in one.files.iter().filter(|f| new.contains(f)) {
                    let alone = self.sizes[&(file, None)];
                    let progress = ui.progress(&format!("comparing {}", self.cache.files[file].name), None);
                    cost += match all[other].files.contains(&file) || !self.cache.files[file].is_blob {
                        true => alone,
                        false => {
                            self.sample(file, Some(other), &all[other].files).map_or(alone, |size| size.min(alone))
                        }
                    };
                    drop(progress);
                }
                of_one.insert(other, cost);
            }
            costs.push(of_one);
        }
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
    let common = |(tensor, count): (&(u64, Option<Dtype>), &u64)| {
        tensor.0.saturating_mul((*count).min(from.tensors.get(tensor).copied().unwrap_or(0)))
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
