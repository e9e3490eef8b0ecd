//! Fields of the blocks of GGUF: 32 elements with a scale, as llama.cpp's reference quantises them (`quantize_row_…_ref`).

use super::numbers::{Number, f4_down, f16_of, widen};
use crate::float::with_ieee;
use crate::isa::Isa;
use crate::loops::Loop;

/// Elements of a block.
pub const BLOCK: usize = 32;

/// A type of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// 4 bits, a scale.
    Q4_0 = 2,
    /// 4 bits, a scale and a minimum.
    Q4_1 = 3,
    /// 5 bits, a scale.
    Q5_0 = 6,
    /// 5 bits, a scale and a minimum.
    Q5_1 = 7,
    /// 8 bits, a scale.
    Q8_0 = 8,
    /// 4-bit floats, an exponent.
    Mxfp4 = 39,
}

/// What a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The scale, as F16.
    Scale,
    /// The minimum, as F16.
    Minimum,
    /// The scale, as an exponent.
    Exponent,
    /// The fifth bits.
    High,
    /// The lowest four bits.
    Nibbles,
    /// All bits.
    Bytes,
}

impl BlockType {
    /// All types, each with its name as a dtype.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Q4_0, "Q4_0"),
        (Self::Q4_1, "Q4_1"),
        (Self::Q5_0, "Q5_0"),
        (Self::Q5_1, "Q5_1"),
        (Self::Q8_0, "Q8_0"),
        (Self::Mxfp4, "MXFP4"),
    ];

    /// The type of a number of GGUF.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().map(|t| t.0).find(|&t| t as u8 == code)
    }

    /// The name of its dtype.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|t| t.0 == self).expect("all are listed").1
    }

    fn parts(self) -> &'static [Part] {
        use Part::{Bytes, Exponent, High, Minimum, Nibbles, Scale};
        match self {
            BlockType::Q4_0 => &[Scale, Nibbles],
            BlockType::Q4_1 => &[Scale, Minimum, Nibbles],
            BlockType::Q5_0 => &[Scale, High, Nibbles],
            BlockType::Q5_1 => &[Scale, Minimum, High, Nibbles],
            BlockType::Q8_0 => &[Scale, Bytes],
            BlockType::Mxfp4 => &[Exponent, Nibbles],
        }
    }

    /// Bytes of a field, by its number; `None` if it has none of this number.
    pub fn field_len(self, field: u8) -> Option<usize> {
        Some(match self.parts().get(usize::from(field))? {
            Part::Scale | Part::Minimum => 2,
            Part::Exponent => 1,
            Part::High => 4,
            Part::Nibbles => BLOCK / 2,
            Part::Bytes => BLOCK,
        })
    }

    /// Replaces `out` by a field of consecutive blocks of the elements.
    ///
    /// # Panics
    /// If the type has no such field, or `out` is not a field for every 32 elements.
    pub fn predict(self, field: u8, from: Number, elements: &[u8], out: &mut [u8]) {
        self.predict_on(super::fastest(), field, from, elements, out);
    }

    pub(super) fn predict_on(self, isa: Isa, field: u8, from: Number, elements: &[u8], out: &mut [u8]) {
        let len = self.field_len(field).expect("a field of the type");
        let part = self.parts()[usize::from(field)];
        let of_block = BLOCK * from.width();
        assert_eq!(out.len() * of_block, elements.len() * len, "a field for each block");
        with_ieee(|| isa.run(Fields { of: self, part, len, from, elements, out }));
    }

    #[inline(always)]
    fn field(self, part: Part, x: &[f32; BLOCK], out: &mut [u8]) {
        match self {
            BlockType::Mxfp4 => {
                let e = (largest(x).to_bits() >> 23).saturating_sub(2);
                if part == Part::Exponent {
                    out[0] = e as u8;
                    return;
                }
                // Of 0 the exponent is 0, too.
                let factor = power_of_two(127 - e as i32);
                nibbles(out, |j| f4_down(x[j] * factor));
            }
            BlockType::Q8_0 => {
                let d = largest(x) / 127.0;
                if part == Part::Scale {
                    out.copy_from_slice(&f16_of(d).to_le_bytes());
                    return;
                }
                let i = inverse(d);
                out.iter_mut().zip(x).for_each(|(to, x)| *to = nearest(x * i) as u8);
            }
            BlockType::Q4_0 | BlockType::Q5_0 => {
                let most = if self == BlockType::Q4_0 { 15 } else { 31 };
                let half = (most + 1) / 2;
                let d = first_largest(x) / -(half as f32);
                let (i, add) = (inverse(d), half as f32 + 0.5);
                integers(part, d, 0.0, most, |j| (x[j] * i) + add, out);
            }
            BlockType::Q4_1 | BlockType::Q5_1 => {
                let most = if self == BlockType::Q4_1 { 15 } else { 31 };
                let (min, max) = range(x);
                let d = (max - min) / most as f32;
                let i = inverse(d);
                integers(part, d, min, most, |j| ((x[j] - min) * i) + 0.5, out);
            }
        }
    }
}

