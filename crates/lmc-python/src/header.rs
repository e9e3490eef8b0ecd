//! The header of a safetensors file: what it holds, and where.
//!
//! A file is refused for what safetensors refuses it: bytes that belong to no tensor, or to two, could mean something else to another reader.
//! (The layout that blocks are cut by is a suggestion, and less strict.)

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
const TWICE: &str = "a name is there twice";
/// Characters of the reason in an error: names can have any number.
const MAX_REASON: usize = 200;

/// A tensor of a file: `offset` and `nbytes` say where in the file it is.
pub(crate) struct Entry {
    /// Where it stands among the names.
    name: Range<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    pub(crate) offset: u64,
    pub(crate) nbytes: u64,
}

impl Entry {
    /// Whether `File.read_small` reads it: it has at most `limit` bytes, and is of a dtype that DLPack has.
    pub(crate) fn is_small(&self, limit: u64) -> bool {
        let sizes = 1..=limit.min(BLOCK as u64);
        sizes.contains(&self.nbytes) && bytes_of(self.dtype, &self.shape) == usize::try_from(self.nbytes).ok()
    }
}

/// What the header of a safetensors file says. Objects of Python are made of it as they are asked for: of many tensors they keep the garbage collector
/// busy.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct Header {
    /// In the order of their bytes.
    pub(crate) tensors: Vec<Entry>,
    /// Those of the tensors, one after the other: with many tensors, memory for each takes longer than to read it.
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

    /// The dtypes that there are, each once.
    fn dtypes(&self) -> Vec<&'static str> {
        let mut all: Vec<_> = self.tensors.iter().map(|t| t.dtype.name()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The tensors in the order of their bytes; with `above` those alone that `File.read_small` leaves to others.
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

/// Reads the header of the file `of`, which has `size` bytes, of which the first `at_once` take as long to read as one.
///
/// # Errors
/// `UnsupportedError` when it is no safetensors file, `DamagedError` when it is a wrong one; those of `read_range`.
pub(crate) fn read(
    of: &str,
    size: u64,
    at_once: u64,
    read_range: impl Fn(u64, usize) -> Result<Vec<u8>>,
) -> Result<Header> {
    let none = || Failure::Other("UnsupportedError", format!("{of}: is no safetensors file; lmc.open reads any"));
    let start = read_range(0, size.min(at_once.clamp(9, MAX_HEADER)) as usize)?;
    let (length, text) = start.split_first_chunk().ok_or_else(none)?;
    let length = u64::from_le_bytes(*length);
    if length == 0 || length > MAX_HEADER || text.first() != Some(&b'{') {
        return Err(none());
    }
    let parsed = if length > size - 8 {
        Err(format!("it says that it has {length} bytes, and the file has {size}: it was cut off"))
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
        Failure::Other("DamagedError", format!("{of}: the header of the safetensors file is wrong: {why}"))
    })
}

fn parse(text: &[u8]) -> Result<Header, String> {
    let Parsed(header) = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    // They come sorted, or in a few stretches that are.
    let mut names: Vec<&str> = header.tensors.iter().map(|t| header.name(t)).collect();
    names.sort();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return Err(TWICE.to_owned());
    }
    Ok(header)
}

/// Places tensors, which come with offsets from the end of the header, in the file; they are to cover the rest of it.
fn check(mut header: Header, start: u64, size: u64) -> Result<Header, String> {
    header.tensors.iter_mut().for_each(|t| t.offset = t.offset.saturating_add(start));
    header.tensors.sort_by_key(|t| (t.offset, t.nbytes));
    let mut end = start;
    for t in &header.tensors {
        if t.offset != end {
            let name = header.name(t);
            return Err(format!("tensor {name:?} begins at byte {} of the file and not at {end}", t.offset));
        }
        end = end.saturating_add(t.nbytes);
    }
    if end != size {
        return Err(format!("the tensors end at byte {end}, and the file has {size}"));
    }
    Ok(header)
}

/// A header, with offsets as they are in it.
struct Parsed(Header);

/// What the header says of a tensor. What else it may say is of no meaning.
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

/// Text that is not copied unless something in it is escaped.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Field<'_> {
    /// `None` if it makes no sense.
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
