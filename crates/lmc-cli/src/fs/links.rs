//! Where symbolic links lead, also when nothing is there any more.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lmc_store::files::parent;

use crate::fs::names::SUFFIX;

/// The most links that are followed, as the system does.
const MOST: usize = 40;

/// The path that a symbolic link leads to, over others, and whether or not something is there; `None` if it is no link,
/// or they lead in a circle.
pub(crate) fn end(link: &Path) -> Option<PathBuf> {
    let mut path = next(link)?;
    for _ in 0..MOST {
        match next(&path) {
            Some(further) => path = further,
            None => return Some(path),
        }
    }
    None
}

/// The path that a symbolic link leads to, which may be another one.
pub(crate) fn next(link: &Path) -> Option<PathBuf> {
    std::fs::read_link(link).ok().map(|target| parent(link).join(target))
}

/// The compressed file of the one that a link led to before it was compressed.
pub(crate) fn compressed_since(link: &Path) -> Option<PathBuf> {
    if link.exists() {
        return None;
    }
    end(link).map(|original| with_suffix(&original)).filter(|path| path.is_file())
}

/// The compressed file that a link leads to whose name is that of the original, as in a cache that `lmc hub` compressed.
pub(crate) fn compressed_under_other_name(path: &Path) -> Option<PathBuf> {
    let is_named = |path: &Path| path.file_name().is_some_and(|name| original(name).is_some());
    end(path).filter(|end| is_named(end) && !is_named(path) && end.is_file())
}

/// The path of a compressed file, beside its original.
pub(crate) fn with_suffix(original: &Path) -> PathBuf {
    let mut path = original.as_os_str().to_owned();
    path.push(".");
    path.push(SUFFIX);
    path.into()
}

/// The name of the original of a compressed file.
pub(crate) fn original(name: &OsStr) -> Option<&OsStr> {
    let original = name.as_bytes().strip_suffix(SUFFIX.as_bytes())?.strip_suffix(b".")?;
    (!original.is_empty()).then(|| OsStr::from_bytes(original))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_to_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        for (link, to) in [("one", "file"), ("two", "one"), ("dangling", "gone"), ("circle", "circle")] {
            symlink(to, at(link)).unwrap();
        }
        let ends = ["file", "one", "two", "dangling", "circle"].map(|name| end(&at(name)));
        assert_eq!(ends, [None, Some(at("file")), Some(at("file")), Some(at("gone")), None]);
        assert_eq!(compressed_since(&at("dangling")), None);
        std::fs::write(at("gone.lmc"), "").unwrap();
        std::fs::write(at("file.lmc"), "").unwrap();
        assert_eq!(compressed_since(&at("dangling")), Some(at("gone.lmc")));
        assert_eq!(["file", "one", "circle"].map(|name| compressed_since(&at(name))), [None, None, None]);
    }
}
