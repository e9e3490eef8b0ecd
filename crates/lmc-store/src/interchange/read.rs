//! Files of versions, read within limits.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::header::Header;
use super::index::{INDEX, Index};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Identities, Identity};
use crate::ids::Hash;

impl Index {
    /// The header of one of its files, which has these tensors and no others.
    pub(super) fn header(&self, directory: &Path, file: &str, names: &BTreeSet<&str>) -> Result<Header> {
        let path = directory.join(file);
        let header = header_of(&path, false)?;
        let damaged = |why: String| Err(Error::damaged(format!("{}: {why}", path.display())));
        let found: BTreeSet<&str> = header.tensors.iter().map(|t| &t.name[..]).collect();
        if let Some(name) = found.symmetric_difference(names).next() {
            return damaged(format!("{name:?} is in this file or in {INDEX}, and not in both"));
        }
        match self.own.as_ref().map(|own| own.files.get(file)) {
            Some(hash) if hash != Some(&Hash::of(&header.bytes)) => {
                damaged(format!("has a header with another hash than the one in {INDEX}"))
            }
            _ => Ok(header),
        }
    }
}

/// Notes what is at a path, or where it leads if it may be a link.
pub(super) fn note(paths: &mut Identities, path: &Path, links: bool) -> Result<Identity> {
    let noted = Identity::at(path, links).map_err(|e| Error::io(format_args!("{}: cannot open", path.display()), e))?;
    paths.note_known(path, links, noted);
    Ok(noted)
}

pub(super) fn header_of(path: &Path, links: bool) -> Result<Header> {
    let (file, len) = open_regular(path, links)?;
    let failed = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
    Header::read(len, |buf, at| lmc::ReadAt::read_exact_at(&file, buf, at).map_err(failed)).map_err(|e| {
        match e.kind() {
            ErrorKind::Io => e,
            _ => e.at(path.display()),
        }
    })
}

/// Opens a regular file, and its length. Others are not opened, as that could block; and links lead elsewhere.
pub(crate) fn open_regular(path: &Path, links: bool) -> Result<(File, u64)> {
    let failed = |e| Error::io(format_args!("{}: cannot open", path.display()), e);
    let irregular = || failed(io::Error::other("it is not a regular file"));
    let m = if links { fs::metadata(path) } else { fs::symlink_metadata(path) };
    if !m.map_err(failed)?.is_file() {
        return Err(irregular());
    }
    // It may be another one by now.
    let flags = if links { OFlags::NONBLOCK } else { OFlags::NONBLOCK | OFlags::NOFOLLOW };
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).map_err(failed)?;
    let m = file.metadata().map_err(failed)?;
    if m.is_file() { Ok((file, m.len())) } else { Err(irregular()) }
}

/// Reads a file of no more than `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> Result<Vec<u8>> {
    let (file, len) = open_regular(path, false)?;
    if len > max {
        return Err(Error::limit(format!("{}: has {len} bytes; at most {max} are read", path.display())));
    }
    let mut bytes = vec![0; len as usize];
    lmc::ReadAt::read_exact_at(&file, &mut bytes, 0)
        .map_err(|e| Error::io(format_args!("{}: cannot read", path.display()), e))?;
    Ok(bytes)
}
