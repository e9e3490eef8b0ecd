//! The plan of a column: its description in the head, and its items in the body.

use super::Method;
use crate::block::stream::planned::{Item, StreamPlan};
use lmc_kernels::predict::job::Streams;

/// How a column will be coded.
pub(crate) struct ColumnPlan {
    /// Its description in the block's head.
    pub(crate) method: Method,
    /// Its items in the body; empty if its bytes are stored.
    pub(crate) body: Vec<Item>,
    /// The residuals of a predicted column, by context.
    pub(crate) residuals: Streams,
    /// Estimated bytes without lane states.
    pub(crate) estimate: u64,
}

impl ColumnPlan {
    pub(in crate::block) fn stored(len: usize) -> Self {
        Self { estimate: len as u64, ..Self::of(Method::Stored) }
    }

    pub(in crate::block) fn plain(plan: StreamPlan) -> Self {
        let StreamPlan { stream, body, estimate } = plan;
        Self { body, estimate, ..Self::of(Method::Plain(Box::new(stream))) }
    }

    /// Nothing planned yet.
    pub(in crate::block) fn of(method: Method) -> Self {
        Self { method, body: vec![], residuals: Streams::default(), estimate: 0 }
    }

    pub(crate) fn is_predicted(&self) -> bool {
        matches!(self.method, Method::Predicted(_))
    }

    /// Chunks that the lanes will code.
    pub(crate) fn chunks(&self) -> usize {
        self.body.iter().map(Item::chunks).sum()
    }

    pub(crate) fn clusters(&self) -> usize {
        self.body.iter().filter(|item| matches!(item, Item::Cluster(_))).count()
    }

    /// Bulk bytes of a column of `len` raw bytes.
    pub(crate) fn bulk_len(&self, len: usize) -> usize {
        if self.method == Method::Stored { len } else { self.body.iter().map(Item::len).sum() }
    }
}
