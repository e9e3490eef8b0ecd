//! Blocks without a container around them, and the predict stage of blocks that were encoded.

use std::sync::Arc;

use lmc::internals::{
    BlockDecoder, BlockEncoder, Column, Extent, Group, Method, Origin, Output, Planner, Predicted, Reference,
    encode_block, partition, plan, restore, split_record,
};
use lmc::{Dtype, Level, Result};
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::job::Streams;

/// Blocks without a container around them.
pub(crate) struct Blocks {
    encoder: BlockEncoder,
    decoder: BlockDecoder,
    planner: Planner,
    raw_len: usize,
    base: Base,
}

/// A base that is in memory, if there is one.
#[derive(Clone, Default)]
struct Base(Option<Arc<Vec<u8>>>);

impl Origin for Base {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(self.slice(source, offset, buf.len()).expect("it is there"));
        Ok(())
    }
    fn slice(&self, _: u32, offset: u64, len: usize) -> Option<&[u8]> {
        self.0.as_ref()?.get(offset as usize..)?.get(..len)
    }
}

impl Blocks {
    /// Blocks of `raw_len` raw bytes.
    pub(crate) fn new(isa: Isa, level: Level, raw_len: usize) -> Self {
        Self {
            encoder: BlockEncoder::new(isa, level),
            decoder: BlockDecoder::new(isa),
            planner: Planner::new(isa, level),
            raw_len,
            base: Base::default(),
        }
    }

    /// Makes deltas against `base`, which must be as long as the encoded bytes.
    #[must_use]
    pub(crate) fn with_base(mut self, base: Arc<Vec<u8>>) -> Self {
        self.base = Base(Some(base));
        self
    }

    /// Replaces `out` by the block records of `raw`.
    pub(crate) fn encode(&mut self, dtype: Dtype, raw: &[u8], out: &mut Vec<u8>) {
        let mut out = Output::new(out);
        for (i, block) in raw.chunks(self.raw_len).enumerate() {
            let offset = (i * self.raw_len) as u64;
            let base = self.base.0.as_ref().map(|_| Reference { source: 1, offset, conversion: Conversion::None });
            let extent = Extent {
                dtype: Some(dtype),
                len: block.len(),
                base,
                step: None,
                derived: None,
                group: Group::Others,
                matrix: None,
            };
            encode_block(&mut self.encoder, block, &[extent], &self.base, &mut out).expect("nothing fails");
        }
        out.finish();
    }

    /// Decodes the records of [`Blocks::encode`].
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn decode(&mut self, mut records: &[u8], out: &mut [u8]) {
        for block in out.chunks_mut(self.raw_len) {
            let (head, body, rest) = split_record(records).expect("valid");
            self.decoder.decode(&head, body, &self.base, block).expect("valid");
            records = rest;
        }
    }

    /// Everything that comes before the first symbol is coded: statistics, contexts, tables. Gives the estimated size in bytes.
    pub(crate) fn plan(&mut self, dtype: Dtype, raw: &[u8]) -> u64 {
        raw.chunks(self.raw_len).map(|b| plan(&mut self.planner, dtype, b)).sum()
    }
}

/// The predict stage of blocks of one column each, as they were encoded against a base.
pub(crate) struct PredictStage {
    isa: Isa,
    raw_len: usize,
    base: Arc<Vec<u8>>,
    /// The prediction of each block, and its residuals.
    columns: Vec<Option<(Box<Predicted>, Streams)>>,
}

impl PredictStage {
    /// The choices of [`Blocks::encode`] for the blocks of `raw_len` bytes whose records these are. Unchanged runs are
    /// taken with all others; blocks that are not predicted from the base alone are left out.
    ///
    /// # Panics
    /// If they are no such records.
    pub(crate) fn new(isa: Isa, raw_len: usize, mut records: &[u8], base: Arc<Vec<u8>>) -> Self {
        let mut columns = Vec::new();
        while !records.is_empty() {
            let (mut head, _, rest) = split_record(records).expect("valid");
            columns.push(match (head.columns.pop(), &head.columns[..]) {
                (Some(Column { method: Method::Predicted(p), .. }), []) => Some((p, Streams::default())),
                _ => None,
            });
            records = rest;
        }
        Self { isa, raw_len, base, columns }
    }

    /// Numbers of contexts, of every block.
    pub(crate) fn contexts(&self) -> Vec<usize> {
        self.columns.iter().map(|p| p.as_ref().map_or(1, |(p, _)| p.streams.len())).collect()
    }

    /// Counts contexts, and scatters residuals to them.
    pub(crate) fn partition(&mut self, raw: &[u8]) {
        let blocks = raw.chunks(self.raw_len).zip(self.base.chunks(self.raw_len));
        for ((raw, base), column) in blocks.zip(&mut self.columns) {
            let Some((column, streams)) = column else { continue };
            partition(self.isa, column, base, raw, streams);
        }
    }

    /// The inverse of [`Self::partition`], which must have gone before.
    ///
    /// # Panics
    /// If it did not.
    pub(crate) fn restore(&self, out: &mut [u8]) {
        let blocks = out.chunks_mut(self.raw_len).zip(self.base.chunks(self.raw_len));
        for ((out, base), column) in blocks.zip(&self.columns) {
            let Some((column, streams)) = column else { continue };
            restore(self.isa, column, base, streams, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_undone() {
        const BLOCK: usize = 1 << 16;
        // All move as far: the smaller an element is, the more units in the last place that are.
        let step = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 16) as f32 * 1e-8;
        let weight = |i: u32| (-((i * 7 % 1013) as f32) * 0.01).exp();
        let raw: Vec<u8> = (0..60_000).flat_map(|i| (weight(i) + step(i)).to_le_bytes()).collect();
        let base: Arc<Vec<u8>> = Arc::new((0..60_000).flat_map(|i| weight(i).to_le_bytes()).collect());
        for isa in Isa::available() {
            let mut records = Vec::new();
            let mut blocks = Blocks::new(isa, Level::Default, BLOCK).with_base(base.clone());
            blocks.encode(Dtype::F32, &raw, &mut records);
            let alone = Blocks::new(isa, Level::Default, BLOCK).plan(Dtype::F32, &raw);
            assert!((records.len() as u64) < alone, "{} of {alone}", records.len());
            let mut back = vec![0; raw.len()];
            blocks.decode(&records, &mut back);
            assert!(back == raw);
            let mut stage = PredictStage::new(isa, BLOCK, &records, base.clone());
            assert!(stage.contexts().len() == 4 && stage.contexts().iter().all(|&n| n > 1), "{:?}", stage.contexts());
            stage.partition(&raw);
            back.fill(0);
            stage.restore(&mut back);
            assert!(back == raw);
        }
    }
}
