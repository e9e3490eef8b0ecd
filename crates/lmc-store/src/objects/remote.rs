//! Requests to the object store, and the threads that run them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result, is_not_on_disk};

/// Concurrent requests for one purpose.
pub(crate) const CONCURRENT: usize = 16;

/// Concurrent requests for ranges and lengths of objects, whatever they are for: each has a file or a connection open.
pub(crate) const RANGES: usize = 64;

/// Blocking threads for disk access: they read, write and sync. Computation runs elsewhere.
const BLOCKING: usize = 4;

/// Threads of requests.
const WORKERS: usize = 2;

/// The error where these threads cannot be started.
const NO_THREADS: &str = "cannot start threads for the store, as the limit of processes is reached: raise it (ulimit -u, or that of the container)";

/// How often to retry creating an object that reportedly exists but cannot be read.
const CONFLICTS: u32 = 6;

/// An object's entry in a listing.
pub(crate) struct Object {
    pub(crate) key: Path,
    pub(crate) size: u64,
    /// When it was written, by the store's clock, in seconds since 1970.
    pub(crate) time: u64,
    /// Nanoseconds part, if the store reports it.
    pub(crate) nanos: u32,
}

#[derive(Clone)]
pub(crate) struct Remote {
    objects: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    /// One permit for each request for a range or a length.
    ranges: Arc<Semaphore>,
    /// Once it is set, nothing is read any more. What was begun is still written or deleted: a writer that gives up cleans up.
    stop: Option<Arc<AtomicBool>>,
}

/// Requests in progress.
pub(crate) struct Begun<T>(JoinHandle<Result<T>>);

impl<T> Drop for Begun<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The runtime of a process, and that of a process that was forked from it.
struct Shared {
    process: u32,
    runtime: Arc<Runtime>,
    child: OnceLock<Box<Shared>>,
}

/// The runtime of all stores of this process. A client's connections belong to the threads that opened them, so stores that share a client
/// must share the threads. They are never stopped. A forked child has none of its parent's threads and gets its own; the parent's is kept,
/// as dropping it would wait for those threads.
///
/// There is no lock that another thread may hold for longer than it takes to write a pointer: while the process forks, it would stay locked
/// in the child.
fn runtime() -> Result<Arc<Runtime>> {
    static FIRST: OnceLock<Box<Shared>> = OnceLock::new();
    let (mut last, process) = (&FIRST, std::process::id());
    while let Some(shared) = last.get() {
        if shared.process == process {
            return Ok(shared.runtime.clone());
        }
        last = &shared.child;
    }
    check_threads(WORKERS + 1).map_err(|e| Error::io(NO_THREADS, e))?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(WORKERS).max_blocking_threads(BLOCKING).thread_keep_alive(Duration::MAX);
    let runtime = builder.thread_name("lmc-store").enable_all().build().map_err(|e| Error::io(NO_THREADS, e))?;
    // The first blocking thread stays: it does the work of others that cannot be started.
    runtime.spawn_blocking(|| ());
    let runtime = Arc::new(runtime);
    // If another thread was faster, its runtime counts.
    _ = last.set(Box::new(Shared { process, runtime, child: OnceLock::new() }));
    Ok(last.get().expect("it was set").runtime.clone())
}

