//! Files that are read: as they were when they were first looked at, and only so many open at a time.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use crate::platform;

/// The most files that a run has open to read from them: well below the limit that systems set by default.
const OPEN: usize = 64;

/// The open files of a run that reads many of them. Those that were used last stay open, others are opened again when they are needed.
#[derive(Debug, Default)]
pub struct Handles {
    /// By the address of their [`InputFile`]'s path, the one that was used last behind.
    open: Mutex<Vec<(usize, Arc<File>)>>,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: usize) -> Option<Arc<File>> {
        let mut open = self.lock();
        let at = open.iter().rposition(|(k, _)| *k == key)?;
        let found = open.remove(at);
        let file = found.1.clone();
        open.push(found);
        Some(file)
    }

    fn put(&self, key: usize, file: Arc<File>) {
        let mut open = self.lock();
        open.retain(|(k, _)| *k != key);
        if open.len() == OPEN {
            open.remove(0);
        }
        open.push((key, file));
    }

    fn forget(&self, key: usize) {
        self.lock().retain(|(k, _)| *k != key);
    }
}

/// A regular file that is read at any offset, as long as it is what it was when it was first looked at.
#[derive(Debug)]
pub struct InputFile {
    path: Box<PathBuf>,
    follow: bool,
    seen: Metadata,
    handle: Handle,
}

#[derive(Debug)]
enum Handle {
    /// Its own: what the path stands for later makes no difference.
    Own(File),
    /// One of those that a run shares.
    Shared(Arc<Handles>),
}

impl InputFile {
    /// Opens a file, which stays open. Symbolic links are followed only if told so.
    ///
    /// # Errors
    /// `IsADirectory`, `InvalidInput` when it is something else that is no regular file or has more bytes than the system says, and whatever the operating
    /// system says.
    pub fn open(path: &Path, follow: bool) -> io::Result<Self> {
        let (file, seen) = open(path, follow)?;
        Ok(Self { path: Box::new(path.to_owned()), follow, seen, handle: Handle::Own(file) })
    }

    /// Opens one of many files: it may be closed and opened again, and fails to be read once its path stands for another file.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_one_of(path: &Path, follow: bool, handles: &Arc<Handles>) -> io::Result<Self> {
        let (file, seen) = open(path, follow)?;
        let this = Self { path: Box::new(path.to_owned()), follow, seen, handle: Handle::Shared(handles.clone()) };
        handles.put(this.key(), Arc::new(file));
        Ok(this)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was when it was first looked at.
    pub fn metadata(&self) -> &Metadata {
        &self.seen
    }

    /// The bytes from front to back.
    pub fn stream(&self) -> impl Read {
        Front { file: self, offset: 0 }
    }

    /// Fails if the file was written to since it was first looked at, or is another one by now.
    ///
    /// # Errors
    /// With what to do; and whatever the operating system says.
    pub fn check_unchanged(&self) -> io::Result<()> {
        self.with(|file| {
            let now = file.metadata()?;
            if !is_same(&self.seen, &now) {
                return Err(changed());
            }
            match check_size(file, now.len()) {
                // It has grown since.
                Err(_) if !is_same(&self.seen, &file.metadata()?) => Err(changed()),
                checked => checked,
            }
        })
    }

    /// Something that no other file has as long as this one is there.
    fn key(&self) -> usize {
        std::ptr::from_ref(&*self.path).addr()
    }

    fn with<T>(&self, f: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let handles = match &self.handle {
            Handle::Own(file) => return f(file),
            Handle::Shared(handles) => handles,
        };
        if let Some(file) = handles.get(self.key()) {
            return f(&file);
        }
        let file = reopen(&self.path, self.follow)?;
        if !is_same(&self.seen, &file.metadata()?) {
            return Err(changed());
        }
        let file = Arc::new(file);
        handles.put(self.key(), file.clone());
        f(&file)
    }
}

