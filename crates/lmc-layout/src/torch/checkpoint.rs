//! Parses `.metadata` of a checkpoint of `torch.distributed.checkpoint`: its tensors, their chunks, and where the
//! chunks are stored (`torch/distributed/checkpoint/metadata.py`). Only opcodes are walked: nothing is unpickled.

mod blob;
mod cover;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::pickle::{Id, Pickle, Value};
pub use super::super::strided::Elements;
use super::tensors::elements_of_dtype;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::segment::Shape;

/// Most bytes of `.metadata`, and values of its pickle: enough for half a million chunks.
const MAX_LEN: u64 = 1 << 27;
const MAX_VALUES: usize = 1 << 24;
/// Most chunks of all tensors, and other entries of a table.
const MAX_CHUNKS: usize = 1 << 20;
/// Most dimensions of a tensor, and most bytes of the name of a type.
const MAX_DIMENSIONS: usize = 16;
const MAX_DTYPE: usize = 64;

/// The contents of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// In the order of `.metadata`; names are unique.
    pub tensors: Vec<Tensor>,
    /// Names of entries that are no tensors: pickles of their own.
    pub others: Vec<String>,
    /// Names of the data files, as they are in `.metadata`: paths from its directory, if they are to be trusted.
    pub files: Vec<String>,
}

/// A tensor of a checkpoint, as `.metadata` describes it: [`Self::check`] finds out whether its chunks make a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// The type of its elements as torch names it: `bfloat16`.
    pub torch_dtype: String,
    /// Bytes of an element, as torch counts them; `None` for types that lmc does not know, such as quantised ones.
    pub element_len: Option<u64>,
    /// Dimensions, outermost first, in elements of torch.
    pub shape: Shape,
    /// No two of them are equal.
    pub chunks: Vec<Chunk>,
}

/// A box of a tensor, stored in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Its first index in each dimension.
    pub offsets: Shape,
    /// Its lengths.
    pub sizes: Shape,
    /// `None` if nothing says where it is stored.
    pub place: Option<Place>,
}

/// Where a chunk is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The data file: an index of [`Metadata::files`].
    pub file: usize,
    /// How the chunk is stored there.
    pub stored: Stored,
}

/// How a chunk is stored in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stored {
    /// In one of the ways of PyTorch's own writer: as a file of `torch.save`, in these bytes of the file
    /// ([`Tensor::locate`] finds the elements in them), or, if the file begins like no zip archive, as the tensor of
    /// the same name in a file of safetensors.
    Plain {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// In a way that only this extension of `torch.distributed.checkpoint` knows.
    Transformed(Arc<str>),
}

impl Metadata {
    /// The most bytes of a `.metadata` that is read: 128 MiB, as half a million chunks have.
    pub const MAX_LEN: u64 = MAX_LEN;

    /// Reads a `.metadata`. Memory is proportional to its length: 13 times as much for files of torch, while this
    /// function runs.
    ///
    /// # Errors
    /// `Limit` when it is longer than [`Self::MAX_LEN`], `Damaged` when `torch.distributed.checkpoint` would
    /// not write it.
    ///
    /// ```
    /// let e = lmc_layout::distcp::Metadata::parse(b"no pickle").unwrap_err();
    /// assert_eq!(e.kind(), lmc_layout::error::ErrorKind::Damaged);
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 > MAX_LEN {
            let (len, most) = (bytes.len(), MAX_LEN);
            return Err(Error::limit(format!("has {len} bytes, and metadata of more than {most} are not read")));
        }
        let pickle = Pickle::with_at_most(MAX_VALUES, bytes)
            .ok_or_else(|| Error::damaged("is no metadata of torch.distributed.checkpoint, or more than is read"))?;
        Parser::new(&pickle).metadata()
    }
}

impl Tensor {
    /// The dtype and the shape that a safetensors file has for it; `None` if safetensors lacks the type.
    pub fn in_safetensors(&self) -> Option<(Dtype, Shape)> {
        elements_of_dtype(&self.torch_dtype)?.in_safetensors(&self.shape)
    }
}

/// Most bytes of a tensor's name that becomes one of a file's.
const MAX_NAME: usize = 1024;

