//! Modes, owners and times of files.

use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use super::weaker::{Weaker, is_missing};

/// Copies mode, owner, group and times of another file, as far as the file system has them; owner and group only if permitted. Another
/// group gets no rights. `path` is for the note.
///
/// # Errors
/// Errors of the operating system.
pub fn copy_attributes(file: &File, path: &Path, like: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    let mut mode = like.mode() & 0o777;
    if (now.uid(), now.gid()) != (like.uid(), like.gid())
        && fchown(file, Some(like.uid()), Some(like.gid())).is_err()
        && fchown(file, None, Some(like.gid())).is_err()
    {
        mode &= 0o707;
    }
    let times = FileTimes::new().set_modified(like.modified()?).set_accessed(like.accessed()?);
    [file.set_permissions(Permissions::from_mode(mode)), file.set_times(times)].into_iter().try_for_each(
        |set| match set {
            Err(e) if is_missing(&e) => {
                Weaker::Attributes.note(path);
                Ok(())
            }
            set => set,
        },
    )
}
