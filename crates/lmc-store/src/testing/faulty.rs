//! An object store that fails on purpose, from a seed: requests are refused, or done and reported as failed, or done after that was reported, or answered in
//! part, and at some point the process that sends them is gone.

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

/// How often requests fail.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// One request in so many fails and does nothing; 0 for none.
    pub refused: u64,
    /// One in so many is done, and the answer is an error.
    pub answer_lost: u64,
    /// One write in so many times out, and is done later: see [`Faulty::settle`].
    pub late: u64,
    /// One in so many reads has fewer bytes than it says.
    pub short: u64,
    /// After so many requests every further one fails: the process has died. 0 for never. Whether the last one is still done is left to chance.
    pub dies_after: u64,
}

/// What becomes of a request.
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
        // On a thread of its own: it may wait for requests, and this one may not.
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

    /// Does a request as its fate is.
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

/// An object store that fails as it is told to: what one process sees of it.
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    dice: Arc<Dice>,
    late: Mutex<Vec<BoxFuture<'static, ()>>>,
}

impl Faulty {
    /// `inner`, failing as `seed` has it.
    pub fn new(inner: Arc<dyn ObjectStore>, seed: u64, faults: Faults) -> Self {
        Self::with_hook(inner, seed, faults, |_| {})
    }

    /// [`Self::new`], where something else happens before each request, which is given by its number, from 1 on.
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

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.dice.requests.load(Ordering::Relaxed)
    }

    /// Does the writes that are late. What is inside must need no runtime.
    pub fn settle(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap_or_else(PoisonError::into_inner));
        late.into_iter().for_each(block_on);
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
            // It stops half-way.
            Fate::Late => {
                let some = self.inner.delete_stream(locations.take(2).boxed());
                some.chain(stream::once(async { Err(injected()) })).boxed()
            }
            Fate::Done | Fate::Short => self.inner.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.dice.fate() {
            Fate::Refused => stream::once(async { Err(injected()) }).boxed(),
            // Some of it, and then an error.
            Fate::AnswerLost | Fate::Late => {
                self.inner.list(prefix).take(1).chain(stream::once(async { Err(injected()) })).boxed()
            }
            Fate::Done | Fate::Short => self.inner.list(prefix),
        }
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
