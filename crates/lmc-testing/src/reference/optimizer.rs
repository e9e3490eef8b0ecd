//! Predictions that are computed from the states of optimizers (§3.9): operands of kinds 5, 6 and 7.

use super::bytes::Bytes;
use super::conversion::Conversion;
use super::faults::{Faults, must};
use super::float32::{difference, is_finite, product, quotient, root, sum};
use super::ranges::{Ranges, elements};
use super::stream::Streams;

pub(super) const SCALED: u8 = 5;
pub(super) const SECOND_MOMENT: u8 = 6;
pub(super) const WEIGHT: u8 = 7;

/// How many constants an operand of a kind has, and how many lists of ranges, if the kind is one of this section.
pub(super) fn parts(kind: u8) -> Option<(usize, usize)> {
    match kind {
        SCALED => Some((1, 1)),
        SECOND_MOMENT => Some((4, 3)),
        WEIGHT => Some((4, 4)),
        _ => None,
    }
}

/// The prediction of each element.
pub(super) struct Step(Vec<u64>);

impl Step {
    /// Reads the operand of a column of `n` elements of `width` bytes, after its kind.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        kind: u8,
        width: usize,
        n: usize,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let (constant_count, list_count) = parts(kind).ok_or("an operand has an unknown kind")?;
        must(width == 4 || width == 2 && kind == SCALED, "an operand does not give elements of its column's width")?;
        let constants = elements(head.take(4 * constant_count as u64)?, 4);
        faults.must(constants.iter().all(|&constant| is_finite(constant)), "a constant of an operand is not finite");
        let mut lists = Vec::new();
        for list in 0..list_count {
            let count = head.varint()?;
            let is_m0_of_weights = kind == WEIGHT && list == 3;
            if is_m0_of_weights {
                let has_factor = constants[2] != 0;
                faults.must((count > 0) == has_factor, "averages before have a factor or ranges, but not both");
            }
            must(count >= 1 || is_m0_of_weights, "an operand has no ranges")?;
            let bytes = ranges.read(head, count, faults)?.concat();
            must(
                bytes.len() == n * width || count == 0,
                "the ranges of an operand do not have its column's number of elements",
            )?;
            lists.push(elements(&bytes, width));
        }
        Ok(Self((0..n).map(|element| prediction(kind, &constants, &at(&lists, element), width)).collect()))
    }

    pub(super) fn decode(&self, streams: &mut Streams<'_>) -> Vec<u64> {
        streams.begin_steps();
        streams.step("predictions", || self.0.clone());
        self.0.clone()
    }
}

/// What the lists have at the place of an element.
pub(super) fn at(lists: &[Vec<u64>], element: usize) -> Vec<u64> {
    lists.iter().filter_map(|list| list.get(element).copied()).collect()
}

/// The prediction of an element of `width` bytes from the constants and what is at its place in other data.
///
/// # Panics
/// When the kind has another number of either.
pub(super) fn prediction(kind: u8, constants: &[u64], data: &[u64], width: usize) -> u64 {
    match (kind, constants, data) {
        (SCALED, &[a], &[x]) if width == 2 => Conversion::F32ToBf16.convert(product(a, x << 16)),
        (SCALED, &[a], &[x]) => product(a, x),
        (SECOND_MOMENT, &[b, h, a, c], &[v0, m0, m1]) => {
            let g = product(difference(m1, product(b, m0)), h);
            sum(product(a, v0), product(product(c, g), g))
        }
        (WEIGHT, &[a, s1, s0, e], &[w0, m1, v1, ref m0 @ ..]) => {
            let mut u = product(s1, m1);
            if let &[m0] = m0 {
                u = sum(u, product(s0, m0));
            }
            sum(product(a, w0), quotient(u, sum(root(v1), e)))
        }
        _ => panic!("an operand of kind {kind} has {} constants and {} data", constants.len(), data.len()),
    }
}
