//! The snapshots of a store: a directory for each step, and links for tags and the latest one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::FileType;
use lmc_store::{At, ErrorKind, FileInfo, Snapshot, SnapshotReader, Store};

use crate::cmd::snapshot::place::Place;
use crate::mount::{Attributes, Decoded, Log, Opened, Tree, version};
use crate::ui::failure::Result;

/// How long it is taken for granted what the store has.
const FRESH: Duration = Duration::from_secs(1);

/// The most names that are remembered, beside those of a listing.
const NAMES: usize = 1 << 16;

/// The most snapshots that stay open: their documents are in memory.
const OPEN: usize = 8;

/// The link to the last snapshot. No tag has this name.
const LATEST: &str = "latest";

/// A store. A name is looked up by itself, in a few requests: listing a long run takes many. No lock is held during
/// requests.
pub(super) struct Snapshots {
    place: Place,
    store: Store,
    log: Arc<Log>,
    names: Mutex<HashMap<String, Seen<Named>>>,
    listed: Mutex<Option<Seen<Arc<Listed>>>>,
    /// Used last at the end.
    open: Mutex<VecDeque<Arc<Open>>>,
}

/// What was in the store at a time.
struct Seen<T> {
    at: Instant,
    what: T,
}

impl<T: Clone> Seen<T> {
    fn now(what: T) -> Self {
        Self { at: Instant::now(), what }
    }

    /// What was seen, and whether to look again. Others take it as new meanwhile.
    fn get(&mut self) -> (T, bool) {
        let is_old = self.at.elapsed() > FRESH;
        if is_old {
            self.at = Instant::now();
        }
        (self.what.clone(), is_old)
    }
}

/// What has a name at the root.
#[derive(Clone)]
enum Named {
    Snapshot(Arc<Snapshot>),
    /// The step that it leads to.
    Link(String),
    Nothing,
}

/// The names at the root.
#[derive(Default)]
struct Listed {
    steps: Vec<String>,
    links: Vec<String>,
}

struct Open {
    snapshot: Arc<Snapshot>,
    reader: SnapshotReader,
    /// The index of each file.
    names: BTreeMap<String, usize>,
}

/// What is at a path.
enum Found {
    Root,
    Link(String),
    /// Of a snapshot, and the name of the directory in it, with a slash at the end unless it is the snapshot itself.
    Directory(Arc<Snapshot>, String),
    File(Arc<Open>, usize),
}

impl Snapshots {
    pub(super) fn open(place: Place, log: Arc<Log>) -> Result<Self> {
        let store = place.open()?;
        match store.find(At::Latest) {
            Err(e) if is_of_requests(e.kind()) => return Err(place.failure(&e)),
            // What is damaged is said when it is looked for.
            _ => {}
        }
        let (names, listed, open) = Default::default();
        Ok(Self { place, store, log, names, listed, open })
    }

    /// What has a name at the root, or had when the store could be asked last.
    fn named(&self, name: &str) -> io::Result<Named> {
        let at = match name.parse() {
            Ok(At::Step(step)) if step.to_string() != name => return Ok(Named::Nothing),
            Ok(At::Id(_)) | Err(_) => return Ok(Named::Nothing),
            Ok(at) => at,
        };
        let seen = lock(&self.names).get_mut(name).map(Seen::get);
        let seen = match seen {
            Some((named, false)) => return Ok(named),
            seen => seen.map(|(named, _)| named),
        };
        let is_step = matches!(at, At::Step(_));
        let named = match self.store.find(at) {
            Ok(snapshot) if is_step => Named::Snapshot(Arc::new(snapshot)),
            Ok(snapshot) => Named::Link(snapshot.step.to_string()),
            Err(e) if e.kind() == ErrorKind::NotFound => Named::Nothing,
            Err(e) => {
                self.log.say(self.place.failure(&e));
                match seen {
                    _ if !is_of_requests(e.kind()) => Named::Nothing,
                    Some(seen) => seen,
                    None => return Err(rustix::io::Errno::IO.into()),
                }
            }
        };
        let mut names = lock(&self.names);
        if names.len() >= NAMES {
            names.clear();
        }
        names.insert(name.to_owned(), Seen::now(named.clone()));
        Ok(named)
    }

    /// The names at the root, or those that were there when the store could be listed last.
    fn listed(&self) -> io::Result<Arc<Listed>> {
        let seen = lock(&self.listed).as_mut().map(Seen::get);
        let seen = match seen {
            Some((listed, false)) => return Ok(listed),
            seen => seen.map(|(listed, _)| listed),
        };
        let listed = match self.list_store() {
            Ok(found) => {
                let of = |is_link: bool| {
                    let names = found.iter().filter(|(_, named)| matches!(named, Named::Link(_)) == is_link);
                    names.map(|(name, _)| name.clone()).collect()
                };
                let listed = Arc::new(Listed { steps: of(false), links: of(true) });
                // Programs that list names look them up next.
                lock(&self.names).extend(found.into_iter().map(|(name, named)| (name, Seen::now(named))));
                listed
            }
            Err(e) => {
                self.log.say(self.place.failure(&e));
                seen.ok_or(rustix::io::Errno::IO)?
            }
        };
        *lock(&self.listed) = Some(Seen::now(listed.clone()));
        Ok(listed)
    }

