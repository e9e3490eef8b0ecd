//! What benchmarks need to see of the inside. Not part of the API.

mod delta;

pub use delta::{Expected, raw_bytes};

use crate::block::decode::BlockDecoder;
use crate::block::encode::{BlockEncoder, RawBlock};
use crate::block::output::Output;
use crate::block::plan::{Planner, coding_of};
use crate::block::{Link, Nothing, Origin, Piece};
use crate::dtype::Dtype;
use crate::entropy::{huffman, rans};
use crate::format::block_head::{BlockHead, Grouped, Method, Part};
use crate::format::record::{HEADER_LEN, RecordHeader};
use crate::isa::Isa;
use crate::options::Level;
use crate::predict::job::{Model, Sections};
use crate::predict::{Classes, Conversion, Predictor};

/// Blocks without a container around them.
pub struct Blocks {
    encoder: BlockEncoder,
    decoder: BlockDecoder,
    planner: Planner,
    raw_len: usize,
    base: Option<Base>,
}

/// A base that is in memory.
#[derive(Clone)]
struct Base(std::sync::Arc<Vec<u8>>);

impl Origin for Base {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> crate::Result<()> {
        buf.copy_from_slice(self.slice(source, offset, buf.len()).expect("it is there"));
        Ok(())
    }
    fn slice(&self, _: u32, offset: u64, len: usize) -> Option<&[u8]> {
        self.0.get(offset as usize..)?.get(..len)
    }
}

impl Blocks {
    /// Blocks of `raw_len` raw bytes.
    pub fn new(isa: Isa, level: Level, raw_len: usize) -> Self {
        Self {
            encoder: BlockEncoder::new(isa, level),
            decoder: BlockDecoder::new(isa),
            planner: Planner::new(isa, level),
            raw_len,
            base: None,
        }
    }

    /// Makes deltas against `base`, which must be as long as what is encoded.
    #[must_use]
    pub fn with_base(mut self, base: std::sync::Arc<Vec<u8>>) -> Self {
        self.base = Some(Base(base));
        self
    }

    fn origin(base: &Option<Base>) -> &dyn Origin {
        base.as_ref().map_or(&Nothing as &dyn Origin, |b| b)
    }

    /// Replaces `out` by the block records of `raw`.
    pub fn encode(&mut self, dtype: Dtype, raw: &[u8], out: &mut Vec<u8>) {
        let mut out = Output::new(out);
        for (i, block) in raw.chunks(self.raw_len).enumerate() {
            let mut piece = Piece::plain(Some(dtype), block.len());
            let offset = (i * self.raw_len) as u64;
            piece.base = self.base.as_ref().map(|_| Link { source: 1, offset, conversion: Conversion::None });
            self.encoder
                .encode(&RawBlock::new(block, &[piece]), Self::origin(&self.base), &mut out)
                .expect("nothing fails");
        }
        out.finish();
    }

    /// Decodes the records of [`Blocks::encode`].
    ///
    /// # Panics
    /// If they are not.
    pub fn decode(&mut self, mut records: &[u8], out: &mut [u8]) {
        for block in out.chunks_mut(self.raw_len) {
            let header = RecordHeader::parse(records[..HEADER_LEN].try_into().expect("a header")).expect("valid");
            let (record, rest) = records.split_at(header.len() as usize);
            let (head, body) = record[HEADER_LEN..].split_at(header.head_len as usize);
            self.decoder
                .decode(&BlockHead::parse(head).expect("valid"), body, Self::origin(&self.base), block)
                .expect("valid");
            records = rest;
        }
    }

    /// Everything that comes before the first symbol is coded: statistics, classes, tables.
    pub fn plan(&mut self, dtype: Dtype, raw: &[u8]) -> u64 {
        let (width, map) = coding_of(dtype);
        raw.chunks(self.raw_len).map(|b| self.planner.plan(width, map, b).estimate).sum()
    }
}

/// The predict stage of blocks of one part each, as they were encoded against a base.
pub struct PredictStage {
    isa: Isa,
    raw_len: usize,
    base: std::sync::Arc<Vec<u8>>,
    parts: Vec<Option<PredictedPart>>,
}