impl Drop for InputFile {
    fn drop(&mut self) {
        if let Handle::Shared(handles) = &self.handle {
            handles.forget(self.key());
        }
    }
}

impl lmc::ReadAt for InputFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|file| lmc::ReadAt::read_exact_at(file, buf, offset))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.seen.len())
    }
}

/// A file that is read from front to back.
struct Front<'f> {
    file: &'f InputFile,
    offset: u64,
}

impl Read for Front<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.with(|file| file.read_at(buf, self.offset))?;
        self.offset += n as u64;
        Ok(n)
    }
}

fn open(path: &Path, follow: bool) -> io::Result<(File, Metadata)> {
    // Not even opened: that of a device may do something.
    let there = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
    check_regular(&there?)?;
    let file = reopen(path, follow)?;
    let mut seen = file.metadata()?;
    check_regular(&seen)?;
    if let Err(e) = check_size(&file, seen.len()) {
        let now = file.metadata()?;
        if now.len() == seen.len() {
            return Err(e);
        }
        seen = now; // it grows just now
    }
    platform::read_ahead(&file);
    Ok((file, seen))
}

fn reopen(path: &Path, follow: bool) -> io::Result<File> {
    // Since it was looked at, it may have been replaced: do not wait for the other end of a FIFO.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    match metadata {
        m if m.is_file() => Ok(()),
        m if m.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Fails if there is something where a file is said to end, as in `/proc`, where all are said to be empty.
fn check_size(file: &File, len: u64) -> io::Result<()> {
    if file.read_at(&mut [0], len)? == 0 {
        return Ok(());
    }
    let bytes = crate::format::count(len, "byte");
    let why = format!("the system says it has {bytes}, and there are more: give it as standard input");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    let what = |m: &Metadata| (m.dev(), m.ino(), m.len(), m.mtime(), m.mtime_nsec());
    what(a) == what(b)
}

fn changed() -> io::Error {
    io::Error::other("changed while it was read: try again when nothing writes to it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc::ReadAt;

    #[test]
    fn few_of_many_files_are_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: usize| dir.path().join(i.to_string());
        let handles = Arc::new(Handles::default());
        let files: Vec<InputFile> = (0..3 * OPEN)
            .map(|i| {
                std::fs::write(path(i), format!("{i:05}")).unwrap();
                InputFile::open_one_of(&path(i), true, &handles).unwrap()
            })
            .collect();
        // Again and again, in an order that opens each anew.
        for i in (0..2 * files.len()).map(|i| i % files.len()) {
            let mut text = [0; 5];
            files[i].read_exact_at(&mut text, 0).unwrap();
            assert_eq!(text, format!("{i:05}").as_bytes());
            let mut streamed = String::new();
            files[i].stream().read_to_string(&mut streamed).unwrap();
            assert_eq!(streamed.as_bytes(), text);
            assert!(handles.lock().len() <= OPEN);
        }
        files.iter().for_each(|f| f.check_unchanged().unwrap());
        // The first is not open: another file of its name, size and time is another file.
        let time = files[0].metadata().modified().unwrap();
        std::fs::write(dir.path().join("new"), "other").unwrap();
        File::options().write(true).open(dir.path().join("new")).unwrap().set_modified(time).unwrap();
        std::fs::rename(dir.path().join("new"), path(0)).unwrap();
        let e = files[0].read_exact_at(&mut [0; 5], 0).unwrap_err().to_string();
        assert!(e.contains("changed while it was read"), "{e}");
        files[0].check_unchanged().unwrap_err();
        drop(files);
        assert!(handles.lock().is_empty());
    }

    #[test]
    fn a_size_that_is_not_true_is_noticed() {
        let path = Path::new("/proc/self/status");
        if path.exists() {
            let e = InputFile::open(path, true).unwrap_err().to_string();
            assert_eq!(e, "the system says it has 0 bytes, and there are more: give it as standard input");
        }
    }
}
