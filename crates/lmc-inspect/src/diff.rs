//! The changes of a file since earlier ones: tensor by tensor, as compression sees them.

pub(crate) mod changes;
pub(crate) mod compared;
pub(crate) mod counterparts;
pub(crate) mod entropy;
pub(crate) mod pieces;
mod scales;

use std::collections::BTreeSet;
use std::ops::Range;

use lmc::internals::{EncodedBoth, Sample, encode_both, for_call, source, split_record};
use lmc::{Base, Compressor, Result, Segment, Summary};

use self::changes::{Changes, measure};
use self::counterparts::Relation;
use self::pieces::{Buffers, Comparison};
use self::scales::OfCodes;
use crate::describe::{BlockDescription, ColumnDescription};
use crate::shares::Shares;

/// How a file differs from others, and its size as a delta of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diff {
    /// The segments of the file, in order.
    pub segments: Vec<SegmentDiff>,
    /// The result of compressing the file as a delta.
    pub delta: Summary,
    /// The result of compressing it without bases; some 100 bytes more for each MiB of large tensors that are nearly
    /// all zeros, which are compressed in larger blocks when no delta is compared with them.
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
    /// The place of the counterpart: which base, and which of the base's segments. `None` for a new segment.
    pub counterpart: Option<(usize, usize)>,
    /// Whether the scales that its codes are computed with follow from the counterpart, too; `None` if it has no such.
    pub scales: Option<bool>,
    /// How elements changed.
    pub changes: Changes,
    /// Bytes of the delta that the segment accounts for: its share of the blocks that it lies in. Segments that share a
    /// predicted column of a block divide it by what changed in them: by the bits of the distances, and one for each
    /// element that changed; where nothing changed, by length.
    pub delta_size: u64,
    /// The same for the file compressed without bases, as [`Shares`] divides columns: by length.
    pub alone_size: u64,
    /// How the delta codes the segment's bytes, most bytes first.
    pub coded: Vec<Coded>,
}

/// Bytes that are coded in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coded {
    /// The predictor of the elements, as [`PredictionDescription`](crate::PredictionDescription) names it; `None`
    /// without prediction.
    pub predictor: Option<&'static str>,
    /// Whether they are predicted by earlier bytes of the file itself.
    pub from_itself: bool,
    /// How many bytes.
    pub raw_len: u64,
}

/// The findings of a block, and memory for the next one.
#[derive(Default)]
struct Block {
    /// The parts of the block that belong to segments, in order.
    shares: Vec<Share>,
    buffers: Buffers,
}

/// A segment's bytes of a block.
struct Share {
    segment: usize,
    delta_size: u64,
    alone_size: u64,
    changes: Changes,
    coded: Vec<Coded>,
}

/// Compares a file with earlier ones: matches tensors as [`Compressor::compress`] does, counts the changes, and
/// compresses the file given the bases and without them, for the sizes. Memory is bounded; `progress` is
/// called with the number of raw bytes done so far.
///
/// # Errors
/// `Io` or `Base` when a file cannot be read; `Limit` when the index would be too large for the format.
pub fn diff(
    compressor: &mut Compressor,
    new: &Base<'_>,
    bases: &[Base<'_>],
    progress: &mut dyn FnMut(u64),
) -> Result<Diff> {
    let bases = for_call(compressor, bases);
    let (c, layout) = Comparison::new(new, &bases)?;
    let mut segments = begin(&c);
    let (delta, alone) = encode_both(
        compressor,
        (&source(new), new.raw_size(), layout),
        &bases,
        (true, Sample { every: 1, others: false }),
        |encoded, block| look(&c, encoded, block),
        |block, done| {
            block.shares.drain(..).for_each(|share| segments[share.segment].add(share));
            progress(done);
        },
    )?;
    let alone = alone.expect("it was asked for");
    for s in &mut segments {
        s.coded.sort_by_key(|c| std::cmp::Reverse(c.raw_len));
    }
    let mut compared = BTreeSet::new();
    for (codes, OfCodes { place, scales }) in scales::compare(&c)? {
        let mut follow = true;
        for (i, changes) in scales {
            let s = &mut segments[i];
            if s.state() == Relation::Same {
                continue;
            }
            follow &= changes.changed == 0;
            // Codes may share scales: none of them hides what another one shows.
            if compared.insert(i) || s.changes.changed < changes.changed {
                (s.relation, s.counterpart, s.changes) = (Relation::Derived, Some(place), changes);
            }
        }
        segments[codes].scales = Some(follow);
    }
    Ok(Diff { segments, delta, alone })
}

/// All segments, before anything is counted.
fn begin(c: &Comparison<'_>) -> Vec<SegmentDiff> {
    let each = c.segments.iter().zip(&c.counterparts);
    each.map(|(segment, c)| SegmentDiff {
        segment: segment.clone(),
        relation: c.map_or(Relation::New, |c| c.relation),
        counterpart: c.map(|c| c.place),
        scales: None,
        changes: Changes::default(),
        delta_size: 0,
        alone_size: 0,
        coded: vec![],
    })
    .collect()
}

/// Counts the changes in a block, and its bytes by segment.
fn look(c: &Comparison<'_>, encoded: &EncodedBoth<'_>, block: &mut Block) -> Result<()> {
    let coding = coding(encoded.record)?;
    let alone = Shares::new(encoded.alone)?;
    let Block { shares, buffers } = block;
    let mut pieces = Vec::new();
    c.each_piece(encoded, buffers, |piece| {
        let changes = piece.old.map_or(Changes::default(), |old| measure(piece.dtype, piece.compared, old));
        pieces.push(piece.weighted(&changes));
        shares.push(Share {
            segment: piece.segment,
            delta_size: 0,
            alone_size: alone.of(&piece.bytes),
            changes,
            coded: coded(&coding, &piece.bytes),
        });
    })?;
    let delta = Shares::of_changes(encoded.record, &pieces)?;
    shares.iter_mut().zip(&pieces).for_each(|(share, piece)| share.delta_size = delta.of(&piece.bytes));
    Ok(())
}

impl SegmentDiff {
    /// Adds the part of the segment in a block.
    fn add(&mut self, share: Share) {
        self.delta_size += share.delta_size;
        self.alone_size += share.alone_size;
        self.changes.add(&share.changes);
        match &self.coded[..] {
            // Of most tensors there is no more, and there may be a million: without room for others.
            [] => {
                self.coded = share.coded;
                self.coded.shrink_to_fit();
            }
            _ => share.coded.iter().for_each(|c| note(&mut self.coded, *c)),
        }
    }
}

/// The stretches of a block, in order: where each one ends, and how it is coded.
fn coding(record: &[u8]) -> Result<Vec<(u64, Coded)>> {
    let (head, ..) = split_record(record)?;
    let columns = BlockDescription::new(&head, record.len() as u64).columns;
    let mut end = 0;
    let mut stretches: Vec<(u64, Coded)> = Vec::new();
    for (column, len) in head.extents.iter() {
        end += len as u64;
        let ColumnDescription { prediction, .. } = &columns[usize::from(column)];
        let prediction = prediction.as_ref();
        let from_itself = prediction.is_some_and(|p| p.sources.contains(&0));
        let coded = Coded { predictor: prediction.map(|p| p.predictor), from_itself, raw_len: len as u64 };
        match stretches.last_mut() {
            // Fields of quantised elements alternate.
            Some((last, c)) if (c.predictor, c.from_itself) == (coded.predictor, coded.from_itself) => {
                (*last, c.raw_len) = (end, c.raw_len + coded.raw_len);
            }
            _ => stretches.push((end, coded)),
        }
    }
    Ok(stretches)
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
