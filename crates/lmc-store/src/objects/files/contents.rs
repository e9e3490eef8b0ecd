//! The contents of files: created, sized, handed to the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::weaker::{Weaker, is_missing};

/// Creates a file whose name must be free. It can be read through the handle, too, unless the file system permits only one of both.
///
/// # Errors
/// `AlreadyExists`, and errors of the operating system.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let open = |read| File::options().read(read).write(true).create_new(true).mode(mode).open(path);
    match open(true) {
        Err(e) if is_missing(&e) => open(false),
        opened => opened,
    }
}

/// Sets the final length of an empty file; bytes never written are zero. Returns whether it can be written in any order: on some file
/// systems only from front to end, and such a file has no length set.
///
/// # Errors
/// Errors of the operating system.
pub fn set_len(file: &File, len: u64) -> io::Result<bool> {
    match file.set_len(len) {
        Err(e) if is_missing(&e) => Ok(false),
        set => set.map(|()| true),
    }
}

/// Flushes a complete file to disk, if that is possible. `path` is for the note.
///
/// # Errors
/// Errors of the operating system.
pub fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    match file.sync_all() {
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Weaker::Syncing.note(path);
        }
        synced => synced?,
    }
    // Some file systems report only when a descriptor is closed that there was no space. The lock stays with the other.
    Ok(nix::unistd::close(file.try_clone()?)?)
}

/// Has the system begin to write a range to disk. The pages stay in the cache: they are not clean yet. File systems may ignore it.
#[cfg(target_os = "linux")]
pub fn start_writeback(file: &File, offset: u64, len: u64) {
    _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
}

/// Other systems choose the time themselves.
#[cfg(not(target_os = "linux"))]
pub fn start_writeback(_: &File, _: u64, _: u64) {}
