//! Predicted columns (§3.7) from a description.
//!
//! Conversions, other computations and contexts are shared with the reference decoder.

use super::super::conversion::Conversion;
use super::super::optimizer::{at, parts, prediction};
use super::super::predicted::{GRID, ROW_TERMS, TERMS, context, element, ord, top};
use super::super::ranges::{bytes_of, elements};
use super::super::terms::key;
use super::derived::Derived;
use super::grid::Grid;
use super::range::{self, Range};
use super::stream::{Output, Stream};
use super::terms::{RowTerms, Terms};
use super::varint;

/// A column of method 3.
#[derive(Clone, Debug)]
pub struct Predicted {
    pub raw: Vec<u8>,
    pub width_code: u8,
    pub operand: Operand,
    pub row_terms: Option<RowTerms>,
    /// Boundaries between contexts; empty for a single context.
    pub boundaries: Vec<u8>,
    /// One for each context; not used when the context is empty.
    pub streams: Vec<Stream>,
}

/// The data that the elements of a column are predicted from.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few at a time")]
pub enum Operand {
    /// Elements of other data, one for each of the column's, and how they are converted.
    Ranges { conversion: u8, ranges: Vec<Range> },
    /// Products of levels and scales.
    Grid(Grid),
    /// Other data, several in general, and constants, which predictions are computed from: kinds 5, 6 and 7.
    Step { kind: u8, constants: Vec<u32>, data: Vec<Vec<Range>> },
    /// Sums of terms of rows and columns.
    Terms(Terms),
    /// Other data in another precision: kinds 9 to 12.
    Derived(Derived),
}

/// The prediction and the context of each element.
struct Classified {
    predictions: Vec<u64>,
    contexts: Vec<usize>,
}

impl Predicted {
    /// Number of elements of each context. Of `raw` only the length matters.
    ///
    /// # Errors
    /// When the operand does not have the column's number of elements.
    pub fn context_counts(&self) -> Result<Vec<usize>, String> {
        let Classified { contexts, .. } = self.classified()?;
        Ok((0..=self.boundaries.len()).map(|context| contexts.iter().filter(|&&c| c == context).count()).collect())
    }

    /// Replaces `raw`, keeping its length, by the elements that have these residuals, context by context.
    ///
    /// # Errors
    /// When the operand does not have the column's number of elements.
    ///
    /// # Panics
    /// When a context has fewer residuals than elements.
    pub fn set_residuals(&mut self, residuals: Vec<Vec<u64>>) -> Result<(), String> {
        let Classified { predictions, contexts } = self.classified()?;
        let mut residuals: Vec<_> = residuals.into_iter().map(Vec::into_iter).collect();
        let restored = |(p, context): (u64, usize)| {
            let e = residuals[context].next().expect("every element has a residual");
            element(e, p, self.w())
        };
        let elements: Vec<u64> = predictions.into_iter().zip(contexts).map(restored).collect();
        self.raw = bytes_of(&elements, self.width());
        Ok(())
    }

    fn width(&self) -> usize {
        1 << self.width_code
    }

    fn w(&self) -> u32 {
        8 << self.width_code
    }

    fn classified(&self) -> Result<Classified, String> {
        let predictions = self.operand.elements(self.width(), self.raw.len() / self.width())?;
        let mut contexts = Vec::new();
        for (element, &p) in predictions.iter().enumerate() {
            let term = self.row_terms.as_ref().map_or(Ok(0), |terms| terms.of(element))?;
            contexts.push(context(key(top(p, self.w()), term), &self.boundaries));
        }
        Ok(Classified { predictions, contexts })
    }

    pub(super) fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        output.head.extend([3, self.width_code]);
        self.operand.encode(output)?;
        match &self.row_terms {
            None => output.head.push(self.boundaries.len() as u8),
            Some(terms) => {
                output.head.push(ROW_TERMS | self.boundaries.len() as u8);
                terms.encode(output)?;
            }
        }
        output.head.extend(&self.boundaries);

