//! Units: where blocks begin and end, decided from the layout alone.
//!
//! A segment of [`UNIT_MIN`] bytes or more is a unit of its own and is cut into blocks. Smaller ones are gathered, in
//! order, into *packs* of one block each. Leaves of the content hash restart with every unit, so nothing here but
//! [`BLOCK`] and [`LAST_BLOCK_MAX`] may change without changing content hashes.

use crate::block::head::{Dependency, MAX_RAW};
use crate::block::{Link, Piece};
use crate::checksum::LEAF;
use crate::container::bases::{Depths, MAX_DEPTH};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::group::element::zeros_in;
use crate::io::{ReadAt, read_at};
use crate::layout::Layout;
use crate::matching::{Distance, Matcher, Related};
use crate::predict::Conversion;
use crate::segment::{Name, Segment};

/// Raw bytes of a block of a large segment.
pub(crate) const BLOCK: u64 = 1 << 20;
/// The last block of a large segment takes up to this much, so that no tiny block is left over.
pub(crate) const LAST_BLOCK_MAX: u64 = BLOCK + BLOCK / 4;
/// Raw bytes of a block of a large segment of which little changed since its base: what blocks cost by themselves is much of a sparse delta.
const CALM_BLOCK: u64 = 4 * BLOCK;
/// The same where next to nothing changed. Such a block may hold several units, the last of which may go on in the next block.
const SPARSE_BLOCK: u64 = 8 * BLOCK;
/// The same where hardly a bit changed: what is told of such a block is little more than its head. Nearly all that a block may have.
const STILL_BLOCK: u64 = 15 * BLOCK;
/// A large segment is cut into such blocks, too, after a first one of [`BLOCK`], where fewer than one element of so many is other than zero:
/// in that first block, and in what would be the next one.
const MOSTLY_ZERO: usize = 32;
/// What tells that: stretches of the segment's beginning, or of what comes next of it, of so many bytes each.
const ZERO_STRETCHES: u64 = 16;
const ZERO_STRETCH: u64 = 512;
/// Of eight bits of a sample fewer than so many differ where little changed: then neighbours are alike, and tables serve more of them.
const CALM_EIGHTHS: u64 = 5;
/// Of so many bits of a sample less than one differs where next to nothing changed.
const SPARSE: u64 = 64;
/// The same where hardly a bit does.
const STILL: u64 = 1024;
/// A segment of at least this size is not packed.
const UNIT_MIN: u64 = 1 << 19;
/// A pack that has reached this size is closed.
const PACK_MIN: u64 = 1 << 20;
/// A pack with this many pieces is closed: millions of tensors of one byte must not make one head.
const PACK_PIECES: usize = 1 << 14;
/// What must be known of the bytes ahead to decide on a pack, or on the first block of a large segment.
const LOOKAHEAD: u64 = 1 << 21;

/// The last block of a large segment takes up to this much, if others take `block`.
const fn last_block_max(block: u64) -> u64 {
    block + BLOCK / 4
}

const _: () =
    assert!(BLOCK.is_multiple_of(LEAF as u64) && LOOKAHEAD > LAST_BLOCK_MAX && LOOKAHEAD >= PACK_MIN + UNIT_MIN);
const _: () = assert!(LAST_BLOCK_MAX == last_block_max(BLOCK) && last_block_max(STILL_BLOCK) < MAX_RAW as u64);

/// Cuts a file, front to back, into blocks.
pub(crate) struct Planner<'m> {
    layout: Layout,
    /// Finds what segments may be predicted from.
    matcher: Option<Matcher<'m>>,
    /// An earlier tensor of the file for each segment, if one says the same; empty where nobody looked.
    siblings: Vec<Option<Link>>,
    /// Where the next byte is in the file, and where its block begins.
    at: u64,
    block: u64,
    /// The segment that comes next; the number of segments once only the tail is left.
    next: usize,
    /// Bytes of that segment that are not in a block yet.
    left: u64,
    /// Whether the segment is a unit of its own, and how large its blocks are then.
    large: bool,
    block_len: u64,
    /// How much of it changed.
    of_unit: Distance,
    /// Whether tensors are looked at for zeros: not where only the layout is known.
    reads: bool,
    /// Whether nearly all elements of a large segment's beginning are zero.
    zeros: bool,
    /// What was cut already, and turned out not to belong to the block before it.
    pending: Option<Cut>,
    /// What the segment may be predicted from, once some of it is in a block: the best first.
    related: [Option<Related>; 2],
    /// How deep the blocks are that were cut, if any may depend on others.
    depths: Depths,
}

/// A block, or a unit of one.
struct Cut {
    len: u64,
    pieces: Vec<Piece>,
    /// How much of it changed since its base, by a sample; nothing is known of what is a block by itself.
    distance: Option<Distance>,
}

