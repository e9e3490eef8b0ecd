//! GGUF, the files of llama.cpp: key-values, infos of tensors, and the tensors' bytes, aligned
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>). Versions 2 and 3, little-endian.
//!
//! Quantised elements come in blocks of a scale and small integers: the dtype is that of one block, named as ggml names it, and the
//! innermost dimension counts blocks. Tensors of a type that is not known here are opaque: their bytes, with what fills them up to the
//! alignment, end where the next tensor begins or the file ends.

mod fields;
mod types;

use super::account::Account;
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
                Ok((segments, account)) => return Ok(Some(Layout::new("gguf", segments, account))),
                Err(Stop::Short) if start.len() == n && n < MAX_HEADER => n *= GROWTH,
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Segments and account of a file; `start` has at least its header.
fn segments(start: &[u8]) -> Result<(Vec<Segment>, Account), Stop> {
    let mut fields = Fields::new(start);
    fields.skip(MAGIC.len() as u64)?;
    if !matches!(fields.u32()?, 2 | 3) {
        return Err(Stop::Invalid);
    }
    let (infos, pairs) = (fields.u64()?, fields.u64()?);
    let alignment = alignment(&mut fields, pairs)?;
    let (mut names, mut tensors, mut unknown) = (Names::default(), Vec::new(), Vec::new());
    let mut left = MAX_COST;
    for _ in 0..infos {
        let name = fields.text()?;
        left = left.checked_sub(Segment::cost(name.len(), MAX_DIMENSIONS)).ok_or(Stop::Invalid)?;
        let stored = names.push(name).ok_or(Stop::Invalid)?;
        match tensor(&mut fields, stored, alignment)? {
            Ok(tensor) => tensors.push(tensor),
            Err(of) => unknown.push((name, of)),
        }
    }
    names.finish();
    let data = (fields.at() as u64).next_multiple_of(u64::from(alignment));
    for tensor in &mut tensors {
        tensor.offset = tensor.offset.checked_add(data).ok_or(Stop::Invalid)?;
    }
    let account = account(data, &tensors, &unknown);
    Ok((cover(data, tensors).ok_or(Stop::Invalid)?, account))
}

/// A tensor of a type that is not known: the type, and its offset in the data.
struct Unknown {
    kind: u32,
    offset: u64,
}

/// Names the tensors of types that are not known.
fn account(data: u64, tensors: &[Segment], unknown: &[(&str, Unknown)]) -> Account {
    let mut account = Account::default();
    let starts = || unknown.iter().filter_map(|(_, of)| of.offset.checked_add(data));
    let mut all: Vec<u64> = tensors.iter().map(|t| t.offset).chain(starts()).collect();
    all.sort_unstable();
    for (name, Unknown { kind, offset }) in unknown {
        // Where two begin at one place, neither is certain.
        let place = offset.checked_add(data).and_then(|start| {
            let after = all.partition_point(|&other| other < start) + 1;
            let end = all.get(after).copied().unwrap_or(u64::MAX);
            (start < end).then_some(start..end)
        });
        account.missing_at(*name, format!("its type has the number {kind}, which lmc does not know"), place);
    }
    account
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

/// The tensor of an info, its offset that in the data.
fn tensor(fields: &mut Fields<'_>, name: Name, alignment: u32) -> Result<Result<Segment, Unknown>, Stop> {
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
    let Some((dtype, elements)) = types::of(kind) else { return Ok(Err(Unknown { kind, offset })) };
    match dimensions.first_mut() {
        Some(d) if d.is_multiple_of(elements) => *d /= elements,
        None if elements == 1 => (),
        _ => return Err(Stop::Invalid),
    }
    let shape: Shape = dimensions.iter().rev().copied().collect();
    let len = tensor_len(dtype, &shape).ok_or(Stop::Invalid)?;
    Ok(Ok(Segment::tensor(name, dtype, shape, offset, len)))
}

#[cfg(test)]
mod tests;
