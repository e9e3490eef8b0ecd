//! Encoding a block.

use super::choose::{Chooser, Predictions};
use super::gather::{Columns, Source, gather};
use super::head::BlockHead;
use super::methods::planned::ColumnPlan;
use super::methods::predicted::derived::Derivation;
use super::methods::predicted::steps;
use super::methods::{Column, Method};
use super::output::Output;
use super::ranges::{NamedRanges, read_all};
use super::stream::body::LaneCounts;
use super::stream::encode::LaneEncoder;
use super::stream::planned::{Elements, Item};
use super::structure::Finder;
use super::{Extent, Origin};
use crate::format::bases::SourceRange;
use crate::format::checksum::{Digest, block_digest, check64, leaf_lens, leaves, read_leaves};
use crate::format::extents::Extents;
use crate::format::frames::FrameEncoder;
use crate::format::header::Features;
use crate::format::record::{self, RecordHeader};
use crate::settings::level::Level;
use lmc_kernels::entropy::{LANES, SETS};
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::{Conversion, convert};
use lmc_layout::error::Result;
use lmc_layout::io::{ReadAt, read_at, scratch};

/// Encodes blocks one after the other, keeping its working memory.
pub struct BlockEncoder {
    isa: Isa,
    level: Level,
    chooser: Chooser,
    finder: Finder,
    /// Of level `default`, for comparisons; made on first use.
    simple: Option<Box<Chooser>>,
    head: Vec<u8>,
    lanes: LaneEncoder,
    /// Bytes of a prediction's ranges, raw and converted; of the further operands of a step, or of scales; and the predictions of either.
    bytes: [Vec<u8>; 4],
}

/// A block to encode: its bytes, their types, and the digests of their leaves.
pub(crate) struct RawBlock<'a> {
    raw: &'a [u8],
    extents: &'a [Extent],
    leaves: Vec<Digest>,
}

impl<'a> RawBlock<'a> {
    /// `raw` has 1 to `MAX_RAW` bytes, and the lengths of `extents` (none zero) add up to it.
    ///
    /// Hashes the leaves, which also fetches the block sequentially into the cache: the planner's scattered samples would wait for memory.
    pub(crate) fn new(raw: &'a [u8], extents: &'a [Extent]) -> Self {
        check(raw, extents);
        Self { raw, extents, leaves: leaves(raw) }
    }

    /// Fills `buf` with the bytes of the input from `offset` on, and hashes its leaves while they are in the cache.
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub(crate) fn read(src: &dyn ReadAt, offset: u64, buf: &'a mut [u8], extents: &'a [Extent]) -> Result<Self> {
        check(buf, extents);
        let leaves = read_leaves(buf, |at, to| read_at(src, "the input", to, offset + at as u64))?;
        Ok(Self { raw: buf, extents, leaves })
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Length and digest of each leaf.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (usize, Digest)> {
        leaf_lens(self.raw.len()).zip(self.leaves.iter().copied())
    }
}

/// How a block is encoded.
#[derive(Clone, Copy)]
struct Way {
    level: Level,
    /// Whether its references are used.
    predict: bool,
    /// Whether its elements may be on grids.
    grids: bool,
}

/// A block that was encoded in one way.
struct Encoded {
    summary: BlockSummary,
    /// Its estimated bytes, if ranges predict some.
    promised: Option<u64>,
    /// Whether it is long and all its columns are clusters.
    is_clusters: bool,
    has_grids: bool,
}

/// A block's data for the index and the content hash.
pub(crate) struct BlockSummary {
    pub(crate) record_len: u64,
    pub(crate) raw_len: u64,
    pub(crate) features: Features,
    pub(crate) leaves: Vec<Digest>,
}

impl BlockEncoder {
    /// Nothing encoded yet.
    pub fn new(isa: Isa, level: Level) -> Self {
        Self {
            isa,
            level,
            chooser: Chooser::new(isa, level),
            finder: Finder::default(),
            simple: None,
            head: Vec::new(),
            lanes: LaneEncoder::new(isa),
            bytes: Default::default(),
        }
    }

