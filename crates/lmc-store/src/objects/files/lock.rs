//! Locks of directories that one process at a time may write.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::weaker::Weaker;

/// Locks a file, which is created if missing, for as long as it is open; `None` if another process has it locked. Where there are no locks,
/// it is only opened.
///
/// # Errors
/// Errors of the operating system.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e))
            if e.kind() == io::ErrorKind::Unsupported || e.raw_os_error() == Some(Errno::NOLCK.raw_os_error()) =>
        {
            Weaker::Locking.note(path);
            Ok(Some(file))
        }
        Err(TryLockError::Error(e)) => Err(e),
    }
}
