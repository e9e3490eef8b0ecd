//! Tensors in memory, as the file that safetensors writes of them.

use std::collections::{BTreeMap, HashSet};
use std::io;

use lmc::{Dtype, ReadAt, Segment};

use crate::error::{Error, Result};

/// A tensor in memory, as a file has it: elements little-endian, the last dimension contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name, which no other tensor of the file has.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: &'a [u64],
    /// Its bytes.
    pub data: &'a [u8],
}

/// Tensors in memory that are saved as one `.safetensors` file, byte for byte what the crate of that name writes of them. Nothing is copied: the file
/// exists only as it is read.
///
/// ```
/// use lmc_store::{Input, Location, SaveOptions, Store, Tensor, Tensors};
/// let weights: Vec<u8> = (0..10_000).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
/// let tensor = Tensor { name: "w", dtype: lmc::Dtype::F32, shape: &[100, 100], data: &weights };
/// let tensors = Tensors::new(&[tensor], None)?;
/// let store = Store::create(&Location::Memory, Default::default())?;
/// let snapshot =
///     store.save(&[Input::new("model.safetensors", &tensors)], None, Default::default(), &SaveOptions::default())?;
/// let mut row = [0; 400];
/// store.open_snapshot(&snapshot)?.read_rows_into("w", 42..43, &mut row)?;
/// assert_eq!(row, weights[16_800..17_200]);
/// # Ok::<(), lmc_store::Error>(())
/// ```
pub struct Tensors<'a> {
    /// Up to the first tensor.
    header: Vec<u8>,
    /// Where each starts, in order, and its bytes.
    data: Vec<(u64, &'a [u8])>,
    len: u64,
}

/// The order of tensors in a file: widest alignment first, as safetensors has its dtypes.
const ORDER: [Dtype; 22] = [
    Dtype::U64,
    Dtype::I64,
    Dtype::F64,
    Dtype::C64,
    Dtype::F32,
    Dtype::U32,
    Dtype::I32,
    Dtype::Bf16,
    Dtype::F16,
    Dtype::U16,
    Dtype::I16,
    Dtype::F8E5M2Fnuz,
    Dtype::F8E4M3Fnuz,
    Dtype::F8E8M0,
    Dtype::F8E4M3,
    Dtype::F8E5M2,
    Dtype::I8,
    Dtype::U8,
    Dtype::F6E3M2,
    Dtype::F6E2M3,
    Dtype::F4,
    Dtype::Bool,
];

/// The largest header that readers of safetensors accept.
const MAX_HEADER: usize = 100_000_000;
/// What the header names the metadata by; no tensor can have this name.
const METADATA: &str = "__metadata__";

impl<'a> Tensors<'a> {
    /// The file of these tensors. They may come in any order; `metadata` is for readers of the file (several entries are written in the order of their keys).
    ///
    /// # Errors
    /// `Usage` when two have the same name, or one has not the bytes that its dtype and shape take; `Limit` when there are too many.
    pub fn new(tensors: &[Tensor<'a>], metadata: Option<&BTreeMap<String, String>>) -> Result<Self> {
        let mut ranked = Vec::with_capacity(tensors.len());
        let mut names = HashSet::new();
        for t in tensors {
            if t.name == METADATA || !names.insert(t.name) {
                return Err(Error::usage(format!("two tensors, or one and the metadata, are named {:?}", t.name)));
            }
            let rank = ORDER.iter().position(|&d| d == t.dtype).ok_or_else(|| {
                Error::unsupported(format!("tensor {:?}: safetensors has no dtype {}", t.name, t.dtype))
            })?;
            Segment::new(Some(t.name.into()), Some(t.dtype), t.shape.into(), 0, t.data.len() as u64)
                .map_err(Error::codec)?;
            ranked.push((rank, t));
        }
        ranked.sort_unstable_by_key(|&(rank, t)| (rank, t.name));
        let mut entries = Vec::with_capacity(tensors.len() + 1);
        entries.extend(metadata.map(|m| format!("\"{METADATA}\":{}", json(m))));
        let mut at = 0u64;
        let mut data = Vec::with_capacity(tensors.len());
        for (_, t) in &ranked {
            let end = at + t.data.len() as u64;
            let (name, dtype, shape) = (json(t.name), t.dtype, json(t.shape));
            entries.push(format!(r#"{name}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{end}]}}"#));
            data.push((at, t.data));
            at = end;
        }
        let mut text = format!("{{{}}}", entries.join(",")).into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        if text.len() > MAX_HEADER {
            return Err(Error::limit(format!(
                "the header of the file has {} bytes, and readers accept {MAX_HEADER}: save fewer tensors in one file",
                text.len()
            )));
        }
        let header = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        let start = header.len() as u64;
        data.iter_mut().for_each(|(at, _)| *at += start);
        Ok(Self { header, data, len: start + at })
    }

    /// What is at an offset of the file, as far as it is in one place; empty beyond the end.
    fn at(&self, offset: u64) -> &[u8] {
        if offset < self.header.len() as u64 {
            return &self.header[offset as usize..];
        }
        // Of tensors that start at the same place all but the last are empty.
        match self.data.partition_point(|&(start, _)| start <= offset).checked_sub(1).map(|i| self.data[i]) {
            Some((start, data)) => usize::try_from(offset - start).ok().and_then(|n| data.get(n..)).unwrap_or_default(),
            None => &[],
        }
    }
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("JSON has strings and numbers")
}

impl ReadAt for Tensors<'_> {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let here = self.at(offset);
            if here.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let n = here.len().min(buf.len());
            let (to, rest) = buf.split_at_mut(n);
            to.copy_from_slice(&here[..n]);
            (buf, offset) = (rest, offset + n as u64);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.at(offset).get(..len)
    }
}

impl std::fmt::Debug for Tensors<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensors").field("tensors", &self.data.len()).field("len", &self.len).finish()
    }
}
