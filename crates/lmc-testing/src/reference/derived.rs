//! Predictions that are computed from other data in another precision (§3.10): operands of kinds 9 to 12.

use super::bytes::Bytes;
use super::dtypes::{BF16, F4, F8_E4M3, F8_E5M2, F8_E8M0, F16, F32, I8, bits_of, rounded, value};
use super::faults::{Faults, must};
use super::float32::{SIGN, is_finite, product, quotient};
use super::grid::Groups;
use super::llama;
use super::ranges::{Ranges, bytes_of, elements};
use super::stream::{Stream, Streams};

pub(super) const CAST: u8 = 9;
pub(super) const CODES: u8 = 10;
pub(super) const SCALES: u8 = 11;
pub(super) const FIELD: u8 = 12;

/// The fields of an operand besides its ranges. Dtypes are codes of §4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields have the names and meanings of `docs/format.md`")]
pub enum Derivation {
    /// Kind 9: elements are rounded.
    Cast { from: u8, to: u8 },
    /// Kind 10: elements are divided by the scales of their groups, or multiplied, and rounded; `scales` is their dtype.
    Codes { from: u8, to: u8, operation: u8, precision: u8, scales: u8, f: u32, groups: Groups },
    /// Kind 11: scales of groups of `k` elements.
    Scales { from: u8, to: u8, operation: u8, precision: u8, f: u32, k: u64 },
    /// Kind 12: a field of blocks of a type.
    Field { from: u8, blocks: u8, field: u8 },
}

impl Derivation {
    /// Reads the fields of an operand, after its kind, of a column of `n` elements of `width` bytes.
    fn parse(head: &mut Bytes<'_>, kind: u8, width: usize, n: usize, faults: &mut Faults) -> Result<Self, String> {
        let from = head.u8()?;
        faults.must([F16, BF16, F32].contains(&from), "elements are derived from a dtype that none are derived from");
        must(bits_of(from).is_some_and(|bits| bits >= 8), "elements are derived from an unknown dtype")?;
        if kind == FIELD {
            let (blocks, field) = (head.u8()?, head.u8()?);
            let lengths = llama::lengths(blocks).ok_or("a field is of blocks of an unknown type")?;
            let length = lengths.get(usize::from(field)).ok_or("blocks do not have the field of an operand")?;
            must((n * width).is_multiple_of(*length), "a column does not have a whole number of fields")?;
            return Ok(Self::Field { from, blocks, field });
        }

        let to = head.u8()?;
        must(bits_of(to).is_some(), "elements of an unknown dtype are derived")?;
        let allowed: &[u8] = match kind {
            CAST => &[F16, BF16, F32, F8_E4M3, F8_E5M2],
            CODES => &[I8, F8_E4M3, F8_E5M2, F4],
            _ => &[F16, BF16, F32, F8_E4M3, F8_E8M0],
        };
        faults.must(allowed.contains(&to), "elements of a dtype are derived that an operand of the kind cannot have");
        let w = if to == F4 { 4 } else { 8 * width };
        must(bits_of(to) == Some(w), "derived elements do not have the width of their column")?;
        if kind == CAST {
            faults.must(from != to, "elements are rounded to their own dtype");
            let is_conversion = [(F32, BF16), (BF16, F32), (F32, F16)].contains(&(from, to));
            faults.must(!is_conversion, "elements are rounded where a conversion would do");
            return Ok(Self::Cast { from, to });
        }

        let (operation, precision) = (head.u8()?, head.u8()?);
        must(operation <= 2, "an operand has an unknown operation")?;
        faults.must([F16, BF16, F32].contains(&precision), "an operand has a precision that none has");
        must(bits_of(precision).is_some(), "an operand has an unknown precision")?;
        let scales = if kind == CODES { head.u8()? } else { F32 };
        let f = head.u32()?;
        faults.must(is_finite(f.into()), "the factor of an operand is not finite");
        if kind == SCALES {
            let k = head.varint()?;
            must((1..=1 << 24).contains(&k), "a group has no elements, or more than 2^24")?;
            return Ok(Self::Scales { from, to, operation, precision, f, k });
        }
        must(width == 1, "an operand does not give elements of its column's width")?;
        faults.must([F16, BF16, F32, F8_E4M3, F8_E8M0].contains(&scales), "scales are of a dtype that none are of");
        must(bits_of(scales).is_some_and(|bits| bits >= 8), "scales are of an unknown dtype")?;
        let n = codes_of(n, to);
        let groups = Groups::parse(head, n, faults)?;
        faults.must(groups.scale_count(n) <= n as u128, "codes have more scales than elements");
        Ok(Self::Codes { from, to, operation, precision, scales, f, groups })
    }

