//! NumPy's `.npy`: a magic number, a version, a header written as a Python literal, and the bytes of one array
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).
//!
//! The array is a tensor without a name. Big-endian elements, structures, objects, strings and dates stay raw: the codec finds the width of
//! their elements, and where they begin, by itself. So do complex numbers of two binary64, which have no dtype here.

mod literal;

use std::borrow::Cow;

use super::account::Account;
use super::suggestion::{Format, Layout, Prefix};
use crate::dtype::{Dtype, NamedDtype};
use crate::error::Result;
use crate::segment::{Name, Segment, Shape, tensor_len};
use literal::Literal;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes that say how long the header is, in any version.
pub(super) const START: usize = 12;

/// The longest header that is read, in bytes from the start of the file. That of an array of 64 dimensions is a quarter of it.
const MAX_HEADER: usize = 1 << 13;

pub(super) struct Npy;

impl Format for Npy {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(data) = data_offset(file.get(START)?) else { return Ok(None) };
        let start = file.get(data)?;
        if start.len() < data {
            return Ok(None);
        }
        let mut account = Account::default();
        let segments = match header(start) {
            Ok(array) => {
                if array.is_fortran {
                    account.fortran(array.offset);
                }
                let tensor = Segment::tensor(Name::default(), array.dtype, array.shape, array.offset, array.len);
                vec![Segment::opaque(0, array.offset), tensor]
            }
            Err(why) => {
                account.missing("", why);
                vec![]
            }
        };
        Ok(Some(Layout::new("npy", segments, account)))
    }
}

/// The array that a header describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) dtype: Dtype,
    /// In the order of the bytes, outermost first: that of an array in Fortran's order is reversed.
    pub(super) shape: Shape,
    /// Whether it is in Fortran's order.
    pub(super) is_fortran: bool,
    /// Offset of its bytes from the start of the header.
    pub(super) offset: u64,
    /// Its bytes. Offset and length are below 2^63 together.
    pub(super) len: u64,
}

/// Offset of the array's bytes, by the first [`START`] bytes; `None` if they do not begin a header.
pub(super) fn data_offset(start: &[u8]) -> Option<usize> {
    let &[major, minor, a, b, c, d] = start.strip_prefix(MAGIC)?.first_chunk()?;
    let end = match (major, minor) {
        (1, 0) => 10 + usize::from(u16::from_le_bytes([a, b])),
        (2 | 3, 0) => usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?.checked_add(12)?,
        _ => return None,
    };
    (end <= MAX_HEADER).then_some(end)
}

/// The array behind a header: `start` has at least [`data_offset`] bytes. The reason if the header is damaged, or if the codec has no use
/// for its dtype.
pub(super) fn header(start: &[u8]) -> Result<Array, Cow<'static, str>> {
    let damaged = || Cow::from("its elements are structures, or the header of its array is damaged");
    let end = data_offset(start).ok_or_else(damaged)?;
    let text = start.get(if start[MAGIC.len()] == 1 { 10 } else { 12 }..end).ok_or_else(damaged)?;
    let Literal { descr, fortran_order, shape } = literal::parse(text).ok_or_else(damaged)?;
    let Some(dtype) = dtype_of(descr) else {
        let order = if descr.starts_with('>') { ", which is big-endian" } else { "" };
        return Err(format!("its elements are of numpy's dtype {descr:?}{order}, and lmc has none like it").into());
    };
    let is_fortran = fortran_order && shape.len() > 1;
    let shape: Shape = if fortran_order { shape.into_iter().rev().collect() } else { shape.into_iter().collect() };
    let offset = end as u64;
    let len = tensor_len(dtype, &shape).filter(|&len| len <= u64::MAX / 2 - offset);
    let len = len.ok_or("the header of its array is damaged: it has more than 2^63 bytes")?;
    Ok(Array { dtype, shape, is_fortran, offset, len })
}

/// The dtype of NumPy's description of one.
fn dtype_of(descr: &str) -> Option<Dtype> {
    let (order, kind) = descr.split_at_checked(1)?;
    let dtype = match kind {
        "b1" => Dtype::Bool,
        "u1" => Dtype::U8,
        "i1" => Dtype::I8,
        "u2" => Dtype::U16,
        "i2" => Dtype::I16,
        "u4" => Dtype::U32,
        "i4" => Dtype::I32,
        "u8" => Dtype::U64,
        "i8" => Dtype::I64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        "c8" => Dtype::C64,
        // Types of `ml_dtypes`: NumPy records only their size.
        "V2" => Dtype::Bf16,
        "f1" => Dtype::F8E5M2,
        "V1" => Dtype::Named(NamedDtype::new("V1", 8)?),
        _ => return None,
    };
    match order {
        "<" => Some(dtype),
        "|" if matches!(kind, "b1" | "u1" | "i1" | "V1" | "V2") => Some(dtype),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
