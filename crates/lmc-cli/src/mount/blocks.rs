//! Decoded blocks: who waits for them, the threads that decode them, and a cache of the last ones.
//!
//! A reader that needs a block leaves a function to be called with it. No thread waits for another one: requests of any number of readers,
//! such as page faults of all threads of a program, are always taken.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::log::Log;
use super::tree::Decoded;

/// An open file, with the number of its node.
pub(super) struct Source {
    pub(super) number: u64,
    pub(super) decoded: Decoded,
}

/// The bytes of a block.
pub(super) type Bytes = Arc<Vec<u8>>;

/// Gets the bytes of a block, or none if it cannot be read.
pub(super) type Then = Box<dyn FnOnce(Option<Bytes>) + Send>;

/// Decodes blocks and keeps them.
pub(crate) struct Blocks {
    state: Mutex<State>,
    work: Condvar,
    /// The most bytes of all blocks, those that are being decoded included. Each thread may have one beyond.
    limit: usize,
    threads: usize,
    log: Arc<Log>,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Key, Block>,
    /// Decoded ones, those used last at the end.
    by_age: BTreeMap<u64, Key>,
    age: u64,
    used: usize,
    /// What readers wait for, and what they will.
    wanted: VecDeque<Job>,
    ahead: VecDeque<Job>,
    /// Memory to use again: new pages cost more than decoding.
    spare: Vec<Vec<u8>>,
}

/// The number of a file, and the index of a block.
type Key = (u64, usize);

enum Block {
    /// No thread has begun it.
    Waiting(Vec<Then>),
    /// One is decoding it.
    Begun(Vec<Then>),
    Ready(Bytes, u64),
}

struct Job {
    file: Arc<Source>,
    block: usize,
}

impl Job {
    fn key(&self) -> Key {
        (self.file.number, self.block)
    }
}

impl Blocks {
    /// Starts the threads.
    pub(crate) fn start(limit: usize, threads: usize, log: Arc<Log>) -> io::Result<Arc<Self>> {
        let blocks = Arc::new(Self { state: Mutex::default(), work: Condvar::new(), limit, threads, log });
        for _ in 0..threads {
            let blocks = blocks.clone();
            std::thread::Builder::new().name("decoder".to_owned()).spawn(move || blocks.decode_all())?;
        }
        Ok(blocks)
    }

    /// The most bytes to decode before they are read.
    pub(super) fn most_ahead(&self) -> u64 {
        (self.threads << 24).min(self.limit / 4) as u64
    }

    /// Calls `then` with a block: now if it is there, or else on the thread that decodes it.
    pub(super) fn get(&self, file: &Arc<Source>, block: usize, then: Then) {
        let mut state = self.state();
        match state.blocks.entry((file.number, block)) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Block::Begun(readers) => return readers.push(then),
                Block::Waiting(readers) => readers.push(then),
                Block::Ready(bytes, _) => {
                    let bytes = bytes.clone();
                    state.touch((file.number, block));
                    drop(state);
                    return then(Some(bytes));
                }
            },
            Entry::Vacant(entry) => _ = entry.insert(Block::Waiting(vec![then])),
        }
        // If it waits to be decoded ahead, this comes first.
        state.wanted.push_back(Job { file: file.clone(), block });
        drop(state);
        self.work.notify_one();
    }

    /// Decodes a block that is likely to be needed.
    pub(super) fn ahead(&self, file: &Arc<Source>, block: usize) {
        let mut state = self.state();
        if let Entry::Vacant(entry) = state.blocks.entry((file.number, block)) {
            entry.insert(Block::Waiting(Vec::new()));
            state.ahead.push_back(Job { file: file.clone(), block });
            drop(state);
            self.work.notify_one();
        }
    }

    /// A block is not needed any more.
    pub(super) fn forget(&self, file: &Source, block: usize) {
        self.state().forget((file.number, block), self.threads);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of each thread.
    fn decode_all(&self) {
        let mut state = self.state();
        loop {
            let Some(job) = state.begin() else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let range = job.file.decoded.range(job.block);
            let len = (range.end - range.start) as usize;
            let spare = state.room(len, self.limit, self.threads);
            drop(state);
            let mut bytes = spare.unwrap_or_else(|| vec![0; len]);
            // Readers would wait for a thread that ended.
            let done = catch_unwind(AssertUnwindSafe(|| job.file.decoded.read(range.start, &mut bytes)));
            let done =
                done.unwrap_or_else(|panic| Err(format!("a fault of lmc, please report it: {}", text_of(&*panic))));
            let bytes = done.map(|()| Arc::new(bytes)).map_err(|why| {
                self.log.say(format_args!("{}: bytes {} to {}: {why}", job.file.decoded.name, range.start, range.end));
            });
            let readers = self.state().end(job.key(), len, bytes.as_ref().ok());
            readers.into_iter().for_each(|then| then(bytes.as_ref().ok().cloned()));
            state = self.state();
        }
    }
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(text) => text,
        None => panic.downcast_ref::<&str>().copied().unwrap_or("it has no message"),
    }
}

impl State {
    /// The next block to decode.
    fn begin(&mut self) -> Option<Job> {
        while let Some(job) = self.wanted.pop_front().or_else(|| self.ahead.pop_front()) {
            // It may be in both lists, and was begun by the first.
            if let Some(block @ Block::Waiting(_)) = self.blocks.get_mut(&job.key()) {
                let Block::Waiting(readers) = std::mem::replace(block, Block::Begun(Vec::new())) else { continue };
                *block = Block::Begun(readers);
                return Some(job);
            }
        }
        None
    }

