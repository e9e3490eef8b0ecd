//! Linux.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Advice, AtFlags, CWD, OFlags};

use super::Descriptor;

/// Creates an unnamed file in a directory, which is gone once closed, however the process ends; `None` where the file system or the system
/// has no such files, or no way to name them later.
pub(crate) fn unnamed_file(directory: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = File::options().read(true).write(true).mode(mode).custom_flags(flags).open(directory).ok()?;
    // Without /proc it could not be named.
    let (this, there) = (file.metadata().ok()?, std::fs::metadata(path_of(&file)).ok()?);
    ((this.dev(), this.ino()) == (there.dev(), there.ino())).then_some(file)
}

/// Gives an unnamed file a name that does not exist yet.
pub(crate) fn give_name(file: &File, path: &Path) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, path_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// The open file that a path leads to through `/proc`, as `/dev/stdout` and links to it do.
pub(crate) fn open_descriptor(path: &Path) -> Option<Descriptor> {
    let mut path = path.to_owned();
    // The kernel's own limit on links.
    for _ in 0..40 {
        let directory = path.parent()?;
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let directory = directory.canonicalize().ok()?;
        if let Some(found) = descriptor_in(&directory, path.file_name()?.to_str()) {
            return Some(found);
        }
        path = directory.join(std::fs::read_link(directory.join(path.file_name()?)).ok()?);
    }
    None
}

/// `name` in `directory`, if that is `/proc/PID/fd`, or a thread's.
fn descriptor_in(directory: &Path, name: Option<&str>) -> Option<Descriptor> {
    let parts: Vec<&str> = directory
        .components()
        .map(|c| match c {
            Component::Normal(name) => name.to_str().unwrap_or_default(),
            _ => "/",
        })
        .collect();
    let process = match parts[..] {
        ["/", "proc", process, "fd"] | ["/", "proc", process, "task", _, "fd"] => process.parse::<u32>().ok()?,
        _ => return None,
    };
    let number = name?.parse().ok()?;
    Some(if process == std::process::id() { Descriptor::Ours(number) } else { Descriptor::Foreign })
}

/// Hints that a file will be read sequentially. File systems may ignore this hint and the next one.
pub(crate) fn read_ahead(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Drops clean pages of a file from the cache.
pub(crate) fn drop_from_cache(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// Signals that end a process only here: SIGSTKFLT, SIGIO, SIGPWR, and those of real time that the C library does not need.
pub(crate) fn ending_signals() -> impl Iterator<Item = i32> {
    use rustix::process::Signal;
    [Signal::STKFLT, Signal::IO, Signal::POWER].map(Signal::as_raw).into_iter().chain(35..=64)
}

/// The signals that our parent set to be ignored (`nohup`, a shell's background jobs): signal *n* is bit *n* − 1.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_to_open_files_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let file = File::create(at("file")).unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        symlink(format!("/proc/self/fd/{number}"), at("link")).unwrap();
        symlink("link", at("link to link")).unwrap();
        symlink("/dev/fd", at("directory")).unwrap();
        symlink("file", at("to file")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        symlink("/proc/1/fd/1", at("of another")).unwrap();
        let ours = Some(Descriptor::Ours(number));
        for path in [at("link"), at("link to link"), at("directory").join(number.to_string()), path_of(&file)] {
            assert_eq!(open_descriptor(&path), ours, "{}", path.display());
        }
        assert_eq!(open_descriptor(Path::new("/dev/stdout")), Some(Descriptor::Ours(1)));
        for path in ["file", "to file", "dangling", "circle", "missing", "missing/1"] {
            assert_eq!(open_descriptor(&at(path)), None, "{path}");
        }
        assert_eq!(descriptor_in(Path::new("/proc/1/fd"), Some("1")), Some(Descriptor::Foreign));
        assert_eq!(descriptor_in(Path::new("/proc/1/task/1/fd"), Some("1")), Some(Descriptor::Foreign));
    }
}
