//! The weights in a snapshot, by name.

use std::collections::BTreeMap;
use std::ops::Range;

use lmc::Segment;
use lmc::layout::safetensors::{Header, header_len};

use super::index::FILE;
use crate::chunks::held::StoredExtent;
use crate::error::{Error, Result};
use crate::ops::restore::SnapshotReader;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// Suffixes of the files beside the weights that serving programs read: others, such as the state of an optimizer, stay
/// in the store.
const OTHERS: [&str; 6] = [".json", ".jinja", ".model", ".py", ".tiktoken", ".txt"];

/// Whether a file belongs beside the weights in a full version, by its name.
pub(super) fn is_beside_weights(name: &str) -> bool {
    OTHERS.iter().any(|suffix| name.ends_with(suffix))
}

/// The header of a safetensors file of `size` bytes: its bytes, and what they say. `read` fills a buffer from an offset on.
pub(super) fn read_header(size: u64, read: impl Fn(&mut [u8], u64) -> Result<()>) -> Result<(Vec<u8>, Header)> {
    let invalid = |why: &str| Error::damaged(format!("the header of the safetensors file is invalid: {why}"));
    let mut start = vec![0; size.min(9) as usize];
    read(&mut start, 0)?;
    let len = header_len(&start).ok_or_else(|| invalid("it does not begin as a safetensors file does"))?;
    let mut bytes = vec![0; len.min(size) as usize];
    read(&mut bytes, 0)?;
    let header = Header::parse(&bytes, size).map_err(|why| invalid(&why))?;
    Ok((bytes, header))
}

/// An open snapshot of safetensors files.
pub(super) struct Model {
    pub(super) reader: SnapshotReader,
    /// The files with tensors, by their number in the snapshot.
    pub(super) files: BTreeMap<usize, Header>,
    /// Names of other files that a full version has.
    pub(super) others: Vec<String>,
    /// The file and the entry there of each tensor.
    pub(super) tensors: BTreeMap<String, (usize, usize)>,
}

impl Model {
    pub(super) fn open(store: &Store, snapshot: &Snapshot, threads: usize) -> Result<Self> {
        let reader = store.open_snapshot(snapshot)?.with_threads(threads);
        let (files, others, tensors) = Default::default();
        let mut model = Self { reader, files, others, tensors };
        for (i, file) in model.reader.files().iter().enumerate() {
            let at = |e: Error| e.at(format_args!("step {}, {}", snapshot.step, file.name));
            let is_tensors = file.name.ends_with(FILE);
            if file.name.contains('/') {
                if is_tensors {
                    let what = "is in a directory: versions for other receivers have all of their weights in one";
                    return Err(at(Error::usage(what)));
                }
                continue;
            }
            if !is_tensors {
                if is_beside_weights(&file.name) {
                    model.others.push(file.name.clone());
                }
                continue;
            }
            let read = |buf: &mut [u8], at| model.reader.read_range(&file.name, at, buf);
            let (_, header) = read_header(file.len, read).map_err(at)?;
            for (n, tensor) in header.tensors.iter().enumerate() {
                let name = tensor.name.as_deref().unwrap_or_default();
                if model.tensors.insert(name.to_owned(), (i, n)).is_some() {
                    return Err(at(Error::usage(format!("has a tensor {name:?}, as another file has"))));
                }
            }
            model.files.insert(i, header);
        }
        match model.tensors.is_empty() {
            true => Err(Error::usage(format!("step {}: has no tensors in {FILE} files", snapshot.step))),
            false => Ok(model),
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Option<&Segment> {
        self.tensors.get(name).map(|(file, n)| &self.files[file].tensors[*n])
    }

    /// Whether tensors have the names, types and shapes of another version's.
    pub(super) fn has_tensors_of(&self, other: &Self) -> bool {
        let same = |name, other: &Segment| {
            self.tensor(name).is_some_and(|t| (&t.dtype, &t.shape) == (&other.dtype, &other.shape))
        };
        self.tensors.len() == other.tensors.len()
            && other.tensors.keys().all(|name| other.tensor(name).is_some_and(|t| same(name, t)))
    }

    /// The file that a tensor is in, and where.
    pub(super) fn place(&self, name: &str) -> (usize, Range<u64>) {
        let (file, n) = self.tensors[name];
        let tensor = &self.files[&file].tensors[n];
        (file, tensor.offset..tensor.end())
    }

    /// Which bytes a tensor has, as hashes: equal ones are the same bytes.
    pub(super) fn content(&self, name: &str) -> Result<Vec<StoredExtent>> {
        let (file, range) = self.place(name);
        self.reader.stored_part(file, range)
    }
}
