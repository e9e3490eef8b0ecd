//! How much changed since the snapshot before.

use super::encode::Encoded;
use crate::chunks::Chunk;

/// Counts elements of tensors.
pub(super) struct Tally {
    pub(super) elements: u64,
    /// Those that differ from the snapshot before; `None` once one chunk is not known.
    pub(super) changed: Option<u64>,
}

impl Tally {
    /// A count of nothing. Without a snapshot before it is not known what changed.
    pub(super) fn new(has_before: bool) -> Self {
        Self { elements: 0, changed: has_before.then_some(0) }
    }

    pub(super) fn add(&mut self, chunk: &Chunk, encoded: &Encoded) {
        let (mut elements, mut in_bytes) = (0, true);
        for s in &chunk.segments {
            if let Some(dtype) = s.dtype {
                let bits = u64::from(dtype.bits());
                elements += s.len * 8 / bits;
                in_bytes &= bits % 8 == 0;
            }
        }
        if elements == 0 {
            return;
        }
        self.elements += elements;
        let changed = match encoded {
            Encoded::Earlier(_, true) => Some(0),
            // Of elements that are parts of bytes, deltas count bytes.
            Encoded::New(new) => new.changed.filter(|&n| in_bytes || n == 0),
            Encoded::Earlier(..) | Encoded::Repeated(_) => None,
        };
        self.changed = self.changed.zip(changed).map(|(all, n)| all + n);
    }
}
