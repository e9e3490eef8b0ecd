//! A store: its marker, its snapshots, and how one comes to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::backend::Location;
use crate::cache::{Cache, PieceCache};
use crate::catalog::{self, Catalog};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::history::{next_generation, to_name};
use crate::ids::{PartId, SaveId, Step};
use crate::layout;
use crate::leftovers::Leftovers;
use crate::manifest::Document;
use crate::manifest::marker::Marker;
use crate::manifest::names::check_together;
use crate::manifest::record::Record;
use crate::remote::Remote;
use crate::restore::SnapshotReader;
use crate::save::{self, Input, SaveOptions, Saved};
#[cfg(feature = "s3")]
use crate::uploads::Uploads;

/// How a store is made, and used.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// For a new store: a save that takes more than half of so many seconds is refused, and what no snapshot needs may be deleted when so many have
    /// passed.
    pub grace_seconds: u64,
    /// Where the raw bytes of the newest snapshot are kept, so that the save after it need not decode what it makes its own from.
    pub cache: Cache,
    /// Where random ids come from; by default the operating system.
    pub entropy: Arc<dyn Fn() -> Result<[u8; 16]> + Send + Sync>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let entropy = Arc::new(|| {
            let mut id = [0; 16];
            getrandom::fill(&mut id).map_err(|e| Error::io("cannot get random numbers", std::io::Error::other(e)))?;
            Ok(id)
        });
        Self { grace_seconds: 86_400, cache: Cache::default(), entropy }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut d = f.debug_struct("StoreOptions");
        d.field("grace_seconds", &self.grace_seconds).field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// Which snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// That of the largest step.
    #[default]
    Latest,
    /// That of a step.
    Step(Step),
    /// The one of this id.
    Id(SaveId),
}

impl std::str::FromStr for At {
    type Err = Error;

    /// `latest`, a step, or an id.
    fn from_str(s: &str) -> Result<Self> {
        if s == "latest" {
            return Ok(At::Latest);
        }
        // An id may have nothing but decimal digits, but no step has so many.
        if let Ok(id) = s.parse() {
            return Ok(At::Id(id));
        }
        let step =
            s.parse().map_err(|_| Error::usage(format!("{s:?} is not a step, not an id, and not \"latest\"")))?;
        Ok(At::Step(Step::new(step)?))
    }
}

/// A snapshot of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The step of the run.
    pub step: Step,
    /// Names it for ever.
    pub id: SaveId,
    /// When it was committed, in seconds since 1970 by the store's clock.
    pub time: u64,
    /// What the user said about it.
    pub metadata: BTreeMap<String, String>,
    /// One for each process that saved.
    pub parts: Vec<PartId>,
    /// Bytes of its files.
    pub raw_size: u64,
    /// Bytes that were stored for it.
    pub new_size: u64,
}

impl Snapshot {
    pub(crate) fn of(r: Record) -> Self {
        let Record { step, id, time, metadata, parts, raw_size, new_size, .. } = r;
        Self { step, id, time, metadata, parts, raw_size, new_size }
    }
}

/// The snapshot that another one is a copy of.
#[derive(Clone, Copy)]
pub(crate) struct Original {
    pub(crate) id: SaveId,
    pub(crate) time: u64,
}

