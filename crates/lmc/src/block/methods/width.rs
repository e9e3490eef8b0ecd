//! The width of a column's elements.

use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// The width of a column's elements, in bytes. It divides the column's length.
pub(super) fn parse_width(c: &mut Cursor<'_>, len: usize) -> Result<usize> {
    let code = c.u8()?;
    if code > 3 || !len.is_multiple_of(1 << code) {
        return Err(Error::damaged(format!("a column of {len} bytes has elements of width code {code}")));
    }
    Ok(1 << code)
}
