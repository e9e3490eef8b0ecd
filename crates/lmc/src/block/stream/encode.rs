//! Encodes planned streams: the lanes of a block, and the raw bits of clusters.

use super::body::LaneCounts;
use super::planned::PlannedCluster;
use crate::block::output::Output;
use lmc_kernels::arch::encode_chunk;
use lmc_kernels::arch::job::EncodeJob;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::cluster::split::{shorten_raw, split_run};
use lmc_kernels::entropy::SETS;
use lmc_kernels::entropy::lanes::{LaneWriter, LiteralWriter};
use lmc_kernels::inline::zip;
use lmc_kernels::isa::Isa;

/// The lanes and literals of a block.
pub(in crate::block) struct LaneEncoder {
    isa: Isa,
    lanes: [LaneWriter; SETS],
    literals: LiteralWriter,
}

impl LaneEncoder {
    pub(in crate::block) fn new(isa: Isa) -> Self {
        Self { isa, lanes: [LaneWriter::default(), LaneWriter::default()], literals: LiteralWriter::default() }
    }

    /// Begins a block of this many chunks, in this many clusters.
    pub(in crate::block) fn reset(&mut self, chunks: usize, clusters: usize) {
        // Every cluster starts with lane set 0, so one set can get up to one chunk per cluster more than the other.
        self.lanes.iter_mut().for_each(|l| l.reset((chunks + clusters) / SETS + 1));
        self.literals.reset(chunks * RUN);
    }

    /// Encodes a cluster of `elements`; those that follow it in the block must be encoded already. Its raw bits fill `space`.
    pub(in crate::block) fn encode_cluster(&mut self, g: &PlannedCluster, elements: &[u8], space: &mut [u8]) {
        let (whole, rest) = space.split_at_mut(g.runs.len() * g.shape.raw_len(RUN));
        if g.tail > 0 {
            with_element!(g.width, E => self.encode_partial::<E>(g, elements, rest));
        }
        self.isa.encode_cluster(EncodeJob {
            table: g.table.as_ref(),
            shape: g.shape,
            width: g.width,
            lanes: &mut self.lanes,
            literals: &mut self.literals,
            runs: &g.runs,
            raw: whole,
            elements,
        });
    }

    /// Encodes the last run of a stream, padded to a chunk.
    fn encode_partial<E: Element>(&mut self, g: &PlannedCluster, elements: &[u8], raw: &mut [u8]) {
        let t = g.tail;
        let mut run = vec![0; RUN * E::BYTES];
        run[..t * E::BYTES].copy_from_slice(&elements[elements.len() - t * E::BYTES..]);
        let mut symbols = [0; RUN];
        let mut whole = vec![0; g.shape.raw_len(RUN)];
        split_run::<E>(&g.shape, &run, &mut symbols, &mut whole);
        let mut short = Vec::with_capacity(raw.len());
        shorten_raw(&g.shape, t, &whole, &mut short);
        raw.copy_from_slice(&short);
        if let Some(table) = &g.table {
            symbols[t..].fill(table.pad());
            encode_chunk(table, &mut self.lanes[g.runs.len() % SETS], &mut self.literals, &symbols);
        }
    }

    /// Appends words, literals and states, which follow the bulk bytes.
    pub(in crate::block) fn put_lanes(&self, out: &mut Output<'_>) -> LaneCounts {
        for l in &self.lanes {
            let words = l.written();
            zip(out.grow(2 * words.len()).as_chunks_mut::<2>().0, words, |to, w| *to = w.to_le_bytes());
        }
        out.extend(self.literals.written());
        for x in self.lanes.iter().flat_map(LaneWriter::states) {
            out.extend(&x.to_le_bytes());
        }
        let [first, second] = &self.lanes;
        let words = [first.written().len(), second.written().len()];
        LaneCounts { words, literals: self.literals.written().len() }
    }
}
