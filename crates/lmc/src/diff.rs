//! What became of a file since earlier ones: tensor by tensor, as compression sees it.

pub(crate) mod changes;
pub(crate) mod counterparts;
pub(crate) mod entropy;

use std::ops::Range;

use self::changes::{Changes, measure};
use self::counterparts::{Counterpart, Relation};
use crate::Summary;
use crate::base::Base;
use crate::begun::Begun;
use crate::block::encode::{BlockEncoder, BlockSummary, RawBlock};
use crate::block::output::Output;
use crate::block::{Origin, Piece};
use crate::compress::Compressor;
use crate::describe::BlockDescription;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::format::block_head::BlockHead;
use crate::format::record::{HEADER_LEN, RecordHeader};
use crate::io::read_at;
use crate::layout::{self, Layout, Start};
use crate::origin::Raw;
use crate::segment::Segment;

/// How a file differs from others, and what it takes to store it given them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diff {
    /// The segments of the file, in order.
    pub segments: Vec<SegmentDiff>,
    /// What compressing the file as a delta gives.
    pub delta: Summary,
    /// What compressing it without bases gives; some 100 bytes more for each MiB of large tensors that are nearly all zeros, which are
    /// compressed in larger blocks when no delta is compared with them.
    pub alone: Summary,
}

/// How one segment of a file differs from its counterpart.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SegmentDiff {
    /// The segment.
    pub segment: Segment,
    /// How it came from its counterpart.
    pub relation: Relation,
    /// Where that is: which base, and which of the base's segments. `None` for what is new.
    pub counterpart: Option<(usize, usize)>,
    /// How elements changed.
    pub changes: Changes,
    /// Bytes of the delta that the segment accounts for, by its share of the blocks that it lies in.
    pub delta_size: u64,
    /// The same for the file compressed without bases.
    pub alone_size: u64,
    /// How the delta codes the segment's bytes, most bytes first.
    pub coded: Vec<Coded>,
}

/// Bytes that are coded in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coded {
    /// What the elements are predicted by, as [`PredictionDescription`](crate::PredictionDescription) names it; `None` without prediction.
    pub predictor: Option<&'static str>,
    /// Whether earlier bytes of the file itself predict them.
    pub from_itself: bool,
    /// How many bytes.
    pub raw_len: u64,
}

/// A block under way.
#[derive(Default)]
struct Job {
    offset: u64,
    len: usize,
    /// Given the bases.
    pieces: Vec<Piece>,
    /// The blocks that the same bytes are without them, each with its length: blocks of what hardly changed are larger.
    alone: Vec<(usize, Vec<Piece>)>,
    raw: Vec<u8>,
    base: Vec<u8>,
    converted: Vec<u8>,
    record: Vec<u8>,
    done: Option<Result<Done>>,
}

/// What is known of a block.
struct Done {
    delta: BlockSummary,
    alone: Vec<BlockSummary>,
    /// In order: what of the block belongs to which segment.
    shares: Vec<Share>,
}

struct Share {
    segment: usize,
    /// Bytes of the block.
    bytes: Range<u64>,
    changes: Changes,
    coded: Vec<Coded>,
}

/// The file and what it is compared with.
struct Comparison<'a> {
    new: &'a Base<'a>,
    bases: &'a [Base<'a>],
    segments: Vec<Segment>,
    counterparts: Vec<Option<Counterpart>>,
}

