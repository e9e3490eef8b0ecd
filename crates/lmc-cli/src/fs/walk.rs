//! What is in a directory, for all commands that take directories.
//!
//! This is the rule for symbolic links in them. One that leads to a file counts as this file: the caches of models consist of such links. One
//! that leads to a directory is not followed: it may lead anywhere, also back. A command decides only what to do with entries that are no
//! input: `snapshot save` refuses them, because a snapshot is to be whole, and the others leave them alone.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::ui::failure::{Failure, Result};

/// An entry of a directory.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) name: OsString,
    pub(crate) kind: Kind,
}

/// What an entry is to a command.
pub(crate) enum Kind {
    Directory,
    File,
    /// A link to the file that has this metadata.
    Link(Metadata),
    Other(Other),
}

/// An entry that is no input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    LinkToDirectory,
    LinkToNothing,
    /// A FIFO, a device or a socket, perhaps behind a link.
    Special,
}

/// The entries of a directory, in order of their names.
pub(crate) fn entries(dir: &Path) -> Result<Vec<Entry>> {
    let unreadable = |e: io::Error| Failure::io(dir, "cannot read the directory", &e);
    let entries =
        std::fs::read_dir(dir).and_then(|entries| entries.map(|e| entry(&e?)).collect::<io::Result<Vec<_>>>());
    let mut entries = entries.map_err(unreadable)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn entry(entry: &DirEntry) -> io::Result<Entry> {
    let (path, kind) = (entry.path(), entry.file_type()?);
    let kind = match kind.is_symlink().then(|| std::fs::metadata(&path)) {
        None if kind.is_dir() => Kind::Directory,
        None if kind.is_file() => Kind::File,
        Some(Ok(target)) if target.is_file() => Kind::Link(target),
        Some(Ok(target)) if target.is_dir() => Kind::Other(Other::LinkToDirectory),
        Some(Err(_)) => Kind::Other(Other::LinkToNothing),
        None | Some(Ok(_)) => Kind::Other(Other::Special),
    };
    Ok(Entry { path, name: entry.file_name(), kind })
}

impl Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkToDirectory => "a link to a directory",
            Self::LinkToNothing => "a link that leads nowhere",
            Self::Special => "not a regular file",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn entries_are_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("file"), b"seven..").unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for to in ["directory", "file", "nothing", "socket"] {
            symlink(to, at(&format!("link to {to}"))).unwrap();
        }
        symlink("link to file", at("two links")).unwrap();
        let found = entries(dir.path()).unwrap().into_iter().map(|Entry { path, name, kind }| {
            assert_eq!(path, dir.path().join(&name));
            let kind = match kind {
                Kind::Directory => "directory".to_owned(),
                Kind::File => "file".to_owned(),
                Kind::Link(target) => format!("link to {} bytes", target.len()),
                Kind::Other(other) => other.to_string(),
            };
            format!("{}: {kind}", name.display())
        });
        let expected = [
            "directory: directory",
            "file: file",
            "link to directory: a link to a directory",
            "link to file: link to 7 bytes",
            "link to nothing: a link that leads nowhere",
            "link to socket: not a regular file",
            "socket: not a regular file",
            "two links: link to 7 bytes",
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(entries(&at("none")).is_err());
    }
}
