//! A store: its marker, its options, and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectStore;

use crate::chunks::cache::{Cache, ChunkCache};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{RunId, SaveId};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::marker::{self, Marker};
use crate::objects::clock;
use crate::objects::leftovers::Leftovers;
use crate::objects::location::Location;
use crate::objects::remote::Remote;
#[cfg(feature = "buckets")]
use crate::objects::uploads::Uploads;
use crate::records::listing::Known;

/// How a store is created and used.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The grace period of a new store, in seconds, one of [`Self::GRACE_SECONDS`]. A save that takes more than half of it
    /// is refused, and data may be deleted once no snapshot has needed it for this long.
    pub grace_seconds: u64,
    /// The run of the store, as for the copy of another one's; by default that of the existing store; for a new store,
    /// one drawn at random.
    pub run: Option<RunId>,
    /// Where to keep the raw bytes of the newest snapshot, so that the next save need not decode its bases.
    pub cache: Cache,
    /// Source of random ids; by default the operating system.
    pub entropy: Arc<dyn Fn() -> Result<[u8; 16]> + Send + Sync>,
}

impl StoreOptions {
    /// The grace periods that a store may have, in seconds: from a minute to a century.
    pub const GRACE_SECONDS: std::ops::RangeInclusive<u64> = marker::GRACE_SECONDS;
}

