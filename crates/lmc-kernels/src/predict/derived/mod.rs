//! Predictions of tensors that are copies of others in another precision (`docs/format.md` §3.10).
//!
//! Operations are single ones of binary32, as those of [`optimizer`](super::optimizer).

mod blocks;
mod numbers;

pub use blocks::{BLOCK, BlockType};
pub use numbers::Number;

use std::sync::LazyLock;

use super::grid::Groups;
use crate::float::with_ieee;
use crate::inline::zip;
use crate::isa::Isa;
use crate::loops::Loop;
use numbers::{CHUNK, narrow, round, widen};

/// Replaces `out` by the elements, rounded.
///
/// # Panics
/// If `elements` and `out` have other lengths, here and below.
pub fn cast(from: Number, to: Number, elements: &[u8], out: &mut [u8]) {
    assert_eq!(elements.len() * to.width(), out.len() * from.width(), "an element for each prediction");
    with_ieee(|| fastest().run(Cast { from, to, elements, out }));
}

/// The instruction set of loops: all of them give the same results. It is detected once.
fn fastest() -> Isa {
    static ISA: LazyLock<Isa> = LazyLock::new(|| Isa::detect().unwrap_or(Isa::PORTABLE));
    *ISA
}

struct Cast<'a> {
    from: Number,
    to: Number,
    elements: &'a [u8],
    out: &'a mut [u8],
}

impl Loop for Cast<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { from, to, elements, out } = self;
        let mut numbers = [0.0; CHUNK];
        for (elements, out) in elements.chunks(CHUNK * from.width()).zip(out.chunks_mut(CHUNK * to.width())) {
            let numbers = &mut numbers[..out.len() / to.width()];
            widen(from, elements, numbers);
            narrow(to, numbers, out);
        }
    }
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
        with_ieee(|| fastest().run(Scaled { codes: self, groups, elements, scales, out }));
    }
}

/// Codes of elements with the scales of their groups.
struct Scaled<'a> {
    codes: &'a Codes,
    groups: Groups,
    elements: &'a [u8],
    scales: &'a [u8],
    out: &'a mut [u8],
}

impl Loop for Scaled<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { codes, groups, elements, scales, out } = self;
        let (n, width) = (out.len() * codes.of_byte(), codes.scales.width());
        // A chunk has groups of any length: each of its elements has a scale. (Closures would not be compiled for the instruction set.)
        let (mut factors, mut filled) = ([0.0; CHUNK], 0);
        let (of_element, of_byte) = (codes.from.width(), codes.of_byte());
        let mut numbers = [0.0; CHUNK];
        for (group, range) in groups.of(n) {
            let mut s = [0.0];
            widen(codes.scales, &scales[group * width..][..width], &mut s);
            let s = codes.factor * s[0];
            let factor = if codes.scaling == Scaling::Inverse { 1.0 / s } else { s };
            let (mut at, end) = (range.start, range.end);
            while at < end {
                let to = (filled + end - at).min(CHUNK);
                at += to - filled;
                for each in &mut factors[filled..to] {
                    *each = factor;
                }
                filled = to;
                if filled == CHUNK || at == n {
                    let first = at - filled;
                    let elements = &elements[first * of_element..at * of_element];
                    let numbers = &mut numbers[..filled];
                    codes.chunk(elements, &factors[..filled], numbers, &mut out[first / of_byte..at / of_byte]);
                    filled = 0;
                }
            }
        }
    }
}

impl Codes {
    /// The codes of a chunk of elements, which are divided by these factors, or multiplied with them; `numbers` is working memory.
    #[inline(always)]
    fn chunk(&self, elements: &[u8], factors: &[f32], numbers: &mut [f32], out: &mut [u8]) {
        widen(self.from, elements, numbers);
        match self.scaling {
            Scaling::Divide => zip(numbers, factors, |x, s| *x /= s),
            Scaling::Inverse | Scaling::Multiply => zip(numbers, factors, |x, s| *x *= s),
        }
        round(self.precision, numbers);
        if self.of_byte() == 1 {
            return narrow(self.to, numbers, out);
        }
        let mut codes = [0; CHUNK];
        let codes = &mut codes[..numbers.len()];
        narrow(self.to, numbers, codes);
        zip(out, codes.as_chunks::<2>().0, |to, &[low, high]| *to = low | high << 4);
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

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    /// Compares the results of a loop, of `len` bytes, on all instruction sets.
    fn same(len: usize, run: impl Fn(Isa, &mut [u8])) {
        let of = |isa| {
            let mut out = vec![7; len];
            with_ieee(|| run(isa, &mut out));
            out
        };
        let expected = of(Isa::PORTABLE);
        Isa::available().into_iter().for_each(|isa| assert!(of(isa) == expected, "{} differs", isa.name()));
    }

    #[test]
    fn instruction_sets_round_alike() {
        let mut r = Random::new(1);
        for from in Number::FLOATS {
            // Any bits, and numbers near 1.
            let n = 20 * blocks::BLOCK;
            let mut elements = r.bytes(n * from.width());
            elements[n * from.width() / 2..].chunks_exact_mut(from.width()).for_each(|e| e[from.width() - 1] &= 0xbf);
            let elements = &elements[..];
            for to in [Number::I8, Number::F16, Number::Bf16, Number::F32, Number::E4m3, Number::E5m2, Number::F4] {
                same(n * to.width(), |isa, out| isa.run(Cast { from, to, elements, out }));
                let is_code = to.width() == 1;
                for (scaling, precision) in Scaling::ALL.into_iter().zip(Number::FLOATS).filter(|_| is_code) {
                    let codes = &Codes { from, to, scaling, precision, scales: Number::F32, factor: 1.0 };
                    // Rows of groups, the last one shorter, from within one on.
                    let groups = Groups { row: 70, rows: 2, columns: 16, position: 75 };
                    let of_each = [0.01, 1e-40, f32::INFINITY].map(f32::to_le_bytes);
                    let scales = of_each.repeat(groups.count(n as u64).div_ceil(3) as usize);
                    let scales = &scales.as_flattened()[..4 * groups.count(n as u64) as usize];
                    same(n / codes.of_byte(), |isa, out| {
                        isa.run(Scaled { codes, groups, elements, scales, out });
                    });
                }
            }
            for (of, _) in BlockType::ALL {
                for field in (0..4).filter(|&field| of.field_len(field).is_some()) {
                    let len = of.field_len(field).unwrap() * n / blocks::BLOCK;
                    same(len, |isa, out| of.predict_on(isa, field, from, elements, out));
                }
            }
        }
    }
}
