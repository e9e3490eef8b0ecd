//! Input files that must not change while they are read, with a bounded number open at a time.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lmc_store::files::Identity;
use rustix::fs::OFlags;

use crate::platform;

/// The most input files that a run has open: well below the default limit of systems.
const OPEN: usize = 64;

/// The open files of a run that reads many. The most recently used stay open; others are reopened on demand.
#[derive(Debug, Default)]
pub struct Handles {
    /// Keyed by the address of the [`InputFile`]'s path, most recently used last.
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

/// A regular file for random access that must stay as it was when it was first opened.
#[derive(Debug)]
pub struct InputFile {
    path: Box<PathBuf>,
    seen: Metadata,
    handle: Handle,
}

#[derive(Debug)]
enum Handle {
    /// Open all the time: the path may be replaced later.
    Own(File),
    /// Shared among the files of a run.
    Shared(Arc<Handles>),
}

impl InputFile {
    /// Opens a file, or the one that a link leads to, and keeps it open.
    ///
    /// # Errors
    /// `IsADirectory`; `InvalidInput` when it is not a regular file for another reason, or holds more bytes than its size; and errors of
    /// the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, seen) = open(path)?;
        Ok(Self { path: Box::new(path.to_owned()), seen, handle: Handle::Own(file) })
    }

    /// Opens one of many files: it may be closed and reopened. Reading fails once its path leads to another file.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_one_of(path: &Path, handles: &Arc<Handles>) -> io::Result<Self> {
        let (file, seen) = open(path)?;
        let this = Self { path: Box::new(path.to_owned()), seen, handle: Handle::Shared(handles.clone()) };
        handles.put(this.key(), Arc::new(file));
        Ok(this)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its metadata when it was first opened.
    pub fn metadata(&self) -> &Metadata {
        &self.seen
    }

    /// A sequential reader.
    pub fn stream(&self) -> impl Read {
        Front { file: self, offset: 0 }
    }

    /// Fails if the file was modified since it was first opened, as its [`Identity`] shows; one of many also if its path leads to another
    /// file now: together, they were never there.
    ///
    /// # Errors
    /// With advice; and errors of the operating system.
    pub fn check_unchanged(&self) -> io::Result<()> {
        if let Handle::Shared(_) = self.handle
            && !Identity::at(&self.path).is_ok_and(|now| now.is_unchanged(&Identity::of(&self.seen)))
        {
            return Err(changed());
        }
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

    /// A key unique among files that exist at the same time.
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
        let file = reopen(&self.path)?;
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

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// A sequential reader of a file.
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

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // Not even opened: opening a device may have side effects.
    check_regular(&std::fs::metadata(path)?)?;
    let file = reopen(path)?;
    let mut seen = file.metadata()?;
    check_regular(&seen)?;
    if let Err(e) = check_size(&file, seen.len()) {
        let now = file.metadata()?;
        if now.len() == seen.len() {
            return Err(e);
        }
        seen = now; // it is growing
    }
    platform::read_ahead(&file);
    Ok((file, seen))
}

fn reopen(path: &Path) -> io::Result<File> {
    // It may have been replaced by a FIFO since it was examined: opening must not block.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    match metadata {
        m if m.is_file() => Ok(()),
        m if m.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Fails if data follows the reported end of a file, as in `/proc`, where all sizes are zero.
fn check_size(file: &File, len: u64) -> io::Result<()> {
    if file.read_at(&mut [0], len)? == 0 {
        return Ok(());
    }
    let bytes = crate::ui::format::count(len, "byte");
    let why = format!("its size is given as {bytes}, but it has more: give it as standard input");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn is_same(before: &Metadata, now: &Metadata) -> bool {
    Identity::of(now).is_unchanged(&Identity::of(before))
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
                InputFile::open_one_of(&path(i), &handles).unwrap()
            })
            .collect();
        // Repeatedly, in an order that reopens each.
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
        // The first is closed. A replacement of equal name, size and time is detected.
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

    /// All of them stay open, so that no path is opened again.
    #[test]
    fn files_of_a_directory_that_is_exchanged_while_they_are_opened_are_not_together() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for version in ["a", "b"] {
            std::fs::create_dir(at(version)).unwrap();
            (0..4).for_each(|i| std::fs::write(at(version).join(i.to_string()), version).unwrap());
        }
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        let exchanges: [(&str, &dyn Fn()); 2] = [
            ("link", &|| {
                std::os::unix::fs::symlink("b", at("new")).unwrap();
                std::fs::rename(at("new"), at("link")).unwrap();
            }),
            ("a", &|| {
                std::fs::rename(at("a"), at("c")).unwrap();
                std::fs::rename(at("b"), at("a")).unwrap();
            }),
        ];
        for (version, exchange) in exchanges {
            let handles = Arc::new(Handles::default());
            let open = |i: usize| InputFile::open_one_of(&at(version).join(i.to_string()), &handles).unwrap();
            let mut files: Vec<InputFile> = (0..2).map(open).collect();
            files.iter().for_each(|f| f.check_unchanged().unwrap());
            exchange();
            files.extend((2..4).map(open));
            let refused = files.iter().filter(|f| f.check_unchanged().is_err()).count();
            assert_eq!(refused, 2, "{version}");
        }
    }

    #[test]
    fn a_size_that_is_not_true_is_noticed() {
        let path = Path::new("/proc/self/status");
        if path.exists() {
            let e = InputFile::open(path).unwrap_err().to_string();
            assert_eq!(e, "its size is given as 0 bytes, but it has more: give it as standard input");
        }
    }
}
