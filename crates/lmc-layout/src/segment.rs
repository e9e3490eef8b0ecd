//! Segments: the typed and opaque ranges that a file is made of.

mod name;
mod shape;

use std::ops::Range;

pub use self::name::{Name, Names};
pub use self::shape::Shape;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// The most dimensions that a tensor has.
pub const MAX_RANK: usize = 64;

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
    /// Offset of the segment in the raw file, in bytes.
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
        let segment = Self { name, dtype, shape, offset, len };
        segment.check().map(|()| segment)
    }

    /// Whether it is what [`Self::new`] makes: the caller may have changed it.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        let Self { name, dtype, shape, len, .. } = self;
        match (name, dtype) {
            (None, None) if shape.is_empty() => Ok(()),
            (Some(_), &Some(dtype)) if shape.len() <= MAX_RANK && tensor_len(dtype, shape) == Some(*len) => Ok(()),
            (Some(name), Some(dtype)) => {
                let m = format!("{len} bytes are not those of a tensor of {dtype} with the shape {shape:?}");
                Err(Error::usage(m).in_tensor(&**name))
            }
            _ => Err(Error::usage("a tensor has a name and a dtype, and opaque bytes have neither, nor a shape")),
        }
    }

    #[doc(hidden)]
    pub fn opaque(offset: u64, len: u64) -> Self {
        Self { name: None, dtype: None, shape: Shape::default(), offset, len }
    }

    #[doc(hidden)]
    pub fn tensor(name: Name, dtype: Dtype, shape: Shape, offset: u64, len: u64) -> Self {
        Self { name: Some(name), dtype: Some(dtype), shape, offset, len }
    }

    /// End of the segment in the raw file, in bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The bytes of the elements whose first index is in `rows`, from the start of the segment. `None` if it has no such rows, or if they
    /// do not begin and end at whole bytes: elements may have fewer than 8 bits.
    pub fn bytes_of_rows(&self, rows: &Range<u64>) -> Option<Range<u64>> {
        let all = *self.shape.first()?;
        if rows.start > rows.end || rows.end > all {
            return None;
        }
        if self.len == 0 || rows.is_empty() {
            return Some(0..0);
        }
        // The length in bits is a multiple of the number of rows, and 128 bits hold every product.
        let row_bits = u128::from(self.len) * 8 / u128::from(all);
        let byte = |row: u64| {
            let bits = row_bits * u128::from(row);
            (bits % 8 == 0).then_some((bits / 8) as u64)
        };
        Some(byte(rows.start)?..byte(rows.end)?)
    }

    /// Memory of a segment with a name and shape of these lengths in bytes, with its place by name, and the allocator's overhead.
    #[doc(hidden)]
    pub fn cost(name_len: usize, rank: usize) -> usize {
        let dimensions = if rank > Shape::INLINE { 8 * rank + 32 } else { 0 };
        size_of::<Segment>() + name_len + dimensions + 16
    }

    /// [`Self::cost`] of this one.
    #[doc(hidden)]
    pub fn memory(&self) -> usize {
        Self::cost(self.name.as_ref().map_or(0, Name::size), self.shape.len())
    }
}

/// Bytes of a tensor: the product of its dimensions times the bits of its dtype. A tensor without dimensions has one element.
///
/// `None` if that is no whole number of bytes, as elements may have fewer bits than 8, or if a number on the way has more than 64 bits:
/// the product of the dimensions, multiplied from the first one on, or the length in bits. safetensors does not accept such tensors either.
///
/// ```
/// use lmc_layout::dtype::Dtype;
/// use lmc_layout::segment::tensor_len;
/// assert_eq!(tensor_len(Dtype::Bf16, &[2, 3]), Some(12));
/// assert_eq!(tensor_len(Dtype::F32, &[]), Some(4));
/// assert_eq!((tensor_len(Dtype::F4, &[6]), tensor_len(Dtype::F4, &[5])), (Some(3), None));
/// assert_eq!(tensor_len(Dtype::U8, &[1 << 40, 1 << 40, 0]), None);
/// ```
pub fn tensor_len(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let bits = elements.checked_mul(u64::from(dtype.bits()))?;
    (bits % 8 == 0).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_bytes() {
        let tensor = |dtype: Dtype, shape: &[u64], len| Segment::tensor("t".into(), dtype, shape.into(), 0, len);
        let t = tensor(Dtype::Bf16, &[5, 3], 30);
        assert_eq!(t.bytes_of_rows(&(1..3)), Some(6..18));
        assert_eq!(t.bytes_of_rows(&(5..5)), Some(0..0));
        #[allow(clippy::reversed_empty_ranges, reason = "it is one that a caller may give")]
        let reversed = 3..2;
        assert_eq!((t.bytes_of_rows(&(4..6)), t.bytes_of_rows(&reversed)), (None, None));
        assert_eq!(tensor(Dtype::F32, &[], 4).bytes_of_rows(&(0..0)), None);
        assert_eq!(tensor(Dtype::F32, &[9, 0], 0).bytes_of_rows(&(2..7)), Some(0..0));
        let halves = tensor(Dtype::F4, &[4, 3], 6);
        assert_eq!((halves.bytes_of_rows(&(0..2)), halves.bytes_of_rows(&(0..1))), (Some(0..3), None));
    }
}