/// The snapshots of a training run. Any number of processes may use a store at once; each has a `Store` of its own, or several threads share one.
pub struct Store {
    remote: Arc<Remote>,
    grace_seconds: u64,
    cache: Option<PieceCache>,
    entropy: Arc<dyn Fn() -> Result<[u8; 16]> + Send + Sync>,
    leftovers: Option<Leftovers>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("objects", &self.remote.objects().to_string()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store, and makes it where there is none.
    ///
    /// # Errors
    /// `Store` or `Io` when the location cannot be reached or written, `Damaged` or `Unsupported` when what is there is no store of this version.
    pub fn create(location: &Location, o: StoreOptions) -> Result<Self> {
        let store = Self::create_on(location.connect(true)?, o).map_err(|e| location.explain(e))?;
        Ok(Self { leftovers: Leftovers::of(location)?, ..store })
    }

    /// Opens a store that is there.
    ///
    /// # Errors
    /// Those of [`Self::create`], and `NotFound` when there is no store.
    pub fn open(location: &Location, o: StoreOptions) -> Result<Self> {
        let store = Self::open_on(location.connect(false)?, o).map_err(|e| location.explain(e))?;
        Ok(Self { leftovers: Leftovers::of(location)?, ..store })
    }

    /// [`Self::create`] on any object store.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn create_on(objects: Arc<dyn ObjectStore>, o: StoreOptions) -> Result<Self> {
        let remote = Remote::new(objects)?;
        let marker = match read_marker(&remote) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let marker = Marker::new(o.grace_seconds);
                // Somebody else may have been faster: what they wrote counts.
                let bytes = bytes::Bytes::from(marker.to_bytes()?);
                remote.wait(remote.create(&layout::marker(), bytes.clone()))?;
                let marker = read_marker(&remote)?;
                // The same bytes once more: where they are taken, a second writer's record would take the place of the first one's.
                if marker.to_bytes()? == bytes && !remote.wait(remote.refuses_to_replace(&layout::marker(), bytes))? {
                    return Err(Error::unsupported(
                        "this server ignores the condition `If-None-Match: *` and overwrites what it was told only to create: \
                         of two writers one would lose its snapshot without being told; use a server that knows it, or a directory",
                    ));
                }
                marker
            }
            found => found?,
        };
        Self::new(remote, &marker, o)
    }

    /// [`Self::open`] on any object store.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_on(objects: Arc<dyn ObjectStore>, o: StoreOptions) -> Result<Self> {
        let remote = Remote::new(objects)?;
        let marker = read_marker(&remote).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::not_found(format!("there is no store here: {} is missing", layout::marker())),
            _ => e,
        })?;
        Self::new(remote, &marker, o)
    }

    /// Lets a store that was opened on a bucket collect uploads, as one that was opened at a [`Location`] does.
    #[cfg(feature = "s3")]
    #[must_use]
    pub fn with_uploads(self, uploads: Uploads) -> Self {
        Self { leftovers: Some(Leftovers::Bucket(uploads)), ..self }
    }

    fn new(remote: Remote, marker: &Marker, o: StoreOptions) -> Result<Self> {
        let cache = PieceCache::new(&o.cache)?;
        let (remote, grace_seconds) = (Arc::new(remote), marker.grace_seconds);
        Ok(Self { remote, grace_seconds, cache, entropy: o.entropy, leftovers: None })
    }

    /// All snapshots whose records can be read, by step. [`Self::list`] tells of the others.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.list()?.snapshots)
    }

    /// One snapshot.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `Damaged` or `Unsupported` when it cannot be told because a record cannot be read, `Store` when requests fail.
    pub fn find(&self, at: At) -> Result<Snapshot> {
        let found = match at {
            At::Latest => self.latest()?,
            At::Step(step) => self.kept(step)?,
            At::Id(id) => self.of_id(id)?,
        };
        found.ok_or_else(|| {
            Error::not_found(match at {
                At::Latest => "the store has no snapshots".to_owned(),
                At::Step(step) => format!("the store has no snapshot of step {step}"),
                At::Id(id) => format!("the store has no snapshot with the id {id}"),
            })
        })
    }

    /// Opens a snapshot to read from it.
    ///
    /// # Errors
    /// `Store` when requests fail, `Damaged`, `Unsupported` or `Limit` when a part is not what it should be.
    pub fn open_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotReader> {
        let catalog = self.remote.wait(Catalog::load(&self.remote, &snapshot.parts))?;
        SnapshotReader::new(self.remote.clone(), catalog, snapshot.clone())
    }

    /// Saves files as the snapshot of a step; by default that after the last one.
    ///
    /// # Errors
    /// Those of [`Self::save_part`] and [`Self::publish`].
    pub fn save(
        &self,
        inputs: &[Input<'_>],
        step: Option<Step>,
        metadata: BTreeMap<String, String>,
        o: &SaveOptions,
    ) -> Result<Snapshot> {
        let step = self.step(step)?;
        let saved = self.save_part(inputs, step, o)?;
        self.publish(step, metadata, &[saved.part])
    }

    /// The step that is meant: by default the one after the last. One that has a snapshot is refused.
    ///
    /// # Errors
    /// `Exists`, and those of [`Self::find`].
    pub fn step(&self, step: Option<Step>) -> Result<Step> {
        match step {
            Some(step) if self.kept(step)?.is_some() => Err(exists(step)),
            Some(step) => Ok(step),
            None => self.last_step()?.map_or(Step::new(0), Step::next),
        }
    }

    /// Saves files as one part of the snapshot of a step, which exists once all of its parts are published.
    ///
    /// # Errors
    /// `Io` when a file cannot be read, `Usage` when the options or the names of the files are not possible, and those of [`Self::open_snapshot`] for the snapshot
    /// before.
    pub fn save_part(&self, inputs: &[Input<'_>], step: Step, o: &SaveOptions) -> Result<Saved> {
        // Asked for before anything is looked at: from now on, what is found stays long enough.
        let began = self.now()?;
        let before = match o.from {
            Some(from) => Some(self.find(At::Step(from))?),
            None => self.last_before(step)?,
        };
        let parts = before.map_or(vec![], |s| s.parts);
        save::save(&self.remote, inputs, &parts, o, self.cache.as_ref(), began, self.fresh_id()?)
    }

    /// Makes saved parts the snapshot of a step: all of it at once, or nothing.
    ///
    /// After an error of the kind `Store` it may have come to be all the same: [`Self::find`] tells.
    ///
    /// # Errors
    /// `Exists` when the step has a snapshot, or another process was first; `Expired` when a part was begun too long ago; `Usage` when two parts have files of the same name;
    /// `Store` when requests fail.
    pub fn publish(&self, step: Step, metadata: BTreeMap<String, String>, parts: &[PartId]) -> Result<Snapshot> {
        self.publish_as(step, metadata, parts, None)
    }

    /// [`Self::publish`] for what may be a copy.
    pub(crate) fn publish_as(
        &self,
        step: Step,
        metadata: BTreeMap<String, String>,
        parts: &[PartId],
        original: Option<Original>,
    ) -> Result<Snapshot> {
        let remote = &*self.remote;
        let id = original.map_or_else(|| self.fresh_id(), |o| Ok(o.id))?;
        let mut record = Record::kept(step, id, 0, metadata);
        record.parts = parts.to_vec();
        let mut names = Vec::new();
        let mut began = u64::MAX;
        for &id in parts {
            let (_, part) = remote.wait(catalog::read(remote, id))?;
            record.raw_size = record.raw_size.saturating_add(part.raw_size());
            record.new_size = record.new_size.saturating_add(part.new_size());
            began = began.min(part.began);
            names.extend(part.files.into_iter().map(|f| f.name));
        }
        check_together(names.iter().map(|n| &n[..])).map_err(Error::usage)?;
        let recent = self.recent(&self.keys()?)?;
        if let Some(Err(bad)) = recent.steps.get(&step) {
            return Err(bad.error("save under another step; "));
        }
        let before = self.newest(step)?;
        let generation = match &before {
            None => 0,
            Some(newest) if newest.is_kept() => return Err(exists(step)),
            Some(newest) => next_generation(step, newest.generation)?,
        };
        record.seen = to_name(&recent.heads(), before.as_ref());
        // Asked for last: what comes before must not count against the grace period unseen.
        let now = self.time_to_commit(began)?;
        record.time = original.map_or(now, |o| o.time);
        let ours = remote.wait(self.create_record(generation, &record))?;
        ours.map(|_| Snapshot::of(record)).ok_or_else(|| exists(step))
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn grace_seconds(&self) -> u64 {
        self.grace_seconds
    }

    /// Where to look for what is no object, if that is known.
    pub(crate) fn leftovers(&self) -> Option<&Leftovers> {
        self.leftovers.as_ref()
    }

    pub(crate) fn fresh_id(&self) -> Result<SaveId> {
        (self.entropy)().map(SaveId::new)
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Result<u64> {
        self.remote.wait(clock::now(&self.remote, self.fresh_id()?))
    }

    /// The store's time, at which something may be committed that began at another one.
    ///
    /// # Errors
    /// `Expired` when what it refers to may be gone.
    pub(crate) fn time_to_commit(&self, began: u64) -> Result<u64> {
        let now = self.now()?;
        let half = self.grace_seconds / 2;
        if now.saturating_sub(began) <= half {
            return Ok(now);
        }
        Err(Error::expired(format!(
            "this began {} s ago, and half of the store's grace period is {half} s: what it refers to may be gone; do it again",
            now - began,
        )))
    }
}

fn read_marker(remote: &Remote) -> Result<Marker> {
    let key = layout::marker();
    Marker::parse(&remote.wait(remote.get(&key, Marker::MAX))?).map_err(|e| e.at(&key))
}

pub(crate) fn exists(step: Step) -> Error {
    Error::exists(format!("step {step} has a snapshot: save under another step"))
}
