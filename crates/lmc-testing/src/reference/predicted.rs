//! Predicted columns (§3.7): elements coded as residuals.

use super::bytes::Bytes;
use super::faults::{Faults, must};
use super::ranges::{Ranges, bytes_of, elements};
use super::stream::{Stream, Streams, ones};
use std::iter::zip;

pub(super) struct Predicted {
    /// Bytes of an element.
    width: usize,
    predictor: Predictor,
    /// One for each element.
    predictions: Vec<u64>,
    /// The context of each element.
    contexts: Vec<usize>,
    /// Number of elements of each context, with its stream unless the context is empty.
    streams: Vec<(usize, Option<Stream>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predictor {
    DifferenceOfFloats,
    DifferenceOfIntegers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    None,
    F32ToBf16,
    Bf16ToF32,
    F32ToF16,
}

impl Predicted {
    /// Reads the head of a column of `length` bytes, elements of `width` bytes, after the width code.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        length: usize,
        lane_sets: u8,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let n = length / width;
        let predictor = Predictor::of(head.u8()?).ok_or("a column has an unknown predictor")?;
        let operands = head.u8()?;
        must(operands == 1, "a column has another number of operands than its predictor needs")?;
        let predictions = operand(head, width, n, ranges, faults)?;

        let count = head.u8()?;
        faults.must(count <= 15, "a column has too many boundaries");
        let boundaries = head.take(count.into())?;
        faults.must(boundaries.first() != Some(&0), "the first boundary is 0");
        faults.must(boundaries.is_sorted_by(|a, b| a < b), "a boundary is not larger than the one before it");
        let contexts = predictions.iter().map(|&p| context(key(p, 8 * width as u32), boundaries)).collect();

        let mut streams = Vec::new();
        let mut sum = 0;
        for _ in 0..=count {
            let elements = head.varint()?;
            sum += u128::from(elements);
            let stream = if elements == 0 { None } else { Some(Stream::parse(head, width, false, lane_sets, faults)?) };
            streams.push((elements, stream));
        }
        must(sum == n as u128, "the contexts of a column do not add up to its elements")?;
        let streams = streams.into_iter().map(|(elements, stream)| (elements as usize, stream)).collect();
        Ok(Self { width, predictor, predictions, contexts, streams })
    }

    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u8>, String> {
        for (context, (count, _)) in self.streams.iter().enumerate() {
            let actual = self.contexts.iter().filter(|&&c| c == context).count();
            must(*count == actual, "a context of a column has another number of elements")?;
        }

        let mut residuals = Vec::new();
        for (count, stream) in &self.streams {
            residuals.push(match stream {
                None => Vec::new().into_iter(),
                Some(stream) => stream.decode(*count, streams, faults)?.into_iter(),
            });
        }
        let w = 8 * self.width as u32;
        let element = |(&p, &context): (&u64, &usize)| {
            let e = residuals[context].next().expect("a context has the elements that were counted");
            self.predictor.element(e, p, w)
        };
        let elements: Vec<u64> = zip(&self.predictions, &self.contexts).map(element).collect();
        Ok(bytes_of(&elements, self.width))
    }
}

/// Reads an operand of a column of `n` elements of `width` bytes: one converted element for each of them.
fn operand(
    head: &mut Bytes<'_>,
    width: usize,
    n: usize,
    ranges: &mut Ranges<'_>,
    faults: &mut Faults,
) -> Result<Vec<u64>, String> {
    let conversion = Conversion::of(head.u8()?).ok_or("an operand has an unknown conversion")?;
    must(conversion.gives(width), "the conversion of an operand does not give elements of its column's width")?;
    let count = head.varint()?;
    must(count >= 1, "an operand has no ranges")?;
    let bytes = ranges.read(head, count, faults)?;
    let length: usize = bytes.iter().map(|range| range.len()).sum();
    must(
        length == n * conversion.takes(width),
        "the ranges of an operand do not have its column's number of elements",
    )?;
    Ok(elements(&bytes.concat(), conversion.takes(width)).into_iter().map(|x| conversion.convert(x)).collect())
}

/// The key of a prediction of `w` bits.
pub(super) fn key(p: u64, w: u32) -> u8 {
    let rotated = (p << 1 | p >> (w - 1)) & ones(w);
    (rotated >> (w - 8)) as u8
}

/// The number of boundaries that are at most the key.
pub(super) fn context(key: u8, boundaries: &[u8]) -> usize {
    boundaries.iter().filter(|&&boundary| boundary <= key).count()
}

impl Predictor {
    pub(super) fn of(code: u8) -> Option<Self> {
        [Self::DifferenceOfFloats, Self::DifferenceOfIntegers].get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The element of `w` bits from its residual and its prediction.
    pub(super) fn element(self, e: u64, p: u64, w: u32) -> u64 {
        let d = (e >> 1) ^ if e & 1 == 1 { ones(w) } else { 0 };
        match self {
            Self::DifferenceOfFloats => ord(d.wrapping_add(ord(p, w)) & ones(w), w),
            Self::DifferenceOfIntegers => d.wrapping_add(p) & ones(w),
        }
    }
}

/// Makes neighbouring floats of `w` bits neighbouring integers, and back.
pub(super) fn ord(y: u64, w: u32) -> u64 {
    if y >> (w - 1) == 0 { y } else { y ^ (ones(w) >> 1) }
}

impl Conversion {
    pub(super) fn of(code: u8) -> Option<Self> {
        [Self::None, Self::F32ToBf16, Self::Bf16ToF32, Self::F32ToF16].get(usize::from(code)).copied()
    }

    /// Whether it gives elements of `width` bytes.
    fn gives(self, width: usize) -> bool {
        match self {
            Self::None => true,
            Self::F32ToBf16 | Self::F32ToF16 => width == 2,
            Self::Bf16ToF32 => width == 4,
        }
    }

    /// Bytes of an element before conversion to `width` bytes.
    pub(super) fn takes(self, width: usize) -> usize {
        match self {
            Self::None => width,
            Self::F32ToBf16 | Self::F32ToF16 => 4,
            Self::Bf16ToF32 => 2,
        }
    }

    pub(super) fn convert(self, x: u64) -> u64 {
        match self {
            Self::None => x,
            Self::F32ToBf16 => ((x + 0x7fff + (x >> 16 & 1)) % (1 << 32)) >> 16,
            Self::Bf16ToF32 => x << 16,
            Self::F32ToF16 => f16_of(x as u32).into(),
        }
    }
}

/// The F16 nearest to an F32. Everything here is exact but the rounding.
fn f16_of(x: u32) -> u16 {
    let sign = (x >> 16) as u16 & 0x8000;
    let magnitude = f32::from_bits(x & 0x7fff_ffff);
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65536.0 {
        return sign | 0x7c00;
    }
    // The exponent of the first bit; below 2^-14 all F16 are multiples of 2^-24.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-14);
    let multiples = (f64::from(magnitude) * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // From 2^10 to 2^11; the first bit adds 1 to the exponent. Fewer when the result is subnormal.
    sign | ((((exponent + 14) as u16) << 10) + multiples)
}
