//! What `lmc-inspect` and `lmc-store` use of blocks. **It is no API and follows no version rule**: anything here may change
//! or go in any release, so these crates depend on exactly one version.

pub use crate::api::compress::with_and_without_bases::{EncodedBoth, Sample, encode_both, for_call};
pub use crate::block::decode::BlockDecoder;
pub use crate::block::encode::BlockEncoder;
pub use crate::block::head::BlockHead;
pub use crate::block::methods::predicted::Predicted;
pub use crate::block::methods::predicted::derived::Derivation;
pub use crate::block::methods::predicted::grid::{Grid, name_of as grid_format};
pub use crate::block::methods::predicted::operand::Operand;
pub use crate::block::methods::zstd::Zstd;
pub use crate::block::methods::{Column, Method};
pub use crate::block::output::Output;
pub use crate::block::ranges::NamedRanges;
pub use crate::block::stream::body::LaneCounts;
pub use crate::block::stream::plan::{Planner, coding_of};
pub use crate::block::stream::{Cluster, Mask, Numbers, Palette, Patches, Stream};
pub use crate::block::{DerivedFrom, Extent, Group, Origin, Recipe, Reference};
pub use crate::format::bases::SourceRange;
pub use crate::format::record::HEADER_LEN;
pub use crate::refs::derived::{LARGEST_CODES, copied_from, stem};
pub use crate::refs::intra_file::rounded_from;
pub use crate::refs::matching::{Fit, Matcher, Named, Related};

use crate::api::reader::Reader;
use crate::block::encode::RawBlock;
use crate::file::open::BlockInfo;
use crate::format::checksum::leaves;
use crate::format::record::RecordHeader;
use crate::refs::base::Base;
use crate::settings::level::Level;
use lmc_kernels::entropy::coder::Coder;
use lmc_kernels::entropy::{huffman, rans};
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::job::{Model, Streams};
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::io::ReadAt;

/// The place of a block, and its head.
///
/// # Errors
/// `Usage` when there is no such block; otherwise those of [`Reader::read_range`].
pub fn block_head<R: ReadAt>(reader: &Reader<'_, R>, block: u64) -> Result<(BlockInfo, BlockHead)> {
    reader.block_head(block)
}

/// Takes the first record off those of several blocks: its head, its body, and the rest.
///
/// # Errors
/// `Damaged` and `Unsupported` when it has no head that can be read.
///
/// # Panics
/// If it ends early.
pub fn split_record(records: &[u8]) -> Result<(BlockHead, &[u8], &[u8])> {
    let (header, _) = records.split_first_chunk().expect("a record has a header");
    let header = RecordHeader::parse(header)?;
    let (record, rest) = records.split_at(header.len() as usize);
    let (head, body) = record[HEADER_LEN..].split_at(header.head_len as usize);
    Ok((BlockHead::parse(head)?, body, rest))
}

/// The name of a cluster's coder: "none", "huffman", "rans" or "fine-rans".
pub fn coder_name(cluster: &Cluster) -> &'static str {
    match &cluster.coder {
        Coder::None => "none",
        Coder::Huffman(_) => "huffman",
        Coder::Rans(r) if r.log_slots == rans::COARSE_BITS => "rans",
        Coder::Rans(_) => "fine-rans",
    }
}

/// The ranges that a column is predicted from; none of a grid.
pub fn ranges(head: &BlockHead, column: &Predicted) -> Vec<SourceRange> {
    column.operand.named().iter().flat_map(|named| named.of(&head.ranges)).copied().collect()
}

/// Where the raw bytes of a base are.
pub fn source<'b, 'a>(base: &'b Base<'a>) -> &'b (dyn ReadAt + Send + 'a) {
    base.source()
}

/// Fills `buf` with raw bytes of a base.
///
/// # Errors
/// Those of reading the base.
pub fn read_base(base: &Base<'_>, offset: u64, buf: &mut [u8]) -> Result<()> {
    base.read(offset, buf)
}

/// Appends the record of a block to `out`. The lengths of `extents` add up to it.
///
/// # Errors
/// Those of `origin`.
pub fn encode_block(
    encoder: &mut BlockEncoder,
    raw: &[u8],
    extents: &[Extent],
    origin: &dyn Origin,
    out: &mut Output<'_>,
) -> Result<()> {
    encoder.encode(&RawBlock::new(raw, extents), origin, out).map(|_| ())
}

/// Plans a column, as encoding does before it codes the first symbol; returns the estimated size in bytes.
pub fn plan(planner: &mut Planner, dtype: Dtype, raw: &[u8]) -> u64 {
    let (width, map) = coding_of(dtype);
    planner.plan(width, map, raw).estimate
}

/// Builds a table of a level for a histogram of at least one symbol; gives its cost in 1/256 bit.
pub fn build_table(level: Level, histogram: &[u32; 256]) -> u64 {
    match level {
        Level::Fast => huffman::build(histogram, false).1,
        Level::Default => rans::build(histogram, false, rans::COARSE_BITS).1,
        Level::Max => rans::build(histogram, false, rans::FINE_BITS).1,
    }
}

/// Digests of the leaves of `raw`, which begin at multiples of 256 KiB.
pub fn digests(raw: &[u8]) -> Vec<[u8; 16]> {
    leaves(raw)
}

/// The model of a column without terms of rows.
fn model<'m>(column: &'m Predicted, prediction: &'m [u8]) -> Model<'m> {
    assert!(column.terms.is_none(), "there are no terms of rows");
    Model {
        width: column.width,
        len: prediction.len() / column.width,
        prediction,
        contexts: column.contexts.as_ref(),
        terms: None,
    }
}

/// Counts the contexts of the elements of a column, all of its runs, and scatters their residuals to `streams`.
///
/// # Panics
/// If the column was not encoded from these elements and their prediction, or has terms of rows.
pub fn partition(isa: Isa, column: &Predicted, prediction: &[u8], elements: &[u8], streams: &mut Streams) {
    let model = model(column, prediction);
    let widths = column.streams.iter().map(|(_, g)| g.as_ref().map_or(column.width, Stream::least_width));
    streams.reset(isa.count_contexts(&model).into_iter().zip(widths));
    assert!(isa.partition(&model, elements, streams), "as it was encoded");
}

/// The inverse of [`partition`]. With one context `out` holds its residuals before.
///
/// # Panics
/// If `streams` are not of this column.
pub fn restore(isa: Isa, column: &Predicted, prediction: &[u8], streams: &Streams, out: &mut [u8]) {
    let model = model(column, prediction);
    if column.contexts.is_none() {
        isa.restore_in_place(&model, out);
    } else {
        assert!(isa.restore(&model, streams, out), "partitioned before");
    }
}
