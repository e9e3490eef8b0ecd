//! Decodes single blocks of an open file, with the blocks that they depend on, and caches the last ones.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::block::by_leaf::BlockOutput;
use crate::block::decode::BlockDecoder;
use crate::block::head::BlockHead;
use crate::block::methods::{Column, Method};
use crate::block::stream::Mask;
use crate::file::blocks::{KEEP, checked_block, decode_checked};
use crate::file::open::{self, Opened};
use crate::file::origin::{NoSelf, ReferenceResolver, SelfSource};
use crate::format::bases::too_deep;
use crate::format::limits::MAX_DEPTH;
use crate::refs::base::Base;
use crate::refs::budget::{Budget, MAX_BUDGET, MIN_COST, ORDINARY};
use crate::refs::work::Work;
use lmc_layout::error::Result;
use lmc_layout::io::ReadAt;
use lmc_pool::Workers;

/// An open file.
pub(crate) struct Access<'a> {
    pub(crate) src: &'a dyn ReadAt,
    pub(crate) opened: &'a Opened,
    /// In the file's order; empty if they were not given.
    pub(crate) bases: &'a [Base<'a>],
    pub(crate) workers: &'a Workers<BlockDecoder>,
    pub(crate) cache: &'a Cache,
}

/// A decoded block, and its depth.
type Decoded = (Arc<Vec<u8>>, usize);

/// A block whose head was checked.
struct CheckedBlock<'a> {
    head: BlockHead,
    body: &'a [u8],
    /// Memory that it takes.
    held: u64,
    /// The budget of the blocks that it depends on.
    budget: Budget<'a>,
}

/// The most memory that a block takes while it waits for the blocks that it depends on: record, bytes, and predictions.
fn held(head: &BlockHead, record_len: u64) -> u64 {
    let predictions = |p: &Column| {
        let len = p.len as u64;
        // The elements that masks select, and their bits.
        let masked = p.method.streams().any(|s| s.mask != Mask::None);
        let selected = if masked { len + len / 8 } else { 0 };
        let m = match &p.method {
            Method::Predicted(m) => m,
            Method::Zstd(z) => return if z.width > 1 { len } else { 0 },
            _ => return selected,
        };
        let operand = m.operand.memory(len, m.width as u64, &head.ranges);
        let contexts = if m.streams.len() > 1 { len } else { 0 };
        operand + contexts + selected
    };
    let lists = size_of_val(&head.ranges[..]) + head.extents.memory();
    let gathered = if head.columns.len() > 1 { head.raw_len } else { 0 };
    record_len + (lists + head.raw_len + gathered) as u64 + head.columns.iter().map(predictions).sum::<u64>()
}

