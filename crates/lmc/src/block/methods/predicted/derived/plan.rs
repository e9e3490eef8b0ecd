//! How a column follows from what its tensor is derived from.

use super::Derivation;
use crate::block::{DerivedFrom, Recipe};
use crate::format::bases::SourceRange;
use lmc_kernels::predict::convert;
use lmc_kernels::predict::grid::Groups;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::quantised::fields_of;

impl DerivedFrom {
    /// How a column of elements from here on is computed; a field of blocks, if it is one.
    pub(crate) fn derivation(&self, field: u8) -> Option<Derivation> {
        match self.recipe {
            Recipe::Cast(_) => None,
            Recipe::Codes { codes, groups, in_column, .. } => {
                let position = self.element % (groups.rows * groups.row);
                Some(Derivation::Codes(codes, Groups { position, ..groups }, in_column))
            }
            Recipe::Scales(scales) => Some(Derivation::Scales(scales)),
            Recipe::Blocks(blocks, from) => Some(Derivation::Field(blocks, field, from)),
        }
    }

    /// Replaces `out` by what `len` bytes from byte `pos` on are; `read` fills a buffer with the bytes of a range.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn bytes(
        &self,
        dtype: Option<Dtype>,
        pos: u64,
        len: usize,
        read: &mut dyn FnMut(&SourceRange, &mut [u8]) -> Result<()>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        // Whole blocks and elements.
        let unit = match dtype {
            Some(d) if d.is_block() => d.bits() as usize / 8,
            d => d.map_or(1, Dtype::coding_width),
        };
        let skipped = (pos % unit as u64) as usize;
        let n = (skipped + len).next_multiple_of(unit);
        let from = self.at(dtype, pos - skipped as u64);
        let mut read_all = |ranges: &[SourceRange]| -> Result<Vec<u8>> {
            let mut bytes = vec![0; ranges.iter().map(|range| range.len as usize).sum()];
            let mut rest = &mut bytes[..];
            for range in ranges {
                let (to, more) = rest.split_at_mut(range.len as usize);
                read(range, to)?;
                rest = more;
            }
            Ok(bytes)
        };
        let mut ranges = vec![];
        from.data(dtype, n as u64, |range| ranges.push(range));
        let data = read_all(&ranges)?;
        let scales = read_all(from.scales(n as u64).as_slice())?;
        match from.recipe {
            Recipe::Cast(conversion) => convert(conversion, &data, out),
            Recipe::Blocks(blocks, number) => {
                let fields = dtype.and_then(fields_of).map_or(&[][..], |f| f.0);
                out.resize(n, 0);
                let mut start = 0;
                for (i, field) in (0..).zip(fields) {
                    let mut of_field = vec![0; n / unit * field.len];
                    blocks.predict(i, number, &data, &mut of_field);
                    for (block, of_block) in out.chunks_exact_mut(unit).zip(of_field.chunks_exact(field.len)) {
                        block[start..start + field.len].copy_from_slice(of_block);
                    }
                    start += field.len;
                }
            }
            Recipe::Codes { .. } | Recipe::Scales(_) => {
                out.resize(n, 0);
                from.derivation(0).expect("it is none of the others").predict(&data, &scales, out);
            }
        }
        out.drain(..skipped);
        out.truncate(len);
        Ok(())
    }
}