impl Cut {
    /// How large a block it may be in, if next to nothing of it changed; otherwise 0.
    fn most(&self) -> u64 {
        self.distance.map_or(0, sparse_block)
    }
}

impl Planner<'static> {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { reads: false, ..Self::with(layout, None, vec![]) }
    }

    /// For a file that these segments cover.
    pub(crate) fn of_segments(segments: &[Segment]) -> Self {
        Self::new(Layout { name: "", segments: segments.to_vec(), tail: None })
    }

    /// [`Self::next_block_of`] without predictions.
    pub(crate) fn next_block(&mut self, ahead: u64, pieces: &mut Vec<Piece>) -> usize {
        self.next_block_of(&&[][..], ahead, pieces).expect("nothing is read")
    }
}

impl<'m> Planner<'m> {
    pub(crate) fn with(layout: Layout, matcher: Option<Matcher<'m>>, siblings: Vec<Option<Link>>) -> Self {
        let mut p = Self {
            layout,
            matcher,
            siblings,
            at: 0,
            block: 0,
            next: 0,
            left: 0,
            large: false,
            block_len: BLOCK,
            of_unit: Distance::default(),
            reads: true,
            zeros: false,
            pending: None,
            related: [None; 2],
            depths: Depths::default(),
        };
        p.enter(0);
        p
    }

    /// The same, but tensors that are nearly all zeros are cut as all others: then blocks without bases end wherever those with some do.
    pub(crate) fn blind_to_zeros(self) -> Self {
        Self { reads: false, ..self }
    }

    fn enter(&mut self, i: usize) {
        self.next = i;
        self.large = false;
        self.left = self.len();
    }

    /// Length of the segment that comes next; no file is longer than the tail.
    fn len(&self) -> u64 {
        self.layout.segments.get(self.next).map_or(u64::MAX, |s| s.len)
    }

    fn dtype(&self) -> Option<Dtype> {
        self.layout.segments.get(self.next).map_or(self.layout.tail, |s| s.dtype)
    }

    fn skip_empty(&mut self) {
        while self.left == 0 {
            self.enter(self.next + 1);
        }
    }

    /// How many bytes ahead [`Self::next_block`] must know to exist, or the end of the file.
    pub(crate) fn lookahead(&self) -> u64 {
        let pending = self.pending.as_ref().map_or(0, |cut| cut.len);
        pending.max(match self.large {
            // The first block may turn out to be a large one, and the last to have room for more.
            _ if self.matcher.is_some() && (self.left == self.len() || self.block_len >= SPARSE_BLOCK) => {
                last_block_max(STILL_BLOCK) + 1
            }
            true if self.zeros => self.left.min(last_block_max(SPARSE_BLOCK) + 1),
            true => self.left.min(last_block_max(self.block_len) + 1),
            false => LOOKAHEAD,
        })
    }

    /// Length and pieces of the next block. `ahead` bytes are left in the file (not 0), or at least
    /// [`Self::lookahead`]: what lies beyond makes no difference. `raw` is the file, of which no other bytes are read.
    ///
    /// The length of a typed piece is a multiple of its dtype's coding width.
    pub(crate) fn next_block_of(&mut self, raw: &dyn ReadAt, ahead: u64, pieces: &mut Vec<Piece>) -> Result<usize> {
        assert!(ahead > 0);
        pieces.clear();
        let mut block = match self.pending.take() {
            Some(cut) => cut,
            None => self.cut(raw, ahead, u64::MAX)?,
        };
        while block.len < ahead && block.pieces.len() < PACK_PIECES {
            let room = self.room(&block);
            if room == 0 {
                break;
            }
            let next = self.cut(raw, ahead - block.len, room)?;
            let distance = block.distance.zip(next.distance).map(|(a, b)| a + b);
            if next.most() == 0 || block.len + next.len > last_block_max(distance.map_or(0, sparse_block)) {
                self.pending = Some(next);
                break;
            }
            block.len += next.len;
            block.distance = distance;
            block.pieces.extend(next.pieces);
        }
        pieces.append(&mut block.pieces);
        if !self.siblings.is_empty() {
            self.keep_shallow(block.len, pieces);
        }
        Ok(block.len as usize)
    }

    /// Leaves out what would make the block that comes next deeper than a block may be.
    fn keep_shallow(&mut self, len: u64, pieces: &mut [Piece]) {
        let mut depth = 0;
        for p in pieces {
            let width = p.dtype.map_or(1, Dtype::coding_width);
            for link in [&mut p.base, &mut p.context] {
                let Some(Link { source, offset, conversion }) = *link else { continue };
                let len = (p.len / width * conversion.source_width(width).unwrap_or(width)) as u64;
                match self.depths.of_dependent(&Dependency { source, offset, len }) {
                    above if above > MAX_DEPTH => *link = None,
                    own => depth = depth.max(own),
                }
            }
        }
        self.depths.push_of(len, depth);
    }

