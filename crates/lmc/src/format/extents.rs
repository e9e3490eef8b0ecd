//! Extents: the order in which the bytes of a block's columns alternate (`docs/format.md` §3.1).

use std::borrow::Cow;

use super::limits::{MAX_COLUMNS, MAX_EXTENTS};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// The code in place of a column that announces a repeat.
const REPEAT: u8 = 255;

/// `(column, bytes)` in raw order, with repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    list: Vec<(u8, usize)>,
    repeats: Vec<Repeat>,
    /// The number of extents, with those that repeats add.
    count: usize,
}

/// The extents before `end`, `count` of them, stand `times` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repeat {
    end: usize,
    count: usize,
    times: usize,
}

/// Pieces of a column at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pieces {
    /// Bytes of each.
    len: usize,
    times: usize,
    /// Where the first one is in the block and in the column, and the distances.
    in_block: usize,
    in_column: usize,
    block_step: usize,
    column_step: usize,
}

impl Extents {
    /// Without any.
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), repeats: Vec::new(), count: 0 }
    }

    /// The one of a block with one column.
    pub(crate) fn whole(len: usize) -> Self {
        Self { list: vec![(0, len)], repeats: Vec::new(), count: 1 }
    }

    /// Reads those of a block of `raw_len` bytes with several columns.
    pub(crate) fn parse(c: &mut Cursor<'_>, n_columns: usize, raw_len: usize) -> Result<Self> {
        // An extent takes two bytes at least: the head's own length bounds the allocation.
        let n = c.size(MAX_EXTENTS.min(c.remaining() / 2), "a block's number of extents")?;
        let mut extents = Self { list: Vec::with_capacity(n), ..Self::new() };
        let mut left = raw_len;
        for _ in 0..n {
            match c.u8()? {
                REPEAT => left -= extents.parse_repeat(c, left)?,
                column => {
                    let len = c.size(left, "an extent's length")?;
                    if usize::from(column) >= n_columns || len == 0 {
                        return Err(Error::damaged(format!(
                            "an extent of {len} bytes belongs to column {column} of {n_columns}"
                        )));
                    }
                    left -= len;
                    extents.count += 1;
                    extents.list.push((column, len));
                }
            }
        }
        if extents.count > MAX_EXTENTS {
            return Err(Error::damaged(format!("a block has {} extents; it can have {MAX_EXTENTS}", extents.count)));
        }
        let lens = extents.lens();
        if left != 0 || lens[..n_columns].contains(&0) {
            return Err(Error::damaged(format!(
                "the extents of a block of {raw_len} bytes give its columns {:?}",
                &lens[..n_columns]
            )));
        }
        Ok(extents)
    }

    /// Reads a repeat where `left` bytes have no extents yet; returns the bytes that it adds.
    fn parse_repeat(&mut self, c: &mut Cursor<'_>, left: usize) -> Result<usize> {
        let end = self.list.len();
        let count =
            c.size(end - self.repeats.last().map_or(0, |r| r.end), "the number of extents that are repeated")?;
        let bytes: usize = self.list[end - count..].iter().map(|e| e.1).sum();
        let times = c.size(left / bytes.max(1), "how often extents are repeated")?;
        if count == 0 || times == 0 {
            return Err(Error::damaged(format!("{count} extents are repeated {times} times")));
        }
        self.repeats.push(Repeat { end, count, times });
        self.count += count * times;
        Ok(bytes * times)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, (self.list.len() + self.repeats.len()) as u64);
        let mut repeats = self.repeats.iter().peekable();
        for (i, &(column, len)) in self.list.iter().enumerate() {
            out.push(column);
            put(out, len as u64);
            while let Some(r) = repeats.next_if(|r| r.end == i + 1) {
                out.push(REPEAT);
                put(out, r.count as u64);
                put(out, r.times as u64);
            }
        }
    }

    /// Appends an extent; lengthens the last one if that is of the same column.
    pub(crate) fn push(&mut self, column: u8, len: usize) {
        let repeated = self.repeats.last().map_or(0, |r| r.end);
        match self.list[repeated..].last_mut() {
            Some(l) if l.0 == column => l.1 += len,
            _ => {
                self.list.push((column, len));
                self.count += 1;
            }
        }
    }

    /// Appends extents `times` times, at least once.
    pub(crate) fn push_repeated(&mut self, list: &[(u8, usize)], times: usize) {
        self.list.extend_from_slice(list);
        self.count += list.len() * times;
        if times > 1 {
            self.repeats.push(Repeat { end: self.list.len(), count: list.len(), times: times - 1 });
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.list[..]) + size_of_val(&self.repeats[..])
    }

    /// Extents, and how often they stand.
    fn groups(&self) -> impl Iterator<Item = (&[(u8, usize)], usize)> {
        let ends = self.repeats.iter().flat_map(|r| [(r.end - r.count, 1), (r.end, r.times + 1)]);
        let mut at = 0;
        ends.chain([(self.list.len(), 1)])
            .map(move |(end, times)| (&self.list[std::mem::replace(&mut at, end)..end], times))
    }

    /// Column and bytes of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, usize)> {
        self.groups().flat_map(|(list, times)| std::iter::repeat_n(list, times).flatten().copied())
    }

    /// Bytes of each column.
    pub(crate) fn lens(&self) -> [usize; MAX_COLUMNS] {
        let mut lens = [0; MAX_COLUMNS];
        for (list, times) in self.groups() {
            list.iter().for_each(|&(column, len)| lens[usize::from(column)] += len * times);
        }
        lens
    }

    /// The pieces of a column, in order of the first of each.
    fn pieces(&self, column: u8) -> impl Iterator<Item = Pieces> {
        let (mut block, mut own) = (0, 0);
        self.groups().flat_map(move |(list, times)| {
            let block_step: usize = list.iter().map(|e| e.1).sum();
            let column_step: usize = list.iter().filter(|e| e.0 == column).map(|e| e.1).sum();
            let (mut in_block, mut in_column) = (block, own);
            block += block_step * times;
            own += column_step * times;
            list.iter().filter_map(move |&(of, len)| {
                let pieces = Pieces { len, times, in_block, in_column, block_step, column_step };
                in_block += len;
                if of != column {
                    return None;
                }
                in_column += len;
                Some(pieces)
            })
        })
    }

    /// Where a column is in the block, if it is in one piece.
    pub(crate) fn one_piece(&self, column: u8) -> Option<std::ops::Range<usize>> {
        let mut pieces = self.pieces(column);
        let first = pieces.next().filter(|p| p.times == 1)?;
        pieces.next().is_none().then_some(first.in_block..first.in_block + first.len)
    }

    /// The bytes of a column: borrowed from the block if it is in one piece.
    pub(crate) fn gather<'a>(&self, column: u8, block: &'a [u8]) -> Cow<'a, [u8]> {
        if let Some(place) = self.one_piece(column) {
            return Cow::Borrowed(&block[place]);
        }
        let mut bytes = vec![0; self.lens()[usize::from(column)]];
        for p in self.pieces(column) {
            copy((block, p.in_block, p.block_step), (&mut bytes, p.in_column, p.column_step), p.len, p.times);
        }
        Cow::Owned(bytes)
    }

    /// Copies the bytes of a column to their places in the block.
    pub(crate) fn scatter(&self, column: u8, bytes: &[u8], block: &mut [u8]) {
        for p in self.pieces(column) {
            copy((bytes, p.in_column, p.column_step), (block, p.in_block, p.block_step), p.len, p.times);
        }
    }
}

