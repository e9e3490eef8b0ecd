//! An object store that injects faults from a seed: requests fail, or succeed and report failure, or take effect late, or return truncated
//! data; and the client process dies at some request.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::Random;

/// Rates of faults: on average one request in this many; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Requests that fail without effect.
    pub refused: u64,
    /// Requests that take effect but report an error.
    pub answer_lost: u64,
    /// Writes that time out, and take effect later: see [`Faulty::settle`].
    pub late: u64,
    /// Reads that return fewer bytes than they announce.
    pub short: u64,
    /// Number of requests after which every further one fails: the process has died. 0 for never. Whether the last one still takes effect
    /// is random.
    pub dies_after: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Refused,
    AnswerLost,
    Late,
    Short,
}

struct Dice {
    faults: Faults,
    random: Mutex<Random>,
    requests: AtomicU64,
    dead: AtomicBool,
    /// Called with its number before each request.
    before_each: Box<dyn Fn(u64) + Send + Sync>,
}

impl Dice {
    fn one_in(&self, n: u64) -> bool {
        n > 0 && self.random.lock().unwrap_or_else(PoisonError::into_inner).below(n) == 0
    }

    fn fate(&self) -> Fate {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.dead.load(Ordering::Relaxed) {
            return Fate::Refused;
        }
        // On a separate thread: the callback may block on requests, which this thread must not.
        std::thread::scope(|scope| scope.spawn(|| (self.before_each)(number)).join().expect("it does not panic"));
        if self.faults.dies_after > 0 && number >= self.faults.dies_after {
            self.dead.store(true, Ordering::Relaxed);
            return if self.one_in(2) { Fate::AnswerLost } else { Fate::Refused };
        }
        if self.one_in(self.faults.refused) {
            Fate::Refused
        } else if self.one_in(self.faults.answer_lost) {
            Fate::AnswerLost
        } else if self.one_in(self.faults.late) {
            Fate::Late
        } else if self.one_in(self.faults.short) {
            Fate::Short
        } else {
            Fate::Done
        }
    }

    /// Performs a request according to its fate.
    async fn cast<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fate() {
            Fate::Refused | Fate::Late => Err(injected()),
            Fate::AnswerLost => request.await.and(Err(injected())),
            Fate::Done | Fate::Short => request.await,
        }
    }
}

fn injected() -> object_store::Error {
    object_store::Error::Generic { store: "Faulty", source: "a fault was injected".into() }
}

/// An object store with injected faults, as seen by one process.
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    dice: Arc<Dice>,
    late: Mutex<Vec<BoxFuture<'static, ()>>>,
}

impl Faulty {
    /// Wraps `inner`, with faults drawn from `seed`.
    pub fn new(inner: Arc<dyn ObjectStore>, seed: u64, faults: Faults) -> Self {
        Self::with_hook(inner, seed, faults, |_| {})
    }

    /// [`Self::new`] with a callback before each request, called with the request's number, from 1 on.
    pub fn with_hook(
        inner: Arc<dyn ObjectStore>,
        seed: u64,
        faults: Faults,
        before_each: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        let dice = Dice {
            faults,
            random: Mutex::new(Random::new(seed)),
            requests: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            before_each: Box::new(before_each),
        };
        Self { inner, dice: Arc::new(dice), late: Mutex::default() }
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.dice.requests.load(Ordering::Relaxed)
    }

    /// Performs the delayed writes. `inner` must not need a runtime.
    pub fn settle(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap_or_else(PoisonError::into_inner));
        late.into_iter().for_each(block_on);
    }
}

impl Faulty {
    fn cast_list(
        &self,
        list: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.dice.fate() {
            Fate::Refused => stream::once(async { Err(injected()) }).boxed(),
            // Some of the data, then an error.
            Fate::AnswerLost | Fate::Late => list().take(1).chain(stream::once(async { Err(injected()) })).boxed(),
            Fate::Done | Fate::Short => list(),
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        match self.dice.fate() {
            Fate::Refused => Err(injected()),
            Fate::AnswerLost => self.inner.put_opts(location, payload, opts).await.and(Err(injected())),
            Fate::Late => {
                let (inner, location) = (self.inner.clone(), location.clone());
                let later = async move { _ = inner.put_opts(&location, payload, opts).await };
                self.late.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(later));
                Err(injected())
            }
            Fate::Done | Fate::Short => self.inner.put_opts(location, payload, opts).await,
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.dice.cast(self.inner.put_multipart_opts(location, opts)).await?;
        Ok(Box::new(FaultyUpload { inner, dice: self.dice.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.dice.fate() {
            Fate::Refused | Fate::AnswerLost | Fate::Late => Err(injected()),
            Fate::Done => self.inner.get_opts(location, options).await,
            Fate::Short => {
                let mut got = self.inner.get_opts(location, options).await?;
                let (meta, range, attributes) =
                    (got.meta.clone(), got.range.clone(), std::mem::take(&mut got.attributes));
                let bytes = got.bytes().await?;
                let short = bytes.slice(..bytes.len() - bytes.len().min(1));
                let payload = GetResultPayload::Stream(stream::once(async { Ok(short) }).boxed());
                Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
            }
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.dice.fate() {
            Fate::Refused => stream::once(async { Err(injected()) }).boxed(),
            Fate::AnswerLost => self.inner.delete_stream(locations).map(|done| done.and(Err(injected()))).boxed(),
            // The stream stops half-way.
            Fate::Late => {
                let some = self.inner.delete_stream(locations.take(2).boxed());
                some.chain(stream::once(async { Err(injected()) })).boxed()
            }
            Fate::Done | Fate::Short => self.inner.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.cast_list(|| self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.cast_list(|| self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.dice.cast(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.dice.cast(self.inner.copy_opts(from, to, options)).await
    }
}

struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    dice: Arc<Dice>,
}

impl fmt::Debug for FaultyUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyUpload").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let fate = self.dice.fate();
        if matches!(fate, Fate::Refused | Fate::Late) {
            return Box::pin(async { Err(injected()) });
        }
        let part = self.inner.put_part(data);
        Box::pin(async move { if fate == Fate::AnswerLost { part.await.and(Err(injected())) } else { part.await } })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.dice.cast(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.dice.cast(self.inner.abort()).await
    }
}
