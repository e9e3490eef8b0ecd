//! Columns of residuals: elements that are near their predictions (`docs/format.md` §3.7).

pub(in crate::block) mod choice;
pub(in crate::block) mod decode;
pub(crate) mod derived;
pub(in crate::block) mod factored;
pub(crate) mod grid;
mod histograms;
pub(crate) mod operand;
pub(in crate::block) mod plan;
pub(in crate::block) mod restore_sparse;
pub(in crate::block) mod scaled;
mod sparse;
pub(crate) mod steps;
mod terms;

use super::width::parse_width;
use crate::block::ranges::Ranges;
use crate::block::stream::Stream;
use crate::format::bases::SourceRange;
use crate::format::header::Features;
use lmc_kernels::predict::{Contexts, MAX_BOUNDARIES};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};
use operand::Operand;
use terms::Terms;

/// A column coded as residuals, by context.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// The source of the predictions.
    pub operand: Operand,
    /// `None` for a single context.
    pub(crate) contexts: Option<Contexts>,
    /// Terms of rows, which are subtracted from the keys; only of several contexts.
    pub terms: Option<Terms>,
    /// For each context its number of elements, and their stream if there are any.
    pub streams: Vec<(usize, Option<Stream>)>,
}

impl Predicted {
    /// Flag of row terms beside the number of boundaries.
    const TERMS: u8 = 128;

    pub(super) fn parse(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<Self> {
        let width = parse_width(c, len)?;
        let n = len / width;
        let operand = Operand::parse(c, width, n, ranges)?;
        let boundaries = c.u8()?;
        let terms = if boundaries > Self::TERMS { Some(Terms::parse(c)?) } else { None };
        let contexts = match usize::from(boundaries) - if terms.is_some() { usize::from(Self::TERMS) } else { 0 } {
            0 => None,
            count if count > MAX_BOUNDARIES => {
                return Err(Error::damaged(format!(
                    "a column has {count} boundaries between contexts; there are at most {MAX_BOUNDARIES}"
                )));
            }
            count => {
                let boundaries = c.bytes(count)?.to_vec();
                if boundaries[0] == 0 || !boundaries.is_sorted_by(|a, b| a < b) {
                    return Err(Error::damaged(format!(
                        "a column's boundaries between contexts do not rise: {boundaries:?}"
                    )));
                }
                Some(Contexts { boundaries })
            }
        };
        let mut left = n;
        let streams = (0..contexts.as_ref().map_or(1, Contexts::count))
            .map(|_| {
                let count = c.size(left, "a context's number of elements")?;
                left -= count;
                let stream = if count > 0 { Some(Stream::parse(c, width)?) } else { None };
                Ok((count, stream))
            })
            .collect::<Result<_>>()?;
        if left != 0 {
            return Err(Error::damaged(format!("the contexts of a column leave {left} of its {n} elements uncovered")));
        }
        Ok(Self { width, operand, contexts, terms, streams })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        out.push(self.width.trailing_zeros() as u8);
        self.operand.put(ranges, out);
        let boundaries = self.contexts.as_ref().map_or(&[][..], |c| &c.boundaries);
        out.push(boundaries.len() as u8 | if self.terms.is_some() { Self::TERMS } else { 0 });
        if let Some(terms) = &self.terms {
            terms.put(out);
        }
        out.extend_from_slice(boundaries);
        for (count, stream) in &self.streams {
            put(out, *count as u64);
            if let Some(s) = stream {
                s.put(out);
            }
        }
    }

    /// The features that a file with it needs, beside those of its ranges.
    pub(super) fn features(&self) -> Features {
        self.operand.features() | Features { optimizer: self.terms.is_some(), ..Features::default() }
    }

    /// Its streams, in the order of their bytes.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        let terms = self.terms.iter().map(|terms| &terms.stream);
        self.operand.streams().chain(terms).chain(self.streams.iter().filter_map(|s| s.1.as_ref()))
    }
}
