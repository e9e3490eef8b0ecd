//! Dimensions of tensors. Up to two, as in nearly all tensors, are stored inline.

use std::fmt;
use std::ops::Deref;

use smallvec::SmallVec;

/// The dimensions of a tensor, outermost first.
#[derive(Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[u64; Shape::INLINE]>);

/// The derived implementation would clone element by element.
impl Clone for Shape {
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl Shape {
    /// Dimensions that take no further memory.
    #[doc(hidden)]
    pub const INLINE: usize = 2;

    #[doc(hidden)]
    pub fn push(&mut self, dimension: u64) {
        self.0.push(dimension);
    }

    #[doc(hidden)]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for Shape {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl From<&[u64]> for Shape {
    fn from(dimensions: &[u64]) -> Self {
        Self(dimensions.into())
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dimensions: [u64; N]) -> Self {
        Self(SmallVec::from_slice(&dimensions))
    }
}

impl FromIterator<u64> for Shape {
    fn from_iter<I: IntoIterator<Item = u64>>(dimensions: I) -> Self {
        Self(dimensions.into_iter().collect())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
