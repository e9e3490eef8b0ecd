//! A version as it is on disk: its index, and the headers of its files.

use std::collections::BTreeMap;
use std::path::Path;

use super::header::Header;
use super::index::{self, INDEX, Index, Kind};
use super::read::{note, read};
use crate::error::{Error, Result};
use crate::identity::Identities;
use crate::ids::{SaveId, Step};

/// Bytes of headers that are read for one chain of versions.
pub(super) const MAX_HEADERS: u64 = 2 << 30;

/// A version whose index and headers fit each other.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) index: Index,
    /// The headers of its files with tensors.
    pub(super) headers: BTreeMap<String, Header>,
    /// Made of all of these: the headers have the checksums of the tensors, and an index need not depend on them.
    pub(super) id: SaveId,
    /// Its directory, its index and these files, from before they were read.
    pub(super) paths: Identities,
}

/// The id of a version, as long as its files stay as they are.
#[derive(Debug)]
pub(super) struct Seen {
    step: Step,
    id: SaveId,
    paths: Identities,
}

impl Version {
    /// Reads the version in a directory. Subtracts its headers from `left`, the rest of [`MAX_HEADERS`].
    pub(super) fn read(directory: &Path, step: Step, left: &mut u64) -> Result<Self> {
        let path = directory.join(INDEX);
        // Later changes are noticed the next time.
        let mut paths = Identities::default();
        note(&mut paths, directory, true)?;
        note(&mut paths, &path, false)?;
        let bytes = read(&path, index::MAX)?;
        let index = Index::parse(&bytes, step).map_err(|e| e.at(directory.display()))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
        let mut headers = BTreeMap::new();
        for (file, names) in index.files() {
            let path = directory.join(file);
            let noted = note(&mut paths, &path, false)?;
            let header = index.header(directory, file, &names)?;
            *left = left.checked_sub(header.len()).ok_or_else(|| {
                Error::limit(format!(
                    "{}: headers of more than {MAX_HEADERS} bytes in all lead to what is followed: it needs a full version",
                    path.display()
                ))
            })?;
            hasher.update(&header.bytes);
            if index.kind == (Kind::Full { checksum: None }) {
                let (seconds, nanoseconds) = noted.modified();
                hasher.update(&noted.len().to_le_bytes());
                hasher.update(&seconds.to_le_bytes()).update(&nanoseconds.to_le_bytes());
            }
            headers.insert(file.to_owned(), header);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Ok(Self { index, headers, id: SaveId::new(id), paths })
    }

    pub(super) fn seen(self, step: Step) -> Seen {
        Seen { step, id: self.id, paths: self.paths }
    }
}

impl Seen {
    /// The id, if the version is this one and unchanged.
    pub(super) fn id(&self, step: Step) -> Option<SaveId> {
        (self.step == step && self.paths.changed().is_none()).then_some(self.id)
    }
}