    /// How many bytes each list of ranges has, or the stream in place of one, for a column of `n` elements of `width` bytes.
    ///
    /// # Panics
    /// When a field has a value that it cannot have.
    pub(super) fn lengths(&self, n: usize, width: usize) -> Vec<u128> {
        let of = |count: u128, dtype: u8| count * bits_of(dtype).expect("a known dtype") as u128 / 8;
        let count = n as u128;
        match *self {
            Self::Cast { from, .. } => vec![of(count, from)],
            Self::Codes { from, to, scales, groups, .. } => {
                let count = codes_of(n, to);
                vec![of(count as u128, from), of(groups.scale_count(count), scales)]
            }
            Self::Scales { from, k, .. } => vec![of(count * u128::from(k), from)],
            Self::Field { from, blocks, field } => {
                let lengths = llama::lengths(blocks).expect("a known type");
                vec![of(32 * (n * width / lengths[usize::from(field)]) as u128, from)]
            }
        }
    }

    /// The predictions of elements of `width` bytes from the bytes of each list.
    pub(super) fn predictions(&self, lists: &[Vec<u8>], width: usize) -> Vec<u64> {
        let values = |list: usize, dtype: u8| -> Vec<u64> {
            let bytes = bits_of(dtype).map_or(1, |bits| bits / 8);
            elements(&lists[list], bytes).into_iter().map(|x| value(dtype, x)).collect()
        };
        match *self {
            Self::Cast { from, to } => values(0, from).into_iter().map(|x| rounded(to, x)).collect(),
            Self::Codes { from, to, operation, precision, scales, f, groups } => {
                let scales = values(1, scales);
                let code = |(element, x): (usize, u64)| {
                    let s = product(f.into(), scales[groups.scale_of(element)]);
                    let y = match operation {
                        0 => quotient(x, s),
                        1 => product(x, quotient(ONE, s)),
                        _ => product(x, s),
                    };
                    rounded_twice(precision, to, y)
                };
                let codes: Vec<u64> = values(0, from).into_iter().enumerate().map(code).collect();
                if to == F4 { codes.chunks(2).map(|two| two[0] | two[1] << 4).collect() } else { codes }
            }
            Self::Scales { from, to, operation, precision, f, k } => {
                let scale = |group: &[u64]| {
                    let a = group.iter().map(|x| x & !SIGN).max().expect("a group has elements");
                    let y = match operation {
                        0 => quotient(a, f.into()),
                        1 => product(a, f.into()),
                        _ => quotient(ONE, quotient(f.into(), a)),
                    };
                    rounded_twice(precision, to, y)
                };
                values(0, from).chunks(k as usize).map(scale).collect()
            }
            Self::Field { from, blocks, field } => {
                let of = |block: &[u64]| llama::fields(blocks, block).swap_remove(field.into());
                let bytes: Vec<u8> = values(0, from).chunks(32).flat_map(of).collect();
                elements(&bytes, width)
            }
        }
    }
}

const ONE: u64 = 0x3f80_0000;

/// How many elements of a dtype `n` bytes are.
fn codes_of(n: usize, to: u8) -> usize {
    if to == F4 { 2 * n } else { n }
}

/// The element that a binary32 is rounded to, in a precision first.
fn rounded_twice(precision: u8, to: u8, y: u64) -> u64 {
    rounded(to, value(precision, rounded(precision, y)))
}

/// An operand, with the data that it is computed from.
pub(super) struct Derived {
    derivation: Derivation,
    /// The bytes of each list of ranges.
    lists: Vec<Vec<u8>>,
    /// Scales that are not in ranges: their number, the bytes of one, and their stream.
    scales: Option<(usize, usize, Stream)>,
    width: usize,
}

impl Derived {
    /// Reads the operand of a column of `n` elements of `width` bytes, after its kind.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        kind: u8,
        width: usize,
        n: usize,
        lane_sets: u8,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        ranges.need(4, "operands of kinds 9 to 12", faults);
        let derivation = Derivation::parse(head, kind, width, n, faults)?;
        let (mut lists, mut scales) = (Vec::new(), None);
        for (list, length) in derivation.lengths(n, width).into_iter().enumerate() {
            // Not a fault, but an error at once: a decoder need not join more bytes.
            must(kind != SCALES || length <= 1 << 26, "scales are computed from more than 2^26 bytes")?;
            let count = head.varint()?;
            if let (0, 1, Derivation::Codes { scales: dtype, .. }) = (count, list, derivation) {
                let bytes = bits_of(dtype).expect("it has been checked") / 8;
                must(length <= 1 << 27, "codes have more scales than elements")?;
                let stream = Stream::parse(head, bytes, false, lane_sets, faults)?;
                scales = Some((length as usize / bytes, bytes, stream));
                continue;
            }
            must(count >= 1, "an operand has no ranges")?;
            let bytes = ranges.read(head, count, faults)?;
            let sum: u128 = bytes.iter().map(|range| range.len() as u128).sum();
            must(sum == length, "the ranges of an operand do not have its column's number of elements")?;
            lists.push(bytes.concat());
        }
        Ok(Self { derivation, lists, scales, width })
    }

    /// The prediction of each element.
    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        let mut lists = self.lists.clone();
        match &self.scales {
            None => streams.begin_steps(),
            Some((count, bytes, stream)) => lists.push(bytes_of(&stream.decode(*count, streams, faults)?, *bytes)),
        }
        let predictions = self.derivation.predictions(&lists, self.width);
        streams.step("predictions", || predictions.clone());
        Ok(predictions)
    }
}