/// A field of `len` bytes of consecutive blocks.
struct Fields<'a> {
    of: BlockType,
    part: Part,
    len: usize,
    from: Number,
    elements: &'a [u8],
    out: &'a mut [u8],
}

impl Loop for Fields<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { of, part, len, from, elements, out } = self;
        let mut x = [0.0; BLOCK];
        for (to, elements) in out.chunks_exact_mut(len).zip(elements.chunks_exact(BLOCK * from.width())) {
            widen(from, elements, &mut x);
            if x.iter().all(|x| x.is_finite()) {
                of.field(part, &x, to);
            } else {
                to.fill(0);
            }
        }
    }
}

/// A field of blocks of integers from 0 to `most`.
#[inline(always)]
fn integers(part: Part, d: f32, min: f32, most: i32, y: impl Fn(usize) -> f32, out: &mut [u8]) {
    // Towards zero; a NaN is 0.
    let t = |j| (y(j) as i32).clamp(0, most);
    match part {
        Part::Scale => out.copy_from_slice(&f16_of(d).to_le_bytes()),
        Part::Minimum => out.copy_from_slice(&f16_of(min).to_le_bytes()),
        Part::High => {
            let bits = (0..BLOCK).fold(0, |bits, j| bits | (t(j) as u32 >> 4) << j);
            out.copy_from_slice(&bits.to_le_bytes());
        }
        _ => nibbles(out, |j| (t(j) & 15) as u8),
    }
}

#[inline(always)]
fn nibbles(out: &mut [u8], code: impl Fn(usize) -> u8) {
    let mut codes = [0; BLOCK];
    codes.iter_mut().enumerate().for_each(|(j, to)| *to = code(j));
    let (low, high) = codes.split_at(BLOCK / 2);
    out.iter_mut().zip(low).zip(high).for_each(|((to, low), high)| *to = low | high << 4);
}

/// The largest magnitude.
#[inline(always)]
fn largest(x: &[f32; BLOCK]) -> f32 {
    f32::from_bits(x.iter().fold(0, |a, x| a.max(x.to_bits() & 0x7fff_ffff)))
}

/// The first number of the largest magnitude.
#[inline(always)]
fn first_largest(x: &[f32; BLOCK]) -> f32 {
    let a = largest(x);
    x.iter().find(|x| x.abs() == a).copied().unwrap_or(a)
}

/// The least number and the largest one; −0 is less than 0.
#[inline(always)]
fn range(x: &[f32; BLOCK]) -> (f32, f32) {
    // Integers in the order of the numbers, and back.
    let order = |bits: u32| bits ^ ((bits as i32 >> 31) as u32 >> 1);
    let each = x.iter().map(|x| order(x.to_bits()) as i32);
    let (min, max) = each.fold((i32::MAX, i32::MIN), |(min, max), x| (min.min(x), max.max(x)));
    (f32::from_bits(order(min as u32)), f32::from_bits(order(max as u32)))
}

#[inline(always)]
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The nearest integer, ties away from 0, within those of 8 bits; 0 for a NaN.
#[inline(always)]
fn nearest(y: f32) -> i8 {
    let whole = y as i32;
    let rest = y - whole as f32;
    let whole = whole.saturating_add(i32::from(rest >= 0.5) - i32::from(rest <= -0.5));
    whole.clamp(-128, 127) as i8
}

/// 2^`exponent`, from −127 to 127.
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 { f32::from_bits(1 << 22) } else { f32::from_bits(((exponent + 127) as u32) << 23) }
}
