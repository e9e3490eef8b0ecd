//! What tensors in another precision are derived from, and the ranges of the data that a part of one needs.

use super::reference::Reference;
use crate::format::bases::SourceRange;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::derived::{BLOCK, BlockType, Codes, Number, Scales};
use lmc_kernels::predict::grid::Groups;
use lmc_layout::dtype::Dtype;

/// How a tensor follows from another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recipe {
    /// Its elements are those of the other one, converted. (Without moved rows, that is a reference.)
    Cast(Conversion),
    /// It has codes, and the scales of its groups are elsewhere. The position of the groups is that of the whole tensor: 0.
    Codes {
        /// How they are computed.
        codes: Codes,
        /// Of its elements.
        groups: Groups,
        /// The scales.
        scales: Reference,
        /// Whether a column has a copy of its own of them.
        in_column: bool,
    },
    /// It has the scales of consecutive groups.
    Scales(Scales),
    /// It has blocks with fields.
    Blocks(BlockType, Number),
}

/// Rows that stand in another order than in the data: llama.cpp puts the halves of each attention head together, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleaved {
    /// Elements of a row.
    pub row: u64,
    /// Rows of a head, an even number.
    pub head: u64,
}

/// What a tensor is derived from, from one of its elements on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DerivedFrom {
    /// How.
    pub recipe: Recipe,
    /// 0: this file; i: its i-th base.
    pub source: u32,
    /// Where the data begin, in raw bytes of the source.
    pub offset: u64,
    /// If its rows stand in another order.
    pub interleaved: Option<Interleaved>,
    /// The number of the element in the tensor.
    pub element: u64,
}

impl DerivedFrom {
    /// From `pos` bytes further on in a tensor of this dtype.
    pub(crate) fn at(self, dtype: Option<Dtype>, pos: u64) -> Self {
        Self { element: self.element + self.elements(dtype, pos), ..self }
    }

    /// Elements of so many bytes of a tensor of this dtype.
    fn elements(&self, dtype: Option<Dtype>, len: u64) -> u64 {
        match self.recipe {
            Recipe::Codes { codes, .. } => len * codes.of_byte() as u64,
            Recipe::Blocks(..) => len * BLOCK as u64 * 8 / u64::from(dtype.map_or(8, Dtype::bits)),
            Recipe::Cast(_) | Recipe::Scales(_) => len / dtype.map_or(1, Dtype::coding_width) as u64,
        }
    }

    /// The conversion of the elements, if they are nothing else.
    pub(in crate::block) fn conversion(&self) -> Option<Conversion> {
        if let Recipe::Cast(conversion) = self.recipe { Some(conversion) } else { None }
    }

    /// Bytes of an element of the data.
    fn width(&self, dtype: Option<Dtype>) -> u64 {
        let from = match self.recipe {
            Recipe::Cast(conversion) => {
                let width = dtype.map_or(1, Dtype::coding_width);
                return conversion.source_width(width).unwrap_or(width) as u64;
            }
            Recipe::Codes { codes, .. } => codes.from,
            Recipe::Scales(scales) => scales.from,
            Recipe::Blocks(_, from) => from,
        };
        from.width() as u64
    }

    /// Calls `each` with the ranges of the data of `len` bytes of a tensor of this dtype from here on, in order.
    pub(crate) fn data(&self, dtype: Option<Dtype>, len: u64, mut each: impl FnMut(SourceRange)) {
        let group = if let Recipe::Scales(scales) = self.recipe { scales.group as u64 } else { 1 };
        let (first, n) = (self.element * group, self.elements(dtype, len) * group);
        let width = self.width(dtype);
        let mut push = |element: u64, n: u64| {
            each(SourceRange { source: self.source, offset: self.offset + element * width, len: n * width });
        };
        let Some(Interleaved { row, head }) = self.interleaved else { return push(first, n) };
        let (mut at, end) = (first, first + n);
        while at < end {
            let (number, column) = (at / row, at % row);
            let (of_head, within) = (number / head * head, number % head);
            let n = (row - column).min(end - at);
            push((of_head + within % 2 * (head / 2) + within / 2) * row + column, n);
            at += n;
        }
    }

    /// With a copy of the scales in each column.
    pub(crate) fn with_own_scales(self) -> Self {
        let recipe = match self.recipe {
            Recipe::Codes { codes, groups, scales, .. } => Recipe::Codes { codes, groups, scales, in_column: true },
            other => other,
        };
        Self { recipe, ..self }
    }

    /// The range of the scales of `len` bytes of codes from here on, if they have some.
    pub fn scales(&self, len: u64) -> Option<SourceRange> {
        let Recipe::Codes { codes, groups, scales, .. } = self.recipe else { return None };
        let of_rows = groups.rows * groups.row;
        let first = self.element / of_rows * groups.in_a_row();
        let within = Groups { position: self.element % of_rows, ..groups };
        let (n, width) = (within.count(len * codes.of_byte() as u64), codes.scales.width() as u64);
        Some(SourceRange { source: scales.source, offset: scales.offset + first * width, len: n * width })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_heads_are_interleaved() {
        let tensor = DerivedFrom {
            recipe: Recipe::Cast(Conversion::None),
            source: 1,
            offset: 100,
            interleaved: Some(Interleaved { row: 3, head: 4 }),
            element: 0,
        };
        // Two heads of four rows of three elements of two bytes.
        let rows = |of: &DerivedFrom, len| {
            let mut rows = vec![];
            of.data(Some(Dtype::F16), len, |range| rows.push(((range.offset - 100) / 2, range.len / 2)));
            rows
        };
        let all = [(0, 3), (6, 3), (3, 3), (9, 3), (12, 3), (18, 3), (15, 3), (21, 3)];
        assert_eq!(rows(&tensor, 48), all);
        assert_eq!(rows(&tensor.at(Some(Dtype::F16), 8), 10), [(7, 2), (3, 3)]);
    }
}