impl Default for StoreOptions {
    fn default() -> Self {
        let entropy = Arc::new(|| {
            let mut id = [0; 16];
            getrandom::fill(&mut id).map_err(|e| Error::io("cannot get random numbers", std::io::Error::other(e)))?;
            Ok(id)
        });
        Self { grace_seconds: 86_400, run: None, cache: Cache::default(), entropy }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut d = f.debug_struct("StoreOptions");
        d.field("grace_seconds", &self.grace_seconds)
            .field("run", &self.run)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// The snapshots of a training run. Any number of processes may use a store at once; each has a `Store` of its own, or several threads
/// share one.
#[derive(Clone)]
pub struct Store {
    remote: Arc<Remote>,
    /// Where it is, for messages.
    place: String,
    run: RunId,
    grace_seconds: u64,
    cache: Option<Arc<ChunkCache>>,
    known: Arc<Known>,
    entropy: Arc<dyn Fn() -> Result<[u8; 16]> + Send + Sync>,
    leftovers: Option<Arc<Leftovers>>,
    /// Whether it has looked for a snapshot to build on: later saves build on the one before.
    pub(crate) has_saved: Arc<AtomicBool>,
    /// Whether the server was seen to refuse to overwrite: a store may have been copied to one that does not.
    strict: Arc<AtomicBool>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("objects", &self.remote.objects().to_string()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store, and creates it if missing.
    ///
    /// # Errors
    /// `Store` or `Io` when the location cannot be reached or written, `Damaged` or `Unsupported` when it holds something that is not a
    /// store of this version, or a store without its marker, `Usage` when it holds a store of another run than [`StoreOptions::run`].
    pub fn create(location: &Location, o: StoreOptions) -> Result<Self> {
        let store = Self::create_on(location.connect(true)?, o).map_err(|e| location.explain(e))?;
        Ok(Self { leftovers: Leftovers::of(location)?.map(Arc::new), place: location.to_string(), ..store })
    }

    /// Checks that a store can be created where there is none: that the bucket takes objects, and honours the conditions of writes.
    /// Leaves nothing behind. A directory is not looked at.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn check_new(location: &Location, o: &StoreOptions) -> Result<()> {
        match location {
            Location::Directory(_) => Ok(()),
            _ => probe(&Remote::new(location.connect(false)?)?, o).map_err(|e| location.explain(e)),
        }
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// Those of [`Self::create`], and `NotFound` when there is no store.
    pub fn open(location: &Location, o: StoreOptions) -> Result<Self> {
        let store = Self::open_on(location.connect(false)?, o).map_err(|e| location.explain(e))?;
        Ok(Self { leftovers: Leftovers::of(location)?.map(Arc::new), place: location.to_string(), ..store })
    }

    /// [`Self::create`] on any object store.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn create_on(objects: Arc<dyn ObjectStore>, o: StoreOptions) -> Result<Self> {
        let remote = Remote::new(objects)?;
        let marker = match read_marker(&remote) {
            Err(e) if e.kind() == ErrorKind::NotFound && has_records(&remote)? => {
                // Unless another process has just made the store.
                read_marker(&remote).map_err(|e| if e.kind() == ErrorKind::NotFound { lost_marker() } else { e })?
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let run = o.run.map_or_else(|| (o.entropy)().map(RunId::new), Ok)?;
                // No marker is left on a server that cannot have a store.
                probe(&remote, &o)?;
                let marker = Marker::new(o.grace_seconds, run);
                // Another process may have been faster: its marker counts.
                remote.wait(remote.create(&keys::marker(), marker.to_bytes()?.into()))?;
                read_marker(&remote)?
            }
            found => found?,
        };
        if let Some(run) = o.run.filter(|&run| run != marker.run) {
            return Err(Error::usage(format!(
                "{}: the store that is here is of run {}, not of {run}: use another location",
                keys::marker(),
                marker.run
            )));
        }
        Self::new(remote, &marker, o)
    }

    /// [`Self::open`] on any object store.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_on(objects: Arc<dyn ObjectStore>, o: StoreOptions) -> Result<Self> {
        let remote = Remote::new(objects)?;
        let marker = match read_marker(&remote) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(match has_records(&remote)? {
                    true => lost_marker(),
                    false => Error::not_found(format!(
                        "there is no store here: {} is missing; check its name",
                        keys::marker()
                    )),
                });
            }
            found => found?,
        };
        Self::new(remote, &marker, o)
    }

    /// Enables the collection of incomplete uploads for a store in a bucket that was opened as an object store. Stores opened at a
    /// [`Location`] have it.
    #[cfg(feature = "buckets")]
    #[must_use]
    pub fn with_uploads(self, uploads: Uploads) -> Self {
        Self { leftovers: Some(Arc::new(Leftovers::Bucket(uploads))), ..self }
    }

    fn new(remote: Remote, marker: &Marker, o: StoreOptions) -> Result<Self> {
        let cache = ChunkCache::new(&o.cache)?.map(Arc::new);
        let place = remote.objects().to_string();
        let (remote, run, grace_seconds) = (Arc::new(remote), marker.run, marker.grace_seconds);
        Ok(Self {
            remote,
            place,
            run,
            grace_seconds,
            cache,
            known: Arc::default(),
            entropy: o.entropy,
            leftovers: None,
            has_saved: Arc::default(),
            strict: Arc::default(),
        })
    }

    /// A handle of the same store whose requests fail once `stop` is set, with an error of the kind `Store`.
    #[must_use]
    pub fn cancelled_by(&self, stop: Arc<AtomicBool>) -> Self {
        Self { remote: Arc::new(self.remote.cancelled_by(stop)), ..self.clone() }
    }

    /// The run whose snapshots it holds, as when it was opened.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The run of the store that exists now: the opened one may have been deleted, and a new one created.
    pub(crate) fn run_now(&self) -> Result<RunId> {
        read_marker(&self.remote).map(|marker| marker.run)
    }

    /// Fails unless the store that exists now is the one that was opened, which may have been deleted, and a new one
    /// created.
    fn check_same(&self) -> Result<()> {
        let now = read_marker(&self.remote)?;
        if (now.run, now.grace_seconds) == (self.run, self.grace_seconds) {
            return Ok(());
        }
        Err(Error::usage(format!(
            "{}: was of run {} with a grace period of {} s when the store was opened, and is of run {} with {} s: \
             the store was replaced by another one; open it again",
            keys::marker(),
            self.run,
            self.grace_seconds,
            now.run,
            now.grace_seconds
        )))
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// Says that an error is this store's, where another one is in play.
    pub(crate) fn blame(&self, e: Error) -> Error {
        e.at(&self.place)
    }

    /// The message of an error before [`Self::blame`], if that says it of this store.
    pub(crate) fn blamed_for(&self, e: &Error) -> Option<String> {
        Some(e.to_string().strip_prefix(&format!("{}: ", self.place))?.to_owned())
    }

    pub(crate) fn cache(&self) -> Option<&ChunkCache> {
        self.cache.as_deref()
    }

    /// Records that were read.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// For how long data stay that no snapshot needs any more, in seconds.
    pub fn grace_seconds(&self) -> u64 {
        self.grace_seconds
    }

    /// Where to look for leftovers that are not objects, if known.
    pub(crate) fn leftovers(&self) -> Option<&Leftovers> {
        self.leftovers.as_deref()
    }

    /// Whether it is one file.
    pub(crate) fn is_archive(&self) -> bool {
        matches!(self.leftovers(), Some(Leftovers::Directory(path)) if !path.is_dir())
    }

    pub(crate) fn fresh_id(&self) -> Result<SaveId> {
        (self.entropy)().map(SaveId::new)
    }

    /// The time, by the store's clock. Every change of a store begins with it.
    fn now(&self) -> Result<u64> {
        let known = self.strict.load(Ordering::Relaxed);
        let now = self.remote.wait(clock::now(&self.remote, self.fresh_id()?, !known))?;
        self.strict.store(true, Ordering::Relaxed);
        Ok(now)
    }

    /// The time at which an operation begins that will change the store: everything found afterwards stays for a grace
    /// period from then.
    ///
    /// # Errors
    /// `Usage` when the store is another one than was opened.
    pub(crate) fn begin(&self) -> Result<u64> {
        let now = self.now()?;
        self.check_same()?;
        Ok(now)
    }

    /// The store's time, checked to be early enough to commit an operation that began at `began`.
    ///
    /// # Errors
    /// `Expired` when referenced data may have been deleted; `Usage` when the store is another one than was opened.
    pub(crate) fn time_to_commit(&self, began: u64) -> Result<u64> {
        self.check_same()?;
        let now = self.now()?;
        let half = self.grace_seconds / 2;
        // Times are whole seconds, and the servers of a bucket may differ by one.
        if now.saturating_add(1) < began {
            return Err(Error::expired(format!(
                "this began at {began} by the store's clock, and now it is {now} (seconds since 1970): \
                 the clock was set back, and data it refers to may be gone; do it again"
            )));
        }
        if now.saturating_sub(began) <= half {
            return Ok(now);
        }
        Err(Error::expired(format!(
            "this began {} s ago, more than half of the store's grace period, {half} s: data it refers to may be gone; do it again",
            now - began,
        )))
    }
}

/// Fails if a server cannot have a store.
fn probe(remote: &Remote, o: &StoreOptions) -> Result<()> {
    remote.wait(clock::now(remote, (o.entropy)().map(SaveId::new)?, true)).map(|_| ())
}

fn read_marker(remote: &Remote) -> Result<Marker> {
    let key = keys::marker();
    Marker::parse(&remote.wait(remote.get(&key, Marker::MAX))?).map_err(|e| match e.kind() {
        ErrorKind::Damaged => e.at(&key).and(BACK),
        _ => e.at(&key),
    })
}

/// What to do about a marker that is lost.
const BACK: &str =
    "; put it back from a copy or an archive of the store; docs/book/damage.md says how to write one if there is none";

fn lost_marker() -> Error {
    Error::damaged(format!("{}: is missing, although a store's snapshots are here{BACK}", keys::marker()))
}

/// Whether there are records of snapshots.
fn has_records(remote: &Remote) -> Result<bool> {
    remote.wait(remote.any(&keys::records(), |key| keys::parse_record(key).is_some()))
}
