//! Names of tensors, each of them once, within a limit of memory.

use std::collections::HashSet;

use super::suggestion::MAX_COST;
use crate::segment::{Name, Names, Segment};

/// The names of a file so far.
pub(super) struct Unique {
    names: Names,
    taken: HashSet<String>,
    /// Memory that is left for segments.
    left: usize,
}

impl Default for Unique {
    fn default() -> Self {
        Self { names: Names::default(), taken: HashSet::new(), left: MAX_COST }
    }
}

impl Unique {
    /// The first of the names that no tensor has yet, for one of `rank` dimensions. `None` if all are taken, or the file has too many
    /// tensors.
    pub(super) fn first<const N: usize>(&mut self, names: [Option<String>; N], rank: usize) -> Option<Name> {
        let name = names.into_iter().flatten().find(|name| !self.taken.contains(name))?;
        self.left = self.left.checked_sub(Segment::cost(name.len(), rank))?;
        let pushed = self.names.push(&name)?;
        self.taken.insert(name);
        Some(pushed)
    }

    pub(super) fn finish(self) {
        self.names.finish();
    }
}