    /// Lists the store. What cannot be read is said, and left out.
    fn list_store(&self) -> lmc_store::Result<Vec<(String, Named)>> {
        let (listing, tags) = (self.store.list()?, self.store.tags()?);
        for bad in listing.damaged {
            self.log.say(format_args!("{}: step {} is not shown: {}", self.place.store, bad.step, bad.message));
        }
        tags.damaged.iter().for_each(|bad| self.log.say(self.place.failure(&bad.error())));
        let mut found = Vec::new();
        found.extend(listing.snapshots.last().map(|last| (LATEST.to_owned(), Named::Link(last.step.to_string()))));
        for snapshot in listing.snapshots {
            let step = snapshot.step.to_string();
            let names = tags.of(snapshot.step, snapshot.id).into_iter().map(ToString::to_string);
            found.extend(names.map(|name| (name, Named::Link(step.clone()))));
            found.push((step, Named::Snapshot(Arc::new(snapshot))));
        }
        Ok(found)
    }

    fn opened(&self, snapshot: &Arc<Snapshot>) -> io::Result<Arc<Open>> {
        {
            let mut open = lock(&self.open);
            if let Some(at) = open.iter().position(|open| open.snapshot == *snapshot)
                && let Some(found) = open.remove(at)
            {
                open.push_back(found.clone());
                return Ok(found);
            }
        }
        let reader = self.store.open_snapshot(snapshot).map_err(|e| {
            self.log.say(self.place.failure(&e));
            io::Error::from(rustix::io::Errno::IO)
        })?;
        let names = reader.files().iter().enumerate().map(|(i, file)| (file.name.clone(), i)).collect();
        let opened = Arc::new(Open { snapshot: snapshot.clone(), reader: reader.with_threads(1), names });
        let mut open = lock(&self.open);
        open.push_back(opened.clone());
        if open.len() > OPEN {
            open.pop_front();
        }
        Ok(opened)
    }

    fn find(&self, path: &Path) -> io::Result<Found> {
        let missing = || io::Error::from(rustix::io::Errno::NOENT);
        let path = path.to_str().ok_or_else(missing)?;
        if path.is_empty() {
            return Ok(Found::Root);
        }
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let snapshot = match self.named(first)? {
            Named::Snapshot(snapshot) => snapshot,
            Named::Link(step) if rest.is_empty() => return Ok(Found::Link(step)),
            Named::Link(_) | Named::Nothing => return Err(missing()),
        };
        if rest.is_empty() {
            return Ok(Found::Directory(snapshot, String::new()));
        }
        let opened = self.opened(&snapshot)?;
        if let Some(&file) = opened.names.get(rest) {
            return Ok(Found::File(opened, file));
        }
        let directory = format!("{rest}/");
        let is_one = opened.below(&directory).next().is_some();
        if is_one { Ok(Found::Directory(snapshot, directory)) } else { Err(missing()) }
    }
}

impl Open {
    fn file(&self, index: usize) -> &FileInfo {
        &self.reader.files()[index]
    }

    /// The names below a directory, without it.
    fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.names.range::<str, _>((Bound::Included(directory), Bound::Unbounded));
        names.map_while(move |(name, _)| name.strip_prefix(directory))
    }
}

/// Whether an error says nothing of what the store has.
fn is_of_requests(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Store | ErrorKind::Io)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tree for Snapshots {
    fn attributes(&self, path: &Path) -> io::Result<Attributes> {
        Ok(match self.find(path)? {
            Found::Root => Attributes::made(FileType::Directory, 0, 0, 0),
            Found::Link(step) => Attributes::made(FileType::Symlink, step.len() as u64, 0, version(step)),
            Found::Directory(s, _) => Attributes::made(FileType::Directory, 0, s.time, version(s.id)),
            Found::File(opened, file) => {
                let s = &opened.snapshot;
                Attributes::made(FileType::RegularFile, opened.file(file).len, s.time, version(s.id))
            }
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        match self.find(path)? {
            Found::Root => {
                let listed = self.listed()?;
                let steps = listed.steps.iter().map(|name| (name.into(), FileType::Directory));
                Ok(steps.chain(listed.links.iter().map(|name| (name.into(), FileType::Symlink))).collect())
            }
            Found::Directory(snapshot, directory) => {
                let opened = self.opened(&snapshot)?;
                let entries = opened.below(&directory).map(|name| match name.split_once('/') {
                    Some((directory, _)) => (directory.into(), FileType::Directory),
                    None => (name.into(), FileType::RegularFile),
                });
                let mut entries: Vec<(OsString, FileType)> = entries.collect();
                entries.dedup();
                Ok(entries)
            }
            Found::Link(_) | Found::File(..) => Err(rustix::io::Errno::NOTDIR.into()),
        }
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        match self.find(path)? {
            Found::Link(step) => Ok(step.into()),
            _ => Err(rustix::io::Errno::INVAL.into()),
        }
    }

    fn open(&self, path: &Path, seen: u64) -> io::Result<Option<Opened>> {
        let Found::File(opened, file) = self.find(path)? else { return Err(rustix::io::Errno::INVAL.into()) };
        if version(opened.snapshot.id) != seen {
            return Ok(None);
        }
        let name = opened.file(file).name.clone();
        let ends = opened.reader.block_ends(&name).map_err(|e| {
            self.log.say(self.place.failure(&e));
            io::Error::from(rustix::io::Errno::IO)
        })?;
        Ok(Some(Opened::Decoded(Decoded::new(self.place.store.clone(), ends, move |offset, to| {
            opened.reader.read_range(&name, offset, to).map_err(|e| e.to_string())
        }))))
    }
}
