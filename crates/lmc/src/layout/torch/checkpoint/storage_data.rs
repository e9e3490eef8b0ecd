//! The table of a `.metadata` that says where the entries are stored, read alone: what a program needs that looks for
//! data files, and knows the tensors already.

use std::sync::Arc;

use super::{Parser, Place};
use crate::error::{Error, Result};
use crate::layout::pickle::Pickle;
use crate::segment::Shape;

/// Bytes of a `.metadata` for each value of its pickle, on average: at least this many.
const VALUE_LEN: u64 = 8;

/// Where the entries of a checkpoint are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageData {
    /// Names of the data files, as they are in `.metadata`: paths from its directory, if they are to be trusted.
    pub files: Vec<String>,
    /// In the order of `.metadata`. Of several with one name and the same offsets, the last one counts.
    pub entries: Vec<StoredEntry>,
}

/// A chunk of a tensor, or an entry that is no tensor, and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEntry {
    /// The name of its tensor, or its own.
    pub name: Arc<str>,
    /// The first index of the chunk in each dimension; none for entries that are no tensors.
    pub offsets: Shape,
    /// Where it is stored: `file` is an index of [`StorageData::files`].
    pub place: Place,
}

impl StorageData {
    /// Reads this table of a `.metadata` of at most `max_len` bytes. Memory is proportional to the length, as for
    /// [`Metadata::parse`](super::Metadata::parse).
    ///
    /// # Errors
    /// `Limit` when it is longer, `Damaged` when `torch.distributed.checkpoint` would not write it.
    ///
    /// ```
    /// let e = lmc::layout::distcp::StorageData::parse(b"no pickle", 1 << 27).unwrap_err();
    /// assert_eq!(e.kind(), lmc::ErrorKind::Damaged);
    /// ```
    pub fn parse(bytes: &[u8], max_len: u64) -> Result<Self> {
        if bytes.len() as u64 > max_len {
            let len = bytes.len();
            return Err(Error::limit(format!("has {len} bytes, and metadata of more than {max_len} are not read")));
        }
        let damaged = |what: &str| Error::damaged(format!("is no metadata of torch.distributed.checkpoint: {what}"));
        let max_values = usize::try_from(max_len / VALUE_LEN).unwrap_or(usize::MAX);
        let pickle = Pickle::with_at_most(max_values, bytes)
            .ok_or_else(|| damaged("it is no pickle of one, or has more values than are read"))?;
        let mut parser = Parser::new(&pickle);
        let stored = parser.table("storage_data").ok_or_else(|| damaged("it has no table of places in files"))?;
        let mut entries = Vec::with_capacity(stored.len());
        for &(index, place) in stored {
            let bad = || damaged("the place of an entry in a file is unreadable");
            let (name, offsets) = parser.index(index).ok_or_else(bad)?;
            let place = parser.place(place).ok_or_else(bad)?;
            entries.push(StoredEntry { name: parser.names.all[name].clone(), offsets, place });
        }
        let files = parser.files.all.iter().map(|name| name.to_string()).collect();
        Ok(Self { files, entries })
    }
}