    /// Makes room for a block, for which others are forgotten. Returns memory of one of them, if there is some of that length.
    fn room(&mut self, len: usize, limit: usize, spare: usize) -> Option<Vec<u8>> {
        self.used += len;
        while self.used > limit
            && let Some((_, &key)) = self.by_age.first_key_value()
        {
            self.forget(key, spare);
        }
        let at = self.spare.iter().position(|memory| memory.len() == len)?;
        Some(self.spare.swap_remove(at))
    }

    /// A block was decoded, or cannot be: the readers that wait for it.
    fn end(&mut self, key: Key, len: usize, bytes: Option<&Bytes>) -> Vec<Then> {
        let Some(Block::Begun(readers)) = self.blocks.remove(&key) else { return Vec::new() };
        match bytes {
            Some(bytes) => {
                self.age += 1;
                self.by_age.insert(self.age, key);
                self.blocks.insert(key, Block::Ready(bytes.clone(), self.age));
            }
            None => self.used -= len,
        }
        readers
    }

    fn touch(&mut self, key: Key) {
        if let Some(Block::Ready(_, age)) = self.blocks.get_mut(&key) {
            self.by_age.remove(age);
            self.age += 1;
            *age = self.age;
            self.by_age.insert(self.age, key);
        }
    }

    /// Forgets a decoded block; memory of the last `spare` ones is kept.
    fn forget(&mut self, key: Key, spare: usize) {
        let Entry::Occupied(entry) = self.blocks.entry(key) else { return };
        if !matches!(entry.get(), Block::Ready(..)) {
            return;
        }
        let Block::Ready(bytes, age) = entry.remove() else { return };
        self.by_age.remove(&age);
        self.used -= bytes.len();
        if let Some(memory) = Arc::into_inner(bytes) {
            self.spare.truncate(spare.saturating_sub(1));
            self.spare.insert(0, memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const BLOCK: u64 = 1 << 10;

    /// A file of 100 blocks of which each byte is the block's number, and how often one was decoded. Block 13 is
    /// damaged, and 66 cannot be decoded because of a fault in the program.
    fn file() -> (Arc<Source>, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let read = move |offset: u64, to: &mut [u8]| {
            counted.fetch_add(1, Ordering::Relaxed);
            to.fill((offset / BLOCK) as u8);
            assert!(offset != 66 * BLOCK, "cannot happen");
            if offset == 13 * BLOCK { Err("it is damaged".to_owned()) } else { Ok(()) }
        };
        let decoded = Decoded::new("file".to_owned(), (1..=100).map(|n| n * BLOCK).collect(), read);
        (Arc::new(Source { number: 1, decoded }), count)
    }

    fn read(blocks: &Blocks, file: &Arc<Source>, block: usize) -> Option<Bytes> {
        let (tx, rx) = mpsc::channel();
        blocks.get(file, block, Box::new(move |got| tx.send(got).unwrap()));
        rx.recv().unwrap()
    }

    #[test]
    fn blocks_are_kept_within_the_limit() {
        let blocks = Blocks::start(4 * BLOCK as usize, 1, Arc::new(Log::new(None))).unwrap();
        let (file, count) = file();
        for block in [0, 1, 2, 3, 0, 1, 2, 3] {
            assert_eq!(*read(&blocks, &file, block).unwrap(), vec![block as u8; BLOCK as usize]);
        }
        assert_eq!(count.load(Ordering::Relaxed), 4);
        read(&blocks, &file, 0);
        read(&blocks, &file, 4);
        read(&blocks, &file, 0);
        assert_eq!(count.load(Ordering::Relaxed), 5, "the first one was used last");
        read(&blocks, &file, 1);
        assert_eq!(count.load(Ordering::Relaxed), 6);
        blocks.forget(&file, 1);
        assert!(blocks.state().used <= 4 * BLOCK as usize);
        read(&blocks, &file, 1);
        assert_eq!(count.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_damaged_block_is_not_kept_and_others_are_read() {
        let blocks = Blocks::start(100 * BLOCK as usize, 2, Arc::new(Log::new(None))).unwrap();
        let (file, count) = file();
        assert!(read(&blocks, &file, 13).is_none() && read(&blocks, &file, 13).is_none());
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(blocks.state().used, 0);
        assert!(read(&blocks, &file, 14).is_some());
    }

    #[test]
    fn a_fault_while_decoding_is_an_error_and_a_message_and_the_thread_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log::new(Some(std::fs::File::create(&path).unwrap()));
        let blocks = Blocks::start(100 * BLOCK as usize, 1, Arc::new(log)).unwrap();
        let (file, _) = file();
        assert!(read(&blocks, &file, 66).is_none() && read(&blocks, &file, 66).is_none());
        assert_eq!(blocks.state().used, 0);
        assert_eq!(read(&blocks, &file, 65).unwrap()[0], 65);
        let said = std::fs::read_to_string(path).unwrap();
        assert_eq!(said, "lmc: file: bytes 67584 to 68608: a fault of lmc, please report it: cannot happen\n");
    }

    #[test]
    fn all_readers_of_a_block_get_it_and_it_is_decoded_once() {
        let blocks = Blocks::start(100 * BLOCK as usize, 3, Arc::new(Log::new(None))).unwrap();
        let (file, count) = file();
        (20..30).for_each(|block| blocks.ahead(&file, block));
        let (tx, rx) = mpsc::channel();
        for i in 0..1000 {
            let tx = tx.clone();
            blocks.get(&file, 20 + i % 20, Box::new(move |got| tx.send((i, got)).unwrap()));
        }
        for _ in 0..1000 {
            let (i, got) = rx.recv().unwrap();
            assert_eq!(got.unwrap()[0] as usize, 20 + i % 20);
        }
        assert_eq!(count.load(Ordering::Relaxed), 20);
    }
}
