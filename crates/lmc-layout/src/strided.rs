//! Tensors as views of a file: their elements are in order, or have strides.

use crate::dtype::Dtype;
use crate::segment::{Segment, Shape};

/// Where in a file the elements of a tensor, or of a chunk of one, are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elements {
    /// The first byte of the first element.
    pub offset: u64,
    /// Bytes from there to the end of the last element.
    pub len: u64,
    /// How many elements it is from one index to the next, in each dimension; `None` if they are in order, the last dimension contiguous.
    pub strides: Option<Shape>,
}

impl Elements {
    /// `len` bytes from `offset` on, in order.
    fn in_order(offset: u64, len: u64) -> Self {
        Self { offset, len, strides: None }
    }

    /// Those of a tensor in `stored` bytes of a storage at `offset`: elements of `width` bytes, from the one with the number `first` on.
    /// `None` if the storage ends before.
    pub(super) fn of_storage(
        (offset, stored): (u64, u64),
        width: u64,
        first: u64,
        shape: &[u64],
        strides: &Shape,
    ) -> Option<Self> {
        // Torch places one without elements anywhere.
        if shape.contains(&0) {
            return Some(Self::in_order(offset, 0));
        }
        let mut dimensions = shape.iter().zip(&strides[..]);
        let last = dimensions.try_fold(0u64, |last, (&n, &stride)| last.checked_add((n - 1).checked_mul(stride)?))?;
        let span = last.checked_add(1)?;
        let (start, len) = (first.checked_mul(width)?, span.checked_mul(width)?);
        if start.checked_add(len)? > stored {
            return None;
        }
        let strides = (!is_contiguous(shape, strides)).then(|| strides.clone());
        Some(Self { offset: offset + start, len, strides })
    }
}

/// A tensor of a file, under one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorView {
    /// Its name.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// Bytes of the tensor in order: more than `elements.len` if it repeats elements.
    pub len: u64,
    /// Where its elements are. Strides of FP4 count bytes, which are pairs of elements in the last dimension.
    pub elements: Elements,
}

impl TensorView {
    /// The shape that the strides are of, and the bytes of what they count.
    pub fn strided_shape(&self) -> (Shape, usize) {
        let shape = match (self.dtype, self.shape.split_last()) {
            (Dtype::F4, Some((last, rest))) => rest.iter().copied().chain([last / 2]).collect(),
            _ => self.shape.clone(),
        };
        (shape, self.dtype.bits().div_ceil(8) as usize)
    }

    /// The tensor that a segment is; `None` for opaque bytes.
    pub(super) fn of_segment(segment: &Segment) -> Option<Self> {
        let Segment { name, dtype, shape, offset, len, .. } = segment;
        let elements = Elements::in_order(*offset, *len);
        Some(Self { name: name.as_deref()?.to_owned(), dtype: (*dtype)?, shape: shape.clone(), len: *len, elements })
    }
}

/// Whether the last dimension's stride is 1, and that of each other one the elements of the next; those of length 1 have any.
pub(super) fn is_contiguous(shape: &[u64], strides: &[u64]) -> bool {
    let mut step = 1u64;
    shape.iter().zip(strides).rev().filter(|&(&n, _)| n != 1).all(|(&n, &stride)| {
        let right = stride == step;
        step = step.saturating_mul(n);
        right
    }) || shape.contains(&0)
}
