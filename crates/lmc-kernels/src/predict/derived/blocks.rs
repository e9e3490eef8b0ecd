//! Fields of the blocks of GGUF: 32 elements with a scale, as llama.cpp's reference quantises them (`quantize_row_…_ref`).

use super::numbers::{CHUNK, EVEN, Number, f4_down, f16_of, widen};
use crate::float::with_ieee;
use crate::inline::array;
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

/// Replaces `$out` by a field of each of the blocks `$x`; by zeros where one has numbers that are not finite. (A closure would not be
/// compiled for the instruction set.)
macro_rules! each {
    ($x:ident, $out:ident, |$block:ident| $field:expr) => {{
        let (out, mut i) = ($out.as_chunks_mut().0, 0);
        let x = &$x[..out.len()];
        while i < x.len() {
            let $block = &x[i];
            let field = $field;
            out[i] = if largest($block) < f32::INFINITY { field } else { [0; _] };
            i += 1;
        }
    }};
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

    /// Replaces `out` by a field of each of these blocks.
    #[inline(always)]
    fn fields(self, part: Part, x: &[Block], out: &mut [u8]) {
        match (self, part) {
            (BlockType::Mxfp4, Part::Exponent) => each!(x, out, |x| [exponent(x) as u8]),
            (BlockType::Mxfp4, _) => each!(x, out, |x| {
                // Of 0 the exponent is 0, too.
                let factor = power_of_two(127 - exponent(x) as i32);
                nibbles(array(|j| f4_down(x[j] * factor)))
            }),
            (BlockType::Q8_0, Part::Scale) => each!(x, out, |x| f16_of(largest(x) / 127.0).to_le_bytes()),
            (BlockType::Q8_0, _) => each!(x, out, |x| {
                let i = inverse(largest(x) / 127.0);
                array::<_, BLOCK>(|j| nearest(x[j] * i))
            }),
            (BlockType::Q4_0, _) => symmetric::<15>(part, x, out),
            (BlockType::Q5_0, _) => symmetric::<31>(part, x, out),
            (BlockType::Q4_1, _) => asymmetric::<15>(part, x, out),
            (BlockType::Q5_1, _) => asymmetric::<31>(part, x, out),
        }
    }
}

/// Fields of blocks of integers from 0 to `MOST`, in whose middle 0 is.
#[inline(always)]
fn symmetric<const MOST: u8>(part: Part, x: &[Block], out: &mut [u8]) {
    let half = f32::from(MOST.div_ceil(2));
    match part {
        Part::Scale => each!(x, out, |x| f16_of(first_largest(x) / -half).to_le_bytes()),
        Part::High => each!(x, out, |x| high(centred::<MOST>(x, half))),
        _ => each!(x, out, |x| nibbles(centred::<MOST>(x, half))),
    }
}

#[inline(always)]
fn centred<const MOST: u8>(x: &Block, half: f32) -> [u8; BLOCK] {
    let i = inverse(first_largest(x) / -half);
    array(|j| truncated::<MOST>((x[j] * i) + (half + 0.5)))
}

/// Fields of blocks of integers from 0 to `MOST`, from a minimum on.
#[inline(always)]
fn asymmetric<const MOST: u8>(part: Part, x: &[Block], out: &mut [u8]) {
    match part {
        Part::Scale => each!(x, out, |x| f16_of(scale::<MOST>(range(x))).to_le_bytes()),
        Part::Minimum => each!(x, out, |x| f16_of(range(x).0).to_le_bytes()),
        Part::High => each!(x, out, |x| high(above::<MOST>(x))),
        _ => each!(x, out, |x| nibbles(above::<MOST>(x))),
    }
}

#[inline(always)]
fn above<const MOST: u8>(x: &Block) -> [u8; BLOCK] {
    let range = range(x);
    let i = inverse(scale::<MOST>(range));
    array(|j| truncated::<MOST>(((x[j] - range.0) * i) + 0.5))
}

#[inline(always)]
fn scale<const MOST: u8>((min, max): (f32, f32)) -> f32 {
    (max - min) / f32::from(MOST)
}

