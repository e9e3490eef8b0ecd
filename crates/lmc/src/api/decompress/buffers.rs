//! Reused buffers of blocks under way.

use crate::file::blocks::KEEP;

/// Buffers of a block under way.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) record: Vec<u8>,
    pub(crate) raw: Vec<u8>,
}

impl Buffers {
    /// Jobs with reused buffers, as far as there are any.
    pub(super) fn take<J>(kept: &mut Vec<Self>, jobs: usize, job: impl Fn(Self) -> J) -> Vec<J> {
        kept.resize_with(jobs, Self::default);
        kept.drain(..).map(job).collect()
    }

    pub(super) fn trim(&mut self) {
        for buf in [&mut self.record, &mut self.raw] {
            if buf.capacity() > KEEP {
                *buf = Vec::new();
            }
        }
    }
}
