//! Listings of a directory as an object store.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

use object_store::ObjectMeta;
use object_store::path::{Path, PathPart};

use crate::format::keys;
use crate::objects::files::if_there;
use crate::objects::staged::staged_for;

/// Entries that are looked at for the first part of a listing; each further part has twice as many, up to the largest.
const FIRST_PART: usize = 64;
const LARGEST_PART: usize = 4096;

/// A listing of the objects below a directory, in the order of their keys: complete regular files, through any links, and any entry under a
/// record's or a tag's key. Other entries are ignored. A directory is read when its turn comes.
pub(crate) struct Walk {
    /// Only keys that come after it are listed.
    offset: Path,
    /// The directories on the way, as far as they are still to be listed.
    open: Vec<Open>,
    part: usize,
}

/// A directory that was read.
struct Open {
    path: PathBuf,
    key: Path,
    /// Those that are still to come, the next one last.
    entries: Vec<Entry>,
}

/// An entry of a directory.
struct Entry {
    name: OsString,
    /// What is added to the directory's key for it. A directory that is to be listed has a slash at the end, as in keys below it.
    part: String,
}

impl Walk {
    /// Begins with a directory, for keys that begin with its own.
    pub(crate) fn begin(directory: PathBuf, key: Path, offset: Path) -> io::Result<Self> {
        let mut walk = Self { offset, open: vec![], part: FIRST_PART };
        walk.enter(directory, key)?;
        Ok(walk)
    }

    /// Reads a directory. A directory may have a thousand entries and few be needed, so little work is done for each.
    fn enter(&mut self, path: PathBuf, key: Path) -> io::Result<()> {
        let Some(listed) = if_there(fs::read_dir(&path))? else { return Ok(()) };
        let depth = key.parts().count() + 1;
        let below = if depth == 1 { String::new() } else { format!("{key}/") };
        let offset = self.offset.as_ref().strip_prefix(&below[..]);
        let mut entries = vec![];
        for entry in listed {
            let entry = entry?;
            let name = entry.file_name();
            let mut part = PathPart::from(&*name.to_string_lossy()).as_ref().to_owned();
            // Nor do keys below it come after.
            if offset.is_some_and(|offset| part.as_str() < offset && !offset.starts_with(&part)) {
                continue;
            }
            let Some(kind) = if_there(entry.file_type())? else { continue };
            let is_directory =
                kind.is_dir() || kind.is_symlink() && fs::metadata(entry.path()).is_ok_and(|target| target.is_dir());
            // Directories of others are looked into, too, but not far: a link may lead back.
            if is_directory && (depth < DEPTH || keys::is_directory(&format!("{below}{part}"))) {
                part.push('/');
            }
            entries.push(Entry { name, part });
        }
        entries.sort_unstable_by(|a, b| b.part.cmp(&a.part));
        self.open.push(Open { path, key, entries });
        Ok(())
    }

    /// The next part of the listing; `None` after the last one.
    pub(crate) fn part(&mut self) -> io::Result<Option<Vec<ObjectMeta>>> {
        let mut found = vec![];
        while found.len() < self.part
            && let Some(open) = self.open.last_mut()
        {
            let Some(Entry { name, part }) = open.entries.pop() else {
                self.open.pop();
                continue;
            };
            let (path, key) = (open.path.join(&name), open.key.clone().join(&*name.to_string_lossy()));
            match part.ends_with('/') {
                true => self.enter(path, key)?,
                false => found.extend(self.object(path, key)?),
            }
        }
        self.part = LARGEST_PART.min(2 * self.part);
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    /// The object of an entry, if it is one, and its key comes after the offset. Entries deleted meanwhile are none.
    fn object(&self, path: PathBuf, key: Path) -> io::Result<Option<ObjectMeta>> {
        let is_record = keys::parse_record(&key).is_some() || keys::parse_tag(&key).is_some();
        if key <= self.offset || !is_record && staged_for(&path.to_string_lossy()).is_some() {
            return Ok(None);
        }
        // Follows a link to its target; a dangling link is taken as itself.
        let meta = match fs::metadata(&path) {
            Err(_) => if_there(fs::symlink_metadata(&path))?,
            meta => Some(meta?),
        };
        let Some(meta) = meta.filter(|meta| is_record || meta.is_file()) else { return Ok(None) };
        let size = if meta.is_file() { meta.len() } else { 0 };
        let last_modified = meta.modified()?.into();
        Ok(Some(ObjectMeta { location: key, last_modified, size, e_tag: None, version: None }))
    }
}

/// The most components of a key that is below directories of others.
const DEPTH: usize = 3;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::objects::directory::Directory;
    use crate::objects::remote::Remote;