#[inline(always)]
fn exponent(x: &Block) -> u32 {
    (largest(x).to_bits() >> 23).saturating_sub(2)
}

/// The numbers of a block.
type Block = [f32; BLOCK];
/// Blocks that are computed at once.
const AT_ONCE: usize = CHUNK / BLOCK;

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
        let mut x = [[0.0; BLOCK]; AT_ONCE];
        for (to, elements) in out.chunks_mut(AT_ONCE * len).zip(elements.chunks(CHUNK * from.width())) {
            let x = &mut x[..to.len() / len];
            widen(from, elements, x.as_flattened_mut());
            of.fields(part, x, to);
        }
    }
}

/// The fifth bits.
#[inline(always)]
fn high(of: [u8; BLOCK]) -> [u8; 4] {
    let (mut bits, mut j) = (0u32, 0);
    while j < BLOCK {
        bits |= u32::from(of[j] >> 4) << j;
        j += 1;
    }
    bits.to_le_bytes()
}

/// The lowest four bits, those of the first half in the lower ones of a byte.
#[inline(always)]
fn nibbles(of: [u8; BLOCK]) -> [u8; BLOCK / 2] {
    array(|j| of[j] & 15 | of[j + BLOCK / 2] << 4)
}

/// Without the digits after the point, within 0 and `MOST`; 0 for a NaN.
#[inline(always)]
fn truncated<const MOST: u8>(y: f32) -> u8 {
    let (y, most) = (if y > 0.0 { y } else { 0.0 }, f32::from(MOST));
    let y = if y < most { y } else { most };
    let sum = y + EVEN;
    sum.to_bits().wrapping_sub(u32::from(sum - EVEN > y)) as u8
}

/// The largest of some integers that numbers become.
#[inline(always)]
fn most(x: &Block, of: impl Fn(u32) -> i32) -> i32 {
    let (mut most, mut j) = (i32::MIN, 0);
    while j < BLOCK {
        most = most.max(of(x[j].to_bits()));
        j += 1;
    }
    most
}

/// The largest magnitude.
#[inline(always)]
fn largest(x: &Block) -> f32 {
    f32::from_bits(most(x, |bits| (bits & 0x7fff_ffff) as i32) as u32)
}

/// The first number of the largest magnitude.
#[inline(always)]
fn first_largest(x: &Block) -> f32 {
    let largest = largest(x).to_bits();
    // The first one has the highest key, whose lowest bit is its sign.
    let (mut first, mut j) = (0, 0);
    while j < BLOCK {
        let bits = x[j].to_bits();
        let key = ((BLOCK - j) as u32) << 1 | bits >> 31;
        first = first.max(if bits & 0x7fff_ffff == largest { key } else { 0 });
        j += 1;
    }
    f32::from_bits(largest | first << 31)
}

/// The least number and the largest one; −0 is less than 0.
#[inline(always)]
fn range(x: &Block) -> (f32, f32) {
    // Integers in the order of the numbers, and back.
    let order = |bits: u32| bits ^ ((bits as i32 >> 31) as u32 >> 1);
    let (min, max) = (!most(x, |bits| !order(bits) as i32), most(x, |bits| order(bits) as i32));
    (f32::from_bits(order(min as u32)), f32::from_bits(order(max as u32)))
}

#[inline(always)]
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The nearest integer, ties away from 0, within those of 8 bits, in two's complement; 0 for a NaN.
#[inline(always)]
fn nearest(y: f32) -> u8 {
    let y = if y.is_nan() { 0.0 } else { y };
    let y = if y < -128.0 { -128.0 } else { y };
    let y = if y > 127.0 { 127.0 } else { y };
    // Added to it, an integer is in the lowest bits: to nearest, ties to even.
    let sum = y + EVEN;
    let rest = y - (sum - EVEN);
    let away = u32::from(rest == 0.5 && y > 0.0).wrapping_sub(u32::from(rest == -0.5 && y < 0.0));
    sum.to_bits().wrapping_add(away) as u8
}

/// 2^`exponent`, from −127 to 127.
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 { f32::from_bits(1 << 22) } else { f32::from_bits(((exponent + 127) as u32) << 23) }
}
