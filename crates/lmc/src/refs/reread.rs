//! Bytes that are read twice: the second reading is compared with the digests of the first.
//!
//! A predicted block reads bytes that were read before: those of its own file when they were stored, those of a base when it was hashed.
//! Memory and mapped files may change in between, and a decoder has the bytes of the first reading.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::checksum::{Digest, digest};
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Cached leaves that were partly requested: neighbouring tensors request the rest.
const KEPT: usize = 8;

/// Leaf digests of the first reading.
#[derive(Default)]
pub(crate) struct Reread {
    first: Mutex<BTreeMap<u64, (usize, Digest)>>,
    /// Checked leaves, the last one used at the end; each is the first bytes of its buffer.
    kept: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

/// A leaf of the file.
struct Leaf {
    start: u64,
    len: usize,
    digest: Digest,
}

impl Leaf {
    fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

impl Reread {
    /// Records length and digest of consecutive leaves from `start` on.
    pub(crate) fn note(&self, mut start: u64, leaves: impl IntoIterator<Item = (usize, Digest)>) {
        let mut first = lock(&self.first);
        for (len, digest) in leaves {
            first.insert(start, (len, digest));
            start += len as u64;
        }
    }

    /// The digest of a leaf, if it was read before.
    pub(crate) fn digest_of(&self, start: u64, len: usize) -> Option<Digest> {
        lock(&self.first).get(&start).filter(|leaf| leaf.0 == len).map(|leaf| leaf.1)
    }

    /// Fills `buf` with the bytes from `offset` on; all were read before. `read` reads them again, in whole leaves.
    ///
    /// # Errors
    /// Those of `read`, and [`Error::changed`] when the bytes differ from the first reading.
    pub(crate) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let compared =
            |leaf: &Leaf, bytes: &[u8]| if digest(bytes) == leaf.digest { Ok(()) } else { Err(Error::changed()) };
        let mut filled = 0;
        for leaf in self.leaves(offset, end) {
            let (from, to) = (leaf.start.max(offset), leaf.end().min(end));
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            filled += part.len();
            if part.len() == leaf.len {
                read(leaf.start, part)?;
                compared(&leaf, part)?;
                continue;
            }
            let whole = match self.kept(leaf.start) {
                Some(whole) => whole,
                None => {
                    let mut whole = self.oldest();
                    let bytes = scratch(&mut whole, leaf.len);
                    read(leaf.start, bytes)?;
                    compared(&leaf, bytes)?;
                    self.keep(leaf.start, whole)
                }
            };
            part.copy_from_slice(&whole[(from - leaf.start) as usize..][..part.len()]);
        }
        assert_eq!(filled, buf.len(), "all of it was read before");
        Ok(())
    }

    /// The leaves of a range.
    fn leaves(&self, offset: u64, end: u64) -> Vec<Leaf> {
        let first = lock(&self.first);
        let from = first.range(..=offset).next_back().map_or(offset, |(&start, _)| start);
        let leaf = |(&start, &(len, digest)): (&u64, &(usize, Digest))| Leaf { start, len, digest };
        first.range(from..end).map(leaf).filter(|l| l.end() > offset).collect()
    }

    fn kept(&self, start: u64) -> Option<Arc<Vec<u8>>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|k| k.0 == start)?;
        let found = kept.remove(at)?;
        kept.push_back(found.clone());
        Some(found.1)
    }

    /// A buffer: that of the least recently used leaf if the cache is full, else a new one.
    fn oldest(&self) -> Vec<u8> {
        let mut kept = lock(&self.kept);
        let oldest = if kept.len() < KEPT { None } else { kept.pop_front() };
        oldest.and_then(|(_, leaf)| Arc::into_inner(leaf)).unwrap_or_default()
    }

    fn keep(&self, start: u64, whole: Vec<u8>) -> Arc<Vec<u8>> {
        let whole = Arc::new(whole);
        let mut kept = lock(&self.kept);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((start, whole.clone()));
        whole
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_layout::io::{ReadAt, read_at};

    /// A file of 100 bytes in leaves of 10, and the digests recorded of it.
    fn noted() -> (Vec<u8>, Reread) {
        let file: Vec<u8> = (0..100).collect();
        let reread = Reread::default();
        // Out of order, as blocks are.
        for start in [50, 0] {
            reread.note(start as u64, file[start..start + 50].chunks(10).map(|l| (l.len(), digest(l))));
        }
        (file, reread)
    }

    fn read(reread: &Reread, file: &[u8], offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        reread.read(offset, &mut buf, |at, to| read_at(&file as &dyn ReadAt, "the file", to, at))?;
        Ok(buf)
    }

    #[test]
    fn what_is_the_same_is_read() {
        let (file, reread) = noted();
        for offset in 0..100 {
            for len in 0..=100 - offset {
                assert_eq!(read(&reread, &file, offset as u64, len).unwrap(), file[offset..offset + len]);
            }
        }
    }

    #[test]
    fn a_change_of_any_byte_is_seen() {
        for at in 0..100 {
            let (mut file, reread) = noted();
            file[at] ^= 1;
            for (offset, len) in [(0, 100), (at, 1), (at / 10 * 10, 10), (at / 10 * 10, 1)] {
                let e = read(&reread, &file, offset as u64, len).unwrap_err();
                assert!(e.is_changed(), "{at} {offset} {len}");
            }
            // Bytes in other leaves are not concerned.
            let other = (at / 10 + 1) % 10 * 10;
            assert_eq!(read(&reread, &file, other as u64, 10).unwrap(), file[other..other + 10]);
        }
    }

    #[test]
    fn few_reads_serve_many_small_ranges() {
        let (file, reread) = noted();
        let mut reads = 0;
        for offset in (0..100).step_by(2) {
            let mut buf = [0; 2];
            let again = |at, to: &mut [u8]| {
                reads += 1;
                read_at(&&file[..] as &dyn ReadAt, "the file", to, at)
            };
            reread.read(offset, &mut buf, again).unwrap();
        }
        assert_eq!(reads, 10);
    }
}
