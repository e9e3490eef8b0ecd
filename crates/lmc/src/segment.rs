//! Segments: the typed and opaque ranges that a file is made of.

mod name;
mod shape;

pub use self::name::Name;
pub(crate) use self::name::Names;
pub use self::shape::Shape;
use crate::container::index::MAX_RANK;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// A range of the raw file: a tensor, or opaque bytes between tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Name of the tensor; `None` for opaque bytes. Data of a given dtype but no known format is a tensor named "".
    pub name: Option<Name>,
    /// Type of the elements; `None` for opaque bytes.
    pub dtype: Option<Dtype>,
    /// Dimensions, outermost first; empty for a scalar and for opaque bytes.
    pub shape: Shape,
    /// Where the segment starts in the raw file, in bytes.
    pub offset: u64,
    /// Length of the segment in the raw file, in bytes.
    pub len: u64,
}

impl Segment {
    /// Opaque bytes, or a tensor if it has a name and a dtype.
    ///
    /// # Errors
    /// `Usage` when a tensor of that dtype and shape does not have `len` bytes, when it has too many dimensions, or when one of name and
    /// dtype is missing.
    pub fn new(name: Option<Name>, dtype: Option<Dtype>, shape: Shape, offset: u64, len: u64) -> Result<Self> {
        match (name, dtype) {
            (None, None) if shape.is_empty() => Ok(Self::opaque(offset, len)),
            (Some(name), Some(dtype)) if shape.len() <= MAX_RANK && tensor_len(dtype, &shape) == Some(len) => {
                Ok(Self::tensor(name, dtype, shape, offset, len))
            }
            (Some(name), Some(dtype)) => {
                let m = format!("{len} bytes are not those of a tensor of {dtype} with the shape {shape:?}");
                Err(Error::usage(m).in_tensor(&*name))
            }
            _ => Err(Error::usage("a tensor has a name and a dtype, and opaque bytes have neither, nor a shape")),
        }
    }

    pub(crate) fn opaque(offset: u64, len: u64) -> Self {
        Self { name: None, dtype: None, shape: Shape::default(), offset, len }
    }

    pub(crate) fn tensor(name: Name, dtype: Dtype, shape: Shape, offset: u64, len: u64) -> Self {
        Self { name: Some(name), dtype: Some(dtype), shape, offset, len }
    }

    /// End of the segment in the raw file, in bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Memory that a segment with a name and shape of these lengths takes, allocator's overhead included.
    pub(crate) fn cost(name_len: usize, rank: usize) -> usize {
        size_of::<Segment>() + name_len + 8 * rank + 32
    }
}

/// Bytes of a tensor: the product of its dimensions times the bits of its dtype, if that is a whole number of bytes
/// and fits 64 bits.
pub(crate) fn tensor_len(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let bits = elements.checked_mul(u64::from(dtype.bits()))?;
    (bits % 8 == 0).then_some(bits / 8)
}