/// Fails if `n` threads cannot run at once: the runtime would panic.
fn check_threads(many: usize) -> std::io::Result<()> {
    let before = threads_of_process();
    let (wait, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    std::thread::scope(|scope| {
        // Each of them ends when the sender is dropped.
        let _wait = wait;
        let start = |_| {
            std::thread::Builder::new()
                .name("lmc-trial".to_owned())
                .spawn_scoped(scope, || _ = ended.lock().map(|ended| ended.recv()))
        };
        (0..many).try_for_each(|i| start(i).map(drop))
    })?;
    // The system counts a thread a little longer than it runs.
    let mut tries = 0..100;
    while threads_of_process() > before && tries.next().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// How many threads the process has; `None` where the system does not say it.
fn threads_of_process() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

impl Remote {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>) -> Result<Self> {
        Ok(Self { objects, runtime: runtime()?, ranges: Arc::new(Semaphore::new(RANGES)), stop: None })
    }

    /// The same, until `stop` is set.
    pub(crate) fn cancelled_by(&self, stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), ..self.clone() }
    }

    /// Fails if the work is to be given up.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(Error::store("was interrupted")),
            _ => Ok(()),
        }
    }

    /// Runs requests to completion.
    pub(crate) fn wait<T>(&self, requests: impl Future<Output = T>) -> T {
        self.runtime.block_on(requests)
    }

    /// Starts requests; [`Self::finish`] waits for their result.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        requests: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Begun<T> {
        Begun(self.runtime.spawn(requests))
    }

    /// Waits for requests that were started.
    pub(crate) fn finish<T>(&self, mut begun: Begun<T>) -> Result<T> {
        self.wait(&mut begun.0).map_err(|e| Error::store(format!("a request ended before it was answered: {e}")))?
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    /// All of an object of at most `limit` bytes.
    pub(crate) async fn get(&self, key: &Path, limit: usize) -> Result<Bytes> {
        self.check()?;
        let failed = |e| Error::request("read", key, e);
        let got = self.objects.get(key).await.map_err(failed)?;
        let size = got.meta.size;
        if size > limit as u64 {
            return Err(Error::limit(format!("{key}: has {size} bytes, and the limit is {limit}")));
        }
        let bytes = got.bytes().await.map_err(failed)?;
        if bytes.len() as u64 != size {
            return Err(Error::store(format!("{key}: has {size} bytes, but {} arrived: try again", bytes.len())));
        }
        Ok(bytes)
    }

    /// A range of an object.
    pub(crate) async fn get_range(&self, key: &Path, range: Range<u64>) -> Result<Bytes> {
        let len = range.end - range.start;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let end = range.end;
        let _one = self.ranges.acquire().await.expect("it is never closed");
        self.check()?;
        let e = match self.objects.get_range(key, range).await {
            Ok(bytes) if bytes.len() as u64 == len => return Ok(bytes),
            Ok(bytes) => {
                Error::store(format!("{key}: {len} bytes were requested, but {} arrived: try again", bytes.len()))
            }
            Err(e) => Error::request("read", key, e),
        };
        // Backends report a range beyond an object's end in different ways: compare with its size.
        match self.head(key).await {
            Ok(head) if head.size < end => {
                Err(Error::damaged(format!("{key}: is truncated: it has only {} bytes", head.size)).of(key))
            }
            _ => Err(e),
        }
    }

    /// Writes an object whose key no other writer uses.
    pub(crate) async fn put(&self, key: &Path, bytes: Bytes) -> Result<()> {
        self.objects.put(key, bytes.into()).await.map(|_| ()).map_err(|e| Error::request("write", key, e))
    }

    /// Creates an object unless it exists; returns whether the existing object is ours. Afterwards the object exists in any case.
    ///
    /// A refusal cannot be trusted: it may answer a retry, after the answer to a successful first try was lost. So the object is read back
    /// and compared. Different writers must write different bytes.
    pub(crate) async fn create(&self, key: &Path, bytes: Bytes) -> Result<bool> {
        let mut conflicts = 0;
        loop {
            let options = PutOptions::from(PutMode::Create);
            let Err(e) = self.objects.put_opts(key, bytes.clone().into(), options).await else { return Ok(true) };
            let not_on_disk = is_not_on_disk(&e);
            let cause = Error::request("write", key, e);
            if not_on_disk {
                return Err(cause);
            }
            match self.objects.get(key).await {
                Ok(got) if got.meta.size != bytes.len() as u64 => return Ok(false),
                Ok(got) => return Ok(got.bytes().await.map_err(|e| Error::request("read back", key, e))? == bytes),
                Err(_) if cause.kind() != ErrorKind::Exists => return Err(cause),
                // Reported to exist, but missing: others are creating it at this moment, and at most one of them wins.
                Err(_) if conflicts < CONFLICTS => {
                    conflicts += 1;
                    tokio::time::sleep(Duration::from_millis(20 << conflicts)).await;
                }
                Err(_) => return Err(Error::store(format!("{cause}; and it cannot be read back: try again"))),
            }
        }
    }

    /// Whether the server refuses to overwrite an existing object with a conditional create.
    pub(crate) async fn refuses_to_replace(&self, key: &Path, bytes: Bytes) -> Result<bool> {
        match self.objects.put_opts(key, bytes.into(), PutOptions::from(PutMode::Create)).await {
            Ok(_) => Ok(false),
            Err(e) => match Error::request("write", key, e) {
                e if e.kind() == ErrorKind::Exists => Ok(true),
                e => Err(e),
            },
        }
    }

    /// The length of an object.
    pub(crate) async fn size(&self, key: &Path) -> Result<u64> {
        let _one = self.ranges.acquire().await.expect("it is never closed");
        self.check()?;
        Ok(self.head(key).await?.size)
    }

    pub(crate) async fn head(&self, key: &Path) -> Result<ObjectMeta> {
        self.objects.head(key).await.map_err(|e| Error::request("look at", key, e))
    }

    pub(crate) async fn delete(&self, key: &Path) -> Result<()> {
        self.objects.delete(key).await.map_err(|e| Error::request("delete", key, e))
    }

    /// Deletes objects, in no specified order; missing ones count as deleted. Goes on after an error; returns the number of objects left, and
    /// the first error.
    pub(crate) async fn delete_all(&self, keys: Vec<Path>) -> Option<(usize, Error)> {
        let (mut left, mut first) = (keys.len(), None);
        if let (1.., Err(e)) = (left, self.check()) {
            return Some((left, e));
        }
        // Answers are in the order of the keys. One that many keys share is an error of the first of them.
        let mut rest = keys.clone().into_iter();
        let mut deleted = self.objects.delete_stream(stream::iter(keys).map(Ok).boxed());
        while let Some(done) = deleted.next().await {
            match done {
                Ok(key) => {
                    left -= 1;
                    rest.find(|k| *k == key);
                }
                Err(object_store::Error::NotFound { .. }) => {
                    left -= 1;
                    rest.next();
                }
                Err(e) => {
                    let key = rest.next().unwrap_or_default();
                    first.get_or_insert_with(|| Error::request("delete", &key, e));
                }
            }
            if let (1.., Err(e)) = (left, self.check()) {
                return Some((left, e));
            }
        }
        first.map(|e| (left, e))
    }

    /// Whether there is an object under a prefix with such a key.
    pub(crate) async fn any(&self, prefix: &Path, is_one: impl Fn(&Path) -> bool) -> Result<bool> {
        self.check()?;
        let mut objects = self.objects.list(Some(prefix));
        while let Some(object) = objects.try_next().await.map_err(|e| Error::request("list", prefix, e))? {
            if is_one(&object.location) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The objects under a prefix.
    pub(crate) async fn list(&self, prefix: &Path) -> Result<Vec<Object>> {
        self.check()?;
        let objects = self.objects.list(Some(prefix)).map_err(|e| Error::request("list", prefix, e));
        objects.and_then(async |o| object(o)).try_collect().await
    }

    /// The objects under a prefix, by key, those whose keys come after `offset`: listed as far as they are asked for.
    pub(crate) fn objects_after(&self, prefix: &Path, offset: Option<&Path>) -> Result<Objects> {
        self.check()?;
        let objects = match offset {
            None => self.objects.list(Some(prefix)),
            Some(offset) => self.objects.list_with_offset(Some(prefix), offset),
        };
        Ok(Objects { objects, prefix: prefix.clone(), last: offset.cloned().unwrap_or_default() })
    }
}

/// A listing in the order of keys.
pub(crate) struct Objects {
    objects: BoxStream<'static, object_store::Result<ObjectMeta>>,
    prefix: Path,
    /// The key of the last one.
    last: Path,
}

impl Objects {
    /// The next one.
    ///
    /// # Errors
    /// `Store` when the request fails, `Unsupported` when the server lists in another order.
    pub(crate) async fn next(&mut self) -> Result<Option<Object>> {
        let next = self.objects.try_next().await.map_err(|e| Error::request("list", &self.prefix, e))?;
        let Some(found) = next else { return Ok(None) };
        if found.location <= self.last {
            return Err(Error::unsupported(format!(
                "this server lists {} after {}, and not in the order of keys: what is not listed would be taken for lost;                  use a server that lists in order (docs/store.md says which), or a directory",
                found.location, self.last
            )));
        }
        self.last = found.location.clone();
        object(found).map(Some)
    }
}

fn object(o: ObjectMeta) -> Result<Object> {
    let (time, nanos) = (seconds(o.last_modified.timestamp())?, o.last_modified.timestamp_subsec_nanos());
    Ok(Object { time, nanos, size: o.size, key: o.location })
}

/// Converts a timestamp of the store, in seconds since 1970. `Store` if it is negative.
pub(crate) fn seconds(timestamp: i64) -> Result<u64> {
    u64::try_from(timestamp).map_err(|_| Error::store("the store's clock is before 1970: set it right"))
}
