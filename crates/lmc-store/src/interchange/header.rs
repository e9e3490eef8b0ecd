//! Headers of safetensors files: those of full checkpoints, and of the files that hold deltas.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The longest header, as that of the safetensors library.
const MAX: u64 = 100_000_000;
/// The entry that is no tensor.
const METADATA: &str = "__metadata__";

/// A header whose tensors cover the rest of the file, as the safetensors library demands.
#[derive(Debug)]
pub(crate) struct Header {
    /// The text that it was parsed from.
    pub(crate) bytes: Vec<u8>,
    /// The strings in it.
    pub(crate) metadata: BTreeMap<String, String>,
    /// By offset.
    pub(crate) tensors: Vec<Entry>,
    json: Map<String, Value>,
    by_name: HashMap<String, usize>,
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    /// Where it is, from the end of the header.
    pub(crate) range: Range<u64>,
}

impl Header {
    /// Reads the header of a file of `len` bytes. `read` fills a buffer from an offset on.
    pub(crate) fn read(len: u64, mut read: impl FnMut(&mut [u8], u64) -> Result<()>) -> Result<Self> {
        let size = match len {
            8.. => {
                let mut size = [0; 8];
                read(&mut size, 0)?;
                u64::from_le_bytes(size)
            }
            _ => return Err(Error::damaged("is no safetensors file: it is shorter than 8 bytes")),
        };
        if size > MAX || size > len - 8 {
            return Err(Error::damaged(format!("is no safetensors file: its header has {size} bytes of {len}")));
        }
        let mut bytes = vec![0; 8 + size as usize];
        read(&mut bytes, 0)?;
        Self::parse(bytes, len).map_err(|why| Error::damaged(format!("has a header of safetensors that {why}")))
    }

    fn parse(bytes: Vec<u8>, len: u64) -> Result<Self, String> {
        let json = bytes.get(8..).unwrap_or_default();
        let json: Map<String, Value> = serde_json::from_slice(json).map_err(|e| format!("is no JSON object: {e}"))?;
        let mut tensors = Vec::with_capacity(json.len());
        let mut metadata = BTreeMap::new();
        for (name, value) in &json {
            if name == METADATA {
                let all = value.as_object().ok_or("has metadata that are no object")?;
                for (key, value) in all {
                    let value = value.as_str().ok_or_else(|| format!("has metadata with {key:?}, which is no text"))?;
                    metadata.insert(key.clone(), value.to_owned());
                }
                continue;
            }
            let entry = entry(name, value).ok_or_else(|| format!("describes the tensor {name:?} wrongly: {value}"))?;
            tensors.push(entry);
        }
        tensors.sort_by_key(|t: &Entry| (t.range.start, t.range.end));
        let data = len - bytes.len() as u64;
        let covered = tensors.iter().try_fold(0, |end, t| (t.range.start == end).then_some(t.range.end));
        if covered != Some(data) {
            return Err(format!("has tensors that do not cover the {data} bytes after it"));
        }
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Ok(Self { bytes, metadata, tensors, json, by_name })
    }

    /// Its length, and the offset of the first tensor.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// The same tensors with other metadata.
    pub(crate) fn with_metadata(&self, metadata: &BTreeMap<String, String>) -> Vec<u8> {
        let mut json = self.json.clone();
        json.remove(METADATA);
        if !metadata.is_empty() {
            json.insert(METADATA.into(), metadata.iter().map(|(k, v)| (k.clone(), Value::from(&v[..]))).collect());
        }
        written(&json)
    }

    /// The header of a file of bytes: names and lengths, in order.
    pub(super) fn of_bytes<'a>(
        tensors: impl IntoIterator<Item = (&'a str, usize)>,
        metadata: &BTreeMap<String, String>,
    ) -> Vec<u8> {
        let mut json = Map::new();
        let mut offset = 0;
        for (name, len) in tensors {
            let value =
                serde_json::json!({ "dtype": "U8", "shape": [len], "data_offsets": [offset, offset + len as u64] });
            json.insert(name.to_owned(), value);
            offset += len as u64;
        }
        json.insert(METADATA.into(), metadata.iter().map(|(k, v)| (k.clone(), Value::from(&v[..]))).collect());
        written(&json)
    }
}

