//! Mount points: whether one can be used, and why mounting failed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::UnmountFlags;

use crate::failure::{Failure, Result};
use crate::format::{io_error, quoted};

/// The path of a mount point, if it can be one.
pub(super) fn check(point: &Path) -> Result<PathBuf> {
    let broken = |e: &io::Error| e.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error());
    match std::fs::metadata(point) {
        Ok(m) if !m.is_dir() => Err(Failure::usage(point, "is no directory: MOUNTPOINT, the last argument, has to be one")),
        Ok(_) => point.canonicalize().map_err(|e| Failure::io(point, "cannot be mounted at", &e)),
        Err(e) if broken(&e) => {
            let unmount = format_args!("fusermount3 -u {}", quoted(point)).to_string();
            Err(Failure::at(point, format_args!("is left of a process that was killed: unmount it first: {unmount}")))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Failure::usage(point, "is not there: create MOUNTPOINT, the last argument, as an empty directory"))
        }
        Err(e) => Err(Failure::io(point, "cannot be mounted at", &e)),
    }
}

/// Why nothing is mounted, and what can be done.
pub(super) fn failure(point: &Path, e: &io::Error) -> Failure {
    let is_there = Command::new("fusermount3").arg("--version").output().is_ok();
    let text = io_error(e);
    let what = if !Path::new("/dev/fuse").exists() {
        "cannot be mounted at: there is no /dev/fuse: load it (modprobe fuse), or give the container --device /dev/fuse and \
         --cap-add SYS_ADMIN"
            .to_owned()
    } else if !is_there {
        "cannot be mounted at: fusermount3 is missing, which users other than root need: install it (apt-get install fuse3)".to_owned()
    } else {
        // Of fusermount3.
        format!("cannot be mounted at: {}", text.trim().trim_start_matches("fusermount3: "))
    };
    Failure::at(point, what)
}

/// Unmounts a file system that programs still use: they get errors.
pub(super) fn detach(point: &Path) {
    if rustix::mount::unmount(point, UnmountFlags::DETACH).is_err() {
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q", "--"]).arg(point).output();
    }
}
