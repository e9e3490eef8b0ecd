//! Predictions of tensors that are copies of others in another precision (`docs/format.md` §3.10).
//!
//! Operations are single ones of binary32, as those of [`optimizer`](super::optimizer).

mod blocks;
mod numbers;

pub use blocks::{BLOCK, BlockType};
pub use numbers::Number;

use super::grid::Groups;
use crate::float::with_ieee;
use numbers::{CHUNK, narrow, round, widen};

/// Replaces `out` by the elements, rounded.
///
/// # Panics
/// If `elements` and `out` have other lengths, here and below.
pub fn cast(from: Number, to: Number, elements: &[u8], out: &mut [u8]) {
    assert_eq!(elements.len() * to.width(), out.len() * from.width(), "an element for each prediction");
    with_ieee(|| {
        let mut numbers = [0.0; CHUNK];
        for (elements, out) in elements.chunks(CHUNK * from.width()).zip(out.chunks_mut(CHUNK * to.width())) {
            let numbers = &mut numbers[..out.len() / to.width()];
            widen(from, elements, numbers);
            narrow(to, numbers, out);
        }
    });
}

/// How an element is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// It is divided by its scale.
    Divide = 0,
    /// It is multiplied by the inverse of that.
    Inverse = 1,
    /// It is multiplied by its scale.
    Multiply = 2,
}

impl Scaling {
    /// All, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Divide, Self::Inverse, Self::Multiply];
}

/// How a scale follows from the largest magnitude of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// It is divided by the factor.
    Divide = 0,
    /// It is multiplied by it.
    Multiply = 1,
    /// The factor is divided by it, and 1 by the result.
    Inverse = 2,
}

impl Measure {
    /// All, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Divide, Self::Multiply, Self::Inverse];
}

/// How codes are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codes {
    /// What the elements are.
    pub from: Number,
    /// What the codes are.
    pub to: Number,
    /// How an element is scaled.
    pub scaling: Scaling,
    /// What the result is rounded to before that.
    pub precision: Number,
    /// What the scales are.
    pub scales: Number,
    /// A factor of all scales.
    pub factor: f32,
}

impl Codes {
    /// Codes in a byte.
    pub fn of_byte(&self) -> usize {
        if self.to == Number::F4 { 2 } else { 1 }
    }

    /// Replaces `out` by the codes of elements, whose groups have these scales.
    pub fn predict(&self, groups: Groups, elements: &[u8], scales: &[u8], out: &mut [u8]) {
        let n = out.len() * self.of_byte();
        assert_eq!(elements.len(), n * self.from.width(), "an element for each code");
        assert_eq!(scales.len() as u64, groups.count(n as u64) * self.scales.width() as u64, "a scale for each group");
        if self.of_byte() == 1 {
            return self.each(groups, elements, scales, out);
        }
        let mut codes = vec![0; n];
        self.each(groups, elements, scales, &mut codes);
        crate::inline::zip(out, codes.as_chunks::<2>().0, |to, &[low, high]| *to = low | high << 4);
    }

    /// A code for each byte of `out`.
    fn each(&self, groups: Groups, elements: &[u8], scales: &[u8], out: &mut [u8]) {
        let Self { from, to, scaling, precision, .. } = *self;
        let (of_element, of_scale) = (from.width(), self.scales.width());
        let mut numbers = [0.0; CHUNK];
        with_ieee(|| {
            groups.each(out.len(), |group, range| {
                let mut s = [0.0];
                widen(self.scales, &scales[group * of_scale..][..of_scale], &mut s);
                let s = self.factor * s[0];
                let (inverse, elements) = (1.0 / s, &elements[range.start * of_element..range.end * of_element]);
                for (elements, out) in elements.chunks(CHUNK * of_element).zip(out[range].chunks_mut(CHUNK)) {
                    let numbers = &mut numbers[..out.len()];
                    widen(from, elements, numbers);
                    match scaling {
                        Scaling::Divide => numbers.iter_mut().for_each(|x| *x /= s),
                        Scaling::Inverse => numbers.iter_mut().for_each(|x| *x *= inverse),
                        Scaling::Multiply => numbers.iter_mut().for_each(|x| *x *= s),
                    }
                    round(precision, numbers);
                    narrow(to, numbers, out);
                }
            });
        });
    }
}

/// How scales are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// What the elements are.
    pub from: Number,
    /// What the scales are.
    pub to: Number,
    /// How they follow from the largest magnitudes.
    pub measure: Measure,
    /// What the result is rounded to before that.
    pub precision: Number,
    /// A number that all have in common.
    pub factor: f32,
    /// Elements of a group, at least 1.
    pub group: usize,
}

impl Scales {
    /// Replaces `out` by the scales of consecutive groups of elements.
    pub fn predict(&self, elements: &[u8], out: &mut [u8]) {
        let Self { from, to, measure, precision, factor, group } = *self;
        let len = group * from.width();
        assert_eq!(out.len() / to.width() * len, elements.len(), "a group for each scale");
        let mut numbers = [0.0; CHUNK];
        with_ieee(|| {
            for (out, elements) in out.chunks_exact_mut(to.width()).zip(elements.chunks_exact(len)) {
                let mut largest = 0;
                for elements in elements.chunks(CHUNK * from.width()) {
                    let numbers = &mut numbers[..elements.len() / from.width()];
                    widen(from, elements, numbers);
                    largest = numbers.iter().fold(largest, |a, x| a.max(x.to_bits() & 0x7fff_ffff));
                }
                let a = f32::from_bits(largest);
                let mut y = [match measure {
                    Measure::Divide => a / factor,
                    Measure::Multiply => a * factor,
                    Measure::Inverse => 1.0 / (factor / a),
                }];
                round(precision, &mut y);
                narrow(to, &y, out);
            }
        });
    }
}