    /// The keys that a listing has, in its order.
    fn listed(remote: &Remote, offset: Option<&Path>) -> Vec<Path> {
        let mut objects = remote.objects_after(&keys::records(), offset).unwrap();
        let mut keys = vec![];
        while let Some(object) = remote.wait(objects.next()).unwrap() {
            keys.push(object.key);
        }
        keys
    }

    #[test]
    fn what_comes_after_a_key_is_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::new(Arc::new(Directory::open(dir.path(), false).unwrap())).unwrap();
        let step = |n| crate::Step::new(n).unwrap();
        let steps = [(3, 0), (7, 0), (7, 1), (20, 0), (1000, 0), (2_000_000, 0), (1 << 40, 0), (1 << 53, 0)];
        let records = steps.map(|(n, generation)| keys::record(step(n), generation));
        let directory = records[0].as_ref().rsplit_once('/').unwrap().0.to_owned();
        // Names that are encoded in keys, and names that continue others.
        let others = ["a", "9007", "9007~", "9007-", "9007/a~", "9007/a", "9007/a~b"].map(|n| format!("snapshots/{n}"));
        for key in records.iter().cloned().chain(["snap".into(), "shards/x".into()]) {
            remote.wait(remote.put(&key, "1".into())).unwrap();
        }
        for name in others.iter().cloned().chain([format!("{directory}/993~"), format!("{directory}/993-x")]) {
            let path = dir.path().join(&name);
            if !path.exists() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, b"").unwrap();
            }
        }
        let mut all: Vec<Path> =
            remote.wait(remote.list(&keys::records())).unwrap().into_iter().map(|o| o.key).collect();
        assert!(all.len() == records.len() + 8 && all.is_sorted(), "{all:?}");
        assert_eq!(listed(&remote, None), all);
        for from in [0, 3, 7, 8, 999, 1 << 41] {
            let offset = keys::before_records(step(from));
            let rest: Vec<Path> = all.iter().filter(|key| **key > offset).cloned().collect();
            assert_eq!(listed(&remote, Some(&offset)), rest, "{from}");
        }
        all.retain(|key| *key > records[1]);
        assert_eq!(listed(&remote, Some(&records[1])), all);
    }

    #[test]
    fn the_first_records_are_found_without_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::new(Arc::new(Directory::open(dir.path(), false).unwrap())).unwrap();
        let key = |n: u64| keys::record(crate::Step::new(n).unwrap(), 0);
        for n in 0..3000 {
            let path = dir.path().join(key(n).as_ref());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let mut objects = remote.objects_after(&keys::records(), None).unwrap();
        for n in (2900..3000).rev() {
            assert_eq!(remote.wait(objects.next()).unwrap().unwrap().key, key(n));
        }
        // The directory of steps 993 to 1992 was not read yet.
        fs::remove_dir_all(dir.path().join(key(1000).as_ref()).parent().unwrap()).unwrap();
        for n in (1993..2900).rev().chain((0..993).rev()) {
            assert_eq!(remote.wait(objects.next()).unwrap().unwrap().key, key(n));
        }
        assert!(remote.wait(objects.next()).unwrap().is_none());
    }
}