impl Compressor {
    /// Compares a file with earlier ones: matches tensors as [`Self::compress`] does, counts what changed, and
    /// compresses the file given the bases and without them, to tell the sizes. Memory is bounded; `progress` is
    /// called with the number of raw bytes done so far.
    ///
    /// # Errors
    /// `Io` or `Base` when a file cannot be read; `Limit` when the index would be too large for the format.
    pub fn diff(&mut self, new: &Base<'_>, bases: &[Base<'_>], progress: &mut dyn FnMut(u64)) -> Result<Diff> {
        // What the hashes are makes no difference to any size, and computing them takes reading all.
        let bases: Vec<Base<'_>> = self.for_call(bases).into_iter().map(|b| b.with_hash([0; 16])).collect();
        let source = new.source();
        let size = new.raw_size();
        let layout = layout_of(new)?;
        let segments = layout.covering(size);
        let counterparts = counterparts::find(&layout, &segments, &source, &bases)?;
        let c = Comparison { new, bases: &bases, segments, counterparts };
        let mut segments = c.begin();
        let own = Raw::measured(&source);
        let Begun { mut cutter, layout: covered, mut writer, origin, .. } =
            self.begin(layout.clone(), Some(&own), &bases)?;
        let alone = self.begin(layout, Some(&own), &[])?;
        let (mut plain, mut plain_writer, plain_origin) = (alone.cutter.uniform(), alone.writer, alone.origin);
        let mut jobs = Vec::new();
        jobs.resize_with(self.workers().in_flight(), Job::default);
        let mut next = 0;
        self.workers().ordered(
            &mut jobs,
            |job| {
                if next == size {
                    return Ok(None);
                }
                job.offset = next;
                job.len = cutter.next_block(&source, size - next, &mut job.pieces)?;
                let end = next + job.len as u64;
                job.alone.clear();
                while next < end {
                    let mut pieces = Vec::new();
                    let len = plain.next_block(&source, size - next, &mut pieces)?;
                    job.alone.push((len, pieces));
                    next += len as u64;
                }
                assert_eq!(next, end, "a block ends where one without bases ends");
                Ok(Some(4 * job.len))
            },
            |encoder, job| job.done = Some(c.block(job, encoder, &origin, &plain_origin)),
            |job| {
                let done = job.done.take().expect("the worker is done")?;
                writer.block(&done.delta);
                done.alone.iter().for_each(|b| plain_writer.block(b));
                for share in &done.shares {
                    segments[share.segment].add(share, &done);
                }
                progress(writer.raw());
                Ok(())
            },
        )?;
        for s in &mut segments {
            s.coded.sort_by_key(|c| std::cmp::Reverse(c.raw_len));
        }
        Ok(Diff { segments, delta: writer.finish(&covered)?.1, alone: plain_writer.finish(&covered)?.1 })
    }
}

/// The layout of a file that may be compressed already, and then knows the dtype of data without a format.
fn layout_of(file: &Base<'_>) -> Result<Layout> {
    let unnamed = |s: &&Segment| s.name.as_deref() == Some("");
    let dtype = file.segments().first().filter(unnamed).filter(|_| file.is_raw()).and_then(|s| s.dtype);
    layout::detect(&mut Start::new(&file.source(), file.raw_size(), "the input"), dtype)
}

impl Comparison<'_> {
    /// All segments, before anything is counted.
    fn begin(&self) -> Vec<SegmentDiff> {
        let each = self.segments.iter().zip(&self.counterparts);
        each.map(|(segment, c)| SegmentDiff {
            segment: segment.clone(),
            relation: c.map_or(Relation::New, |c| c.relation),
            counterpart: c.map(|c| c.place),
            changes: Changes::default(),
            delta_size: 0,
            alone_size: 0,
            coded: vec![],
        })
        .collect()
    }

    /// Encodes a block in both ways, and counts what changed.
    fn block(
        &self,
        job: &mut Job,
        encoder: &mut BlockEncoder,
        origin: &dyn Origin,
        plain_origin: &dyn Origin,
    ) -> Result<Done> {
        // The rest of an element that the block's end cuts is read, too: it is compared as a whole.
        let rest = (self.new.raw_size() - job.offset - job.len as u64).min(MAX_ELEMENT - 1) as usize;
        job.raw.resize(job.len + rest, 0);
        read_at(&self.new.source(), "the input", &mut job.raw, job.offset)?;
        let mut out = Output::new(&mut job.record);
        let mut alone = Vec::with_capacity(job.alone.len());
        let mut rest = &job.raw[..job.len];
        for (len, pieces) in &job.alone {
            let block = rest.split_off(..*len).expect("they add up to the block");
            alone.push(encoder.encode(&RawBlock::new(block, pieces), plain_origin, &mut out)?);
            out.truncate(0);
        }
        let delta = encoder.encode(&RawBlock::new(&job.raw[..job.len], &job.pieces), origin, &mut out)?;
        out.finish();
        let coding = coding(&job.record)?;
        let mut shares = Vec::new();
        let end = job.offset + job.len as u64;
        let first = self.segments.partition_point(|s| s.end() <= job.offset);
        for (i, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.offset >= end {
                break;
            }
            let bytes = segment.offset.max(job.offset)..segment.end().min(end);
            if bytes.is_empty() {
                continue;
            }
            let mut changes = Changes::default();
            // Elements that begin in the block.
            let width = segment.dtype.map_or(1, Dtype::coding_width) as u64;
            let pos = (bytes.start - segment.offset).next_multiple_of(width);
            let until = (bytes.end - segment.offset).next_multiple_of(width);
            if let Some(c) = self.counterparts[i].filter(|c| c.len > pos && until > pos) {
                let len = until.min(c.len) - pos;
                let (base, converted) = (&mut job.base, &mut job.converted);
                let old = c.read(segment, pos, len as usize, self.bases, base, converted)?;
                let new = &job.raw[(segment.offset + pos - job.offset) as usize..][..len as usize];
                changes = measure(segment.dtype, new, old);
            }
            let bytes = bytes.start - job.offset..bytes.end - job.offset;
            let coded = coded(&coding, &bytes);
            shares.push(Share { segment: i, bytes, changes, coded });
        }
        Ok(Done { delta, alone, shares })
    }
}