        let Classified { predictions, contexts } = self.classified()?;
        let mut residuals = vec![Vec::new(); self.boundaries.len() + 1];
        for ((u, p), context) in elements(&self.raw, self.width()).into_iter().zip(predictions).zip(contexts) {
            residuals[context].push(residual(u, p, self.w()));
        }
        for (context, residuals) in residuals.iter().enumerate() {
            varint(&mut output.head, residuals.len() as u64);
            if !residuals.is_empty() {
                let stream = self.streams.get(context).ok_or("a context has no stream")?;
                stream.encode(residuals, self.width(), output)?;
            }
        }
        Ok(())
    }
}

/// The residual of an element of `w` bits.
fn residual(u: u64, p: u64, w: u32) -> u64 {
    let mask = u64::MAX >> (64 - w);
    // A small distance, up or down, as a small number.
    let zigzag = |d: u64| (d << 1 ^ if d >> (w - 1) & 1 == 1 { u64::MAX } else { 0 }) & mask;
    zigzag(ord(u, w).wrapping_sub(ord(p, w)) & mask)
}

impl Operand {
    /// Of these ranges, not converted.
    pub fn of(ranges: Vec<Range>) -> Self {
        Self::Ranges { conversion: 0, ranges }
    }

    /// The ranges that it names.
    pub fn ranges(&self) -> Vec<&Range> {
        match self {
            Self::Ranges { ranges, .. } => ranges.iter().collect(),
            Self::Step { data, .. } | Self::Derived(Derived { data, .. }) => data.iter().flatten().collect(),
            Self::Grid(_) | Self::Terms(_) => Vec::new(),
        }
    }

    /// The bit of the features that it needs besides those of its ranges.
    pub(super) fn needs(&self) -> u32 {
        match self {
            Self::Ranges { .. } => 0,
            Self::Grid(_) => 4,
            Self::Step { .. } | Self::Terms(_) => 8,
            Self::Derived(_) => 16,
        }
    }

    fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        match self {
            Self::Ranges { conversion, ranges } => {
                output.head.push(*conversion);
                range::write(ranges, &mut output.head);
                Ok(())
            }
            Self::Grid(grid) => {
                output.head.push(GRID);
                grid.encode(output)
            }
            Self::Step { kind, constants, data } => {
                output.head.push(*kind);
                constants.iter().for_each(|constant| output.head.extend(constant.to_le_bytes()));
                data.iter().for_each(|ranges| range::write(ranges, &mut output.head));
                Ok(())
            }
            Self::Terms(terms) => {
                output.head.push(TERMS);
                terms.encode(output)
            }
            Self::Derived(derived) => derived.encode(output),
        }
    }

    /// The predictions of `n` elements of `width` bytes.
    fn elements(&self, width: usize, n: usize) -> Result<Vec<u64>, String> {
        let (conversion, ranges) = match self {
            Self::Ranges { conversion, ranges } => (*conversion, ranges),
            Self::Grid(grid) => return grid.predictions(n),
            Self::Step { kind, constants, data } => return step(*kind, constants, data, width, n),
            Self::Terms(terms) => return terms.predictions(width, n),
            Self::Derived(derived) => return derived.predictions(width, n),
        };
        let conversion = Conversion::of(conversion).ok_or("there is no such conversion")?;
        let bytes = range::bytes(ranges);
        if bytes.len() != n * conversion.takes(width) {
            return Err("the ranges of an operand do not have its column's number of elements".into());
        }
        Ok(elements(&bytes, conversion.takes(width)).into_iter().map(|x| conversion.convert(x)).collect())
    }
}

/// The predictions of `n` elements of `width` bytes of an operand of kind 5, 6 or 7.
fn step(kind: u8, constants: &[u32], data: &[Vec<Range>], width: usize, n: usize) -> Result<Vec<u64>, String> {
    let lists: Vec<Vec<u64>> = data.iter().map(|ranges| elements(&range::bytes(ranges), width)).collect();
    let fits = |list: &Vec<u64>| list.len() == n;
    let (others, fourth) = lists.split_at(lists.len().min(3));
    let is_whole = others.iter().all(fits) && fourth.iter().all(|list| list.is_empty() || fits(list));
    if parts(kind) != Some((constants.len(), data.len())) || !is_whole {
        return Err("an operand does not have the constants and the elements of its kind".into());
    }
    let constants: Vec<u64> = constants.iter().map(|&constant| constant.into()).collect();
    Ok((0..n).map(|element| prediction(kind, &constants, &at(&lists, element), width)).collect())
}
