//! Places of predictions.

use lmc_kernels::predict::Conversion;
use lmc_layout::dtype::Dtype;

/// The place of an extent's predictions: one element for each of the extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// 0: this file; i: its i-th base.
    pub source: u32,
    /// In raw bytes of the source.
    pub offset: u64,
    /// The conversion to the extent's dtype.
    pub conversion: Conversion,
}

impl Reference {
    /// The reference `pos` bytes further on in data of this dtype.
    pub(crate) fn at(self, dtype: Option<Dtype>, pos: u64) -> Self {
        let width = dtype.map_or(1, Dtype::coding_width);
        let source = self.conversion.source_width(width).unwrap_or(width);
        Self { offset: self.offset + pos / width as u64 * source as u64, ..self }
    }
}
