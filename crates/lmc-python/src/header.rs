//! The header of a safetensors file.
//!
//! A file is rejected whenever safetensors rejects it: bytes that belong to no tensor, or to two, could be interpreted differently by
//! another reader. (The layout detection for cutting blocks is only a heuristic, and less strict.)

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use lmc::{Dtype, Shape, tensor_len};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::dlpack::bytes_of;
use crate::errors::{Failure, Result};
use crate::info::Tensor;
use crate::memory::BLOCK;
use crate::numbers::Above;

const MAX_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";
const TWICE: &str = "a name occurs twice";
/// Length limit of the reason in an error: it may contain long names.
const MAX_REASON: usize = 200;

/// A tensor of a file; `offset` and `nbytes` locate it in the file.
pub(crate) struct Entry {
    /// Index of its name.
    name: Range<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    pub(crate) offset: u64,
    pub(crate) nbytes: u64,
}

impl Entry {
    /// Whether `File.read_small` reads it: it has at most `limit` bytes, and a dtype that DLPack has.
    pub(crate) fn is_small(&self, limit: u64) -> bool {
        let sizes = 1..=limit.min(BLOCK as u64);
        sizes.contains(&self.nbytes) && bytes_of(self.dtype, &self.shape) == usize::try_from(self.nbytes).ok()
    }
}

/// The contents of a safetensors header. Python objects are created on demand: those of many tensors would keep the garbage collector busy.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct Header {
    /// In the order of their bytes.
    pub(crate) tensors: Vec<Entry>,
    /// Names of all tensors, concatenated: one allocation per tensor would take longer than parsing.
    names: String,
    /// In the order of the file.
    metadata: Option<Vec<(String, String)>>,
}

impl Header {
    pub(crate) fn name(&self, t: &Entry) -> &str {
        &self.names[t.name.clone()]
    }
}

#[pymethods]
impl Header {
    /// Names of the tensors, in the order of their bytes.
    fn names(&self) -> Vec<&str> {
        self.tensors.iter().map(|t| self.name(t)).collect()
    }

    /// The distinct dtypes.
    fn dtypes(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.tensors.iter().map(|t| t.dtype.name()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The tensors in the order of their bytes; with `above` only those that `File.read_small` does not read.
    #[pyo3(signature = (above=None))]
    fn tensors(&self, py: Python<'_>, above: Option<Above>) -> Vec<Tensor> {
        let wanted = |t: &&Entry| above.is_none_or(|Above(limit)| !t.is_small(limit));
        let tensor = |t: &Entry| Tensor {
            name: PyString::new(py, self.name(t)).unbind(),
            dtype: t.dtype,
            shape: t.shape.clone(),
            offset: t.offset,
            nbytes: t.nbytes,
        };
        self.tensors.iter().filter(wanted).map(tensor).collect()
    }

    /// The `__metadata__`, if there is any.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let pairs = |m: &Vec<(String, String)>| m.iter().map(|(k, v)| (k, v)).into_py_dict(py);
        self.metadata.as_ref().map(pairs).transpose()
    }

    fn __len__(&self) -> usize {
        self.tensors.len()
    }
}

/// Parses the header of the file `of`, of `size` bytes. Reading its first `at_once` bytes takes as long as reading one.
///
/// # Errors
/// `UnsupportedError` when it is not a safetensors file, `DamagedError` when it is invalid; those of `read_range`.
pub(crate) fn read(
    of: &str,
    size: u64,
    at_once: u64,
    read_range: impl Fn(u64, usize) -> Result<Vec<u8>>,
) -> Result<Header> {
    let none =
        || Failure::Other("UnsupportedError", format!("{of}: is not a safetensors file; lmc.open reads any file"));
    let start = read_range(0, size.min(at_once.clamp(9, MAX_HEADER)) as usize)?;
    let (length, text) = start.split_first_chunk().ok_or_else(none)?;
    let length = u64::from_le_bytes(*length);
    if length == 0 || length > MAX_HEADER || text.first() != Some(&b'{') {
        return Err(none());
    }
    let parsed = if length > size - 8 {
        Err(format!("its length is given as {length} bytes, but the file has {size}: it was truncated"))
    } else {
        let parsed = match text.get(..length as usize) {
            Some(all) => parse(all),
            None => parse(&read_range(8, length as usize)?),
        };
        parsed.and_then(|header| check(header, 8 + length, size))
    };
    parsed.map_err(|mut why| {
        if let Some((end, _)) = why.char_indices().nth(MAX_REASON) {
            why.truncate(end);
            why.push('…');
        }
        Failure::Other("DamagedError", format!("{of}: the header of the safetensors file is invalid: {why}"))
    })
}

fn parse(text: &[u8]) -> Result<Header, String> {
    let Parsed(header) = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    // Tensors come sorted, or in a few sorted runs.
    let mut names: Vec<&str> = header.tensors.iter().map(|t| header.name(t)).collect();
    names.sort();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return Err(TWICE.to_owned());
    }
    Ok(header)
}