    /// Makes frames, with this encoder's working memory.
    pub(crate) fn frames(&mut self) -> &mut FrameEncoder {
        self.chooser.frames()
    }

    /// Upper bound of a record of these extents, in bytes.
    pub(crate) fn bound(extents: &[Extent]) -> usize {
        record::HEADER_LEN + STORED_OVERHEAD + extents.iter().map(|p| p.len).sum::<usize>()
    }

    /// Appends the record of a block to `out`.
    ///
    /// Methods are chosen by estimates. Where these may be wrong, the block is encoded in other ways, too, and the shortest record stays:
    /// without predictions if it is larger than they promised; without grids if it has some; and at level `max` as level `default` does,
    /// unless the block is long and has nothing but clusters of elements, whose tables save more than they take.
    ///
    /// # Errors
    /// Those of `origin`. If it reports that the file changed since its bytes were stored, the block is encoded without predictions.
    pub(crate) fn encode(
        &mut self,
        block: &RawBlock<'_>,
        origin: &dyn Origin,
        out: &mut Output<'_>,
    ) -> Result<BlockSummary> {
        let (start, mut usual) = (out.len(), Way { level: self.level, predict: true, grids: true });
        let first = match self.encode_as(block, origin, usual, out) {
            Err(e) if e.is_changed() => {
                out.truncate(start);
                usual.predict = false;
                self.encode_as(block, origin, usual, out)
            }
            done => done,
        }?;
        let mut best = first.summary;
        let is_larger = first.promised.is_some_and(|p| best.record_len > p + p / 64 + 1024);
        let others = [
            is_larger.then_some(Way { predict: false, ..usual }),
            first.has_grids.then_some(Way { grids: false, ..usual }),
            (self.level == Level::Max && !first.is_clusters).then_some(Way { level: Level::Default, ..usual }),
        ];
        for way in others.into_iter().flatten() {
            let kept = out.since(start).to_vec();
            out.truncate(start);
            match self.encode_as(block, origin, way, out) {
                Ok(other) if other.summary.record_len < best.record_len => {
                    best = other.summary;
                    continue;
                }
                Err(e) if !e.is_changed() => return Err(e),
                _ => {}
            }
            out.truncate(start);
            out.extend(&kept);
        }
        Ok(best)
    }

