//! Tensors in memory, presented as the safetensors file that holds them.

use std::collections::BTreeMap;
use std::io;

use lmc::layout::safetensors;
use lmc::{Dtype, ReadAt, Segment};

use crate::error::{Error, Result};

/// A tensor in memory, in a file's byte order: little-endian elements, the last dimension contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name, unique in the file.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: &'a [u64],
    /// Its bytes.
    pub data: &'a [u8],
}

/// A tensor whose bytes are read on demand from any source.
#[derive(Clone, Copy)]
pub struct TensorSource<'a> {
    /// Its name, unique in the file.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: &'a [u64],
    /// Exactly its bytes.
    pub data: &'a dyn ReadAt,
}

/// Tensors that are saved as one `.safetensors` file, byte for byte as the crate `safetensors` writes it. Nothing is copied: the file
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
/// let row = store.open_snapshot(&snapshot)?.read_rows("w", 42..43)?;
/// assert_eq!(row, weights[16_800..17_200]);
/// # Ok::<(), lmc_store::Error>(())
/// ```
pub struct Tensors<'a> {
    /// Bytes before the first tensor.
    header: Vec<u8>,
    /// In the order of the file.
    data: Vec<Placed<'a>>,
    len: u64,
}

/// A tensor in the file.
#[derive(Clone, Copy)]
struct Placed<'a> {
    start: u64,
    len: u64,
    data: Data<'a>,
}

#[derive(Clone, Copy)]
enum Data<'a> {
    Slice(&'a [u8]),
    Source(&'a dyn ReadAt),
}

impl ReadAt for Data<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Data::Slice(bytes) => bytes.read_exact_at(buf, offset),
            Data::Source(source) => source.read_exact_at(buf, offset),
        }
    }

    fn size(&self) -> io::Result<u64> {
        match self {
            Data::Slice(bytes) => bytes.size(),
            Data::Source(source) => source.size(),
        }
    }

    fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match self {
            Data::Slice(bytes) => bytes.slice_at(offset, len),
            Data::Source(source) => source.slice_at(offset, len),
        }
    }
}

/// The order of tensors in a file: widest alignment first, as in `safetensors`.
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

impl<'a> Tensors<'a> {
    /// The file of these tensors, which may be in any order. `metadata` goes to the header (entries are sorted by key).
    ///
    /// # Errors
    /// `Usage` when two have the same name, or when the bytes of one do not fit its dtype and shape; `Limit` when the file would be too
    /// large.
    pub fn new(tensors: &[Tensor<'a>], metadata: Option<&BTreeMap<String, String>>) -> Result<Self> {
        let data = tensors.iter().map(|t| ((t.name, t.dtype, t.shape), Data::Slice(t.data)));
        Self::place(data, metadata)
    }

    /// [`Self::new`] for tensors that are read on demand.
    ///
    /// # Errors
    /// Those of [`Self::new`], and `Io` when a source's size is unknown.
    pub fn of_sources(tensors: &[TensorSource<'a>], metadata: Option<&BTreeMap<String, String>>) -> Result<Self> {
        let data = tensors.iter().map(|t| ((t.name, t.dtype, t.shape), Data::Source(t.data)));
        Self::place(data, metadata)
    }

    /// The bytes of the file before the first tensor.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    fn place(
        tensors: impl ExactSizeIterator<Item = ((&'a str, Dtype, &'a [u64]), Data<'a>)>,
        metadata: Option<&BTreeMap<String, String>>,
    ) -> Result<Self> {
        let mut ranked = Vec::with_capacity(tensors.len());
        for ((name, dtype, shape), data) in tensors {
            let rank = ORDER
                .iter()
                .position(|&d| d == dtype)
                .ok_or_else(|| Error::unsupported(format!("tensor {name:?}: safetensors has no dtype {dtype}")))?;
            let len =
                data.size().map_err(|e| Error::io(format_args!("tensor {name:?}: cannot determine its size"), e))?;
            Segment::new(Some(name.into()), Some(dtype), shape.into(), 0, len).map_err(Error::codec)?;
            ranked.push((rank, name, dtype, shape, len, data));
        }
        ranked.sort_unstable_by_key(|&(rank, name, ..)| (rank, name));
        let described = ranked.iter().map(|&(_, name, dtype, shape, ..)| (name, dtype, shape));
        let header = safetensors::header(described, metadata).map_err(Error::codec)?;
        let mut end = header.len() as u64;
        let mut place = |len, data| {
            end += len;
            Placed { start: end - len, len, data }
        };
        let data = ranked.into_iter().map(|(.., len, data)| place(len, data)).collect();
        Ok(Self { header, data, len: end })
    }

    /// The tensor that holds the byte at an offset beyond the header, and the offset within it.
    fn tensor_at(&self, offset: u64) -> Option<(&Placed<'a>, u64)> {
        // Of tensors with the same start all but the last are empty.
        let last = self.data.partition_point(|p| p.start <= offset).checked_sub(1)?;
        let placed = &self.data[last];
        Some((placed, offset - placed.start)).filter(|&(p, within)| within < p.len)
    }
}

impl ReadAt for Tensors<'_> {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let n = if offset < self.header.len() as u64 {
                let here = &self.header[offset as usize..];
                let n = here.len().min(buf.len());
                buf[..n].copy_from_slice(&here[..n]);
                n
            } else {
                let (placed, within) = self.tensor_at(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
                let n = usize::try_from(placed.len - within).unwrap_or(usize::MAX).min(buf.len());
                placed.data.read_exact_at(&mut buf[..n], within)?;
                n
            };
            (buf, offset) = (&mut buf[n..], offset + n as u64);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        if offset < self.header.len() as u64 {
            return self.header[offset as usize..].get(..len);
        }
        match self.tensor_at(offset) {
            Some((placed, within)) => placed.data.slice_at(within, len),
            None => (len == 0).then_some(&[]),
        }
    }
}

impl std::fmt::Debug for Tensors<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensors").field("tensors", &self.data.len()).field("len", &self.len).finish()
    }
}
