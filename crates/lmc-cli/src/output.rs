//! Files that are written: complete and on disk under their name, or not there at all.

use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Advice;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::input::same_file;
use crate::interrupt;

/// Where output goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    /// What the target is called in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Target::Stdout => Path::new("(stdout)"),
            Target::File(path) => path,
        }
    }
}

/// What an output is made from.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// Another form of this file: it takes over mode, owner and times.
    File(&'a Metadata),
    /// Part of this file: it is a new file like any other.
    PartOf(&'a Metadata),
    /// Standard input, which may be a file.
    Stdin(Option<&'a Metadata>),
}

impl<'a> Origin<'a> {
    fn metadata(self) -> Option<&'a Metadata> {
        match self {
            Origin::File(m) | Origin::PartOf(m) => Some(m),
            Origin::Stdin(m) => m,
        }
    }
}

/// An output being written. Unless [`Output::finish`] succeeds, dropping it leaves nothing behind.
pub(crate) struct Output {
    target: Target,
    kind: Kind,
    overwrite: bool,
    /// The file whose mode, owner and times it takes over.
    like: Option<Metadata>,
    /// The first error of a write: it tells the target's troubles from the source's.
    error: Mutex<Option<io::Error>>,
}

enum Kind {
    /// Standard output, a pipe or a device: written from front to back, and never taken back.
    Stream(File),
    /// A file under a temporary name in the target's directory.
    Temporary(Temporary),
}

/// A temporary file that the clean-up on signals knows about.
struct Temporary {
    file: Option<NamedTempFile>,
    path: PathBuf,
    /// Bytes written from front to back so far.
    written: u64,
    /// How many of them the kernel was told to write to disk.
    handed_over: u64,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        drop(self.file.take()); // removes it, unless it has been renamed
        interrupt::forget(&self.path);
    }
}

impl Temporary {
    fn file(&self) -> &File {
        self.file.as_ref().expect("the file is there until it gets its name").as_file()
    }
}

impl Output {
    /// Opens the output, so that a target that cannot be written is found out before the work begins.
    ///
    /// Output onto the file that it is made from is refused.
    pub(crate) fn create(target: &Target, overwrite: bool, origin: Origin<'_>) -> Result<Self> {
        let kind = match target {
            Target::Stdout => Kind::Stream(open_stdout(overwrite, origin)?),
            Target::File(path) => open_file(path, overwrite, origin)?,
        };
        let like = match origin {
            Origin::File(metadata) => Some(metadata.clone()),
            _ => None,
        };
        Ok(Output { target: target.clone(), kind, overwrite, like, error: Mutex::new(None) })
    }

    /// Fails if the input is to be removed and the output is no file that stays.
    pub(crate) fn check_stays(&self, remove_input: bool) -> Result {
        if remove_input && !self.is_file() {
            return Err(Failure::Usage(format!(
                "{}: is no file that stays: leave out --rm",
                Name::path(self.target.path())
            )));
        }
        Ok(())
    }

    /// Whether it is a regular file, which can be written in any order ([`lmc::WriteAt`]).
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::Temporary(_))
    }

    /// Sets the final size of a file that is about to be written in any order. What is not written then is zero.
    pub(crate) fn set_size(&self, size: u64) -> Result {
        match &self.kind {
            Kind::Temporary(t) => t.file().set_len(size).map_err(|e| self.failure("cannot write", &e)),
            Kind::Stream(_) => Ok(()),
        }
    }

    /// What went wrong when writing, if anything did.
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map(|e| self.failure("cannot write", &e))
    }

    /// Makes the output durable and gives it its name, with the attributes that it takes over.
    pub(crate) fn finish(mut self) -> Result {
        let Kind::Temporary(temporary) = &mut self.kind else { return Ok(()) };
        let Target::File(path) = &self.target else { return Ok(()) };
        let file = temporary.file();
        if let Some(like) = &self.like {
            copy_attributes(file, like).map_err(|e| Failure::io(path, "cannot set mode and times", &e))?;
        }
        file.sync_all().map_err(|e| Failure::io(path, "cannot write", &e))?;
        let file = temporary.file.take().expect("the file is there until it gets its name");
        let named = if self.overwrite { file.persist(path) } else { file.persist_noclobber(path) };
        match named {
            Ok(_) => {}
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => return Err(exists(path)),
            Err(e) => return Err(Failure::io(path, "cannot write", &e.error)),
        }
        sync_directory(parent(path)).map_err(|e| Failure::io(path, "written, but its directory cannot be synced", &e))
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::io(self.target.path(), doing, error),
        }
    }

    /// Keeps the first error, and gives the codec one of the same kind.
    fn keep_error(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        kind.into()
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let result = match &mut self.kind {
            Kind::Stream(file) => file.write(buf),
            Kind::Temporary(t) => t.file().write_at(buf, t.written).inspect(|&n| {
                t.written += n as u64;
                if t.written - t.handed_over >= WRITEBACK {
                    start_writeback(t.file(), t.handed_over, t.written - t.handed_over);
                    t.handed_over = t.written;
                }
            }),
        };
        match result {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(self.keep_error(e)),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl lmc::WriteAt for Output {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Kind::Temporary(t) = &self.kind else { return Err(io::ErrorKind::NotSeekable.into()) };
        // Zeros are there already: `set_size` made the file one hole.
        if is_zero(buf) {
            return Ok(());
        }
        lmc::WriteAt::write_all_at(t.file(), buf, offset).map_err(|e| self.keep_error(e))?;
        start_writeback(t.file(), offset, buf.len() as u64);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let Kind::Temporary(t) = &self.kind else { return Err(io::ErrorKind::Unsupported.into()) };
        lmc::ReadAt::read_exact_at(t.file(), buf, offset)
    }
}

/// How much is written from front to back before write-back starts: one thread writes, and it had better not wait
/// for the disk too often.
const WRITEBACK: u64 = 8 << 20;

/// Has the kernel begin to write a range to disk, so that the sync at the end finds little left to do.
fn start_writeback(file: &File, offset: u64, len: u64) {
    // On Linux this starts asynchronous write-back; pages that are still dirty stay in the cache.
    let _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::DontNeed);
}

