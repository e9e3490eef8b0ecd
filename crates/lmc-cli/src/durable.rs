//! A file that appears under its name when it is complete and on disk, and not before.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::directory::{parent, sync_directory};
use crate::platform;
use crate::temporary::{Temporary, copy_attributes};

/// A file being written, without a name where the system can do that, else under a temporary one beside its own. Unless [`DurableFile::finish`] succeeds,
/// dropping it leaves nothing behind. Without a name nothing else does, either; with one, a signal leaves nothing where the command runs, and what is left
/// when a process is killed is removed by a later one that writes into the same directory.
pub struct DurableFile {
    target: PathBuf,
    file: Temporary,
    /// Bytes written from front to back so far.
    written: u64,
    /// How many of them the kernel was told to write to disk.
    handed_over: u64,
}

/// Why a file could not be finished: what was being done, and what the operating system said.
#[derive(Debug)]
pub struct Unfinished(pub &'static str, pub io::Error);

impl DurableFile {
    /// Creates the file, in the directory that `target` is in. With `private` nobody else may read it while it is written.
    ///
    /// # Errors
    /// Whatever the operating system says; `IsADirectory` when the path does not name a file, `InvalidInput` when it leads to one that a process has open,
    /// as `/dev/stdout` does: such a link is never replaced.
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

    /// Sets the final size of a file that is about to be written in any order. What is not written then is zero.
    ///
    /// # Errors
    /// Whatever the operating system says.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        self.file().set_len(size)
    }

    /// Brings what was written so far to the disk, so that what is read of it then comes from there.
    ///
    /// # Errors
    /// Whatever the operating system says.
    pub fn sync(&self) -> io::Result<()> {
        self.file().sync_all()?;
        platform::drop_from_cache(self.file());
        Ok(())
    }

    /// What the file is.
    ///
    /// # Errors
    /// Whatever the operating system says.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file().metadata()
    }

    /// Makes the file durable and gives it its name; another file of that name goes if it is told to `overwrite` it. It takes over mode, owner and
    /// times of the file that it is another form of.
    ///
    /// # Errors
    /// `AlreadyExists` when there is another file, and whatever the operating system says.
    pub fn finish(self, overwrite: bool, like: Option<&Metadata>) -> Result<(), Unfinished> {
        let cannot_write = |e| Unfinished("cannot write", e);
        if let Some(like) = like {
            copy_attributes(self.file(), like).map_err(|e| Unfinished("cannot set mode and times", e))?;
        }
        self.file().sync_all().map_err(cannot_write)?;
        self.file.give_name(&self.target, overwrite).map_err(cannot_write)?;
        let synced = sync_directory(parent(&self.target));
        synced.map_err(|e| Unfinished("written, but its directory cannot be synced", e))
    }
}

impl io::Write for DurableFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file().write_at(buf, self.written)?;
        self.written += n as u64;
        if self.written - self.handed_over >= WRITEBACK {
            platform::start_writeback(self.file(), self.handed_over, self.written - self.handed_over);
            self.handed_over = self.written;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// After [`DurableFile::set_size`].
impl lmc::WriteAt for DurableFile {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // Zeros are there already: `set_size` made the file one hole.
        if is_zero(buf) {
            return Ok(());
        }
        lmc::WriteAt::write_all_at(self.file(), buf, offset)?;
        platform::start_writeback(self.file(), offset, buf.len() as u64);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        lmc::ReadAt::read_exact_at(self.file(), buf, offset)
    }
}

/// What was written so far.
impl lmc::ReadAt for DurableFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        lmc::ReadAt::read_exact_at(self.file(), buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        lmc::ReadAt::size(self.file())
    }
}

/// How much is written from front to back before write-back starts: one thread writes, and it had better not wait
/// for the disk too often.
const WRITEBACK: u64 = 8 << 20;

fn is_zero(buf: &[u8]) -> bool {
    buf.chunks(4096).all(|page| page.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Why a link is not replaced.
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