/// The names of the tensors in the data file called `file`, by the offsets of their archives: a file of torch. `None` if
/// `bytes` are no metadata.
pub(super) fn names_in(bytes: &[u8], file: &str) -> Option<HashMap<u64, String>> {
    let pickle = Pickle::with_at_most(MAX_VALUES, bytes).filter(|_| bytes.len() as u64 <= MAX_LEN)?;
    let mut parser = Parser::new(&pickle);
    let stored = parser.table("storage_data").filter(|stored| stored.len() <= MAX_CHUNKS)?;
    let (mut places, mut parts) = (Vec::new(), HashMap::new());
    for &(index, place) in stored {
        let (name, first) = parser.index(index)?;
        let place = parser.place(place)?;
        if let Stored::Plain { offset, .. } = place.stored
            && &*parser.files.all[place.file] == file
            && parser.names.all[name].len() <= MAX_NAME
        {
            *parts.entry(name).or_insert(0u32) += 1;
            places.push((offset, name, first));
        }
    }
    // If the file has several parts of a tensor, their names include their first indices.
    let name = |(offset, name, first): (u64, usize, Shape)| {
        let text = &parser.names.all[name];
        let first: Vec<String> = first.iter().map(u64::to_string).collect();
        (offset, if parts[&name] > 1 { format!("{text}@{}", first.join(",")) } else { text.to_string() })
    };
    Some(places.into_iter().map(name).collect())
}

struct Parser<'p, 'a> {
    pickle: &'p Pickle<'a>,
    names: Texts<'a>,
    files: Texts<'a>,
    chunks: usize,
}

/// The places of chunks, by the numbers of their tensors' names and their first indices.
type Places = HashMap<(usize, Shape), Place>;

/// Strings, each of them once. Many values may be the same string, which is hashed and kept only once.
#[derive(Default)]
struct Texts<'a> {
    all: Vec<Arc<str>>,
    by_id: HashMap<Id, usize>,
    by_text: HashMap<&'a str, usize>,
}

impl<'a> Texts<'a> {
    /// The number of a string; `None` if the value is none.
    fn number(&mut self, pickle: &Pickle<'a>, id: Id) -> Option<usize> {
        if let Some(&number) = self.by_id.get(&id) {
            return Some(number);
        }
        let text = pickle.str(id)?;
        let number = *self.by_text.entry(text).or_insert_with(|| {
            self.all.push(text.into());
            self.all.len() - 1
        });
        self.by_id.insert(id, number);
        Some(number)
    }
}

impl<'p, 'a> Parser<'p, 'a> {
    fn new(pickle: &'p Pickle<'a>) -> Self {
        let (names, files) = Default::default();
        Self { pickle, names, files, chunks: 0 }
    }