    /// How much of the unit that comes next may join a block, if next to nothing of it changed, too.
    fn room(&mut self, block: &Cut) -> u64 {
        self.skip_empty();
        let most = block.most();
        if block.len >= most {
            return 0;
        }
        let room = last_block_max(most) - block.len;
        let large = self.left >= UNIT_MIN;
        match if large { self.left } else { self.most_of_pack() } {
            unit if unit <= room => unit,
            // A unit goes on in the next block where a leaf ends, and what decides on it must be at hand.
            _ if large => (most - block.len) / BLOCK * BLOCK,
            _ => 0,
        }
    }

    /// Bytes that the pack that comes next has at most.
    fn most_of_pack(&self) -> u64 {
        let mut len = 0;
        for s in &self.layout.segments[self.next..] {
            if len >= PACK_MIN || s.len >= UNIT_MIN {
                return len;
            }
            len += s.len;
        }
        // What comes last may have any length.
        LOOKAHEAD
    }

    /// What a block is, if no further unit joins it. Where next to nothing changed, it has up to `room` bytes.
    fn cut(&mut self, raw: &dyn ReadAt, ahead: u64, room: u64) -> Result<Cut> {
        self.skip_empty();
        self.block = self.at;
        let starts_unit = self.left == self.len();
        let mut cut = Cut { len: 0, pieces: Vec::new(), distance: None };
        let mut distance = Distance::default();
        // Where blocks end may not depend on what pieces are predicted from: only changes of dtype count.
        let mut changes = 0;
        while cut.len < PACK_MIN && cut.len < ahead && changes < PACK_PIECES {
            self.skip_empty();
            let here = self.left.min(ahead - cut.len);
            self.large |= here >= UNIT_MIN;
            if self.large {
                if cut.len == 0 {
                    if self.left == self.len() {
                        self.find_related(raw, here.min(BLOCK))?;
                        self.of_unit = self.distance(raw, here.min(BLOCK))?;
                        let Distance { differ, seen } = self.of_unit;
                        self.block_len = match sparse_block(self.of_unit) {
                            0 if differ * 8 < seen * CALM_EIGHTHS => CALM_BLOCK,
                            0 => BLOCK,
                            len => len,
                        };
                        self.zeros = self.block_len == BLOCK && self.is_nearly_all_zero(raw, here.min(BLOCK))?;
                    } else if self.zeros {
                        // What begins with zeros need not go on with them.
                        let zeros = self.is_nearly_all_zero(raw, here.min(SPARSE_BLOCK))?;
                        self.block_len = if zeros { SPARSE_BLOCK } else { BLOCK };
                    }
                    cut.len = if here <= last_block_max(self.block_len) { here } else { self.block_len };
                    if self.block_len >= SPARSE_BLOCK && !self.zeros {
                        cut.distance = Some(self.of_unit);
                        cut.len = cut.len.min(room);
                    }
                    self.take(cut.len, &mut cut.pieces);
                }
                break;
            }
            if self.left == self.len() {
                self.find_related(raw, here)?;
                let of_segment = self.distance(raw, here)?;
                // Headers that changed are told in ways of their own, in whatever block.
                if self.dtype().is_some() || sparse_block(of_segment) > 0 {
                    distance = distance + of_segment;
                }
            }
            changes += self.take(here, &mut cut.pieces);
            cut.len += here;
            cut.distance = Some(distance);
        }
        // What comes from this file must lie before the block, wherever that begins.
        if cut.pieces.iter().any(|p| p.base.is_some_and(|l| l.source == 0)) {
            cut.distance = None;
        }
        cut.pieces[0].starts_span = starts_unit;
        Ok(cut)
    }

    /// Looks for what the segment, of which `len` bytes are at hand, may be predicted from.
    fn find_related(&mut self, raw: &dyn ReadAt, len: u64) -> Result<()> {
        let base = match &mut self.matcher {
            Some(m) => m.relate(&self.layout, self.next, raw, len)?,
            None => None,
        };
        let sibling = self.siblings.get(self.next).copied().flatten();
        let sibling = sibling.map(|link| Related { link, len: self.len() });
        // Equal and rounded tensors say everything; one of half the bits says no more than a base does.
        self.related = match sibling {
            Some(s) if s.link.conversion != Conversion::WidenBf16 => [sibling, base],
            _ => [base, sibling],
        };
        Ok(())
    }

    /// How the segment, of which `len` bytes are at hand, differs from what it is predicted from, going by a sample of them. All of it
    /// where that cannot be told.
    fn distance(&self, raw: &dyn ReadAt, len: u64) -> Result<Distance> {
        let unknown = Distance { differ: 8 * len, seen: 8 * len };
        Ok(match (&self.matcher, self.related[0]) {
            (Some(m), Some(r)) if r.len >= len => {
                m.distance(self.dtype(), self.at, &r.link, raw, len)?.unwrap_or(unknown)
            }
            _ => unknown,
        })
    }

