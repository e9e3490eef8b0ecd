//! Headers of safetensors files: those of full checkpoints, and of the files that hold deltas.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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
        let Listed { mut tensors, metadata } =
            serde_json::from_slice(json).map_err(|e| format!("is not valid: {e}"))?;
        if let Some(Entry { name, dtype, range, .. }) = tensors.iter().find(|t| !t.has_its_length()) {
            return Err(format!(
                "says that the tensor {name:?} of type {dtype:?} has bytes {range:?}, which is not the length of its shape"
            ));
        }
        tensors.sort_by_key(|t: &Entry| (t.range.start, t.range.end));
        let data = len - bytes.len() as u64;
        let covered = tensors.iter().try_fold(0, |end, t| (t.range.start == end).then_some(t.range.end));
        if covered != Some(data) {
            return Err(format!("has tensors that do not cover the {data} bytes after it"));
        }
        let mut names: Vec<&str> = tensors.iter().map(|t| &t.name[..]).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("names the tensor {:?} twice", twice[0]));
        }
        Ok(Self { bytes, metadata, tensors })
    }

    /// Its length, and the offset of the first tensor.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The same tensors with other metadata.
    pub(crate) fn with_metadata(&self, metadata: &BTreeMap<String, String>) -> Vec<u8> {
        let mut items: BTreeMap<&str, Item<'_>> = BTreeMap::new();
        for Entry { name, dtype, shape, range } in &self.tensors {
            items.insert(name, Item::Tensor { data_offsets: [range.start, range.end], dtype, shape });
        }
        if !metadata.is_empty() {
            items.insert(METADATA, Item::Metadata(metadata));
        }
        written(&items)
    }

    /// The header of a file of bytes: names and lengths, in order.
    pub(super) fn of_bytes<'a>(
        tensors: impl IntoIterator<Item = (&'a str, usize)>,
        metadata: &BTreeMap<String, String>,
    ) -> Vec<u8> {
        let tensors: Vec<(&str, [u64; 1])> = tensors.into_iter().map(|(name, len)| (name, [len as u64])).collect();
        let mut items = BTreeMap::new();
        let mut offset = 0;
        for (name, shape) in &tensors {
            let data_offsets = [offset, offset + shape[0]];
            items.insert(*name, Item::Tensor { data_offsets, dtype: "U8", shape });
            offset += shape[0];
        }
        items.insert(METADATA, Item::Metadata(metadata));
        written(&items)
    }
}

/// An entry of a header.
#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Tensor { data_offsets: [u64; 2], dtype: &'a str, shape: &'a [u64] },
    Metadata(&'a BTreeMap<String, String>),
}

/// A header as a file begins with it: aligned to eight bytes, as the safetensors library does.
fn written(items: &BTreeMap<&str, Item<'_>>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, items).expect("text can be written to memory");
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let size = bytes.len() as u64 - 8;
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes
}

impl Entry {
    /// Whether its range has the bytes that its shape needs, as far as the type is known.
    fn has_its_length(&self) -> bool {
        let Some(len) = self.range.end.checked_sub(self.range.start) else { return false };
        let Some(elements) = self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)) else { return false };
        let bits = self.dtype.parse::<lmc::Dtype>().map(|d| u64::from(d.bits()));
        bits.map_or(true, |bits| elements.checked_mul(bits) == len.checked_mul(8))
    }
}

/// What a header lists, as its JSON is read: a tree of it would take many times its length.
struct Listed {
    tensors: Vec<Entry>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Described {
            dtype: String,
            shape: Vec<u64>,
            data_offsets: (u64, u64),
        }

        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Listed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
                let mut listed = Listed { tensors: vec![], metadata: BTreeMap::new() };
                while let Some(name) = map.next_key::<String>()? {
                    let of = |e| A::Error::custom(format_args!("{name:?}: {e}"));
                    if name == METADATA {
                        listed.metadata = map.next_value().map_err(of)?;
                        continue;
                    }
                    let Described { dtype, shape, data_offsets: (start, end) } = map.next_value().map_err(of)?;
                    listed.tensors.push(Entry { name, dtype, shape, range: start..end });
                }
                Ok(listed)
            }
        }

        deserializer.deserialize_map(All)
    }
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
        assert_eq!(header.tensors[2].range, 12..15);
        let metadata = BTreeMap::from([("a".to_owned(), "0f".to_owned())]);
        let mut again = header.with_metadata(&metadata);
        assert_eq!(again.len() % 8, 0);
        again.resize(again.len() + 15, 0);
        let again = read(&again).unwrap();
        assert_eq!((again.tensors, again.metadata), (header.tensors, metadata.clone()));
        let mut bytes = Header::of_bytes([("x", 3), ("y", 0), ("a", 4)], &metadata);
        bytes.resize(bytes.len() + 7, 0);
        let bytes = read(&bytes).unwrap();
        assert_eq!((bytes.tensors[2].range.clone(), &bytes.metadata), (3..7, &metadata));
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
            (tensor(r#""dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[0,4]"#), 4),
            (tensor(r#""dtype":"F8_E5M2FNUZ","shape":[2],"data_offsets":[0,4]"#), 4),
            (
                tensor(
                    r#""dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]"#,
                ),
                0,
            ),
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
