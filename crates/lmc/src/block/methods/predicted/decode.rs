//! Decodes predicted columns.

use super::Predicted;
use super::operand::Operand;
use super::restore_sparse::{CHUNK, SparseChanges, other_contexts, restore_listed, restore_listed_by_leaf};
use super::steps::Scaled;
use crate::block::by_leaf::Leaves;
use crate::block::ranges::BlockRanges;
use crate::block::stream::Stream;
use crate::block::stream::body::Body;
use crate::block::stream::decode::StreamDecoder;
use lmc_kernels::cluster::element::with_element;
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::job::{Model, RowTerms, Streams};
use lmc_kernels::predict::optimizer::scaled;
use lmc_kernels::predict::{Conversion, convert};
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

/// Decodes predicted columns one after the other, keeping its working memory.
#[derive(Default)]
pub(in crate::block) struct PredictedDecoder {
    /// The residuals of each context.
    residuals: Streams,
    /// Bytes of an operand, or the terms of a grid; and the predictions.
    bytes: [Vec<u8>; 2],
    /// Terms of rows.
    terms: Vec<u8>,
    sparse: SparseChanges,
}

impl Predicted {
    /// The model of `len` bytes of elements with this prediction, and these terms of rows if there are any.
    fn model<'a>(&'a self, len: usize, prediction: &'a [u8], terms: &'a [u8]) -> Model<'a> {
        let &Self { width, .. } = self;
        let terms = self.terms.as_ref().map(|of| RowTerms { rows: of.rows, terms });
        Model { width, len: len / width, prediction, contexts: self.contexts.as_ref(), terms }
    }
}

impl PredictedDecoder {
    /// Restores the sparse column of a whole block.
    pub(in crate::block) fn restore_by_leaf(
        &mut self,
        p: &Predicted,
        isa: Isa,
        body: &mut Body<'_>,
        leaves: &mut Leaves<'_, '_>,
    ) -> Result<()> {
        if let Some(g) = p.sparse() {
            return with_element!(p.width, E => restore_listed_by_leaf::<E>(g, body, leaves));
        }
        self.sparse.read(p, body)?;
        let model = p.model(leaves.len(), &[], &[]);
        self.sparse.restore(isa, p, &model, |restore| {
            while !leaves.place().is_empty() {
                restore(leaves.leaf())?;
                leaves.next()?;
            }
            Ok(())
        })
    }

    /// Decodes a column to `out`.
    pub(in crate::block) fn decode(
        &mut self,
        p: &Predicted,
        streams: &mut StreamDecoder,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let Self { residuals, bytes, terms, sparse } = self;
        let is_sparse_by_context = p.is_sparse_by_context();
        // Of sparse columns nearly all elements are those of the prediction.
        let in_place = is_sparse_by_context || p.sparse().is_some();
        let prediction = p.predict(in_place, streams, body, origin, bytes, out)?;
        let terms = match &p.terms {
            Some(of) => {
                let terms = scratch(terms, of.rows.count(out.len() / p.width));
                streams.decode(&of.stream, body, terms)?;
                &*terms
            }
            None => &[],
        };
        if let Some(g) = p.sparse() {
            if let Some(prediction) = prediction {
                out.copy_from_slice(prediction);
            }
            if g.is_zero() {
                return Ok(());
            }
            return with_element!(p.width, E => restore_listed::<E>(g, body, out));
        }
        if is_sparse_by_context {
            sparse.read(p, body)?;
            let model = p.model(out.len(), &[], terms);
            return sparse.restore(streams.isa, p, &model, |restore| {
                for (i, piece) in out.chunks_mut(CHUNK * p.width).enumerate() {
                    if let Some(prediction) = prediction {
                        piece.copy_from_slice(&prediction[i * CHUNK * p.width..][..piece.len()]);
                    }
                    restore(piece)?;
                }
                Ok(())
            });
        }
        let prediction = prediction.expect("only those of sparse columns are in place");
        if let [(_, only)] = &p.streams[..] {
            // Residuals become elements in place.
            only.iter().try_for_each(|g| streams.decode(g, body, out))?;
        } else {
            let byte_wide: Vec<_> = p.streams.iter().map(|(_, g)| g.as_ref().and_then(Stream::byte_wide)).collect();
            let widths = byte_wide.iter().map(|g| g.as_ref().map_or(p.width, |g| g.width));
            residuals.reset(p.streams.iter().map(|s| s.0).zip(widths));
            for (context, ((_, stream), byte_wide)) in p.streams.iter().zip(&byte_wide).enumerate() {
                if let Some(g) = byte_wide.as_ref().or(stream.as_ref()) {
                    streams.decode(g, body, residuals.get_mut(context))?;
                }
            }
        }
        let model = p.model(out.len(), prediction, terms);
        if model.contexts.is_none() {
            streams.isa.restore_in_place(&model, out);
        } else if !streams.isa.restore(&model, residuals, out) {
            return Err(other_contexts());
        }
        Ok(())
    }
}

impl Predicted {
    /// The predictions of a column: an element for each of `out`. With `in_place` they may be written there; then the
    /// result is `None`.
    fn predict<'b>(
        &self,
        in_place: bool,
        streams: &mut StreamDecoder,
        body: &mut Body<'_>,
        origin: &'b BlockRanges<'_>,
        [buf, predictions]: &'b mut [Vec<u8>; 2],
        out: &mut [u8],
    ) -> Result<Option<&'b [u8]>> {
        let len = out.len();
        match &self.operand {
            Operand::Ranges { conversion: Conversion::None, base } if in_place => {
                return origin.get_in_place(base, out);
            }
            Operand::Ranges { conversion: Conversion::None, base } => return origin.get(base, buf).map(Some),
            Operand::Ranges { conversion, base } => {
                convert(*conversion, origin.get(base, buf)?, predictions);
                return Ok(Some(predictions));
            }
            _ => {}
        }
        let out = if in_place { out } else { scratch(predictions, len) };
        match &self.operand {
            Operand::Ranges { .. } => unreachable!("ranges were read"),
            Operand::Grid(grid) => grid.predict(streams, body, buf, out)?,
            Operand::Derived(derived) => derived.predict(streams, body, origin, buf, out)?,
            Operand::Factored(factored) => factored.predict(self.width, streams, body, buf, out)?,
            Operand::Scaled(Scaled { factor, base }) => scaled(self.width, *factor, origin.get(base, buf)?, out),
            Operand::Moment(moment) => {
                let [v0, m0, m1] = origin.get_all(moment.operands, len, buf)?;
                moment.step.predict(v0, m0, m1, out);
            }
            Operand::Weight(weight) => {
                let [w0, m1, v1] = weight.operands;
                let [w0, m1, v1, m0] = origin.get_all([w0, m1, v1, weight.before.unwrap_or_default()], len, buf)?;
                weight.step.predict(w0, m1, v1, weight.before.map(|_| m0), out);
            }
        }
        Ok((!in_place).then(|| &predictions[..len]))
    }
}
