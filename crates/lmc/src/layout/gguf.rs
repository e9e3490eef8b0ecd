//! GGUF, the files of llama.cpp: key-values, infos of tensors, and the tensors' bytes, aligned
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>). Versions 2 and 3, little-endian.
//!
//! Quantised elements come in blocks of a scale and small integers: the dtype is that of one block, named as ggml names it, and the
//! innermost dimension counts blocks. Tensors of a type that is not known here are opaque.

mod fields;
mod types;

use super::suggestion::{Format, Layout, MAX_COST, Prefix, cover};
use crate::error::Result;
use crate::segment::{Name, Names, Segment, Shape, tensor_len};
use fields::{Fields, MAX_HEADER, Stop};

const MAGIC: &[u8] = b"GGUF";

/// Bytes that are read first, and the factor by which they grow until the header ends.
const FIRST: usize = 1 << 16;
const GROWTH: usize = 4;

/// The most dimensions of a tensor in ggml.
const MAX_DIMENSIONS: usize = 4;

/// Where tensors may begin, unless a key-value says otherwise: at multiples of this.
const ALIGNMENT: u32 = 32;

pub(super) struct Gguf;

impl Format for Gguf {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if file.get(MAGIC.len())? != MAGIC {
            return Ok(None);
        }
        let mut n = FIRST;
        loop {
            let start = file.get(n)?;
            match segments(start) {
                Ok(segments) => return Ok(Some(Layout { name: "gguf", segments, tail: None })),
                Err(Stop::Short) if start.len() == n && n < MAX_HEADER => n *= GROWTH,
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Segments of a file; `start` has at least its header.
fn segments(start: &[u8]) -> Result<Vec<Segment>, Stop> {
    let mut fields = Fields::new(start);
    fields.skip(MAGIC.len() as u64)?;
    if !matches!(fields.u32()?, 2 | 3) {
        return Err(Stop::Invalid);
    }
    let (infos, pairs) = (fields.u64()?, fields.u64()?);
    let alignment = alignment(&mut fields, pairs)?;
    let (mut names, mut tensors) = (Names::default(), Vec::new());
    let mut left = MAX_COST;
    for _ in 0..infos {
        let name = fields.text()?;
        left = left.checked_sub(Segment::cost(name.len(), MAX_DIMENSIONS)).ok_or(Stop::Invalid)?;
        let name = names.push(name).ok_or(Stop::Invalid)?;
        tensors.extend(tensor(&mut fields, name, alignment)?);
    }
    names.finish();
    let data = (fields.at() as u64).next_multiple_of(u64::from(alignment));
    for tensor in &mut tensors {
        tensor.offset = tensor.offset.checked_add(data).ok_or(Stop::Invalid)?;
    }
    cover(data, tensors).ok_or(Stop::Invalid)
}

/// Skips the key-values; returns the alignment of the tensors.
fn alignment(fields: &mut Fields<'_>, pairs: u64) -> Result<u32, Stop> {
    let mut alignment = None;
    for _ in 0..pairs {
        let key = fields.bytes()?;
        let kind = fields.u32()?;
        if key != b"general.alignment" {
            fields.skip_value(kind)?;
            continue;
        }
        let value = if kind == fields::U32 { fields.u32()? } else { 0 };
        if !value.is_power_of_two() || alignment.replace(value).is_some() {
            return Err(Stop::Invalid);
        }
    }
    Ok(alignment.unwrap_or(ALIGNMENT))
}

/// The tensor of an info, its offset that in the data; `None` if its length is not known.
fn tensor(fields: &mut Fields<'_>, name: Name, alignment: u32) -> Result<Option<Segment>, Stop> {
    let mut dimensions = [0; MAX_DIMENSIONS];
    let rank = fields.u32()? as usize;
    let dimensions = dimensions.get_mut(..rank).ok_or(Stop::Invalid)?;
    for d in &mut *dimensions {
        *d = fields.u64()?;
    }
    let (kind, offset) = (fields.u32()?, fields.u64()?);
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(Stop::Invalid);
    }
    let Some((dtype, elements)) = types::of(kind) else { return Ok(None) };
    match dimensions.first_mut() {
        Some(d) if d.is_multiple_of(elements) => *d /= elements,
        None if elements == 1 => (),
        _ => return Err(Stop::Invalid),
    }
    let shape: Shape = dimensions.iter().rev().copied().collect();
    let len = tensor_len(dtype, &shape).ok_or(Stop::Invalid)?;
    Ok(Some(Segment::tensor(name, dtype, shape, offset, len)))
}

#[cfg(test)]
mod tests;