impl SegmentDiff {
    fn add(&mut self, share: &Share, block: &Done) {
        // Shares of a record in whole bytes, which add up to it.
        let raw_len = u128::from(block.delta.raw_len);
        let before = |record_len: u64, at: u64| (u128::from(record_len) * u128::from(at) / raw_len) as u64;
        let part = |record_len| before(record_len, share.bytes.end) - before(record_len, share.bytes.start);
        self.delta_size += part(block.delta.record_len);
        self.alone_size += part(block.alone.iter().map(|b| b.record_len).sum());
        self.changes.add(&share.changes);
        match &self.coded[..] {
            // Of most tensors there is no more, and there may be a million: without room for others.
            [] => self.coded = share.coded.clone(),
            _ => share.coded.iter().for_each(|c| note(&mut self.coded, *c)),
        }
    }
}

/// Bytes of the widest element.
const MAX_ELEMENT: u64 = 8;

/// The stretches of a block, in order: where each one ends, and how it is coded.
fn coding(record: &[u8]) -> Result<Vec<(u64, Coded)>> {
    let broken = || Error::damaged("a block that was just encoded has no head: this is a bug");
    let (header, rest) = record.split_first_chunk::<HEADER_LEN>().ok_or_else(broken)?;
    let head_len = RecordHeader::parse(header)?.head_len as usize;
    let head = BlockHead::parse(rest.get(..head_len).ok_or_else(broken)?)?;
    let parts = BlockDescription::new(&head, record.len() as u64).parts;
    let mut end = 0;
    let stretches = head.pieces.iter().map(|&(part, len)| {
        end += len as u64;
        let prediction = parts[usize::from(part)].prediction.as_ref();
        let from_itself = prediction.is_some_and(|p| p.sources.contains(&0));
        (end, Coded { predictor: prediction.map(|p| p.predictor), from_itself, raw_len: len as u64 })
    });
    Ok(stretches.collect())
}

/// How some bytes of a block are coded.
fn coded(coding: &[(u64, Coded)], bytes: &Range<u64>) -> Vec<Coded> {
    let mut found = Vec::new();
    for (end, c) in &coding[coding.partition_point(|(end, _)| *end <= bytes.start)..] {
        let start = end - c.raw_len;
        if start >= bytes.end {
            break;
        }
        note(&mut found, Coded { raw_len: (*end).min(bytes.end) - start.max(bytes.start), ..*c });
    }
    found
}

/// Counts bytes with those that are coded in the same way.
fn note(list: &mut Vec<Coded>, c: Coded) {
    match list.iter_mut().find(|l| (l.predictor, l.from_itself) == (c.predictor, c.from_itself)) {
        Some(l) => l.raw_len += c.raw_len,
        None => list.push(c),
    }
}