/// What one block was predicted by, and its residuals.
struct PredictedPart {
    /// Bytes of the block and of an element.
    len: usize,
    width: usize,
    predictor: Predictor,
    classes: Option<Classes>,
    /// Bytes of a residual, of every class.
    widths: Vec<usize>,
    sections: Sections,
}

impl PredictStage {
    /// What [`Blocks::encode`] chose for the blocks of `raw_len` bytes whose records these are. Unchanged runs are taken with all others; blocks that
    /// are not predicted from the base alone are left out.
    ///
    /// # Panics
    /// If they are no such records.
    pub fn new(isa: Isa, raw_len: usize, mut records: &[u8], base: std::sync::Arc<Vec<u8>>) -> Self {
        let mut parts = Vec::new();
        while !records.is_empty() {
            let header = RecordHeader::parse(records[..HEADER_LEN].try_into().expect("a header")).expect("valid");
            let (record, rest) = records.split_at(header.len() as usize);
            let head = BlockHead::parse(&record[HEADER_LEN..][..header.head_len as usize]).expect("valid");
            parts.push(match &head.parts[..] {
                [Part { method: Method::Predicted(p), .. }] => Some(PredictedPart {
                    len: head.raw_len,
                    width: p.width,
                    predictor: p.predictor,
                    classes: p.classes.clone(),
                    widths: p.sections.iter().map(|(_, g)| g.as_ref().map_or(p.width, Grouped::least_width)).collect(),
                    sections: Sections::default(),
                }),
                _ => None,
            });
            records = rest;
        }
        Self { isa, raw_len, base, parts }
    }

    /// Numbers of classes, of every block.
    pub fn classes(&self) -> Vec<usize> {
        let classes = |p: &Option<PredictedPart>| p.as_ref().and_then(|p| p.classes.as_ref()).map_or(1, Classes::count);
        self.parts.iter().map(classes).collect()
    }

    /// Counts classes, and deals residuals to them.
    pub fn partition(&mut self, raw: &[u8]) {
        let blocks = raw.chunks(self.raw_len).zip(self.base.chunks(self.raw_len));
        for ((raw, base), part) in blocks.zip(&mut self.parts) {
            let Some(part) = part else { continue };
            let mut sections = std::mem::take(&mut part.sections);
            let model = part.model(base);
            sections.reset(self.isa.count_classes(&model).into_iter().zip(part.widths.iter().copied()));
            assert!(self.isa.partition(&model, raw, &mut sections), "as it was encoded");
            part.sections = sections;
        }
    }

    /// The inverse of [`Self::partition`], which must have gone before.
    ///
    /// # Panics
    /// If it did not.
    pub fn restore(&self, out: &mut [u8]) {
        let blocks = out.chunks_mut(self.raw_len).zip(self.base.chunks(self.raw_len));
        for ((out, base), part) in blocks.zip(&self.parts) {
            let Some(part) = part else { continue };
            let model = part.model(base);
            if part.classes.is_none() {
                self.isa.restore_in_place(&model, out);
            } else {
                assert!(self.isa.restore(&model, &part.sections, out), "partitioned before");
            }
        }
    }
}

impl PredictedPart {
    fn model<'a>(&'a self, base: &'a [u8]) -> Model<'a> {
        Model {
            width: self.width,
            len: self.len / self.width,
            predictor: self.predictor,
            prediction: base,
            classes: self.classes.as_ref(),
        }
    }
}

/// Builds one table for a histogram of at least one symbol; returns its cost in 1/256 bit.
pub fn build_table(level: Level, histogram: &[u32; 256]) -> u64 {
    match level {
        Level::Fast => huffman::build(histogram, false).1,
        Level::Default => rans::build(histogram, false, rans::COARSE_BITS).1,
        Level::Max => rans::build(histogram, false, rans::FINE_BITS).1,
    }
}

/// XXH3 digests of all leaves of `raw`, as encoding and decoding compute them.
pub fn digests(raw: &[u8]) -> u8 {
    crate::format::checksum::leaves(raw).iter().fold(0, |a, d| a ^ d[0])
}
