//! One block: the unit that is encoded, checked and decoded alone.

pub(crate) mod by_leaf;
pub(crate) mod changes;
pub(crate) mod choose;
pub(crate) mod decode;
pub(crate) mod derived;
pub(crate) mod encode;
mod gather;
pub(crate) mod head;
pub(crate) mod methods;
pub(crate) mod output;
pub(crate) mod ranges;
pub(crate) mod reference;
pub(crate) mod stream;
pub(crate) mod structure;

pub(crate) use derived::Interleaved;
pub use derived::{DerivedFrom, Recipe};
pub use reference::Reference;

use lmc_kernels::predict::optimizer::{MomentStep, Rows, WeightStep};
use lmc_layout::dtype::Dtype;
#[cfg(test)]
use lmc_layout::error::Error;
use lmc_layout::error::Result;

/// A range of a block's raw bytes of one dtype; `None` for opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Of its elements.
    pub dtype: Option<Dtype>,
    /// In bytes.
    pub len: usize,
    /// The prediction of its elements, if there is one.
    pub base: Option<Reference>,
    /// The step of an optimizer that predicts its elements from those of the base, if there is one.
    pub step: Option<Stepped>,
    /// The data in another precision that its elements are derived from, if they are; then it has no base.
    pub derived: Option<DerivedFrom>,
    /// Only extents of one group are in one column.
    pub group: Group,
    /// Where its elements are in a matrix, if that is known.
    pub matrix: Option<Matrix>,
}

/// A step of an optimizer, with its constants, which are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Of second moments.
    Moment(MomentStep),
    /// Of weights.
    Weight(WeightStep),
}

/// A step, and the places of its operands after the first, which is the base: of a second moment the averages of gradients before
/// and after; of a weight the average and the second moment after, and the average before if it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// The step.
    pub step: Step,
    /// The operands.
    pub others: [Option<Reference>; 3],
}

impl Stepped {
    /// The step `pos` bytes further on.
    pub(crate) fn at(self, dtype: Option<Dtype>, pos: u64) -> Self {
        Self { others: self.others.map(|other| other.map(|reference| reference.at(dtype, pos))), ..self }
    }
}

/// Extents that may be in one column, if their types and predictions are alike, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Those without a group of their own.
    #[default]
    Others,
    /// Those of a segment of the file.
    Segment(usize),
    /// One part of a block.
    Part(usize),
    /// Elements of this width in an opaque extent of a block.
    Elements {
        /// The number of the extent in its block.
        extent: usize,
        /// Bytes of an element.
        width: usize,
    },
}

/// A place in a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Elements of a row, at least 1.
    pub row: u64,
    /// Elements before this one.
    pub position: u64,
}

impl Matrix {
    fn rows(self) -> Rows {
        Rows { len: self.row, position: self.position % self.row }
    }
}

#[cfg(test)]
impl Extent {
    /// An extent without a reference.
    pub(crate) fn plain(dtype: Option<Dtype>, len: usize) -> Self {
        Self { dtype, len, base: None, step: None, derived: None, group: Group::Others, matrix: None }
    }
}

/// The source of the raw bytes that a block depends on.
pub trait Origin: Sync {
    /// Fills `buf` with raw bytes of a source (0: this file; i: its i-th base).
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// The bytes, if they are in memory.
    fn slice(&self, source: u32, offset: u64, len: usize) -> Option<&[u8]> {
        _ = (source, offset, len);
        None
    }

    /// Fills `buf` with bytes of this file as they are now, wherever they are in it: it makes no difference to a decoder what they are later.
    fn peek(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(0, offset, buf)
    }

    /// Whether reading bytes in pieces costs no more than reading them at once; not if blocks are decoded for each piece.
    fn reads_pieces(&self, source: u32) -> bool {
        _ = source;
        true
    }
}

/// The origin of blocks without ranges.
#[cfg(test)]
pub(crate) struct Nothing;

#[cfg(test)]
impl Origin for Nothing {
    fn read(&self, source: u32, _: u64, _: &mut [u8]) -> Result<()> {
        Err(match source {
            0 => Error::unsupported("a block depends on earlier bytes of the file, which are not available here"),
            _ => Error::usage("the file is a delta: give the base that it was made from"),
        })
    }
}

#[cfg(test)]
mod tests;