    /// Encodes a block in one way.
    fn encode_as(
        &mut self,
        block: &RawBlock<'_>,
        origin: &dyn Origin,
        way: Way,
        out: &mut Output<'_>,
    ) -> Result<Encoded> {
        let (start, RawBlock { raw, extents, leaves }) = (out.len(), block);
        let (columns, mut plans) = self.plan(raw, extents, origin, way)?;
        let Columns { sources, placed, .. } = columns;
        let ranges = name_ranges(&sources, &mut plans);
        let bulk_len: usize = plans.iter().zip(&sources).map(|(p, s)| p.bulk_len(s.bytes.len())).sum();
        let predicted = !ranges.is_empty();
        let promised: u64 = plans.iter().map(|p| p.estimate).sum();
        let is_clusters =
            raw.len() >= CLUSTERS_LEAST && plans.iter().all(|p| p.chunks() > 0 && matches!(p.method, Method::Plain(_)));
        let has_grids = plans.iter().any(|p| matches!(&p.method, Method::Predicted(m) if m.operand.grid().is_some()));
        let columns =
            plans.iter().zip(&sources).map(|(p, s)| Column { len: s.bytes.len(), method: p.method.clone() }).collect();
        let chunks: usize = plans.iter().map(ColumnPlan::chunks).sum();
        // Like the counts, it has a fixed length.
        let body_check = predicted.then_some(0);
        let mut head = BlockHead {
            raw_len: raw.len(),
            body_check,
            ranges,
            lanes: (chunks > 0).then_some(LaneCounts { words: [0; SETS], literals: 0 }),
            extents: placed,
            columns,
            digest: block_digest(leaves),
        };
        // Bulk bytes, most of a body, are written in place: lane counts have a fixed width, so the head's length is known.
        self.head.clear();
        head.put(&mut self.head);
        let (header_len, head_len) = (record::HEADER_LEN, self.head.len());
        out.grow(header_len + head_len);
        self.encode_columns(&sources, &plans, out.grow(bulk_len));
        if let Some(counts) = &mut head.lanes {
            *counts = self.lanes.put_lanes(out);
        }
        let body_len = out.len() - start - header_len - head_len;
        let promised = promised + (header_len + head_len + if chunks > 0 { STATES } else { 0 }) as u64;
        plans.into_iter().for_each(|p| self.chooser(way.level).recycle(p));
        if header_len + head_len + body_len > Self::bound(extents) {
            // Whatever a sample promised: never more than the bytes as they are.
            out.truncate(start);
            head.lanes = None;
            head.body_check = None;
            head.ranges.clear();
            head.extents = Extents::whole(raw.len());
            head.columns = vec![Column { len: raw.len(), method: Method::Stored }];
            self.put_head(&head, raw.len(), out);
            out.extend(raw);
        } else {
            if let Some(check) = &mut head.body_check {
                *check = check64(out.since(start + header_len + head_len));
            }
            self.head.clear();
            head.put(&mut self.head);
            assert_eq!(self.head.len(), head_len, "counts have a fixed width");
            out.replace(start, &RecordHeader::encode(record::BLOCK, &self.head, body_len as u64));
            out.replace(start + header_len, &self.head);
        }
        let record_len = (out.len() - start) as u64;
        let (raw_len, features) = (raw.len() as u64, head.features());
        let summary = BlockSummary { record_len, raw_len, features, leaves: leaves.clone() };
        Ok(Encoded { summary, promised: predicted.then_some(promised), is_clusters, has_grids })
    }

    /// The chooser of a level: that of this encoder, or `default`.
    fn chooser(&mut self, level: Level) -> &mut Chooser {
        if level == self.level {
            return &mut self.chooser;
        }
        self.simple.get_or_insert_with(|| Box::new(Chooser::new(self.isa, level)))
    }

    /// Plans the columns of a block.
    fn plan<'b>(
        &mut self,
        raw: &'b [u8],
        extents: &[Extent],
        origin: &dyn Origin,
        way: Way,
    ) -> Result<(Columns<'b>, Vec<ColumnPlan>)> {
        let mut plan = |divide| -> Result<_> {
            let columns = gather(raw, extents, way.predict, divide, &mut self.finder);
            let plans: Vec<_> = columns.sources.iter().map(|s| self.choose(s, origin, way)).collect::<Result<_>>()?;
            let size = plans.iter().map(|p| p.estimate).sum::<u64>() + (EXTENT * columns.placed.count()) as u64;
            Ok((size, columns, plans))
        };
        let mut best = plan(true)?;
        // Tables in programs may look like elements.
        if best.1.divided {
            let mut other = plan(false)?;
            if other.0 <= best.0 {
                std::mem::swap(&mut best, &mut other);
            }
            other.2.into_iter().for_each(|p| self.chooser(way.level).recycle(p));
        }
        Ok((best.1, best.2))
    }

    /// Plans one column; reads its ranges.
    fn choose(&mut self, s: &Source<'_>, origin: &dyn Origin, way: Way) -> Result<ColumnPlan> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let plan = self.choose_with(s, origin, way, &mut bytes);
        self.bytes = bytes;
        plan
    }

