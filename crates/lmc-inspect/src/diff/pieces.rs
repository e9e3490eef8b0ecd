//! The blocks of a file as pieces of its segments, each with its counterpart in the bases.

use std::ops::Range;

use lmc::internals::{EncodedBoth, source};
use lmc::{Base, Dtype, Result, Segment};
use lmc_layout::Layout;
use lmc_layout::layout_of;

use super::changes::Changes;
use super::counterparts::{self, Counterpart};
use crate::shares::Weighted;

/// The segments of a file and their counterparts.
pub(crate) struct Comparison<'a> {
    pub(crate) own: &'a Base<'a>,
    pub(crate) bases: &'a [Base<'a>],
    pub(crate) segments: Vec<Segment>,
    pub(crate) counterparts: Vec<Option<Counterpart>>,
}

/// Memory for pieces of bases.
#[derive(Default)]
pub(crate) struct Buffers {
    base: Vec<u8>,
    converted: Vec<u8>,
}

/// A segment's bytes of a block.
pub(crate) struct Piece<'p> {
    /// Which segment.
    pub(crate) segment: usize,
    pub(crate) dtype: Option<Dtype>,
    /// Where its elements begin in the segment.
    pub(crate) at: u64,
    /// Its bytes of the block.
    pub(crate) bytes: Range<u64>,
    /// The elements that begin in the block; one that the block's end cuts is here as a whole.
    pub(crate) elements: &'p [u8],
    /// Those of them, the first ones, that have counterparts.
    pub(crate) compared: &'p [u8],
    /// Their counterparts, if there are any.
    pub(crate) old: Option<&'p [u8]>,
}

impl Piece<'_> {
    /// The piece, weighed by how it changed. Each element that changed weighs as many bits as its distance has, and one for
    /// its direction; one without a distance or a counterpart, all its bits.
    pub(crate) fn weighted(&self, changes: &Changes) -> Weighted {
        let width = self.dtype.map_or(1, Dtype::coding_width) as u64;
        let near = (2..).zip(&changes.levels).map(|(bits, n)| bits * n).sum::<u64>();
        let ordered = changes.levels.iter().sum::<u64>();
        let alone = (self.bytes.end - self.bytes.start).saturating_sub(changes.compared * width);
        Weighted { bytes: self.bytes.clone(), weight: near + 8 * (width * (changes.changed - ordered) + alone) }
    }
}

impl<'a> Comparison<'a> {
    /// Matches the segments of a file with those of its bases; gives the file's layout, too.
    pub(crate) fn new(file: &'a Base<'a>, bases: &'a [Base<'a>]) -> Result<(Self, Layout)> {
        let (source, size) = (source(file), file.raw_size());
        // Of a file that is compressed already, the dtype of data without a format is known.
        let unnamed = |s: &&Segment| s.name.as_deref() == Some("");
        let dtype = file.segments().first().filter(unnamed).filter(|_| file.layout() == "raw").and_then(|s| s.dtype);
        let layout = layout_of(&source, size, dtype)?;
        let segments = layout.covering(size).into_owned();
        let counterparts = counterparts::find(&layout, &segments, &source, bases)?;
        Ok((Self { own: file, bases, segments, counterparts }, layout))
    }

    /// Calls `f` with each segment's bytes of a block, in order.
    pub(crate) fn each_piece(
        &self,
        encoded: &EncodedBoth<'_>,
        buffers: &mut Buffers,
        mut f: impl FnMut(Piece<'_>),
    ) -> Result<()> {
        let end = encoded.offset + encoded.raw.len() as u64;
        let first = self.segments.partition_point(|s| s.end() <= encoded.offset);
        for (i, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.offset >= end {
                break;
            }
            let bytes = segment.offset.max(encoded.offset)..segment.end().min(end);
            if bytes.is_empty() {
                continue;
            }
            let width = segment.dtype.map_or(1, Dtype::coding_width) as u64;
            let pos = (bytes.start - segment.offset).next_multiple_of(width);
            let until = (bytes.end - segment.offset).next_multiple_of(width).min(segment.len - segment.len % width);
            let start = (segment.offset + pos - encoded.offset) as usize;
            let len = until.saturating_sub(pos) as usize;
            let elements = encoded.with_rest.get(start..).and_then(|rest| rest.get(..len)).unwrap_or_default();
            let (mut old, mut len) = (None, 0);
            if let Some(c) = self.counterparts[i].filter(|c| c.len > pos && until > pos) {
                len = (until.min(c.len) - pos) as usize;
                let Buffers { base, converted } = &mut *buffers;
                old = Some(c.read(segment, pos, len, (self.own, self.bases), base, converted)?);
            }
            f(Piece {
                segment: i,
                dtype: segment.dtype,
                at: pos,
                bytes: bytes.start - encoded.offset..bytes.end - encoded.offset,
                elements,
                compared: &elements[..len],
                old,
            });
        }
        Ok(())
    }
}