/// Copies pieces of `len` bytes, from a place on and in steps, to others.
fn copy(from: (&[u8], usize, usize), to: (&mut [u8], usize, usize), len: usize, times: usize) {
    // Calls of a function that copies a few bytes take longer than the bytes.
    match len {
        1 => copy_fixed::<1>(from, to, times),
        2 => copy_fixed::<2>(from, to, times),
        4 => copy_fixed::<4>(from, to, times),
        8 => copy_fixed::<8>(from, to, times),
        12 => copy_fixed::<12>(from, to, times),
        16 => copy_fixed::<16>(from, to, times),
        32 => copy_fixed::<32>(from, to, times),
        _ => {
            let ((from, mut at, from_step), (to, mut place, to_step)) = (from, to);
            for _ in 0..times {
                to[place..place + len].copy_from_slice(&from[at..at + len]);
                (at, place) = (at + from_step, place + to_step);
            }
        }
    }
}

fn copy_fixed<const LEN: usize>(from: (&[u8], usize, usize), to: (&mut [u8], usize, usize), times: usize) {
    let ((from, mut at, from_step), (to, mut place, to_step)) = (from, to);
    for _ in 0..times {
        let piece = from[at..].first_chunk::<LEN>().expect("a piece of the column");
        *to[place..].first_chunk_mut::<LEN>().expect("a piece of the block") = *piece;
        (at, place) = (at + from_step, place + to_step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    fn parsed(bytes: &[u8], raw_len: usize) -> Result<Extents> {
        let mut c = Cursor::new(bytes);
        let extents = Extents::parse(&mut c, 3, raw_len)?;
        c.finish()?;
        Ok(extents)
    }

    #[test]
    fn repeats_stand_for_their_extents() {
        let mut extents = Extents::new();
        extents.push(2, 3);
        extents.push(2, 2);
        extents.push_repeated(&[(0, 2), (1, 3), (0, 1)], 3);
        extents.push(0, 4);
        extents.push_repeated(&[(1, 1)], 2);
        extents.push_repeated(&[(2, 1), (1, 1)], 1);
        let all: Vec<_> = extents.iter().collect();
        let period = [(0, 2), (1, 3), (0, 1)];
        let rest = [(0, 4), (1, 1), (1, 1), (2, 1), (1, 1)];
        assert_eq!(all, [&[(2, 5)][..], &period, &period, &period, &rest].concat());
        assert_eq!((extents.count(), &extents.lens()[..3]), (all.len(), &[13, 12, 6][..]));

        let block: Vec<u8> = (0..31).collect();
        let mut restored = vec![0; block.len()];
        for column in 0..3 {
            let mut at = 0;
            let expected: Vec<u8> = all
                .iter()
                .flat_map(|&(of, len)| {
                    at += len;
                    block[at - len..at].iter().filter(move |_| of == column).copied()
                })
                .collect();
            let bytes = extents.gather(column, &block);
            assert_eq!(bytes, expected, "{column}");
            extents.scatter(column, &bytes, &mut restored);
        }
        assert_eq!(restored, block);

        let mut bytes = Vec::new();
        extents.put(&mut bytes);
        assert_eq!(parsed(&bytes, 31).unwrap(), extents);
        assert_eq!(extents.one_piece(2), None);
        assert_eq!(Extents::whole(7).one_piece(0), Some(0..7));
    }

    #[test]
    fn pieces_of_every_length_are_copied() {
        let block = Random::new(1).bytes(70 * 140);
        for len in 1..70 {
            let mut extents = Extents::new();
            extents.push_repeated(&[(0, len), (1, 70)], 50);
            let mut restored = vec![0; 50 * (len + 70)];
            for column in [0, 1] {
                let bytes = extents.gather(column, &block[..restored.len()]);
                extents.scatter(column, &bytes, &mut restored);
            }
            assert!(restored == block[..restored.len()], "{len}");
        }
    }
}
