//! Raw bytes of the newest snapshot's chunks, kept so that the next save need not decode the chains of its bases.
//!
//! A cache is queried by hash. Bytes from a file are verified against that hash: a lost or corrupted file costs time
//! and nothing else.

mod directory;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::Result;
use crate::ids::Hash;
use directory::CacheDirectory;

/// Where the raw bytes of the newest snapshot are kept for the next save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// No cache: each base is decoded, with its whole chain.
    #[default]
    Nowhere,
    /// In memory.
    Memory {
        /// Budget in bytes.
        budget: u64,
    },
    /// In files that outlive the process. They may be deleted at any time. A directory serves one store; several processes may share it.
    Directory {
        /// Parent of the cache's own directory, `lmc-cache`, which is the only place written to. Both are created if missing.
        path: PathBuf,
        /// Budget in bytes.
        budget: u64,
    },
}

pub(crate) struct ChunkCache {
    /// `None` if in memory.
    directory: Option<CacheDirectory>,
    budget: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<Hash, Held>,
    total: u64,
    /// Number of the current save.
    save: u64,
}

struct Held {
    len: u64,
    /// The last save that used it.
    save: u64,
    /// Empty if kept in a file.
    bytes: Bytes,
}

impl ChunkCache {
    /// # Errors
    /// `Io` when the directory cannot be created or listed, `Usage` when it exists and is not a cache's.
    pub(crate) fn new(cache: &Cache) -> Result<Option<Self>> {
        // Existing files count as used by an earlier save.
        let mut state = State { save: 1, ..State::default() };
        let (directory, budget) = match cache {
            Cache::Nowhere => return Ok(None),
            Cache::Memory { budget } => (None, *budget),
            Cache::Directory { path, budget } => {
                let (directory, found) = CacheDirectory::open(path)?;
                for (hash, len) in found {
                    state.total = state.total.saturating_add(len);
                    state.held.insert(hash, Held { len, save: 0, bytes: Bytes::new() });
                }
                (Some(directory), *budget)
            }
        };
        let cache = Self { directory, budget, state: Mutex::new(state) };
        // The budget may have shrunk.
        cache.make_room(&mut cache.state(), 0);
        Ok(Some(cache))
    }

    /// Starts a save: entries that only earlier saves used may now be evicted.
    pub(crate) fn begin(&self) {
        self.state().save += 1;
    }

    /// The `len` raw bytes with this hash, if they are cached.
    pub(crate) fn get(&self, hash: Hash, len: u64) -> Option<Bytes> {
        let Some(directory) = &self.directory else {
            return Some(self.state().held.get(&hash)?.bytes.clone());
        };
        let bytes = directory.read(hash, len)?;
        if Hash::of(&bytes) == hash {
            return Some(bytes);
        }
        self.state().remove(Some(directory), hash);
        None
    }

    /// Caches `raw`, whose hash is `hash`, in place of the entry with the hash `before`. Without room, or if writing fails, nothing is
    /// cached.
    pub(crate) fn put(&self, hash: Hash, raw: &[u8], before: Option<Hash>) {
        let mut state = self.state();
        let save = state.save;
        let known = state.held.get_mut(&hash).map(|held| held.save = save).is_some();
        if let Some(before) = before.filter(|&b| b != hash) {
            state.remove(self.directory.as_ref(), before);
        }
        let len = raw.len() as u64;
        if known || !self.make_room(&mut state, len) {
            return;
        }
        let bytes = match &self.directory {
            None => Bytes::copy_from_slice(raw),
            Some(_) => Bytes::new(),
        };
        state.total += len;
        state.held.insert(hash, Held { len, save, bytes });
        drop(state);
        if let Some(directory) = &self.directory
            && directory.write(hash, raw).is_err()
        {
            self.state().remove(self.directory.as_ref(), hash);
        }
    }

