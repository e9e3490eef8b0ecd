//! Arguments of kernels: one cluster of a stream, to decode or to encode, in whole runs.

use crate::cluster::RUN;
use crate::cluster::split::Shape;
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter, WRITE_SLACK};
use crate::entropy::table::{DecodeTable, EncodeTable};
use crate::entropy::{CHUNK_WORDS, SETS};

/// Decoding of the whole runs of a cluster, chunks 0, 1, …
pub struct DecodeJob<'a, 'b> {
    /// The table of the symbols; `None` if there are none.
    pub table: Option<&'a DecodeTable>,
    /// How elements are split.
    pub shape: Shape,
    /// Bytes of an element.
    pub width: usize,
    /// The lanes that all clusters of a block share.
    pub lanes: &'a mut [LaneReader<'b>; SETS],
    /// The literals that all clusters of a block share.
    pub literals: &'a mut LiteralReader<'b>,
    /// Indices of the cluster's runs in the stream, in order.
    pub runs: &'a [u32],
    /// Raw bits of those runs.
    pub raw: &'a [u8],
    /// All elements of the stream.
    pub out: &'a mut [u8],
}

/// Encoding of the whole runs of a cluster. Kernels go from the last chunk to the first.
pub struct EncodeJob<'a> {
    /// The table of the symbols; `None` if there are none.
    pub table: Option<&'a EncodeTable>,
    /// How elements are split.
    pub shape: Shape,
    /// Bytes of an element.
    pub width: usize,
    /// The lanes that all clusters of a block share.
    pub lanes: &'a mut [LaneWriter; SETS],
    /// The literals that all clusters of a block share.
    pub literals: &'a mut LiteralWriter,
    /// Indices of the cluster's runs in the stream, in order.
    pub runs: &'a [u32],
    /// Receives the raw bits of those runs.
    pub raw: &'a mut [u8],
    /// All elements of the stream.
    pub elements: &'a [u8],
}

impl DecodeJob<'_, '_> {
    /// The bounds that every kernel relies on; holds in release builds too.
    pub(crate) fn check(&self) {
        let elements = self.out.len() / (self.width * RUN);
        assert!(self.runs.iter().all(|&r| (r as usize) < elements), "runs lie in the stream");
        assert_eq!(self.raw.len(), self.runs.len() * self.shape.raw_len(RUN), "raw bits of every run");
    }

    /// The raw bits of the cluster's run `i`, and the place of its elements.
    #[inline(always)]
    pub(super) fn run(&mut self, i: usize) -> (&[u8], &mut [u8]) {
        let (raw_len, len) = (self.shape.raw_len(RUN), RUN * self.width);
        (&self.raw[i * raw_len..][..raw_len], &mut self.out[self.runs[i] as usize * len..][..len])
    }
}

impl EncodeJob<'_> {
    /// The bounds that every kernel relies on; holds in release builds too.
    pub(crate) fn check(&self) {
        let elements = self.elements.len() / (self.width * RUN);
        assert!(self.runs.iter().all(|&r| (r as usize) < elements), "runs lie in the stream");
        assert_eq!(self.raw.len(), self.runs.len() * self.shape.raw_len(RUN), "raw bits of every run");
        if self.table.is_some() {
            for (i, l) in self.lanes.iter().enumerate() {
                let chunks = (self.runs.len() + SETS - 1 - i) / SETS;
                assert!(l.pos >= chunks * CHUNK_WORDS + WRITE_SLACK, "room for the words");
            }
            assert!(self.literals.pos >= self.runs.len() * RUN + WRITE_SLACK, "room for the literals");
        }
    }
}

/// `N` bytes of a slice, whose length was checked by the job or before the chunk.
#[inline(always)]
pub(super) fn at<const N: usize>(bytes: &[u8], offset: usize) -> &[u8; N] {
    bytes[offset..].first_chunk().expect("lengths were checked")
}

#[inline(always)]
pub(super) fn at_mut<const N: usize>(bytes: &mut [u8], offset: usize) -> &mut [u8; N] {
    bytes[offset..].first_chunk_mut().expect("lengths were checked")
}