    /// A table of the checkpoint.
    fn table(&self, name: &str) -> Option<&'p [(Id, Id)]> {
        match self.pickle.get(self.pickle.attribute(self.pickle.root, name)?) {
            Value::Dict(items) => Some(items),
            _ => None,
        }
    }

    fn metadata(&mut self) -> Result<Metadata> {
        let damaged = |what: &str| Error::damaged(format!("is no metadata of torch.distributed.checkpoint: {what}"));
        let pickle = self.pickle;
        let entries = self.table("state_dict_metadata").ok_or_else(|| damaged("it has no table of entries"))?;
        let stored = self.table("storage_data").ok_or_else(|| damaged("it has no table of places in files"))?;
        if entries.len().max(stored.len()) > MAX_CHUNKS {
            return Err(too_many());
        }
        let mut places = Places::new();
        for &(index, place) in stored {
            let bad = || damaged("the place of an entry in a file is unreadable");
            let (name, first) = self.index(index).ok_or_else(bad)?;
            places.insert((name, first), self.place(place).ok_or_else(bad)?);
        }
        // Of several entries of one name the last one counts, as in a dictionary.
        let (mut numbers, mut last) = (Vec::with_capacity(entries.len()), HashMap::new());
        for &(name, entry) in entries {
            let name = self.names.number(pickle, name).ok_or_else(|| damaged("a name is no text"))?;
            last.insert(name, entry);
            numbers.push(name);
        }
        let (mut tensors, mut others) = (Vec::new(), Vec::new());
        for number in numbers {
            let Some(entry) = last.remove(&number) else { continue };
            let name = self.names.all[number].to_string();
            match self.class(entry) {
                Some("BytesStorageMetadata") => others.push(name),
                Some("TensorStorageMetadata") => match self.tensor(number, entry, &mut places) {
                    Some(tensor) => tensors.push(tensor),
                    None if self.chunks > MAX_CHUNKS => return Err(too_many()),
                    None => return Err(Error::damaged("its entry is not that of a tensor").in_tensor(name)),
                },
                _ => return Err(Error::damaged("its entry is neither that of a tensor nor of bytes").in_tensor(name)),
            }
        }
        let files = self.files.all.iter().map(|name| name.to_string()).collect();
        Ok(Metadata { tensors, others, files })
    }

    /// The name of an object's class.
    fn class(&self, object: Id) -> Option<&str> {
        match *self.pickle.get(object) {
            Value::Object { callable, .. } => Some(self.pickle.global(callable)?.1),
            _ => None,
        }
    }

    /// The number of the tensor's name, and the first indices of the chunk; `None` for entries that are no tensors.
    fn index(&mut self, index: Id) -> Option<(usize, Shape)> {
        let name = self.names.number(self.pickle, self.pickle.attribute(index, "fqn")?)?;
        let first = match self.pickle.attribute(index, "offset") {
            Some(offset) if !matches!(self.pickle.get(offset), Value::Other) => self.size(offset)?,
            _ => Shape::default(),
        };
        Some((name, first))
    }

    fn place(&mut self, place: Id) -> Option<Place> {
        let pickle = self.pickle;
        let number = |field| pickle.size(pickle.attribute(place, field)?);
        let file = self.files.number(pickle, pickle.attribute(place, "relative_path")?)?;
        let (offset, len) = (number("offset")?, number("length")?);
        let transforms = pickle.attribute(place, "transform_descriptors").and_then(|t| pickle.sequence(t));
        let stored = match transforms {
            Some(&[first, ..]) => {
                let number = self.names.number(pickle, first)?;
                Stored::Transformed(self.names.all[number].clone())
            }
            _ => Stored::Plain { offset, len },
        };
        Some(Place { file, stored })
    }

    fn tensor(&mut self, name: usize, entry: Id, places: &mut Places) -> Option<Tensor> {
        let pickle = self.pickle;
        let properties = pickle.changes(pickle.attribute(entry, "properties")?)?.state?;
        let (module, torch_dtype) = pickle.global(*pickle.sequence(properties)?.first()?)?;
        if module != "torch" || torch_dtype.len() > MAX_DTYPE {
            return None;
        }
        let shape = self.size(pickle.attribute(entry, "size")?)?;
        let stored = pickle.sequence(pickle.attribute(entry, "chunks")?)?;
        self.chunks += stored.len();
        if self.chunks > MAX_CHUNKS {
            return None;
        }
        let mut chunks = Vec::new();
        let mut seen = HashSet::new();
        for &chunk in stored {
            let field = |field| self.size(pickle.attribute(chunk, field)?);
            let (offsets, sizes) = (field("offsets")?, field("sizes")?);
            // One that several ranks have is stored once.
            if seen.insert((offsets.clone(), sizes.clone())) {
                let place = places.get(&(name, offsets.clone())).cloned();
                chunks.push(Chunk { offsets, sizes, place });
            }
        }
        let element_len = elements_of_dtype(torch_dtype).and_then(|e| e.len());
        let (name, torch_dtype) = (self.names.all[name].to_string(), torch_dtype.to_owned());
        Some(Tensor { name, torch_dtype, element_len, shape, chunks })
    }

    /// A `torch.Size`.
    fn size(&self, size: Id) -> Option<Shape> {
        let Value::Object { args, .. } = self.pickle.get(size) else { return None };
        let &[numbers] = self.pickle.sequence(*args)? else { return None };
        // Many chunks may have the same ones.
        let numbers = self.pickle.sequence(numbers).filter(|numbers| numbers.len() <= MAX_DIMENSIONS)?;
        numbers.iter().map(|&n| self.pickle.size(n)).collect()
    }
}

fn too_many() -> Error {
    Error::limit(format!("has more than {MAX_CHUNKS} entries"))
}

#[cfg(test)]
mod tests;
