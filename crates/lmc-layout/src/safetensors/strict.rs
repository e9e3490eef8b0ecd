//! Headers of files that are read as their header says.

use super::header;
use super::start::header_len;
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Segment, tensor_len};
use crate::suggestion::MAX_COST;

/// The header of a safetensors file, whose tensors cover the rest of the file.
///
/// ```
/// use lmc_layout::safetensors::{Header, header, header_len};
/// let mut file = header([("w", lmc_layout::dtype::Dtype::U8, &[2, 2][..])], None)?;
/// file.extend([1, 2, 3, 4]);
/// assert_eq!(header_len(&file), Some(file.len() as u64 - 4));
/// let header = Header::parse(&file, file.len() as u64).unwrap();
/// let w = &header.tensors[0];
/// assert_eq!(file[w.offset as usize..w.end() as usize], [1, 2, 3, 4]);
/// assert!(Header::parse(&file, file.len() as u64 + 1).unwrap_err().contains("the tensors end at byte"));
/// # Ok::<(), lmc_layout::error::Error>(())
/// ```
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// The tensors, in the order of their bytes. Each has a name and a dtype.
    pub tensors: Vec<Segment>,
    /// The `__metadata__`, in the order of the header, if there are any.
    pub metadata: Option<Vec<(String, String)>>,
    /// Its bytes with the length before it: the offset of the first tensor.
    pub len: u64,
}

impl Header {
    /// Parses the header of a file of `size` bytes, which begins with `start`: at least the bytes that [`header_len`] says, as far as the
    /// file has them.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub fn parse(start: &[u8], size: u64) -> Result<Self, String> {
        let len = header_len(start).ok_or("it does not begin as a safetensors file does")?;
        if len > size {
            return Err(format!("it would end at byte {len}, but the file has {size} bytes: it was truncated"));
        }
        let json = start.get(8..len as usize).ok_or("the file ends before it does")?;
        let header::Parsed { mut entries, sorted, metadata } = header::parse(json, MAX_COST, true)?;
        if !sorted {
            unique(entries.iter().filter_map(|t| t.name.as_deref()))?;
        }
        unique(metadata.iter().flatten().map(|(key, _)| &key[..]))?;
        for t in &mut entries {
            t.offset = t.offset.saturating_add(len);
            check(t)?;
        }
        entries.sort_by_key(|t| (t.offset, t.len));
        let mut end = len;
        for t in &entries {
            if t.offset != end {
                return Err(format!("tensor {:?} begins at byte {} of the file, not at {end}", name(t), t.offset));
            }
            end = end.saturating_add(t.len);
        }
        match end == size {
            true => Ok(Self { tensors: entries, metadata, len }),
            false => Err(format!("the tensors end at byte {end}, but the file has {size} bytes")),
        }
    }
}

fn name(t: &Segment) -> &str {
    t.name.as_deref().unwrap_or_default()
}

/// Checks that dtype, shape and length of a tensor fit each other.
fn check(t: &Segment) -> Result<(), String> {
    let name = name(t);
    match t.dtype {
        None => Err(format!("tensor {name:?}: its dtype is unknown")),
        Some(Dtype::Named(named)) => Err(format!("tensor {name:?}: its dtype {:?} is unknown", named.name())),
        Some(_) if t.shape.len() > MAX_RANK => Err(format!("tensor {name:?} has more than {MAX_RANK} dimensions")),
        // Other libraries have signed ones.
        Some(dtype) if tensor_len(dtype, &t.shape) == Some(t.len) && t.shape.iter().all(|&n| n <= i64::MAX as u64) => {
            Ok(())
        }
        Some(_) => Err(format!("tensor {name:?}: its dtype, shape and offsets do not fit")),
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut names: Vec<&str> = names.collect();
    names.sort();
    match names.windows(2).find(|two| two[0] == two[1]) {
        None => Ok(()),
        Some(twice) => Err(format!("the name {:?} occurs twice", twice[0])),
    }
}