    /// Whether nearly all elements of the next `len` bytes of the tensor, which are at hand, are zero, going by a sample of them.
    fn is_nearly_all_zero(&self, raw: &dyn ReadAt, len: u64) -> Result<bool> {
        let Some(dtype) = self.dtype().filter(|_| self.reads) else { return Ok(false) };
        let width = dtype.coding_width();
        let mut stretch = [0; ZERO_STRETCH as usize];
        let (mut zeros, mut seen) = (0, 0);
        for i in 0..ZERO_STRETCHES {
            let at = (len - ZERO_STRETCH) / ZERO_STRETCHES * i / width as u64 * width as u64;
            read_at(raw, "the input", &mut stretch, self.at + at)?;
            zeros += zeros_in(width, &stretch);
            seen += stretch.len() / width;
        }
        Ok((seen - zeros) * MOSTLY_ZERO < seen)
    }

    /// Moves bytes of the segment into the block; how often the dtype changed.
    fn take(&mut self, len: u64, pieces: &mut Vec<Piece>) -> usize {
        let dtype = self.dtype();
        let pos = self.len() - self.left;
        // Only the end of the file can cut an element.
        let part = |len: u64| dtype.map_or(0, |d| len & (d.coding_width() as u64 - 1));
        let cut = part(len);
        let mut links = self.related.iter().flatten().map(|r| {
            let linked = r.len.saturating_sub(pos).min(len - cut);
            (r.link.at(dtype, pos), linked - part(linked))
        });
        // What is in the same block is not known when it is needed.
        let known = |(l, linked): &(Link, u64)| l.source != 0 || l.at(dtype, *linked).offset <= self.block;
        let (link, linked) = links.find(known).map_or((None, 0), |(l, linked)| (Some(l), linked));
        let mut changes = 0;
        for (dtype, len, base) in [(dtype, linked, link), (dtype, len - cut - linked, None), (None, cut, None)] {
            let len = len as usize;
            match pieces.last_mut() {
                _ if len == 0 => continue,
                Some(p) if p.dtype == dtype => {
                    if goes_on(p, base) {
                        p.len += len;
                        continue;
                    }
                }
                _ => changes += 1,
            }
            pieces.push(Piece { dtype, len, base, context: None, starts_span: false });
        }
        self.left -= len;
        self.at += len;
        if self.left == 0 {
            self.enter(self.next + 1);
        }
        changes
    }

    /// The segments of a file that turned out to have `total` bytes: they cover it exactly.
    ///
    /// A tensor that the file does not hold whole becomes opaque.
    pub(crate) fn finish(self, total: u64) -> (&'static str, Vec<Segment>) {
        let Layout { name, mut segments, tail } = self.layout;
        let declared = segments.len();
        segments.truncate(segments.partition_point(|s| s.end() <= total));
        let start = segments.last().map_or(0, Segment::end);
        let rest = total - start;
        let mut typed = 0;
        if let Some(dtype) = tail.filter(|_| segments.len() == declared) {
            // The fewest elements that fill whole bytes: 4 of 6 bits, 2 of 4 bits, 1 of any other width.
            let elements = u64::from(8 / gcd(8, dtype.bits()));
            let unit = elements * u64::from(dtype.bits()) / 8;
            typed = rest - rest % unit;
            if typed > 0 {
                let shape = [typed / unit * elements].into();
                segments.push(Segment::tensor(Name::default(), dtype, shape, start, typed));
            }
        }
        if rest > typed {
            segments.push(Segment::opaque(start + typed, rest - typed));
        }
        (name, segments)
    }
}

impl Link {
    /// The link of what lies `pos` bytes further on in data of this dtype.
    fn at(self, dtype: Option<Dtype>, pos: u64) -> Self {
        let width = dtype.map_or(1, Dtype::coding_width);
        let source = self.conversion.source_width(width).unwrap_or(width);
        Self { offset: self.offset + pos / width as u64 * source as u64, ..self }
    }
}

/// Raw bytes of a block of which so much changed; 0 where that is more than next to nothing.
fn sparse_block(distance: Distance) -> u64 {
    let Distance { differ, seen } = distance;
    match differ {
        _ if differ * STILL < seen => STILL_BLOCK,
        _ if differ * SPARSE < seen => SPARSE_BLOCK,
        _ => 0,
    }
}

/// Whether the elements after a piece are predicted from what follows where its own are predicted from.
fn goes_on(p: &Piece, base: Option<Link>) -> bool {
    p.base.map(|l| l.at(p.dtype, p.len as u64)) == base
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
