//! A file that appears under its name only when it is complete and on disk.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lmc_store::files::{self, copy_attributes, parent, start_writeback, sync_file};

use crate::fs::temporary::Temporary;
use crate::platform;

/// A file being written: unnamed where the system supports it, otherwise under a temporary name beside its own. Unless
/// [`DurableFile::finish`] succeeds, dropping it removes it. An unnamed file never stays behind. A named one is removed on a signal (in the
/// command), or, if the process was killed, by the next run that writes into the same directory.
pub struct DurableFile {
    target: PathBuf,
    file: Temporary,
    /// Bytes written sequentially so far.
    written: u64,
    /// How many of them write-back was started for.
    handed_over: u64,
}

/// Why a file could not be finished: the operation, and the operating system's error.
#[derive(Debug)]
pub struct Unfinished(pub &'static str, pub io::Error);

/// Gives files their names, in order. Should one fail to get its name, those before it that replaced none are removed again; those that
/// replaced others keep theirs, because the files that they replaced are gone.
///
/// # Errors
/// That of `finish`, and how many files were replaced before.
pub fn finish_in_order<T, E>(
    files: Vec<T>,
    path: impl Fn(&T) -> &Path,
    finish: impl Fn(T) -> Result<(), E>,
) -> Result<(), (E, usize)> {
    let (mut new, mut replaced) = (Vec::new(), 0);
    for file in files {
        let path = path(&file).to_owned();
        let replaces = path.symlink_metadata().is_ok();
        if let Err(e) = finish(file) {
            new.iter().for_each(|path| _ = std::fs::remove_file(path));
            return Err((e, replaced));
        }
        match replaces {
            true => replaced += 1,
            false => new.push(path),
        }
    }
    Ok(())
}

impl DurableFile {
    /// Creates the file in the directory of `target`. With `private`, other users cannot read it while it is written.
    ///
    /// # Errors
    /// Errors of the operating system; `IsADirectory` when the path does not name a file; `InvalidInput` when it leads to a file that a
    /// process has open, as `/dev/stdout` does: such a link is never replaced.
    pub fn create(target: &Path, private: bool) -> io::Result<Self> {
        target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        if platform::open_descriptor(target).is_some() {
            return Err(leads_to_open_file());
        }
        let file = Temporary::create(target, if private { 0o600 } else { 0o666 })?;
        Ok(Self { target: target.to_owned(), file, written: 0, handed_over: 0 })
    }

    fn file(&self) -> &File {
        self.file.file()
    }

    /// Sets the final size of an empty file. If that is possible, it can be written in any order afterwards, and bytes never written are
    /// zero. Otherwise (`false`) its file system takes files from front to end only.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn set_size(&self, size: u64) -> io::Result<bool> {
        files::set_len(self.file(), size)
    }

    /// Flushes the bytes written so far to disk.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync(&self) -> io::Result<()> {
        sync_file(self.file(), &self.target)
    }

    /// [`Self::sync`], and drops the bytes from the cache, so that later reads come from disk.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync_uncached(&self) -> io::Result<()> {
        self.sync()?;
        platform::drop_from_cache(self.file());
        Ok(())
    }

    /// Replaces the header of a compressed file, which is written from front to end, by the one that its blocks need. Where the file system
    /// writes in order only, as mounted buckets do, it stays: it may name more features than these.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn replace_header(&self, header: &[u8]) -> io::Result<()> {
        match lmc::WriteAt::write_all_at(self.file(), header, 0) {
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::NotSeekable) => {
                Ok(())
            }
            done => done,
        }
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file().metadata()
    }

    /// Makes the file durable and renames it to its final name. With `overwrite`, an existing file is replaced. Mode, owner and times are
    /// taken from `like`.
    ///
    /// # Errors
    /// `AlreadyExists` when the target exists and `overwrite` is not set, and errors of the operating system.
    pub fn finish(self, overwrite: bool, like: Option<&Metadata>) -> Result<(), Unfinished> {
        self.finish_unless(overwrite, like, || Ok(()))
    }

    /// [`Self::finish`], unless `last` fails, which is called when the file is on disk and only has to get its name.
    ///
    /// # Errors
    /// Those of [`Self::finish`] and of `last`.
    pub fn finish_unless(
        self,
        overwrite: bool,
        like: Option<&Metadata>,
        last: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Unfinished> {
        let cannot_write = |e| Unfinished("cannot write", e);
        if let Some(like) = like {
            copy_attributes(self.file(), &self.target, like).map_err(|e| Unfinished("cannot set mode and times", e))?;
        }
        self.sync().and_then(|()| last()).map_err(cannot_write)?;
        self.file.give_name(&self.target, overwrite).map_err(cannot_write)?;
        let synced = files::sync(parent(&self.target));
        synced.map_err(|e| Unfinished("written, but its directory cannot be synced", e))
    }
}

impl io::Write for DurableFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file().write_at(buf, self.written)?;
        self.written += n as u64;
        if self.written - self.handed_over >= WRITEBACK {
            start_writeback(self.file(), self.handed_over, self.written - self.handed_over);
            self.handed_over = self.written;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writing at offsets, after [`DurableFile::set_size`].
impl lmc::WriteAt for DurableFile {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // `set_size` made the file one hole, so zeros need not be written.
        if is_zero(buf) {
            return Ok(());
        }
        lmc::WriteAt::write_all_at(self.file(), buf, offset)?;
        start_writeback(self.file(), offset, buf.len() as u64);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        lmc::ReadAt::read_exact_at(self.file(), buf, offset)
    }
}

/// The bytes written so far.
impl lmc::ReadAt for DurableFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        lmc::ReadAt::read_exact_at(self.file(), buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        lmc::ReadAt::size(self.file())
    }
}

/// Sequential writes after which write-back is started: a single thread writes, and should seldom wait for the disk.
const WRITEBACK: u64 = 8 << 20;

fn is_zero(buf: &[u8]) -> bool {
    buf.chunks(4096).all(|page| page.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Creates a directory and its missing parents durably.
///
/// # Errors
/// Errors of the operating system.
pub fn create_directories(dir: &Path) -> io::Result<()> {
    if dir.is_dir() { Ok(()) } else { files::create_all(dir) }
}

/// Why such a link is not replaced.
pub(crate) fn leads_to_open_file() -> io::Error {
    let why =
        "leads to a file that a process has open, not to a file by name: write to standard output, and redirect that";
    io::Error::new(io::ErrorKind::InvalidInput, why)
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
}
