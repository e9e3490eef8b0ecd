//! Predicted columns with sparse streams: a copy of the prediction, with the changed elements replaced.

use super::Predicted;
use crate::block::by_leaf::Leaves;
use crate::block::stream::body::Body;
use crate::block::stream::sparse::few_of;
use crate::block::stream::{Mask, Stream};
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::job::Model;
use lmc_kernels::predict::residual;
use lmc_kernels::predict::select::Selection;
use lmc_layout::error::{Error, Result};

/// Elements that are restored at once: they stay in the second-level cache.
pub(in crate::block) const CHUNK: usize = 1 << 14;

impl Predicted {
    /// The only stream, if it is sparse.
    pub(in crate::block) fn sparse(&self) -> Option<&Stream> {
        match &self.streams[..] {
            [(_, Some(only))] if only.is_listed() => Some(only),
            _ => None,
        }
    }

    /// Whether the streams of several contexts are sparse, with few enough changes to be held in memory.
    pub(in crate::block) fn is_sparse_by_context(&self) -> bool {
        let mut streams = self.streams.iter().filter_map(|s| s.1.as_ref());
        let n = self.streams.iter().map(|s| s.0).sum();
        let changes: usize = streams.clone().map(Stream::listed).sum();
        self.contexts.is_some() && streams.all(Stream::is_listed) && changes <= few_of(n)
    }
}

impl Stream {
    /// Whether its elements other than 0 are listed, or there are none.
    fn is_listed(&self) -> bool {
        self.is_zero() || matches!(self.mask, Mask::List { .. })
    }
}

/// The changes of a column, context by context.
#[derive(Default)]
pub(in crate::block) struct SparseChanges {
    ranks: Vec<u32>,
    residuals: Vec<u64>,
    /// End of the changes of each context.
    ends: Vec<usize>,
    at: Vec<u32>,
}

impl SparseChanges {
    pub(in crate::block) fn read(&mut self, p: &Predicted, body: &mut Body<'_>) -> Result<()> {
        self.ranks.clear();
        self.residuals.clear();
        self.ends.clear();
        for (n, stream) in &p.streams {
            if let Some(g) = stream {
                with_element!(p.width, E => g.each_listed(body, *n, |i, x| {
                    self.ranks.push(i as u32);
                    self.residuals.push(E::cut(x).unmap(g.map).wide());
                }))?;
            }
            self.ends.push(self.ranks.len());
        }
        Ok(())
    }

    /// Replaces the changed elements. `drive` calls what it is given with all predictions, in pieces of whole elements.
    pub(in crate::block) fn restore(
        &mut self,
        isa: Isa,
        p: &Predicted,
        m: &Model<'_>,
        drive: impl FnOnce(&mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        self.at.clear();
        self.at.resize(self.ranks.len(), 0);
        let mut contexts = Vec::with_capacity(self.ends.len());
        let (mut at, mut begin) = (&mut self.at[..], 0);
        for &end in &self.ends {
            let (here, rest) = at.split_at_mut(end - begin);
            contexts.push((Selection::new(&self.ranks[begin..end], here), &self.residuals[begin..end]));
            (at, begin) = (rest, end);
        }
        let (mut selections, residuals): (Vec<_>, Vec<_>) = contexts.into_iter().unzip();
        let mut first = 0;
        drive(&mut |predictions| {
            for piece in predictions.chunks_mut(CHUNK * m.width) {
                let len = piece.len() / m.width;
                let terms = m.terms.map(|terms| terms.of(first, len));
                first += len;
                isa.select_in_contexts(&Model { len, prediction: piece, terms, ..*m }, &mut selections);
                for (selection, residuals) in selections.iter_mut().zip(&residuals) {
                    let (new, at) = selection.take();
                    with_element!(m.width, E => replace::<E>(at, &residuals[new], piece));
                }
            }
            Ok(())
        })?;
        if !selections.iter().map(Selection::seen).eq(p.streams.iter().map(|s| s.0)) {
            return Err(other_contexts());
        }
        Ok(())
    }
}

/// Replaces the predictions at these places by elements with these residuals.
fn replace<E: Element>(at: &[u32], residuals: &[u64], out: &mut [u8]) {
    for (&i, &residual) in at.iter().zip(residuals) {
        replace_one(E::cut(residual), &mut out[i as usize * E::BYTES..]);
    }
}

/// Replaces the prediction at the beginning of `out` by the element with this residual.
#[inline(always)]
fn replace_one<E: Element>(residual: E, out: &mut [u8]) {
    let e = &mut out[..E::BYTES];
    residual::element(residual, E::load(e)).store(e);
}

/// The error of contexts whose numbers of elements are not those of the head.
pub(in crate::block) fn other_contexts() -> Error {
    Error::damaged(
        "the contexts of a column's prediction have other numbers of elements than the head gives: the block is damaged, \
         or the base is not the right one",
    )
}

/// Replaces the predictions whose residuals are listed; all others are 0.
pub(in crate::block) fn restore_listed<E: Element>(g: &Stream, body: &mut Body<'_>, out: &mut [u8]) -> Result<()> {
    g.each_listed(body, out.len() / E::BYTES, |i, x| {
        replace_one(E::cut(x).unmap(g.map), &mut out[i * E::BYTES..]);
    })
}

/// [`restore_listed`] of the column of a whole block.
pub(in crate::block) fn restore_listed_by_leaf<E: Element>(
    g: &Stream,
    body: &mut Body<'_>,
    leaves: &mut Leaves<'_, '_>,
) -> Result<()> {
    let mut failed = None;
    let done = g.each_listed(body, leaves.len() / E::BYTES, |i, x| {
        let at = i * E::BYTES;
        while failed.is_none() && at >= leaves.place().end {
            failed = leaves.next().err();
        }
        if failed.is_none() {
            let at = at - leaves.place().start;
            replace_one(E::cut(x).unmap(g.map), &mut leaves.leaf()[at..]);
        }
    });
    // What failed first counts.
    failed.map_or(done, Err)
}
