//! Mount points: whether one can be used, and why mounting failed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::ui::failure::{Failure, Result};
use crate::ui::format::{io_error, quoted};

/// What the kernel answers requests through.
const DEVICE: &str = "/dev/fuse";

/// The path of a mount point, if it can be one.
pub(super) fn check(point: &Path) -> Result<PathBuf> {
    let broken = |e: &io::Error| e.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error());
    match std::fs::metadata(point) {
        Ok(m) if !m.is_dir() => {
            Err(Failure::usage(point, "is no directory: MOUNTPOINT, the last argument, has to be one"))
        }
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
    let in_container = format!("start the container with --device {DEVICE} and --cap-add SYS_ADMIN");
    let device = File::options().read(true).write(true).open(DEVICE);
    let what = match device.as_ref().map_err(|e| (e, Errno::from_io_error(e))) {
        Err((_, Some(Errno::NOENT | Errno::NODEV | Errno::NXIO))) => {
            format!("there is no {DEVICE}: load it (modprobe fuse), or {in_container}")
        }
        // Of a device that the container may not use.
        Err((_, Some(Errno::PERM))) => format!("{DEVICE} may not be used here: {in_container}"),
        Err((_, Some(Errno::ACCESS))) => {
            format!("no permission for {DEVICE}: let users read and write it (chmod a+rw {DEVICE}), or mount as root")
        }
        Err((e, _)) => format!("{DEVICE}: {}", io_error(e)),
        // It is looked for in /bin and /sbin, too.
        Ok(_) if e.kind() == io::ErrorKind::NotFound => {
            "fusermount3 is missing, which users other than root need: install it (apt-get install fuse3)".to_owned()
        }
        // Of fusermount3.
        Ok(_) => {
            let text = io_error(e);
            let said = text.trim().trim_start_matches("fusermount3: ").replace('\n', "; ");
            let advice = match said.contains("mount failed: Operation not permitted") {
                true => format!(": {in_container}; outside of one, fusermount3 has to be setuid root"),
                false => String::new(),
            };
            said + &advice
        }
    };
    Failure::at(point, format_args!("cannot be mounted at: {what}"))
}

/// Unmounts a file system that programs still use: they get errors.
pub(super) fn detach(point: &Path) {
    if rustix::mount::unmount(point, UnmountFlags::DETACH).is_err() {
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q", "--"]).arg(point).output();
    }
}
