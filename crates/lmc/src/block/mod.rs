//! One block: the unit that is encoded, checked and decoded alone.

pub(crate) mod choose;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod head;
pub(crate) mod output;
pub(crate) mod plan;

use crate::dtype::Dtype;

/// A stretch of a block's raw bytes with one type. `None` is opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) dtype: Option<Dtype>,
    pub(crate) len: usize,
}

#[cfg(test)]
mod tests;
