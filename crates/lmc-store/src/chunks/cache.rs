//! Raw bytes of the newest snapshot's chunks, kept so that the next save need not decode the chains of its bases.
//!
//! A cache is queried by hash. Bytes from a file are verified against that hash: a lost or corrupted file costs time
//! and nothing else.

mod directory;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::error::Result;
use crate::format::ids::Hash;
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
    /// Their content hash for deltas, where it is known.
    content: Option<[u8; 16]>,
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
                    state.held.insert(hash, Held { len, save: 0, content: None, bytes: Bytes::new() });
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

    /// The `len` raw bytes with this hash, if they are cached, and their content hash, if it is known.
    pub(crate) fn get(&self, hash: Hash, len: u64) -> Option<(Bytes, Option<[u8; 16]>)> {
        let Some(directory) = &self.directory else {
            let state = self.state();
            let held = state.held.get(&hash)?;
            return Some((held.bytes.clone(), held.content));
        };
        let bytes = directory.read(hash, len)?;
        if Hash::of(&bytes) == hash {
            let content = self.state().held.get(&hash).and_then(|held| held.content);
            return Some((bytes, content));
        }
        self.state().remove(Some(directory), hash);
        None
    }

    /// Caches `raw`, whose hash is `hash`, in place of the entry with the hash `before`. `content` is the content hash, if it is known.
    /// Without room, or if writing fails, nothing is cached.
    pub(crate) fn put(&self, hash: Hash, raw: &[u8], content: Option<[u8; 16]>, before: Option<Hash>) {
        let mut state = self.state();
        let save = state.save;
        let known = state.held.get_mut(&hash).map(|held| {
            held.save = save;
            held.content = held.content.or(content);
        });
        let replaced = before.filter(|&b| b != hash).and_then(|b| state.remove(self.directory.as_ref(), b));
        let len = raw.len() as u64;
        if known.is_some() || !self.make_room(&mut state, len) {
            return;
        }
        state.total += len;
        if let Some(directory) = &self.directory {
            state.insert(hash, Held { len, save, content, bytes: Bytes::new() });
            drop(state);
            if directory.write(hash, raw).is_err() {
                self.state().remove(self.directory.as_ref(), hash);
            }
            return;
        }
        // Other threads need not wait for the copy.
        drop(state);
        let bytes = copied(raw, replaced);
        self.state().insert(hash, Held { len, save, content, bytes });
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
    /// Adds an entry, whose bytes count already.
    fn insert(&mut self, hash: Hash, held: Held) {
        // Another thread may have added it meanwhile.
        if let Some(before) = self.held.insert(hash, held) {
            self.total -= before.len;
        }
    }

    /// Removes an entry; returns its bytes, if they are in memory.
    fn remove(&mut self, directory: Option<&CacheDirectory>, hash: Hash) -> Option<Bytes> {
        let held = self.held.remove(&hash);
        if let Some(held) = &held {
            self.total -= held.len;
        }
        if let Some(directory) = directory {
            directory.remove(hash);
        }
        held.map(|held| held.bytes)
    }
}

/// A copy of `raw`, in the memory of bytes that are not needed any more, if nothing else has them and it fits: the system clears new pages
/// first, which takes as long as the copy.
fn copied(raw: &[u8], replaced: Option<Bytes>) -> Bytes {
    // Only the bytes themselves count towards the budget.
    let fits = |memory: &BytesMut| (raw.len()..=raw.len() + raw.len() / 8).contains(&memory.capacity());
    let memory = replaced.and_then(|bytes| bytes.try_into_mut().ok()).filter(fits);
    let Some(mut memory) = memory else { return Bytes::copy_from_slice(raw) };
    memory.clear();
    memory.extend_from_slice(raw);
    memory.freeze()
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
        (0..10).filter(|&n| cache.get(chunk(n).0, 100).is_some_and(|(b, _)| b == chunk(n).1)).collect()
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
            let put = |n, before: Option<u8>| cache.put(chunk(n).0, &chunk(n).1, None, before.map(|b| chunk(b).0));
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
    fn content_hashes_are_known_once_they_were_given() {
        each(|open| {
            let cache = open();
            let content = |n| cache.get(chunk(n).0, 100).unwrap().1;
            cache.begin();
            cache.put(chunk(0).0, &chunk(0).1, None, None);
            assert_eq!(content(0), None);
            cache.put(chunk(0).0, &chunk(0).1, Some([7; 16]), None);
            cache.put(chunk(0).0, &chunk(0).1, None, None);
            assert_eq!(content(0), Some([7; 16]));
            cache.put(chunk(1).0, &chunk(1).1, Some([8; 16]), Some(chunk(0).0));
            assert!(cache.get(chunk(0).0, 100).is_none());
            assert_eq!(content(1), Some([8; 16]));
        });
    }

    #[test]
    fn memory_of_what_is_replaced_is_reused_unless_it_is_read() {
        let cache = ChunkCache::new(&Cache::Memory { budget: 1000 }).unwrap().unwrap();
        let put = |raw: &[u8], before: Option<&[u8]>| cache.put(Hash::of(raw), raw, None, before.map(Hash::of));
        let get = |raw: &[u8]| cache.get(Hash::of(raw), raw.len() as u64).unwrap().0;
        let raws: Vec<Vec<u8>> = [(1, 100), (2, 90), (3, 100), (4, 300), (5, 40)].map(|(n, len)| vec![n; len]).into();
        put(&raws[0], None);
        let memory = get(&raws[0]).as_ptr();
        put(&raws[1], Some(&raws[0]));
        assert_eq!((&get(&raws[1])[..], get(&raws[1]).as_ptr()), (&raws[1][..], memory));
        put(&raws[2], Some(&raws[1]));
        assert_eq!((&get(&raws[2])[..], get(&raws[2]).as_ptr()), (&raws[2][..], memory));
        // A reader keeps what it has; what is longer or far shorter gets memory of its own.
        let read = get(&raws[2]);
        put(&raws[3], Some(&raws[2]));
        put(&raws[4], Some(&raws[3]));
        assert_eq!((&read[..], &get(&raws[4])[..]), (&raws[2][..], &raws[4][..]));
        assert_eq!(cache.state().total, 40);
    }

    #[test]
    fn files_outlive_the_process_and_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let open = |budget| ChunkCache::new(&Cache::Directory { path: dir.path().into(), budget }).unwrap().unwrap();
        let cache = open(350);
        cache.begin();
        (0..3).for_each(|n| cache.put(chunk(n).0, &chunk(n).1, None, None));
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
        cache.put(chunk(1).0, &chunk(1).1, None, None);
        assert_eq!(held(&cache), [0, 1]);
        // A smaller budget applies from the start.
        drop(cache);
        assert!(open(150).state().total <= 150);
        let below_a_file = Cache::Directory { path: dir.path().join("README/x"), budget: 1 };
        assert_eq!(ChunkCache::new(&below_a_file).err().unwrap().kind(), crate::error::ErrorKind::Io);
    }
}
