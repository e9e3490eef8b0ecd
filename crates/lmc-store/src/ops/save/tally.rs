//! How much changed since the snapshot before.

use super::encode::Encoded;
use crate::chunks::cut::Chunk;

/// Counts elements of tensors.
pub(super) struct Tally {
    elements: u64,
    /// Those that differ from the snapshot before; `None` once one chunk is not known.
    changed: Option<u64>,
}

impl Tally {
    /// A count of nothing. Without a snapshot before, the number of changes is not known.
    pub(super) fn new(has_before: bool) -> Self {
        Self { elements: 0, changed: has_before.then_some(0) }
    }

    pub(super) fn add(&mut self, chunk: &Chunk, encoded: &Encoded) {
        let (mut elements, mut in_units) = (0, true);
        for s in &chunk.segments {
            if let Some(dtype) = s.dtype {
                let bits = u64::from(dtype.bits());
                elements += s.len * 8 / bits;
                in_units &= bits == 8 * dtype.coding_width() as u64;
            }
        }
        if elements == 0 {
            return;
        }
        self.elements += elements;
        let changed = match encoded {
            Encoded::Earlier(_, true) => Some(0),
            // Deltas count units of coding: of some dtypes these are parts of elements, or several.
            Encoded::New(new) => new.changed.filter(|&n| in_units || n == 0),
            Encoded::Earlier(..) | Encoded::Repeated(_) => None,
        };
        self.changed = self.changed.zip(changed).map(|(all, n)| all + n);
    }

    /// Elements that another file has, too: they are compared with that file, not with the snapshot before.
    pub(super) fn add_repeats(&mut self, elements: u64) {
        self.elements += elements;
        self.changed = self.changed.filter(|_| elements == 0);
    }

    /// The elements, and how many of them changed, if both are known.
    pub(super) fn total(self) -> (u64, Option<u64>) {
        (self.elements, self.changed.filter(|_| self.elements > 0))
    }
}