/// A header as a file begins with it: aligned to eight bytes, as the safetensors library does.
fn written(json: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(Value::from(json.clone()).to_string().into_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let size = bytes.len() as u64 - 8;
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes
}

fn entry(name: &str, value: &Value) -> Option<Entry> {
    let dtype = value.get("dtype")?.as_str()?.to_owned();
    let shape = value.get("shape")?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
    let [start, end] = &value.get("data_offsets")?.as_array()?[..] else { return None };
    let range = start.as_u64()?..end.as_u64()?;
    let len = range.end.checked_sub(range.start)?;
    let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let fits = bits_of(&dtype).is_none_or(|bits| elements.checked_mul(bits) == len.checked_mul(8));
    fits.then(|| Entry { name: name.to_owned(), dtype, shape, range })
}

/// Bits of an element, if the type is known.
fn bits_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &[u8]) -> Result<Header> {
        Header::read(file.len() as u64, |buf, at| {
            buf.copy_from_slice(&file[at as usize..at as usize + buf.len()]);
            Ok(())
        })
    }

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend(json.as_bytes());
        file.resize(file.len() + data, 0);
        file
    }

    #[test]
    fn headers_are_read_and_written() {
        let json = r#"{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"__metadata__":{"format":"pt"},
            "a":{"dtype":"NEW","shape":[],"data_offsets":[12,15]},"none":{"dtype":"F32","shape":[0],"data_offsets":[12,12]}}"#;
        let header = read(&file(json, 15)).unwrap();
        let names: Vec<&str> = header.tensors.iter().map(|t| &t.name[..]).collect();
        assert_eq!(names, ["b", "none", "a"]);
        assert_eq!(header.metadata["format"], "pt");
        assert_eq!(header.tensor("a").unwrap().range, 12..15);
        assert_eq!(header.tensor("__metadata__"), None);
        let metadata = BTreeMap::from([("a".to_owned(), "0f".to_owned())]);
        let mut again = header.with_metadata(&metadata);
        assert_eq!(again.len() % 8, 0);
        again.resize(again.len() + 15, 0);
        let again = read(&again).unwrap();
        assert_eq!((again.tensors, again.metadata), (header.tensors, metadata.clone()));
        let mut bytes = Header::of_bytes([("x", 3), ("y", 0), ("a", 4)], &metadata);
        bytes.resize(bytes.len() + 7, 0);
        let bytes = read(&bytes).unwrap();
        assert_eq!((bytes.tensor("a").unwrap().range.clone(), &bytes.metadata), (3..7, &metadata));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let tensor = |entry: &str| format!(r#"{{"a":{{{entry}}}}}"#);
        for (bad, data) in [
            (tensor(r#""dtype":"F32","shape":[1],"data_offsets":[0,4]"#), 5),
            (tensor(r#""dtype":"F32","shape":[1],"data_offsets":[1,5]"#), 5),
            (tensor(r#""dtype":"F32","shape":[2],"data_offsets":[0,4]"#), 4),
            (tensor(r#""dtype":"F32","shape":[1],"data_offsets":[4,0]"#), 4),
            (tensor(r#""dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,4]"#), 4),
            (tensor(r#""dtype":"U8","shape":[-1],"data_offsets":[0,4]"#), 4),
            (tensor(r#""dtype":"U8","shape":[4],"data_offsets":[0,4,8]"#), 4),
            (tensor(r#""shape":[4],"data_offsets":[0,4]"#), 4),
            (r#"{"__metadata__":{"a":1}}"#.into(), 0),
            (r#"{"__metadata__":[]}"#.into(), 0),
            ("[]".into(), 0),
            ("{".into(), 0),
        ] {
            read(&file(&bad, data)).expect_err(&bad);
        }
        for bad in [&b""[..], b"1234567", &[1, 0, 0, 0, 0, 0, 0, 0], &[255; 20]] {
            read(bad).unwrap_err();
        }
    }
}