fn is_zero(buf: &[u8]) -> bool {
    buf.chunks(4096).all(|page| page.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Standard output, if it may be written to.
fn open_stdout(force: bool, origin: Origin<'_>) -> Result<File> {
    let stdout = io::stdout();
    let this = Target::Stdout;
    if stdout.is_terminal() && !force {
        return Err(Failure::Usage(
            "standard output is a terminal, and this is binary: redirect it, or use -o FILE".to_owned(),
        ));
    }
    let file = stdout.as_fd().try_clone_to_owned().map(File::from);
    let file = file.map_err(|e| Failure::io(this.path(), "cannot write", &e))?;
    if let (Some(source), Ok(metadata)) = (origin.metadata(), file.metadata())
        && metadata.is_file()
        && same_file(source, &metadata)
    {
        return Err(Failure::at(this.path(), "is the input file: redirect it to another one"));
    }
    Ok(file)
}

fn exists(path: &Path) -> Failure {
    Failure::at(path, "exists; -f overwrites it")
}

fn open_file(path: &Path, overwrite: bool, origin: Origin<'_>) -> Result<Kind> {
    let cannot = |e: io::Error| Failure::io(path, "cannot write", &e);
    match std::fs::symlink_metadata(path) {
        Ok(link) => {
            // What a dangling link stands for is the link.
            let metadata = std::fs::metadata(path).unwrap_or(link);
            let kind = metadata.file_type();
            if kind.is_dir() {
                return Err(Failure::at(path, "is a directory; name a file, or use --output-dir-flat"));
            }
            if kind.is_char_device() || kind.is_fifo() {
                let file = File::options().write(true).open(path).map_err(cannot)?;
                if file.is_terminal() && !overwrite {
                    return Err(Failure::at(path, "is a terminal, and this is binary; -f writes it all the same"));
                }
                return Ok(Kind::Stream(file));
            }
            if kind.is_block_device() || kind.is_socket() {
                return Err(Failure::at(path, "is a device or a socket: write to standard output and redirect it"));
            }
            if origin.metadata().is_some_and(|source| same_file(source, &metadata)) {
                return Err(Failure::at(path, "is the input file: choose another name with -o"));
            }
            if !overwrite {
                return Err(exists(path));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(cannot(e)),
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::at(path, "is a directory; name a file, or use --output-dir-flat"));
    };
    // The longest name a file can have is 255 bytes on most systems.
    let mut prefix: String = name.to_string_lossy().chars().scan(200_usize, cut_bytes).collect();
    prefix.push_str(".tmp-");
    // Nobody else may read the data while it is written if they could not read the source.
    let mode = if matches!(origin, Origin::File(_)) { 0o600 } else { 0o666 };
    let file = interrupt::register(|| {
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .rand_bytes(8)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(parent(path))?;
        let path = file.path().to_owned();
        Ok((file, path))
    });
    // The temporary name in the error would only puzzle.
    let file = file.map_err(|e| cannot(e.raw_os_error().map_or(e, io::Error::from_raw_os_error)))?;
    let temporary = file.path().to_owned();
    Ok(Kind::Temporary(Temporary { file: Some(file), path: temporary, written: 0, handed_over: 0 }))
}

/// Passes characters on while there is room for their bytes.
fn cut_bytes(room: &mut usize, c: char) -> Option<char> {
    *room = room.checked_sub(c.len_utf8())?;
    Some(c)
}

/// The directory in which a file's name stands.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Creates a directory and those above it, durably.
pub(crate) fn create_directories(dir: &Path) -> Result {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    create_directories(parent(dir))?;
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(Failure::io(dir, "cannot create the directory", &e)),
        Ok(()) => sync_directory(parent(dir)).map_err(|e| Failure::io(dir, "cannot create the directory", &e)),
    }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    match File::open(dir)?.sync_all() {
        // The file system has no such notion.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// Mode, owner and times of another file. The owner only where we may.
fn copy_attributes(file: &File, like: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
        let _ = std::os::unix::fs::fchown(file, Some(like.uid()), Some(like.gid()));
    }
    file.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
    file.set_times(FileTimes::new().set_modified(like.modified()?).set_accessed(like.accessed()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_seen_on_every_byte() {
        let mut buf = vec![0; 10_000];
        assert!(is_zero(&buf) && is_zero(&[]));
        for i in [0, 4095, 4096, 9_999] {
            buf[i] = 1;
            assert!(!is_zero(&buf), "{i}");
            buf[i] = 0;
        }
    }

    #[test]
    fn parents() {
        assert_eq!(parent(Path::new("a")), Path::new("."));
        assert_eq!(parent(Path::new("a/b")), Path::new("a"));
        assert_eq!(parent(Path::new("/a")), Path::new("/"));
    }
}