impl Access<'_> {
    /// Decodes a block to `out`, which has its raw length. Errors are not located.
    pub(crate) fn decode(
        &self,
        decoder: &mut BlockDecoder,
        i: usize,
        record: &mut Vec<u8>,
        out: &mut [u8],
        work: &Work,
    ) -> Result<()> {
        work.spend(out.len() as u64)?;
        let bytes = AtomicU64::new(MAX_BUDGET);
        self.decode_within(decoder, i, record, out, Budget::new(&bytes, work)).map(|_| ())
    }

    /// Fills `buf` with raw bytes, which must be in the file, on the calling thread.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], work: &Work) -> Result<()> {
        self.parts(offset, buf, |i, range, to| {
            let bytes = AtomicU64::new(MAX_BUDGET + to.len() as u64);
            self.part(i, range, to, Budget::new(&bytes, work)).map(|_| ())
        })
    }

    /// [`Self::read`] for a block of another file.
    pub(crate) fn read_within(&self, offset: u64, buf: &mut [u8], budget: Budget<'_>) -> Result<()> {
        let budget = budget.in_other_file();
        self.parts(offset, buf, |i, range, to| self.part(i, range, to, budget).map(|_| ()))
    }

    /// Earlier blocks of the file, decoded because another block depends on them.
    pub(crate) fn earlier<'s>(&'s self, budget: Budget<'s>) -> Earlier<'s> {
        Earlier { access: self, budget, depth: AtomicUsize::new(0), kept: Mutex::default() }
    }

    /// Calls `f` with every block that a range touches, the requested part of the block, and its destination.
    fn parts(
        &self,
        mut offset: u64,
        mut buf: &mut [u8],
        mut f: impl FnMut(usize, Range<usize>, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        while !buf.is_empty() {
            let i = self.opened.block_at(offset);
            let b = self.opened.block(i);
            let from = (offset - b.raw_offset) as usize;
            let n = (b.raw_len as usize - from).min(buf.len());
            let (to, rest) = buf.split_at_mut(n);
            f(i, from..from + n, to)?;
            (offset, buf) = (offset + n as u64, rest);
        }
        Ok(())
    }

    /// Copies a part of a block to `to`; the block's depth.
    fn part(&self, i: usize, range: Range<usize>, to: &mut [u8], budget: Budget<'_>) -> Result<usize> {
        let whole = range.len() as u64 == self.opened.block(i).raw_len;
        match self.cache.get(i) {
            // A block that is requested whole is not cached: it is unlikely to be requested again. A tiny block is
            // cached: any number of others can depend on it, and each decoding costs at least `MIN_COST`.
            None if whole && range.len() as u64 > MIN_COST => self.fresh(i, to, budget),
            entry => {
                let (raw, depth) = self.kept(i, entry, budget)?;
                to.copy_from_slice(&raw[range]);
                Ok(depth)
            }
        }
    }

    /// Decodes a block with buffers of its own; its depth.
    fn fresh(&self, i: usize, out: &mut [u8], budget: Budget<'_>) -> Result<usize> {
        budget.spend(out.len() as u64)?;
        let budget = budget.within()?;
        let mut record = self.cache.record();
        let done = self.begin(i, &mut record, out.len(), budget).and_then(|block| {
            let ordinary = block.held <= ORDINARY;
            self.workers.with_kept(ordinary, |decoder| self.decode_after_check(decoder, block, out))
        });
        self.cache.put_back(record);
        done.map_err(|e| self.opened.locate(e, i))
    }

    /// A whole block.
    fn whole(&self, i: usize, budget: Budget<'_>) -> Result<Decoded> {
        self.kept(i, self.cache.get(i), budget)
    }

    /// A block from the cache, or to be kept there.
    fn kept(&self, i: usize, entry: Option<Arc<Entry>>, budget: Budget<'_>) -> Result<Decoded> {
        let len = self.opened.block(i).raw_len as usize;
        let (entry, memory) = entry.map_or_else(|| self.cache.insert(i, len), |entry| (entry, None));
        // The second thread waits for the first one. A block waits only for earlier ones, so one thread always makes
        // progress.
        let mut decoded = entry.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(d) = &*decoded {
            return Ok(d.clone());
        }
        let mut raw = memory.unwrap_or_else(|| vec![0; len]);
        let depth = self.fresh(i, &mut raw, budget)?;
        Ok(decoded.insert((Arc::new(raw), depth)).clone())
    }

    /// Decodes a block within a budget; its depth.
    fn decode_within(
        &self,
        decoder: &mut BlockDecoder,
        i: usize,
        record: &mut Vec<u8>,
        out: &mut [u8],
        budget: Budget<'_>,
    ) -> Result<usize> {
        let block = self.begin(i, record, out.len(), budget)?;
        self.decode_after_check(decoder, block, out)
    }

    /// Reads the record of a block of `raw_len` bytes, and looks at its head.
    fn begin<'r>(
        &'r self,
        i: usize,
        record: &'r mut Vec<u8>,
        raw_len: usize,
        budget: Budget<'r>,
    ) -> Result<CheckedBlock<'r>> {
        let b = self.opened.block(i);
        let record = open::read_record(self.src, &b, record)?;
        let (head, body) = checked_block(record, &self.opened.sources, b.raw_offset, raw_len)?;
        let held = held(&head, b.record_len);
        Ok(CheckedBlock { head, body, held, budget: budget.reserve(held)? })
    }

    fn decode_after_check(&self, decoder: &mut BlockDecoder, block: CheckedBlock<'_>, out: &mut [u8]) -> Result<usize> {
        let CheckedBlock { head, body, budget, .. } = block;
        let sources = &self.opened.sources;
        let earlier = self.earlier(budget);
        let own: &dyn SelfSource = if sources.features.own { &earlier } else { &NoSelf };
        let origin = ReferenceResolver::new(self.bases, &sources.bases, own);
        decode_checked(decoder, head, body, &origin.within(budget), BlockOutput::Memory(out))?;
        match earlier.depth.load(Ordering::Relaxed) {
            depth if depth > MAX_DEPTH => Err(too_deep()),
            depth => Ok(depth),
        }
    }
}

/// The blocks before one that is being decoded. They are decoded on demand.
pub(crate) struct Earlier<'a> {
    access: &'a Access<'a>,
    budget: Budget<'a>,
    /// The depth of the block, from the ranges read so far.
    depth: AtomicUsize,
    /// Those that were decoded for a part of them. Each is decoded once: the format bounds what that costs and takes.
    kept: Mutex<HashMap<usize, Decoded>>,
}

