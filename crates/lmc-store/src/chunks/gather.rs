//! Gathers ranges of files from their block sets. Each block set is fetched and decoded once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use crate::chunks::alternatives::Alternatives;
use crate::chunks::catalog::{Catalog, MAX_CHAIN, SetId};
use crate::chunks::chain::{self, ChainDecoder};
use crate::chunks::held::Held;
use crate::error::Result;
use crate::format::manifest::shard::BlockSet;
use crate::objects::ordered;
use crate::objects::remote::Remote;

/// An extent of a file.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// Offset in the file.
    pub(crate) offset: u64,
    pub(crate) set: SetId,
    /// Offset in the block set.
    pub(crate) from: u64,
    pub(crate) len: u64,
}

/// The part of `extents`, which are in order, that has `len` bytes from `start` on. Offsets count from there.
pub(crate) fn part(extents: &[Located], start: u64, len: u64) -> Vec<Located> {
    let first = extents.partition_point(|e| e.offset + e.len <= start);
    let end = start + len;
    let cut = |e: &Located| {
        let (from, to) = (e.offset.max(start), (e.offset + e.len).min(end));
        (from < to).then(|| Located {
            offset: from - start,
            set: e.set,
            from: e.from + (from - e.offset),
            len: to - from,
        })
    };
    extents[first..].iter().take_while(|e| e.offset < end).filter_map(cut).collect()
}

/// The fewest chains fetched in parallel, whatever the number of threads: they mostly wait for the store.
pub(crate) const SIDE_BY_SIDE: usize = 8;

/// Receives gathered bytes; called by several threads at once.
pub(crate) trait Sink<T>: Sync {
    /// Copies bytes to their destination, in any order.
    fn put(&self, to: T, bytes: &[u8]) -> Result<()>;

    /// Takes what goes to destinations from one block set as the stored bytes of deltas, each from the one before, the first from a block
    /// set that is held. Returns whether it did; otherwise the set is decoded.
    fn put_deltas(&self, _takes: &[Take<T>], _held: &BlockSet, _set: &BlockSet, _deltas: &[Bytes]) -> Result<bool> {
        Ok(false)
    }
}

impl<T, F: Fn(T, &[u8]) -> Result<()> + Sync> Sink<T> for F {
    fn put(&self, to: T, bytes: &[u8]) -> Result<()> {
        self(to, bytes)
    }
}

/// A byte range of a block set, and its destination.
pub(crate) type Take<T> = (Range<usize>, T);

/// What block sets are fetched with.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) remote: &'a Remote,
    pub(crate) catalog: &'a Catalog,
    pub(crate) alternatives: &'a Alternatives,
    /// Threads that decode; 0 for one per core.
    pub(crate) threads: usize,
}

/// Ranges to gather. `T` is a destination of bytes.
pub(crate) struct Gather<T> {
    takes: HashMap<SetId, Vec<Take<T>>>,
    /// The block sets, in order of first use.
    sets: Vec<SetId>,
}

/// A chain, and the ranges taken from its block sets.
struct Job<T> {
    chain: Vec<SetId>,
    /// By position in the chain, ascending.
    takes: Vec<(usize, Vec<Take<T>>)>,
    /// Positions of block sets that are held, ascending; of a linear chain at most the first.
    held: Vec<usize>,
    is_linear: bool,
}

impl<T> Job<T> {
    /// The block sets that are fetched.
    fn fetched(&self) -> Vec<SetId> {
        chain::without(&self.chain, &self.held)
    }

    /// Whether it may begin with an alternative.
    fn is_from_nothing(&self) -> bool {
        self.is_linear && self.held.is_empty()
    }

    /// Replaces the first block set by a chain that ends with an alternative of it, and begins with a block set that is held.
    fn begin_with(&mut self, way: &[SetId]) {
        let more = way.len() - 1;
        let chain = [way, &self.chain[1..]].concat();
        self.takes.iter_mut().for_each(|(i, _)| *i += more);
        (self.chain, self.held) = (chain, vec![0]);
    }

    /// The ranges taken from the last block set, the block set that is held, and the last one; `None` if anything else
    /// is taken.
    fn deltas(&self) -> Option<(&[Take<T>], SetId, SetId)> {
        let ([0], [(last, takes)]) = (&self.held[..], &self.takes[..]) else { return None };
        let is_last = self.is_linear && *last > 0 && last + 1 == self.chain.len();
        is_last.then(|| (&takes[..], self.chain[0], self.chain[*last]))
    }
}

impl<T: Send> Gather<T> {
    pub(crate) fn new() -> Self {
        Self { takes: HashMap::new(), sets: vec![] }
    }

