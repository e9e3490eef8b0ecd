//! Complete files get their names: in the strongest way that the file system has.
//!
//! | way | where | another file of that name | until the file is complete |
//! |---|---|---|---|
//! | rename, for a new file without replacement | ext4, XFS, Btrfs, tmpfs | stays | nothing is there |
//! | link, for a new file | NFS, Ceph | stays | nothing is there |
//! | rename over an empty file that was created under the name | exFAT, FAT, NTFS, most of FUSE | stays | the empty file, for a moment |
//! | copy | FUSE without rename, as of some buckets | stays, or is removed first | a part |

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::attributes::copy_attributes;
use super::contents::{create_new, sync_file};
use super::removal::{if_there, remove_closed, remove_if_there};
use super::unfinished::{forget, register};
use super::weaker::{Weaker, is_missing};

/// Gives a file, which is complete and on disk, the name `to` instead of `from`, in the same directory. `replace`: what is there is
/// replaced; otherwise the name must be free. After an error the file is still `from`. `file` is closed when it has its name: it may hold
/// a lock, and some file systems do not remove open files.
///
/// # Errors
/// `AlreadyExists` when the name is not free, and errors of the operating system.
pub fn give_name(file: impl Sized, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    let named = if replace { fs::rename(from, to) } else { rename_to_free(from, to) };
    match named {
        Ok(()) => return Ok(()),
        Err(e) if !is_missing(&e) => return Err(e),
        Err(_) if replace => {
            if_there(fs::remove_file(to))?;
            copy(from, to)?;
        }
        Err(_) => match fs::hard_link(from, to) {
            Ok(()) => {}
            Err(e) if !is_missing(&e) => return Err(e),
            Err(_) if take_name(from, to)? => return Ok(()),
            Err(_) => copy(from, to)?,
        },
    }
    drop(file);
    // The file is complete. A second name that stays is removed as those of killed processes are.
    _ = remove_closed(from);
    Ok(())
}

/// Creates an empty file under a free name, and renames the other one over it. Returns whether files can be renamed; if not, the name is
/// free again.
fn take_name(from: &Path, to: &Path) -> io::Result<bool> {
    let place = register(|| Ok((create_new(to, 0o600)?, to.to_owned())))?;
    // Some file systems find out only now that another machine created it, too.
    let synced = sync_file(&place, to);
    drop(place);
    let renamed = synced.and_then(|()| fs::rename(from, to));
    if renamed.is_err() {
        _ = remove_closed(to);
    }
    forget(to);
    match renamed {
        Err(e) if is_missing(&e) => Ok(false),
        renamed => renamed.map(|()| true),
    }
}

/// Copies a file to a free name, from front to end.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    Weaker::Naming.note(to);
    let mut source = File::open(from)?;
    let like = source.metadata()?;
    let mut new = register(|| Ok((create_new(to, like.mode() & 0o777)?, to.to_owned())))?;
    let copied = io::copy(&mut source, &mut new)
        .and_then(|_| copy_attributes(&new, to, &like))
        .and_then(|()| sync_file(&new, to));
    drop(new);
    if copied.is_err() {
        _ = remove_closed(to);
    }
    forget(to);
    copied
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_to_free(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes a file that appears under its name when it is complete and on disk.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    remove_if_there(&new)?;
    let mut file = create_new(&new, 0o666)?;
    file.write_all(bytes)?;
    sync_file(&file, path)?;
    give_name(file, &new, path, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way, with a free name and with one that is taken.
    #[test]
    fn a_name_is_given_in_each_way() {
        type Way = fn(&Path, &Path) -> io::Result<()>;
        let taking: Way = |from, to| take_name(from, to).map(|renamed| assert!(renamed));
        let copying: Way = |from, to| copy(from, to).and_then(|()| fs::remove_file(from));
        let ways: [Way; 3] = [|from, to| give_name((), from, to, false), taking, copying];
        for way in ways {
            let dir = tempfile::tempdir().unwrap();
            let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
            for (text, is_free) in [("first", true), ("second", false)] {
                fs::write(&from, text).unwrap();
                let named = way(&from, &to);
                assert_eq!(
                    named.map_err(|e| e.kind()),
                    if is_free { Ok(()) } else { Err(io::ErrorKind::AlreadyExists) }
                );
                assert_eq!((fs::read(&to).unwrap(), from.exists()), (b"first".to_vec(), !is_free));
            }
            give_name((), &from, &to, true).unwrap();
            assert_eq!((fs::read(&to).unwrap(), from.exists()), (b"second".to_vec(), false));
        }
    }

    #[test]
    fn what_cannot_be_copied_leaves_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        // It can be opened, and reading it fails.
        fs::create_dir(&from).unwrap();
        copy(&from, &to).unwrap_err();
        assert!(from.exists() && !to.exists());
    }
}
