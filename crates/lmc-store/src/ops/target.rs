//! Checks of the directory that a snapshot's files are restored to: no link leads out of it.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::ops::restore::FileInfo;

/// Checks that files can be restored into a directory: no link below it leads elsewhere, and nothing but regular files is in the way. Links
/// in the path of the directory itself are followed.
///
/// Opens nothing.
///
/// # Errors
/// `Usage`, with the path that is in the way.
pub fn check_targets<'f>(directory: &Path, files: impl IntoIterator<Item = &'f FileInfo>) -> Result<()> {
    files.into_iter().try_for_each(|file| check_target(directory, &file.name))
}

fn check_target(directory: &Path, name: &str) -> Result<()> {
    let mut path = directory.to_owned();
    let mut components = name.split('/').peekable();
    while let Some(component) = components.next() {
        path.push(component);
        // Missing directories are created later. If an entry cannot be examined, creating it fails, too.
        let Ok(kind) = fs::symlink_metadata(&path).map(|m| m.file_type()) else { return Ok(()) };
        let why = match components.peek() {
            _ if kind.is_symlink() => {
                "is a symbolic link, and restoring follows none: move it away, or restore into another directory"
            }
            Some(_) if !kind.is_dir() => {
                "is not a directory, and files are to be restored into it: move it away, or restore into another directory"
            }
            None if kind.is_dir() => {
                "is a directory, and a file is to be restored there: move it away, or restore into another directory"
            }
            None if !kind.is_file() => "is not a regular file: move it away, or restore into another directory",
            _ => continue,
        };
        return Err(Error::usage(format!("{}: {why}", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_what_is_no_file_are_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("there/sub")).unwrap();
        fs::create_dir(at("victim")).unwrap();
        fs::write(at("there/file"), "").unwrap();
        symlink(at("victim"), at("there/link")).unwrap();
        symlink("nowhere", at("there/sub/dangling")).unwrap();
        symlink("file", at("there/other")).unwrap();
        symlink(at("there"), at("to")).unwrap();
        for root in ["there", "to"] {
            let check = |name: &str| check_target(&at(root), name);
            for fine in ["file", "new", "sub/new", "new/a/b", "sub/new/a"] {
                check(fine).unwrap();
            }
            for (bad, named) in [
                ("link/new", "link"),
                ("link", "link"),
                ("link/a/b", "link"),
                ("sub/dangling", "sub/dangling"),
                ("sub/dangling/x", "sub/dangling"),
                ("other", "other"),
                ("file/x", "file"),
                ("sub", "sub"),
            ] {
                let e = check(bad).unwrap_err().to_string();
                assert!(e.starts_with(&format!("{}: is ", at(root).join(named).display())), "{bad}: {e}");
            }
        }
        check_target(&at("nowhere"), "a/b").unwrap();
    }
}