impl SelfSource for Earlier<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let budget = self.budget.level_down()?;
        self.access.parts(offset, buf, |i, range, to| {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let (raw, depth) = match kept.get(&i) {
                Some(decoded) => decoded,
                None => kept.entry(i).insert_entry(self.access.whole(i, budget)?).into_mut(),
            };
            to.copy_from_slice(&raw[range]);
            self.depth.fetch_max(depth + 1, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// The last blocks that were decoded for a part of them, or for other blocks.
pub(crate) struct Cache {
    /// Oldest first.
    entries: Mutex<VecDeque<(usize, Arc<Entry>)>>,
    /// Bytes that all blocks may have together, if there is more than one.
    capacity: usize,
    /// Reused memory for records: as many buffers as were in use at once.
    records: Mutex<Vec<Vec<u8>>>,
}

pub(crate) struct Entry {
    len: usize,
    /// `None` until the thread that inserted the entry has decoded the block.
    decoded: Mutex<Option<Decoded>>,
}

impl Default for Cache {
    /// Room for the blocks that one thread per core reads at once.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self { entries: Mutex::default(), capacity: (threads + 2) << 22, records: Mutex::default() }
    }
}

impl Cache {
    fn get(&self, block: usize) -> Option<Arc<Entry>> {
        let mut entries = self.entries.lock().expect("no panic while it is held");
        let at = entries.iter().position(|e| e.0 == block)?;
        let found = entries.remove(at)?;
        let entry = found.1.clone();
        entries.push_back(found);
        Some(entry)
    }

    /// The entry of a block, a new one if there is none; with it the memory of a forgotten block of this length, if there is one.
    fn insert(&self, block: usize, len: usize) -> (Arc<Entry>, Option<Vec<u8>>) {
        if let Some(entry) = self.get(block) {
            return (entry, None);
        }
        let entry = Arc::new(Entry { len, decoded: Mutex::default() });
        let mut entries = self.entries.lock().expect("no panic while it is held");
        entries.push_back((block, entry.clone()));
        let mut sum: usize = entries.iter().map(|e| e.1.len.max(MIN_COST as usize)).sum();
        let mut memory = None;
        while sum > self.capacity && entries.len() > 1 {
            let (_, forgotten) = entries.pop_front().expect("there are several");
            sum -= forgotten.len.max(MIN_COST as usize);
            if forgotten.len == len {
                memory = forgotten.into_memory().or(memory);
            }
        }
        (entry, memory)
    }

    /// Memory for a record.
    fn record(&self) -> Vec<u8> {
        self.records.lock().expect("no panic while it is held").pop().unwrap_or_default()
    }

    fn put_back(&self, record: Vec<u8>) {
        if record.capacity() <= KEEP {
            self.records.lock().expect("no panic while it is held").push(record);
        }
    }
}

impl Entry {
    /// The decoded bytes, unless another thread still holds them.
    fn into_memory(self: Arc<Self>) -> Option<Vec<u8>> {
        let (raw, _) = Arc::into_inner(self)?.decoded.into_inner().ok()??;
        Arc::into_inner(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_forgotten_blocks_is_used_again() {
        let cache = Cache { capacity: 2 << 20, ..Cache::default() };
        let insert = |block, len| {
            let (entry, memory) = cache.insert(block, len);
            let raw = Arc::new(memory.unwrap_or_else(|| vec![block as u8; len]));
            *entry.decoded.lock().unwrap() = Some((raw.clone(), 0));
            raw
        };
        let first = |raw: &[u8]| raw[0];
        assert_eq!(first(&insert(1, 1 << 20)), 1);
        let reading = insert(2, 1 << 20);
        assert_eq!(first(&insert(3, 1 << 20)), 1);
        assert_eq!(first(&insert(4, 1 << 20)), 4, "block 2 is being read");
        assert_eq!(first(&reading), 2);
        assert_eq!(first(&insert(5, 1 << 20)), 1);
        assert_eq!(insert(6, 1 << 19).len(), 1 << 19, "block 4 is longer");
        assert_eq!(first(&insert(7, 1 << 20)), 1);
    }

    #[test]
    fn the_cache_keeps_what_was_used_last() {
        let cache = Cache { capacity: 3 << 20, ..Cache::default() };
        for block in 0..3 {
            cache.insert(block, 1 << 20);
        }
        assert!(cache.get(0).is_some());
        cache.insert(3, 1 << 20);
        assert!(cache.get(1).is_none() && cache.get(2).is_some() && cache.get(0).is_some());
        cache.insert(4, 1 << 24);
        assert!(cache.get(4).is_some() && cache.get(0).is_none());
        let (entry, _) = cache.insert(4, 1 << 24);
        assert!(Arc::ptr_eq(&entry, &cache.insert(4, 1 << 24).0));
    }
}
