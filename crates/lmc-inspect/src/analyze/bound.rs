//! The entropy of the differences of a checkpoint from an earlier one, counted by several threads.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lmc::Dtype;

use crate::diff::entropy::DifferenceEntropy;

/// Sets of counts. A dtype's take up to 128 MiB, in most checkpoints 20: a thread that finds none free waits.
const SETS: usize = 4;

/// Counts by dtype.
type Set = BTreeMap<Dtype, DifferenceEntropy>;

/// The differences of floats.
#[derive(Default)]
pub(super) struct Bound([Mutex<Set>; SETS]);

impl Bound {
    /// Counts elements and those that they come from, if their type is one of floats. Returns whether it is.
    pub(super) fn add(&self, dtype: Option<Dtype>, new: &[u8], old: &[u8]) -> bool {
        let Some(dtype) = dtype else { return false };
        let free = self.0.iter().find_map(|set| set.try_lock().ok());
        let mut set = free.unwrap_or_else(|| locked(&self.0[0]));
        let counts = match set.entry(dtype) {
            Entry::Occupied(counts) => counts.into_mut(),
            Entry::Vacant(place) => match DifferenceEntropy::new(dtype) {
                Some(none) => place.insert(none),
                None => return false,
            },
        };
        counts.add(new, old);
        true
    }

    /// H of all of them together, in whole bytes.
    pub(super) fn size(self) -> u64 {
        let mut all = Set::new();
        for set in self.0 {
            for (dtype, counts) in set.into_inner().unwrap_or_else(PoisonError::into_inner) {
                match all.get_mut(&dtype) {
                    Some(sum) => sum.merge(counts),
                    None => _ = all.insert(dtype, counts),
                }
            }
        }
        (all.values().map(DifferenceEntropy::bits).sum::<f64>() / 8.0).round() as u64
    }
}

/// A thread that panicked ends the pass, and its counts with it.
fn locked(set: &Mutex<Set>) -> MutexGuard<'_, Set> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}