    /// Adds a range of a file with these `extents`. `place(offset, len)` returns the destination of `len` bytes; it is called in ascending
    /// order.
    pub(crate) fn add(&mut self, extents: &[Located], range: Range<u64>, mut place: impl FnMut(u64, usize) -> T) {
        let first = extents.partition_point(|e| e.offset + e.len <= range.start);
        for e in extents[first..].iter().take_while(|e| e.offset < range.end) {
            let start = e.offset.max(range.start);
            let len = ((e.offset + e.len).min(range.end) - start) as usize;
            let from = (e.from + (start - e.offset)) as usize;
            let takes = self.takes.entry(e.set).or_default();
            if takes.is_empty() {
                self.sets.push(e.set);
            }
            takes.push((from..from + len, place(start, len)));
        }
    }

    /// Gathers everything, decoding from block sets that are `held`. `progress` receives the number of bytes put so
    /// far, and ends the work if it fails. Returns how many bytes were fetched.
    pub(crate) fn run(
        mut self,
        Origin { remote, catalog, alternatives, threads }: Origin<'_>,
        held: &Held<'_>,
        sink: &impl Sink<T>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let mut catalog = Cow::Borrowed(catalog);
        let mut jobs = Vec::new();
        for chain in chain::covering(&catalog, self.sets)? {
            let is_held = |id: SetId| catalog.set(id).is_ok_and(|set| held.has(set.raw_hash, set.raw_len));
            let is_linear = chain::is_linear(&catalog, &chain)?;
            let chain = match is_linear {
                true => {
                    let first = chain.iter().position(|id| self.takes.contains_key(id)).unwrap_or(0);
                    chain[(0..=first).rev().find(|&i| is_held(chain[i])).unwrap_or(0)..].to_vec()
                }
                false => {
                    let wanted = chain.iter().copied().filter(|id| self.takes.contains_key(id));
                    catalog.chain_of(wanted, &mut |id| is_held(id))?
                }
            };
            let held = match is_linear {
                true => (0..1).filter(|&i| is_held(chain[i])).collect(),
                false => (0..chain.len()).filter(|&i| is_held(chain[i])).collect(),
            };
            let takes = chain.iter().enumerate().filter_map(|(i, link)| Some((i, self.takes.remove(link)?))).collect();
            jobs.push(Job { chain, takes, held, is_linear });
        }
        if held.may_take_alternatives() && jobs.iter().any(Job::is_from_nothing) {
            let begins = jobs.iter().filter(|job| job.is_from_nothing()).map(|job| job.chain[0]);
            let ways = alternatives.find(remote, &mut catalog, held, begins)?;
            for job in jobs.iter_mut().filter(|job| job.is_from_nothing()) {
                if let Some(way) = ways.get(&job.chain[0]).filter(|way| way.len() + job.chain.len() <= MAX_CHAIN) {
                    job.begin_with(way);
                    // It may be gone: callers try again without.
                    held.take_alternative();
                }
            }
        }
        let mut jobs: Vec<Option<Job<T>>> = jobs.into_iter().map(Some).collect();
        let catalog = &*catalog;
        let threads = lmc_pool::threads(threads);
        let (mut done, mut fetched) = (0, 0);
        ordered::run(
            threads,
            SIDE_BY_SIDE.max(threads + 1),
            jobs.len(),
            |i| {
                let job = jobs[i].take().expect("a job begins once");
                (chain::begin(remote, catalog, &job.fetched()), job)
            },
            ChainDecoder::applying_lists,
            |decoder, _, (begun, job)| {
                let stored = chain::finish(remote, begun)?;
                let stored_len = stored.iter().map(|s| s.len() as u64).sum::<u64>();
                if let Some((takes, held, set)) = job.deltas() {
                    // What lists change is not compared with the hash of the raw bytes.
                    chain::verify(catalog, &job.fetched(), &stored)?;
                    if sink.put_deltas(takes, catalog.set(held)?, catalog.set(set)?, &stored)? {
                        return Ok((takes.iter().map(|(range, _)| range.len() as u64).sum(), stored_len));
                    }
                }
                let Job { chain, takes, held: at_hand, .. } = job;
                let (wanted, takes): (Vec<usize>, Vec<_>) = takes.into_iter().unzip();
                let mut takes = takes.into_iter();
                let mut n = 0;
                let take = |raw: &[u8]| {
                    for (range, to) in takes.next().expect("one list of takes per wanted set") {
                        n += range.len() as u64;
                        sink.put(to, &raw[range])?;
                    }
                    Ok(())
                };
                let read = |id, raw: &mut [u8]| held.read(catalog.set(id)?.raw_hash, raw);
                decoder.decode_after(catalog, &chain, &at_hand, read, &stored, &wanted, take)?;
                Ok((n, stored_len))
            },
            |_, (n, stored)| {
                done += n;
                fetched += stored;
                progress(done)
            },
        )?;
        Ok(fetched)
    }
}
