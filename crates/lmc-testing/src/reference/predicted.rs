//! Predicted columns (§3.7): elements coded as residuals.

use super::bytes::Bytes;
use super::conversion::Conversion;
use super::derived::{CAST, Derived, FIELD};
use super::faults::{Faults, must};
use super::grid::Grid;
use super::optimizer::Step;
use super::ranges::{Ranges, bytes_of, elements};
use super::stream::{Stream, Streams, ones};
use super::terms::{RowTerms, Terms};
use std::iter::zip;

/// The kind of an operand that is a grid; those below are conversions.
pub(super) const GRID: u8 = 4;
/// The kind of an operand that is terms of rows and columns.
pub(super) const TERMS: u8 = 8;
/// In the byte with the number of boundaries: there are row terms.
pub(super) const ROW_TERMS: u8 = 128;

pub(super) struct Predicted {
    /// Bytes of an element.
    width: usize,
    operand: Operand,
    row_terms: Option<RowTerms>,
    /// The boundaries between contexts.
    boundaries: Vec<u8>,
    /// Number of elements of each context, with its stream unless the context is empty.
    streams: Vec<(usize, Option<Stream>)>,
}

#[expect(clippy::large_enum_variant, reason = "there are a few at a time")]
enum Operand {
    /// The prediction of each element.
    Elements(Vec<u64>),
    Grid(Grid),
    Step(Step),
    Terms(Terms),
    Derived(Derived),
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
        let operand = Operand::parse(head, width, n, lane_sets, ranges, faults)?;

        let count = head.u8()?;
        let row_terms = match count >= ROW_TERMS {
            true => Some(RowTerms::parse(head, n, lane_sets, ranges, faults)?),
            false => None,
        };
        let count = count % ROW_TERMS;
        faults.must(count <= 15, "a column has too many boundaries");
        faults.must(count >= 1 || row_terms.is_none(), "a column has row terms, but no boundaries");
        let boundaries = head.take(count.into())?;
        faults.must(boundaries.first() != Some(&0), "the first boundary is 0");
        faults.must(boundaries.is_sorted_by(|a, b| a < b), "a boundary is not larger than the one before it");
        let boundaries = boundaries.to_vec();

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
        Ok(Self { width, operand, row_terms, boundaries, streams })
    }

    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u8>, String> {
        let w = 8 * self.width as u32;
        let predictions = match &self.operand {
            Operand::Elements(predictions) => predictions.clone(),
            Operand::Grid(grid) => grid.decode(streams, faults)?,
            Operand::Step(step) => step.decode(streams),
            Operand::Terms(terms) => terms.decode(streams, faults)?,
            Operand::Derived(derived) => derived.decode(streams, faults)?,
        };
        let mut keys: Vec<u8> = predictions.iter().map(|&p| top(p, w)).collect();
        if let Some(row_terms) = &self.row_terms {
            keys = row_terms.keys(&keys, streams, faults)?;
        }
        let contexts: Vec<usize> = keys.into_iter().map(|key| context(key, &self.boundaries)).collect();
        for (context, (count, _)) in self.streams.iter().enumerate() {
            let actual = contexts.iter().filter(|&&c| c == context).count();
            must(*count == actual, "a context of a column has another number of elements")?;
        }

        let mut residuals = Vec::new();
        for (count, stream) in &self.streams {
            residuals.push(match stream {
                None => Vec::new().into_iter(),
                Some(stream) => stream.decode(*count, streams, faults)?.into_iter(),
            });
        }
        let restored = |(&p, &context): (&u64, &usize)| {
            let e = residuals[context].next().expect("a context has the elements that were counted");
            element(e, p, w)
        };
        let elements: Vec<u64> = zip(&predictions, &contexts).map(restored).collect();
        Ok(bytes_of(&elements, self.width))
    }
}

impl Operand {
    /// Reads the operand of a column of `n` elements of `width` bytes.
    fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        n: usize,
        lane_sets: u8,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let kind = head.u8()?;
        if kind == GRID {
            return Ok(Self::Grid(Grid::parse(head, width, n, lane_sets, ranges, faults)?));
        }
        if kind >= CAST {
            must(kind <= FIELD, "an operand is of an unknown kind")?;
            return Ok(Self::Derived(Derived::parse(head, kind, width, n, lane_sets, ranges, faults)?));
        }
        if kind > GRID {
            ranges.need(3, "operands of kinds 5 to 8", faults);
            return Ok(match kind {
                TERMS => Self::Terms(Terms::parse(head, width, n, lane_sets, faults)?),
                _ => Self::Step(Step::parse(head, kind, width, n, ranges, faults)?),
            });
        }
        let conversion = Conversion::of(kind).ok_or("an operand is of an unknown kind")?;
        must(conversion.gives(width), "the conversion of an operand does not give elements of its column's width")?;
        let count = head.varint()?;
        must(count >= 1, "an operand has no ranges")?;
        let bytes = ranges.read(head, count, faults)?;
        let length: usize = bytes.iter().map(|range| range.len()).sum();
        must(
            length == n * conversion.takes(width),
            "the ranges of an operand do not have its column's number of elements",
        )?;
        let elements = elements(&bytes.concat(), conversion.takes(width));
        Ok(Self::Elements(elements.into_iter().map(|x| conversion.convert(x)).collect()))
    }
}

/// The top byte of a prediction of `w` bits, rotated: without row terms, the key of the element.
pub(super) fn top(p: u64, w: u32) -> u8 {
    let rotated = (p << 1 | p >> (w - 1)) & ones(w);
    (rotated >> (w - 8)) as u8
}

/// The number of boundaries that are at most the key.
pub(super) fn context(key: u8, boundaries: &[u8]) -> usize {
    boundaries.iter().filter(|&&boundary| boundary <= key).count()
}

/// The element of `w` bits from its residual and its prediction.
pub(super) fn element(e: u64, p: u64, w: u32) -> u64 {
    let d = (e >> 1) ^ if e & 1 == 1 { ones(w) } else { 0 };
    ord(d.wrapping_add(ord(p, w)) & ones(w), w)
}

/// Makes neighbouring floats of `w` bits neighbouring integers, and back.
pub(super) fn ord(y: u64, w: u32) -> u64 {
    if y >> (w - 1) == 0 { y } else { y ^ (ones(w) >> 1) }
}
