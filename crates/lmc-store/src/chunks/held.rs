//! Block sets whose raw bytes are in files or in memory at hand.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Hash;

/// Bytes of a file or tensor: the hash of the raw bytes of their block set, the offset there, and the length.
pub(crate) type StoredExtent = (Hash, u64, u64);

/// Fills a buffer from an offset on.
type Read<'a> = Box<dyn Fn(&mut [u8], u64) -> io::Result<()> + Send + Sync + 'a>;

/// Sources of bytes, and the block sets in them by the hash of their raw bytes. They may have changed since: bytes
/// decoded from them are verified.
#[derive(Default)]
pub(crate) struct Held<'a> {
    sources: Vec<Read<'a>>,
    /// Whether anything was read.
    used: AtomicBool,
    /// Whether an alternative is decoded in place of a block set.
    took_alternative: AtomicBool,
    /// Whether none may be.
    without_alternatives: AtomicBool,
    sets: HashMap<Hash, Vec<Piece>>,
}

/// Bytes of a block set, in order: their offset there, and where they are.
struct Piece {
    from: u64,
    len: u64,
    source: usize,
    offset: u64,
}

/// How far pieces reach without a gap, given as offset and length, by offset.
pub(crate) fn end_of(pieces: impl Iterator<Item = (u64, u64)>) -> u64 {
    pieces.fold(0, |end, (from, len)| if from <= end { end.max(from + len) } else { end })
}

impl<'a> Held<'a> {
    /// Adds a source and its extents, in order. A file is best opened by `read`: there may be more of them than a process may have open.
    pub(crate) fn add(
        &mut self,
        read: impl Fn(&mut [u8], u64) -> io::Result<()> + Send + Sync + 'a,
        extents: impl IntoIterator<Item = StoredExtent>,
    ) {
        let mut offset = 0;
        for (hash, from, len) in extents {
            let pieces = self.sets.entry(hash).or_default();
            let at = pieces.partition_point(|p| p.from <= from);
            pieces.insert(at, Piece { from, len, source: self.sources.len(), offset });
            offset += len;
        }
        self.sources.push(Box::new(read));
    }

    /// Whether all bytes of a set are held.
    pub(crate) fn has(&self, hash: Hash, len: u64) -> bool {
        let Some(pieces) = self.sets.get(&hash) else { return false };
        end_of(pieces.iter().map(|p| (p.from, p.len))) == len
    }

    /// Reads a set that is held.
    pub(crate) fn read(&self, hash: Hash, out: &mut [u8]) -> Result<()> {
        self.used.store(true, Ordering::Relaxed);
        let failed = |e| Error::io("cannot read an earlier version", e);
        let mut end = 0;
        for p in self.sets.get(&hash).into_iter().flatten() {
            let to = out.get_mut(end as usize..(p.from + p.len) as usize);
            if let Some(to) = to.filter(|to| p.from <= end && !to.is_empty()) {
                self.sources[p.source](to, p.offset + (end - p.from)).map_err(failed)?;
                end = p.from + p.len;
            }
        }
        match end == out.len() as u64 {
            true => Ok(()),
            false => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Whether alternatives may be decoded in place of block sets.
    pub(crate) fn may_take_alternatives(&self) -> bool {
        !self.sources.is_empty() && !self.without_alternatives.load(Ordering::Relaxed)
    }

    /// Notes that one is.
    pub(crate) fn take_alternative(&self) {
        self.took_alternative.store(true, Ordering::Relaxed);
    }

    /// Decodes from what is held; without alternatives, or from nothing (`None`), if these may be why it fails: the
    /// former may be gone, and the latter may have been changed, which shows as one of the kinds `changed`. Not if it
    /// has `ended` for another reason.
    pub(crate) fn decode<T>(
        &self,
        changed: &[ErrorKind],
        ended: impl Fn() -> bool,
        mut decode: impl FnMut(Option<&Self>) -> Result<T>,
    ) -> Result<T> {
        self.take_used();
        let of_alternatives = [ErrorKind::Damaged, ErrorKind::Unsupported, ErrorKind::Limit, ErrorKind::Store];
        let mut done = decode(Some(self));
        if done.as_ref().is_err_and(|e| of_alternatives.contains(&e.kind()) && !ended()) && self.leave_alternatives() {
            done = decode(Some(self));
        }
        match done {
            Err(e) if changed.contains(&e.kind()) && !ended() && self.take_used() => decode(None),
            done => done,
        }
    }

    /// Whether anything was read since the last call.
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// From now on, none may be decoded. Returns whether one was.
    fn leave_alternatives(&self) -> bool {
        self.without_alternatives.store(true, Ordering::Relaxed);
        self.took_alternative.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc::ReadAt;

    fn source<'a>(bytes: &'a [u8]) -> impl Fn(&mut [u8], u64) -> io::Result<()> + 'a {
        move |buf, offset| bytes.read_exact_at(buf, offset)
    }

    #[test]
    fn a_set_is_held_if_its_pieces_cover_it() {
        let [a, b, c, none] = [b"a", b"b", b"c", b"d"].map(|name| Hash::of(name));
        let mut held = Held::default();
        held.add(source(b"0123456789"), [(a, 4, 4), (b, 0, 3), (c, 0, 1), (c, 2, 2)]);
        held.add(source(b"abcdef"), [(a, 0, 5), (c, 2, 1)]);
        assert!(held.has(a, 8) && held.has(b, 3));
        assert!(!held.has(a, 9) && !held.has(b, 2) && !held.has(c, 4) && !held.has(none, 0));
        let read_of = |held: &Held<'_>, hash, len| {
            let mut out = vec![0; len];
            held.read(hash, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        let read = |hash, len| read_of(&held, hash, len);
        assert_eq!(read(a, 8).unwrap(), "abcde123");
        assert_eq!(read(b, 3).unwrap(), "456");
        let mut short = Held::default();
        short.add(source(b"01"), [(a, 0, 3)]);
        assert!(short.has(a, 3) && read_of(&short, a, 3).is_err());
        assert!(short.take_used() && !short.take_used());
        // Pieces with a gap; the first piece alone is a whole set of the same hash and a smaller length.
        let mut gap = Held::default();
        gap.add(source(b"0123456789"), [(a, 0, 4), (a, 6, 2)]);
        assert!(gap.has(a, 4) && !gap.has(a, 8));
        assert_eq!(read_of(&gap, a, 4).unwrap(), "0123");
        assert!(read_of(&gap, a, 8).is_err() && read_of(&gap, a, 3).is_err() && read_of(&gap, none, 1).is_err());
    }
}
