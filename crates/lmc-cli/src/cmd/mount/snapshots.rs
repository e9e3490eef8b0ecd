//! The snapshots of a store: a directory for each step, and links for tags and the latest one.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::FileType;
use lmc_store::{FileInfo, SaveId, Snapshot, SnapshotReader, Store};

use crate::cmd::snapshot::place::Place;
use crate::failure::Result;
use crate::mount::{Attributes, Decoded, Log, Opened, Tree, version};

/// How long a listing of the store is used.
const LISTED: Duration = Duration::from_secs(1);

/// The most snapshots that stay open: their documents are in memory.
const OPEN: usize = 8;

/// The link to the last snapshot. No tag has this name.
const LATEST: &str = "latest";

/// A store.
pub(super) struct Snapshots {
    place: Place,
    store: Store,
    log: Arc<Log>,
    listed: Mutex<(Instant, Arc<Listed>)>,
    /// Used last at the end.
    open: Mutex<VecDeque<(SaveId, Arc<Open>)>>,
}

/// What is at the root.
struct Listed {
    steps: BTreeMap<String, Snapshot>,
    /// Names, and the steps that they lead to.
    links: BTreeMap<String, String>,
}

struct Open {
    reader: SnapshotReader,
    /// The index of each file.
    names: BTreeMap<String, usize>,
}

/// What is at a path.
enum Found {
    Root,
    Link(String),
    /// Of a snapshot, and the name of the directory in it, with a slash at the end unless it is the snapshot itself.
    Directory(Snapshot, String),
    File(Snapshot, Arc<Open>, usize),
}

impl Snapshots {
    pub(super) fn open(place: Place, log: Arc<Log>) -> Result<Self> {
        let store = place.open()?;
        let listed = list(&store, &log, &place).map_err(|e| place.failure(&e))?;
        let listed = Mutex::new((Instant::now(), Arc::new(listed)));
        Ok(Self { place, store, log, listed, open: Mutex::default() })
    }

    /// The snapshots that are there, or were when the store could be listed last.
    fn listed(&self) -> Arc<Listed> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.0.elapsed() > LISTED {
            match list(&self.store, &self.log, &self.place) {
                Ok(now) => listed.1 = Arc::new(now),
                Err(e) => self.log.say(self.place.failure(&e)),
            }
            listed.0 = Instant::now();
        }
        listed.1.clone()
    }

    fn opened(&self, snapshot: &Snapshot) -> io::Result<Arc<Open>> {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut open = open();
            if let Some(at) = open.iter().position(|(id, _)| *id == snapshot.id)
                && let Some(found) = open.remove(at)
            {
                open.push_back(found.clone());
                return Ok(found.1);
            }
        }
        let reader = self.store.open_snapshot(snapshot).map_err(|e| {
            self.log.say(self.place.failure(&e));
            io::Error::from(rustix::io::Errno::IO)
        })?;
        let names = reader.files().iter().enumerate().map(|(i, file)| (file.name.clone(), i)).collect();
        let opened = Arc::new(Open { reader: reader.with_threads(1), names });
        let mut open = open();
        open.push_back((snapshot.id, opened.clone()));
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
        let listed = self.listed();
        if let Some(step) = listed.links.get(first).filter(|_| rest.is_empty()) {
            return Ok(Found::Link(step.clone()));
        }
        let snapshot = listed.steps.get(first).ok_or_else(missing)?;
        if rest.is_empty() {
            return Ok(Found::Directory(snapshot.clone(), String::new()));
        }
        let opened = self.opened(snapshot)?;
        if let Some(&file) = opened.names.get(rest) {
            return Ok(Found::File(snapshot.clone(), opened, file));
        }
        let directory = format!("{rest}/");
        let is_one = opened.below(&directory).next().is_some();
        if is_one { Ok(Found::Directory(snapshot.clone(), directory)) } else { Err(missing()) }
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

/// Lists a store. What cannot be read is said, and left out.
fn list(store: &Store, log: &Log, place: &Place) -> lmc_store::Result<Listed> {
    let (listing, tags) = (store.list()?, store.tags()?);
    for bad in listing.damaged {
        log.say(format_args!("{}: step {} is not shown: {}", place.store, bad.step, bad.message));
    }
    tags.damaged.iter().for_each(|bad| log.say(place.failure(&bad.error())));
    let mut links = BTreeMap::new();
    for snapshot in &listing.snapshots {
        let names = tags.of(snapshot.step, snapshot.id).into_iter().map(ToString::to_string);
        links.extend(names.map(|name| (name, snapshot.step.to_string())));
    }
    links.extend(listing.snapshots.last().map(|last| (LATEST.to_owned(), last.step.to_string())));
    let steps = listing.snapshots.into_iter().map(|snapshot| (snapshot.step.to_string(), snapshot)).collect();
    Ok(Listed { steps, links })
}

impl Tree for Snapshots {
    fn attributes(&self, path: &Path) -> io::Result<Attributes> {
        Ok(match self.find(path)? {
            Found::Root => Attributes::made(FileType::Directory, 0, 0, 0),
            Found::Link(step) => Attributes::made(FileType::Symlink, step.len() as u64, 0, version(step)),
            Found::Directory(s, _) => Attributes::made(FileType::Directory, 0, s.time, version(s.id)),
            Found::File(s, opened, file) => {
                Attributes::made(FileType::RegularFile, opened.file(file).len, s.time, version(s.id))
            }
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        match self.find(path)? {
            Found::Root => {
                let listed = self.listed();
                let steps = listed.steps.keys().map(|name| (name.into(), FileType::Directory));
                Ok(steps.chain(listed.links.keys().map(|name| (name.into(), FileType::Symlink))).collect())
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
        let Found::File(snapshot, opened, file) = self.find(path)? else { return Err(rustix::io::Errno::INVAL.into()) };
        if version(snapshot.id) != seen {
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
