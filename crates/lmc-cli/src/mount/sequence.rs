//! Whether a file is read from front to back, and which blocks are then needed next.

use std::ops::Range;

use super::tree::Decoded;

/// Bytes that are decoded ahead once two blocks were read in order; twice as many with each block after them.
const FIRST: u64 = 2 << 20;

/// Where a reader of a file is.
#[derive(Default)]
pub(super) struct Sequence {
    /// The last block that it read.
    at: Option<usize>,
    /// How many blocks it read in order before that.
    run: u32,
    /// The first block that was not decoded ahead.
    next: usize,
}

/// What a read of a block means for others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Those to decode ahead.
    pub(super) ahead: Range<usize>,
    /// One that is not needed any more: what was read in order is in the kernel's cache.
    pub(super) behind: Option<usize>,
}

impl Sequence {
    /// The reader is at a block. At most `most` bytes are decoded ahead.
    pub(super) fn read(&mut self, file: &Decoded, block: usize, most: u64) -> Option<Step> {
        match self.at {
            // The kernel's own read-ahead is not quite in order.
            Some(at) if block == at || block + 1 == at => return None,
            Some(at) if block == at + 1 => self.run += 1,
            _ => (self.run, self.next) = (0, block + 1),
        }
        self.at = Some(block);
        if self.run == 0 {
            return None;
        }
        let window = FIRST.checked_shl(self.run - 1).unwrap_or(most).min(most);
        let end = file.block_at(file.range(block).end.saturating_add(window)).min(file.blocks());
        let ahead = self.next.max(block + 1)..end;
        self.next = self.next.max(end);
        let behind = (self.run > 1).then(|| block.checked_sub(2)).flatten();
        Some(Step { ahead, behind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Decoded {
        Decoded::new(String::new(), (1..=100).map(|n| n << 20).collect(), |_, _| Ok(()))
    }

    #[test]
    fn reading_in_order_reads_ahead_more_and_more() {
        let (file, mut sequence) = (file(), Sequence::default());
        let mut read = |block| sequence.read(&file, block, 8 << 20).map(|step| (step.ahead, step.behind));
        assert_eq!(read(0), None);
        assert_eq!(read(0), None);
        assert_eq!(read(1), Some((2..4, None)));
        assert_eq!(read(2), Some((4..7, Some(0))));
        assert_eq!(read(1), None, "a little out of order");
        assert_eq!(read(3), Some((7..12, Some(1))));
        assert_eq!(read(4), Some((12..13, Some(2))));
        assert_eq!(read(50), None, "elsewhere");
        assert_eq!(read(51), Some((52..54, None)));
        assert_eq!(read(98), None);
        assert_eq!(read(99), Some((100..100, None)));
    }

    #[test]
    fn reading_anywhere_reads_nothing_ahead() {
        let (file, mut sequence) = (file(), Sequence::default());
        assert!([7, 3, 90, 12, 50, 48, 20].iter().all(|&block| sequence.read(&file, block, 8 << 20).is_none()));
    }
}
