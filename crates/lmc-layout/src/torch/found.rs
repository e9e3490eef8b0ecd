//! The tensors of a file.

use super::super::names::Unique;
use super::super::suggestion::cover;
use super::storage::{Item, Storage};
use super::tensors::View;
use crate::segment::Segment;

/// The tensors found in a file.
#[derive(Default)]
pub(super) struct Found {
    tensors: Vec<Segment>,
    names: Unique,
}

impl Found {
    /// The segments of the file; `None` if there are no tensors. The first `start` bytes are none.
    pub(super) fn segments(self, start: u64) -> Option<Vec<Segment>> {
        self.names.finish();
        if self.tensors.is_empty() {
            return None;
        }
        cover(start, self.tensors)
    }

    /// Adds the tensors of a storage; `None` if there are too many.
    pub(super) fn add(&mut self, storage: &Storage, views: &[View<'_>], item: &Item) -> Option<()> {
        storage.segments(views, item, &mut self.names, &mut self.tensors)
    }
}
