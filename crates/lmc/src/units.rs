//! Units: where blocks begin and end, decided from the layout alone.
//!
//! A segment of [`UNIT_MIN`] bytes or more is a unit of its own and is cut into blocks. Smaller ones are gathered, in
//! order, into *packs* of one block each. Leaves of the content hash restart with every unit, so nothing here but
//! [`BLOCK`] and [`LAST_BLOCK_MAX`] may change without changing content hashes.

use crate::block::Piece;
use crate::block::head::MAX_RAW;
use crate::checksum::LEAF;
use crate::dtype::Dtype;
use crate::layout::Layout;
use crate::segment::Segment;

/// Raw bytes of a block of a large segment.
pub(crate) const BLOCK: u64 = 1 << 20;
/// The last block of a large segment takes up to this much, so that no tiny block is left over.
pub(crate) const LAST_BLOCK_MAX: u64 = BLOCK + BLOCK / 4;
/// A segment of at least this size is not packed.
const UNIT_MIN: u64 = 1 << 19;
/// A pack that has reached this size is closed.
const PACK_MIN: u64 = 1 << 20;
/// A pack with this many pieces is closed: millions of tensors of one byte must not make one head.
const PACK_PIECES: usize = 1 << 14;
/// What must be known of the bytes ahead to decide on a pack, or on the first block of a large segment.
const LOOKAHEAD: u64 = 1 << 21;

const _: () =
    assert!(BLOCK.is_multiple_of(LEAF as u64) && LOOKAHEAD > LAST_BLOCK_MAX && LOOKAHEAD >= PACK_MIN + UNIT_MIN);
const _: () = assert!(LOOKAHEAD <= MAX_RAW as u64);

/// Cuts a file, front to back, into blocks.
pub(crate) struct Planner {
    layout: Layout,
    /// The segment that comes next; the number of segments once only the tail is left.
    next: usize,
    /// Bytes of that segment that are not in a block yet.
    left: u64,
    /// Whether the segment is a unit of its own.
    large: bool,
}

impl Planner {
    pub(crate) fn new(layout: Layout) -> Self {
        let mut p = Self { layout, next: 0, left: 0, large: false };
        p.enter(0);
        p
    }

    fn enter(&mut self, i: usize) {
        self.next = i;
        self.large = false;
        self.left = self.layout.segments.get(i).map_or(u64::MAX, |s| s.len);
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
        if self.large { self.left.min(LAST_BLOCK_MAX + 1) } else { LOOKAHEAD }
    }

    /// Length and pieces of the next block. `ahead` bytes are left in the file (not 0), or at least
    /// [`Self::lookahead`]: what lies beyond makes no difference.
    ///
    /// The length of a typed piece is a multiple of its dtype's coding width.
    pub(crate) fn next_block(&mut self, ahead: u64, pieces: &mut Vec<Piece>) -> usize {
        assert!(ahead > 0);
        pieces.clear();
        let mut len = 0;
        while len < PACK_MIN && len < ahead && pieces.len() < PACK_PIECES {
            self.skip_empty();
            let here = self.left.min(ahead - len);
            self.large |= here >= UNIT_MIN;
            if self.large {
                if len == 0 {
                    len = if here <= LAST_BLOCK_MAX { here } else { BLOCK };
                    self.take(len, pieces);
                }
                break;
            }
            self.take(here, pieces);
            len += here;
        }
        len as usize
    }

    fn take(&mut self, len: u64, pieces: &mut Vec<Piece>) {
        let dtype = self.dtype();
        // Only the end of the file can cut an element.
        let cut = dtype.map_or(0, |d| len % d.coding_width() as u64);
        for (dtype, len) in [(dtype, (len - cut) as usize), (None, cut as usize)] {
            match pieces.last_mut() {
                _ if len == 0 => {}
                Some(p) if p.dtype == dtype => p.len += len,
                _ => pieces.push(Piece { dtype, len }),
            }
        }
        self.left -= len;
        if self.left == 0 {
            self.enter(self.next + 1);
        }
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
                segments.push(Segment::tensor(String::new(), dtype, vec![typed / unit * elements], start, typed));
            }
        }
        if rest > typed {
            segments.push(Segment::opaque(start + typed, rest - typed));
        }
        (name, segments)
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
