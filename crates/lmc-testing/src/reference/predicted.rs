//! Predicted columns (§3.7): elements coded as residuals.

use super::bytes::Bytes;
use super::dependencies::{Dependencies, bytes_of};
use super::faults::{Faults, must};
use super::stream::{Cluster, Stream, Streams, ones, run_lengths};
use std::iter::zip;

pub(super) struct Predicted {
    /// Bytes of an element.
    width: usize,
    predictor: Predictor,
    /// One for each element.
    predictions: Vec<u64>,
    unchanged: Option<UnchangedRuns>,
    /// The context of each element; not used in unchanged runs.
    contexts: Vec<usize>,
    /// Number of elements of each context, with its stream unless the context is empty.
    streams: Vec<(usize, Option<Stream>)>,
}

struct UnchangedRuns {
    /// Number of their elements.
    count: u64,
    map: Cluster,
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
        dependencies: &Dependencies<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let n = length / width;
        let predictor = Predictor::of(head.u8()?).ok_or("a column has an unknown predictor")?;
        let conversion = Conversion::of(head.u8()?).ok_or("a column has an unknown conversion")?;
        must(conversion.gives(width), "the conversion of a column does not give elements of its width")?;
        let mut predictions = dependencies.elements(head, conversion.takes(width), n)?;
        predictions.iter_mut().for_each(|p| *p = conversion.convert(*p));

        let count = head.u8()?;
        faults.must(count <= 15, "a column has too many boundaries");
        let boundaries = head.take(count.into())?;
        faults.must(boundaries.first() != Some(&0), "the first boundary is 0");
        faults.must(boundaries.is_sorted_by(|a, b| a < b), "a boundary is not larger than the one before it");
        let contexts = predictions.iter().map(|&p| context(key(p, 8 * width as u32), boundaries)).collect();

        let unchanged = match head.u8()? {
            0 => None,
            1 => Some(UnchangedRuns { count: head.varint()?, map: Cluster::parse(head, 1, lane_sets)? }),
            _ => return Err("a column has an unknown kind of unchanged runs".into()),
        };

        let mut streams = Vec::new();
        let mut sum = unchanged.as_ref().map_or(0, |unchanged| u128::from(unchanged.count));
        for _ in 0..=count {
            let elements = head.varint()?;
            sum += u128::from(elements);
            let stream = if elements == 0 { None } else { Some(Stream::parse(head, width, lane_sets, faults)?) };
            streams.push((elements, stream));
        }
        must(sum == n as u128, "the contexts of a column do not add up to its elements")?;
        let streams = streams.into_iter().map(|(elements, stream)| (elements as usize, stream)).collect();
        Ok(Self { width, predictor, predictions, unchanged, contexts, streams })
    }

    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u8>, String> {
        let coded = match &self.unchanged {
            None => vec![true; self.contexts.len()],
            Some(unchanged) => unchanged.decode(self.contexts.len(), streams, faults)?,
        };
        for (context, (count, _)) in self.streams.iter().enumerate() {
            let actual = zip(&self.contexts, &coded).filter(|&(&c, &coded)| coded && c == context).count();
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
        let element = |((&p, &context), &coded): ((&u64, &usize), &bool)| {
            if !coded {
                return p;
            }
            let e = residuals[context].next().expect("a context has the elements that were counted");
            self.predictor.element(e, p, w)
        };
        let elements: Vec<u64> = zip(zip(&self.predictions, &self.contexts), &coded).map(element).collect();
        Ok(bytes_of(&elements, self.width))
    }
}

impl UnchangedRuns {
    /// Whether each of `n` elements is coded.
    fn decode(&self, n: usize, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<bool>, String> {
        let runs = run_lengths(n);
        let map = self.map.decode(&run_lengths(runs.len()), 8, streams, faults)?;
        must(map.iter().all(|&run| run <= 1), "a run is neither unchanged nor coded")?;
        let coded: Vec<bool> = zip(map, runs).flat_map(|(run, length)| vec![run == 0; length]).collect();
        let unchanged = coded.iter().filter(|&&coded| !coded).count();
        must(self.count == unchanged as u64, "another number of elements is in unchanged runs")?;
        Ok(coded)
    }
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