/// Converts offsets from the end of the header to offsets in the file. Tensors must cover the rest of the file.
fn check(mut header: Header, start: u64, size: u64) -> Result<Header, String> {
    header.tensors.iter_mut().for_each(|t| t.offset = t.offset.saturating_add(start));
    header.tensors.sort_by_key(|t| (t.offset, t.nbytes));
    let mut end = start;
    for t in &header.tensors {
        if t.offset != end {
            let name = header.name(t);
            return Err(format!("tensor {name:?} begins at byte {} of the file, not at {end}", t.offset));
        }
        end = end.saturating_add(t.nbytes);
    }
    if end != size {
        return Err(format!("the tensors end at byte {end}, but the file has {size} bytes"));
    }
    Ok(header)
}

/// A parsed header, with offsets as in the file.
struct Parsed(Header);

/// The entry of a tensor. Unknown fields are ignored.
#[derive(Deserialize)]
struct Field<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Dimensions,
    data_offsets: (u64, u64),
}

struct Dimensions(Shape);

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl<'de> Visitor<'de> for Numbers {
            type Value = Dimensions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dimensions, A::Error> {
                let dimensions = std::iter::from_fn(|| seq.next_element().transpose());
                dimensions.collect::<Result<_, _>>().map(Dimensions)
            }
        }

        from.deserialize_seq(Numbers)
    }
}

/// Text that is borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Field<'_> {
    /// `None` if it is inconsistent.
    fn entry(self, name: Range<usize>) -> Option<Entry> {
        let dtype: Dtype = self.dtype.parse().ok()?;
        let (offset, end) = self.data_offsets;
        let nbytes = end.checked_sub(offset)?;
        let Dimensions(shape) = self.shape;
        let fits = tensor_len(dtype, &shape) == Some(nbytes) && i64::try_from(end).is_ok();
        let signed = shape.iter().all(|&n| i64::try_from(n).is_ok());
        (fits && signed).then_some(Entry { name, dtype, shape, offset, nbytes })
    }
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Parsed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let (mut tensors, mut names, mut metadata) = (Vec::new(), String::new(), None);
                while let Some(Key(name)) = map.next_key()? {
                    if name != METADATA {
                        let place = names.len()..names.len() + name.len();
                        names.push_str(&name);
                        let entry = map.next_value::<Field<'_>>()?.entry(place);
                        tensors.push(entry.ok_or_else(|| {
                            A::Error::custom(format_args!("tensor {name:?}: its dtype, shape and offsets do not fit"))
                        })?);
                    } else if metadata.replace(map.next_value::<Option<Text>>()?).is_some() {
                        return Err(A::Error::custom(TWICE));
                    }
                }
                let metadata = metadata.flatten();
                Ok(Parsed(Header { tensors, names, metadata: metadata.map(|Text(pairs)| pairs) }))
            }
        }

        from.deserialize_map(Fields)
    }
}

/// An object of strings.
struct Text(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
                let (mut pairs, mut keys) = (Vec::new(), HashSet::new());
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if !keys.insert(key.clone()) {
                        return Err(A::Error::custom(TWICE));
                    }
                    pairs.push((key, value));
                }
                Ok(Text(pairs))
            }
        }

        from.deserialize_map(Pairs)
    }
}