    /// Evicts entries not used by this save, oldest first, until `len` more bytes fit the budget; returns whether they do.
    fn make_room(&self, state: &mut State, len: u64) -> bool {
        while state.total.saturating_add(len) > self.budget {
            let old = state.held.iter().filter(|(_, h)| h.save < state.save).min_by_key(|(hash, h)| (h.save, **hash));
            let Some((&hash, _)) = old else { break };
            state.remove(self.directory.as_ref(), hash);
        }
        state.total.saturating_add(len) <= self.budget
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, directory: Option<&CacheDirectory>, hash: Hash) {
        if let Some(held) = self.held.remove(&hash) {
            self.total -= held.len;
        }
        if let Some(directory) = directory {
            directory.remove(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn chunk(n: u8) -> (Hash, Vec<u8>) {
        let raw = vec![n; 100];
        (Hash::of(&raw), raw)
    }

    /// Which of the ten chunks are cached.
    fn held(cache: &ChunkCache) -> Vec<u8> {
        (0..10).filter(|&n| cache.get(chunk(n).0, 100).is_some_and(|b| b == chunk(n).1)).collect()
    }

    fn each(test: impl Fn(&dyn Fn() -> ChunkCache)) {
        let open = |cache: &Cache| ChunkCache::new(cache).unwrap().unwrap();
        test(&|| open(&Cache::Memory { budget: 350 }));
        let dir = tempfile::tempdir().unwrap();
        test(&|| open(&Cache::Directory { path: dir.path().join("a/b"), budget: 350 }));
    }

    #[test]
    fn the_newest_are_held_within_the_budget() {
        each(|open| {
            let cache = open();
            let put = |n, before: Option<u8>| cache.put(chunk(n).0, &chunk(n).1, before.map(|b| chunk(b).0));
            cache.begin();
            (0..5).for_each(|n| put(n, None));
            // First come, first kept: the next save requests it first.
            assert_eq!(held(&cache), [0, 1, 2]);
            cache.begin();
            put(5, Some(0));
            assert_eq!(held(&cache), [1, 2, 5]);
            put(1, Some(1));
            // It fits once unused entries are evicted.
            put(6, None);
            assert_eq!(held(&cache), [1, 5, 6]);
            put(7, None);
            assert_eq!(held(&cache), [1, 5, 6]);
            cache.begin();
            put(8, None);
            assert_eq!(held(&cache).len(), 3);
            assert!(held(&cache).contains(&8));
            assert_eq!(cache.get(chunk(8).0, 99).is_some(), cache.directory.is_none());
        });
    }

    #[test]
    fn files_outlive_the_process_and_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let open = |budget| ChunkCache::new(&Cache::Directory { path: dir.path().into(), budget }).unwrap().unwrap();
        let cache = open(350);
        cache.begin();
        (0..3).for_each(|n| cache.put(chunk(n).0, &chunk(n).1, None));
        drop(cache);
        let file = |n| dir.path().join("lmc-cache").join(chunk(n).0.to_string());
        let unfinished = |n| file(n).with_extension("lmc-unfinished");
        let mut bad = chunk(1).1;
        bad[50] ^= 1;
        fs::write(file(1), bad).unwrap();
        fs::write(file(2), [2; 99]).unwrap();
        fs::write(unfinished(9), [9; 100]).unwrap();
        fs::write(dir.path().join("README"), "not a cache's").unwrap();
        let cache = open(350);
        cache.begin();
        assert_eq!(held(&cache), [0]);
        assert!(!file(1).exists() && !unfinished(9).exists() && dir.path().join("README").exists());
        // The corrupt entry is replaced.
        cache.put(chunk(1).0, &chunk(1).1, None);
        assert_eq!(held(&cache), [0, 1]);
        // A smaller budget applies from the start.
        drop(cache);
        assert!(open(150).state().total <= 150);
        let below_a_file = Cache::Directory { path: dir.path().join("README/x"), budget: 1 };
        assert_eq!(ChunkCache::new(&below_a_file).err().unwrap().kind(), crate::error::ErrorKind::Io);
    }
}