    fn choose_with(
        &mut self,
        s: &Source<'_>,
        origin: &dyn Origin,
        way: Way,
        [base, converted, others, stepped]: &mut [Vec<u8>; 4],
    ) -> Result<ColumnPlan> {
        let len = s.bytes.len();
        let chooser = self.chooser(way.level);
        let predictions = if let Some(derivation) = s.derived() {
            let elements = read_all(&s.base, origin, &mut *base)?;
            let scales = match derivation {
                Derivation::Codes(_, _, true) => {
                    let at = &s.others[0][0];
                    let scales = scratch(others, at.len as usize);
                    origin.peek(at.offset, scales)?;
                    &*scales
                }
                _ => read_all(&s.others[0], origin, others)?,
            };
            derivation.predict(elements, scales, scratch(stepped, len));
            Predictions::Derived { prediction: &stepped[..len], derivation, scales }
        } else if let Some(conversion) = s.conversion() {
            let mut prediction = read_all(&s.base, origin, &mut *base)?;
            if conversion != Conversion::None {
                convert(conversion, prediction, converted);
                prediction = converted;
            }
            let step = match s.step().filter(|_| conversion == Conversion::None) {
                Some(step) => {
                    steps::plan::predict(step, prediction, &s.others, origin, others, scratch(stepped, len))?;
                    Some((&stepped[..len], step))
                }
                None => None,
            };
            Predictions::Base { prediction, conversion, step }
        } else {
            Predictions::None
        };
        chooser.choose(&s.column(way.grids), predictions)
    }

    /// Encodes all columns, from the last to the first, into `bulk` and the lanes.
    fn encode_columns(&mut self, sources: &[Source<'_>], plans: &[ColumnPlan], bulk: &mut [u8]) {
        let chunks: usize = plans.iter().map(ColumnPlan::chunks).sum();
        if chunks > 0 {
            self.lanes.reset(chunks, plans.iter().map(ColumnPlan::clusters).sum());
        }
        let mut end = bulk.len();
        for (plan, source) in plans.iter().zip(sources).rev() {
            let begin = end - plan.bulk_len(source.bytes.len());
            let space = &mut bulk[begin..end];
            if plan.method == Method::Stored {
                space.copy_from_slice(&source.bytes);
            }
            let mut item_end = space.len();
            for item in plan.body.iter().rev() {
                let item_begin = item_end - item.len();
                let space = &mut space[item_begin..item_end];
                match item {
                    Item::Bytes(bytes) => space.copy_from_slice(bytes),
                    Item::Cluster(g) => {
                        let elements = match &g.elements {
                            Elements::Column => &source.bytes[..],
                            Elements::Context(context) => plan.residuals.get(*context),
                            Elements::Own(elements) => elements,
                        };
                        self.lanes.encode_cluster(g, &elements[..g.n * g.width], space);
                    }
                }
                item_end = item_begin;
            }
            end = begin;
        }
    }

    fn put_head(&mut self, head: &BlockHead, body_len: usize, out: &mut Output<'_>) {
        self.head.clear();
        head.put(&mut self.head);
        out.extend(&RecordHeader::encode(record::BLOCK, &self.head, body_len as u64));
        out.extend(&self.head);
    }
}

/// Concatenates the ranges of all columns, and sets which of them each column names.
fn name_ranges(sources: &[Source<'_>], plans: &mut [ColumnPlan]) -> Vec<SourceRange> {
    let mut list = Vec::new();
    for (source, plan) in sources.iter().zip(plans) {
        let Method::Predicted(p) = &mut plan.method else { continue };
        let lists = [&source.base].into_iter().chain(&source.others);
        for (named, ranges) in p.operand.named_mut().into_iter().zip(lists) {
            *named = NamedRanges::new(list.len(), ranges.len());
            list.extend_from_slice(ranges);
        }
    }
    list
}

/// Bytes of all lane states.
const STATES: usize = 4 * SETS * LANES;

/// Bytes of an extent in a head, for estimates.
const EXTENT: usize = 4;
/// Raw bytes of a block whose tables are a small part.
const CLUSTERS_LEAST: usize = 512 << 10;

/// Upper bound of the head of a stored block, in bytes.
const STORED_OVERHEAD: usize = 32;

/// Checks the lengths of a block and of its extents.
fn check(raw: &[u8], extents: &[Extent]) {
    assert_eq!(extents.iter().map(|p| p.len).sum::<usize>(), raw.len(), "extents cover the block");
    assert!((1..=crate::format::limits::MAX_RAW).contains(&raw.len()) && extents.iter().all(|p| p.len > 0));
}
