//! Whether paths lead to the bytes that they led to before: for bytes that are read without a checksum.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Attributes that change when a file is written or replaced, or a directory is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    is_directory: bool,
    device: u64,
    inode: u64,
    links: u64,
    len: u64,
    /// In seconds and nanoseconds, as is the next one.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    /// That of a file or a directory with these metadata.
    pub fn of(m: &Metadata) -> Self {
        Self {
            is_directory: m.is_dir(),
            device: m.dev(),
            inode: m.ino(),
            links: m.nlink(),
            len: m.len(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        }
    }

    /// That of what is at a path, or where it leads if it is a link.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|m| Self::of(&m))
    }

    /// Whether this is what had another identity `before`, with the same bytes.
    ///
    /// A directory is the same while files come and go in it: they have identities of their own. Another name of a file, or one less,
    /// changes the time of its last change, and none of its bytes: checkpoints share files by links, and several processes make them. So that time
    /// counts only for files of one name.
    pub fn is_unchanged(&self, before: &Self) -> bool {
        let same = (self.is_directory, self.device, self.inode) == (before.is_directory, before.device, before.inode);
        let same_bytes = (self.len, self.modified) == (before.len, before.modified)
            && (self.changed == before.changed || self.links.max(before.links) > 1);
        same && (self.is_directory || same_bytes)
    }
}

/// Paths, and what they led to before anything there was read: files of one version, and their directories.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Identities(Vec<Noted>);

#[derive(Debug, PartialEq, Eq)]
struct Noted {
    path: PathBuf,
    identity: Identity,
}

impl Identities {
    /// Notes what is at a path, or where it leads if it is a link.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn note(&mut self, path: &Path) -> io::Result<()> {
        self.0.push(Noted { path: path.to_owned(), identity: Identity::at(path)? });
        Ok(())
    }

    /// What was noted of a path.
    pub fn get(&self, path: &Path) -> Option<&Identity> {
        self.0.iter().find(|noted| noted.path == path).map(|noted| &noted.identity)
    }

    /// The first path that leads to something else now, to nothing, or to other bytes: to be called when all was read.
    pub fn changed(&self) -> Option<&Path> {
        let is_same = |noted: &Noted| Identity::at(&noted.path).is_ok_and(|now| now.is_unchanged(&noted.identity));
        self.0.iter().find(|noted| !is_same(noted)).map(|noted| &*noted.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_is_written_or_exchanged_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("v")).unwrap();
        fs::create_dir(at("w")).unwrap();
        for file in ["v/a", "w/a"] {
            fs::write(at(file), file).unwrap();
        }
        symlink("v", at("current")).unwrap();
        let noted = |paths: &[&str]| {
            let mut noted = Identities::default();
            paths.iter().for_each(|path| noted.note(&at(path)).unwrap());
            noted
        };
        let (file, directory, link) = (noted(&["v/a"]), noted(&["v"]), noted(&["current", "current/a"]));
        assert!([&file, &directory, &link].iter().all(|noted| noted.changed().is_none()));
        // Another name of a file, and other files beside it.
        fs::hard_link(at("v/a"), at("b")).unwrap();
        fs::write(at("v/c"), "c").unwrap();
        assert!([&file, &directory, &link].iter().all(|noted| noted.changed().is_none()));
        // A link that leads elsewhere, although the file there has the same length.
        fs::remove_file(at("current")).unwrap();
        symlink("w", at("current")).unwrap();
        assert_eq!(link.changed(), Some(&*at("current")));
        // A directory in the place of another.
        fs::rename(at("v"), at("x")).unwrap();
        fs::rename(at("w"), at("v")).unwrap();
        assert_eq!((directory.changed(), file.changed()), (Some(&*at("v")), Some(&*at("v/a"))));
        // The time of the bytes is put back: that of the last change cannot be, and counts for a file of one name.
        fs::write(at("x/alone"), b"bytes").unwrap();
        let before = noted(&["x/alone"]);
        let time = fs::metadata(at("x/alone")).unwrap().modified().unwrap();
        let moved =
            |time: SystemTime| fs::File::options().write(true).open(at("x/alone")).unwrap().set_modified(time).unwrap();
        moved(time + Duration::from_secs(1));
        assert!(before.changed().is_some());
        moved(time);
        let (now, was) = (Identity::at(&at("x/alone")).unwrap(), *before.get(&at("x/alone")).unwrap());
        assert_eq!(now.is_unchanged(&was), now.changed == was.changed);
        // What is gone.
        fs::remove_file(at("x/alone")).unwrap();
        assert!(before.changed().is_some());
    }
}
