//! Ranges of files gathered from the block sets that they are in, each of which is fetched and decoded once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::catalog::{Catalog, SetId};
use crate::chain::{self, ChainDecoder};
use crate::error::Result;
use crate::ordered;
use crate::remote::Remote;

/// Where a range of a file is.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// Where it starts in the file.
    pub(crate) offset: u64,
    pub(crate) set: SetId,
    /// Where it starts in the set.
    pub(crate) from: u64,
    pub(crate) len: u64,
}

/// Chains that are fetched side by side, if there are fewer threads: most of the time they wait for the store.
pub(crate) const SIDE_BY_SIDE: usize = 8;

/// Bytes of a set, and their place.
type Take<T> = (Range<usize>, T);

/// What is to be gathered. `T` is a place that bytes go to.
pub(crate) struct Gather<T> {
    takes: HashMap<SetId, Vec<Take<T>>>,
    /// The sets in the order in which they were asked for.
    sets: Vec<SetId>,
}

/// A chain, and what is taken of its links.
struct Job<T> {
    chain: Vec<SetId>,
    /// By position in the chain, in order.
    takes: Vec<(usize, Vec<Take<T>>)>,
}

impl<T: Send> Gather<T> {
    pub(crate) fn new() -> Self {
        Self { takes: HashMap::new(), sets: vec![] }
    }

    /// Adds a range of a file whose bytes are at `extents`. `place` says where so many bytes from an offset on go; it is asked in order.
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

    /// Gathers everything. `put` takes bytes to their place, in any order; `progress` is told how many are there.
    pub(crate) fn run(
        mut self,
        remote: &Remote,
        catalog: &Catalog,
        threads: usize,
        put: impl Fn(T, &[u8]) -> Result<()> + Sync,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut jobs = Vec::new();
        for chain in chain::covering(catalog, self.sets)? {
            let takes = chain.iter().enumerate().filter_map(|(i, link)| Some((i, self.takes.remove(link)?))).collect();
            jobs.push(Mutex::new(Some(Job { chain, takes })));
        }
        let threads = ordered::threads(threads);
        let mut done = 0;
        let job = |i: usize| jobs[i].lock().unwrap_or_else(PoisonError::into_inner);
        ordered::run_ahead(
            threads,
            SIDE_BY_SIDE.max(threads + 1),
            jobs.len(),
            |i| chain::begin(remote, catalog, &job(i).as_ref().expect("it is begun before it is done").chain),
            ChainDecoder::new,
            |decoder, i, begun| {
                let Job { chain, takes } = job(i).take().expect("a job is done once");
                let stored = chain::finish(remote, catalog, &chain, begun)?;
                let (wanted, takes): (Vec<usize>, Vec<_>) = takes.into_iter().unzip();
                let mut takes = takes.into_iter();
                let mut n = 0;
                decoder.decode_each(catalog, &chain, &stored, &wanted, |raw| {
                    for (range, to) in takes.next().expect("one for each that is wanted") {
                        n += range.len() as u64;
                        put(to, &raw[range])?;
                    }
                    Ok(())
                })?;
                Ok(n)
            },
            |_, n| {
                done += n;
                progress(done);
                Ok(())
            },
        )
    }
}
