//! What a file system shows: paths, and what is there.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::FileType;

/// Something that can be shown as a file system. Paths are below its root, which is the empty path. Any thread calls it at any time.
pub(crate) trait Tree: Send + Sync + 'static {
    /// What is at a path.
    fn attributes(&self, path: &Path) -> io::Result<Attributes>;

    /// The names in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, FileType)>>;

    /// Where a symbolic link leads.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;

    /// Opens a file; `None` if it is not the version that was seen before.
    fn open(&self, path: &Path, version: u64) -> io::Result<Option<Opened>>;
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileType,
    pub(crate) size: u64,
    pub(crate) modified: SystemTime,
    pub(crate) mode: u16,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Another one if something else is there, and if a decoded file has other bytes.
    pub(crate) version: u64,
}

/// An open file.
pub(crate) enum Opened {
    /// Its bytes are those to show.
    Plain(File),
    Decoded(Decoded),
}

/// A file whose blocks are decoded on demand.
pub(crate) struct Decoded {
    /// For messages.
    pub(super) name: String,
    /// Where its blocks end.
    ends: Vec<u64>,
    read: Box<Read>,
}

/// Fills a buffer with the bytes of a block from an offset on, or says why it cannot.
type Read = dyn Fn(u64, &mut [u8]) -> Result<(), String> + Send + Sync;

impl Attributes {
    /// Those of something on disk.
    pub(crate) fn of(metadata: &Metadata, kind: FileType) -> Self {
        Self {
            kind,
            size: metadata.len(),
            modified: metadata.modified().unwrap_or(UNIX_EPOCH),
            mode: (metadata.mode() & 0o7777) as u16,
            user: metadata.uid(),
            group: metadata.gid(),
            version: version((metadata.dev(), metadata.ino())),
        }
    }

    /// Those of what is no file on disk, and cannot be written to.
    pub(crate) fn made(kind: FileType, size: u64, seconds: u64, version: u64) -> Self {
        let modified = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
        let mode = if kind == FileType::RegularFile { 0o444 } else { 0o555 };
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { kind, size, modified, mode, user, group, version }
    }
}

/// A version of something that has an identity.
pub(crate) fn version(identity: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    hasher.finish()
}

/// The version of the bytes of a file: attributes that change when it is written or replaced.
pub(crate) fn version_of_bytes(m: &Metadata) -> u64 {
    version((m.dev(), m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
}

impl Decoded {
    /// A file with blocks that end at these offsets, in order.
    pub(crate) fn new(
        name: String,
        ends: Vec<u64>,
        read: impl Fn(u64, &mut [u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, ends, read: Box::new(read) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.ends.len()
    }

    /// The block that has a byte of the file.
    pub(crate) fn block_at(&self, offset: u64) -> usize {
        self.ends.partition_point(|&end| end <= offset)
    }

    /// The bytes of a block.
    pub(crate) fn range(&self, block: usize) -> Range<u64> {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[block]
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), String> {
        (self.read)(offset, to)
    }
}
