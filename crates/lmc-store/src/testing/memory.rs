//! Objects in memory, with a clock that is set by the test.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Objects in memory. Their timestamps come from a clock of their own.
#[derive(Debug)]
pub struct Memory {
    objects: InMemory,
    clock: Arc<Mutex<Clock>>,
    listed: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
struct Clock {
    now: u64,
    written: HashMap<Path, u64>,
}

impl Clock {
    fn set(&self, meta: &mut ObjectMeta) {
        if let Some(&time) = self.written.get(&meta.location) {
            meta.last_modified = (UNIX_EPOCH + Duration::from_secs(time)).into();
        }
    }
}

fn lock(clock: &Mutex<Clock>) -> MutexGuard<'_, Clock> {
    clock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Memory {
    fn default() -> Self {
        let clock = Clock { now: 1_700_000_000, written: HashMap::new() };
        Self { objects: InMemory::new(), clock: Arc::new(Mutex::new(clock)), listed: Arc::default() }
    }
}

impl Memory {
    /// Advances the clock.
    pub fn advance(&self, seconds: u64) {
        lock(&self.clock).now += seconds;
    }

    /// Sets the clock back.
    pub fn set_back(&self, seconds: u64) {
        lock(&self.clock).now -= seconds;
    }

    /// A copy with the same objects and time; the two are independent afterwards.
    #[must_use]
    pub fn fork(&self) -> Self {
        let clock = Arc::new(Mutex::new(lock(&self.clock).clone()));
        Self { objects: self.objects.fork(), clock, listed: Arc::default() }
    }

    /// How many objects were listed so far.
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }

    fn list_of(&self, objects: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (clock, listed) = (self.clock.clone(), self.listed.clone());
        let timed = objects.map(move |o| {
            o.map(|mut meta| {
                listed.fetch_add(1, Ordering::Relaxed);
                lock(&clock).set(&mut meta);
                meta
            })
        });
        timed.boxed()
    }

    fn write(&self, key: &Path) {
        let mut clock = lock(&self.clock);
        let now = clock.now;
        clock.written.insert(key.clone(), now);
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

#[async_trait]
impl ObjectStore for Memory {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let done = self.objects.put_opts(location, payload, opts).await?;
        self.write(location);
        Ok(done)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.objects.put_multipart_opts(location, opts).await?;
        let began = lock(&self.clock).now;
        Ok(Box::new(Upload { inner, key: location.clone(), began, clock: self.clock.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut got = self.objects.get_opts(location, options).await?;
        lock(&self.clock).set(&mut got.meta);
        Ok(got)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_of(self.objects.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_of(self.objects.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await?;
        self.write(to);
        Ok(())
    }
}

/// As on S3, an object uploaded in parts has the time at which the upload began.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    key: Path,
    began: u64,
    clock: Arc<Mutex<Clock>>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        lock(&self.clock).written.insert(self.key.clone(), self.began);
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
