//! Arguments of the kernels of the predict stage.

use super::Contexts;
use super::optimizer::Rows;
use crate::cluster::element::{Element, with_element};
use crate::inline::zip;
use lmc_layout::io::scratch;

/// How the elements of a column are predicted.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// Bytes of an element.
    pub width: usize,
    /// Elements of the column.
    pub len: usize,
    /// The prediction of every element.
    pub prediction: &'a [u8],
    /// `None` for a single context.
    pub contexts: Option<&'a Contexts>,
    /// Terms of rows, which are subtracted from the keys.
    pub terms: Option<RowTerms<'a>>,
}

/// A term for each row that a column has elements of.
#[derive(Clone, Copy)]
pub struct RowTerms<'a> {
    /// The rows.
    pub rows: Rows,
    /// Their terms.
    pub terms: &'a [u8],
}

impl RowTerms<'_> {
    /// The terms of `n` elements from element `first` on.
    pub fn of(self, first: usize, n: usize) -> Self {
        let at = self.rows.position + first as u64;
        let rows = Rows { position: at % self.rows.len, ..self.rows };
        Self { rows, terms: &self.terms[(at / self.rows.len) as usize..][..rows.count(n)] }
    }

    /// Subtracts from the keys of elements, from element `first` on, the terms of their rows.
    #[inline(always)]
    pub(crate) fn subtract(self, first: usize, keys: &mut [u8]) {
        self.rows.each(first, keys.len(), |row, _, range| {
            let term = self.terms[row];
            keys[range].iter_mut().for_each(|key| *key = key.wrapping_sub(term));
        });
    }
}

impl<'a> Model<'a> {
    /// The predictions of `len` bytes of elements, from element `first` on.
    #[inline(always)]
    pub(crate) fn predictions(&self, first: usize, len: usize) -> &'a [u8] {
        &self.prediction[first * self.width..][..len]
    }

    /// The bounds that every kernel relies on; holds in release builds too.
    pub(crate) fn check(&self) {
        assert_eq!(self.prediction.len(), self.len * self.width, "a prediction for every element");
        if let Some(contexts) = self.contexts {
            assert!(contexts.count() <= super::MAX_BOUNDARIES + 1 && contexts.boundaries.is_sorted_by(|a, b| a < b));
        }
        if let Some(RowTerms { rows, terms }) = self.terms {
            assert!(rows.position < rows.len && terms.len() == rows.count(self.len), "a term for every row");
        }
    }
}

/// The context of an element, and its rank there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The context.
    pub context: u8,
    /// Elements of its context before it.
    pub before: u32,
}

/// Bytes behind every stream that vector loads and stores may touch.
pub(crate) const SLACK: usize = 64;

/// Elements of a tile: their keys and contexts stay in the first-level cache.
pub(crate) const TILE: usize = 1024;
/// Bytes behind the end of every stream, other streams among them, that kernels may read: a tile and a register.
pub(crate) const BEHIND: usize = 8 * TILE + SLACK;

/// The place and the element width of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) at: usize,
    /// In bytes.
    pub(crate) len: usize,
    /// Bytes of an element: those of the column's, or one where all residuals fit into that.
    pub(crate) width: usize,
}

/// A residual that exceeds a byte, in a stream of bytes that holds its lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    pub(crate) context: u8,
    /// Element of the stream.
    pub(crate) at: usize,
    /// The whole residual.
    pub(crate) residual: u64,
}

/// The streams of a column: elements of one context after the other, each context with room behind it.
#[derive(Default)]
pub struct Streams {
    bytes: Vec<u8>,
    streams: Vec<Stream>,
    /// Residuals that did not fit a byte, in the order of the column.
    overflows: Vec<Overflow>,
}

/// Most overflows of a column of `len` elements; with more, whole elements are better.
pub(crate) fn most_overflows(len: usize) -> usize {
    len / 64
}

impl Streams {
    /// Makes room for contexts of up to these numbers of elements, of this many bytes each. Contents are arbitrary.
    pub fn reset(&mut self, sizes: impl IntoIterator<Item = (usize, usize)>) {
        self.streams.clear();
        self.overflows.clear();
        let mut at = 0;
        for (n, width) in sizes {
            self.streams.push(Stream { at, len: n * width, width });
            at += n * width + SLACK;
        }
        scratch(&mut self.bytes, at + BEHIND);
    }

    /// The stream of a context.
    pub fn get(&self, context: usize) -> &[u8] {
        let Stream { at, len, .. } = self.streams[context];
        &self.bytes[at..at + len]
    }

    /// The stream of a context, to be written.
    pub fn get_mut(&mut self, context: usize) -> &mut [u8] {
        let Stream { at, len, .. } = self.streams[context];
        &mut self.bytes[at..at + len]
    }

    /// Bytes of an element of a context.
    pub fn width(&self, context: usize) -> usize {
        self.streams[context].width
    }

    /// Widens the elements of contexts with overflows to the column's width.
    pub fn widen(&mut self, width: usize) {
        let overflows = std::mem::take(&mut self.overflows);
        for context in 0..self.streams.len() {
            let of_context = || overflows.iter().filter(|o| usize::from(o.context) == context);
            if of_context().next().is_none() {
                continue;
            }
            let Stream { at: from, len: n, .. } = self.streams[context];
            let at = self.streams.iter().map(|s| s.at + s.len + SLACK).max().unwrap_or(0);
            let len = at + n * width + SLACK + BEHIND;
            self.bytes.resize(len.max(self.bytes.len()), 0);
            let (narrow, wide) = self.bytes.split_at_mut(at);
            let wide = &mut wide[..n * width];
            with_element!(width, E => {
                zip(E::all_mut(wide), &narrow[from..from + n], |to, &byte| *to = E::cut(byte.into()).to_bytes());
                of_context().for_each(|o| E::cut(o.residual).store(&mut wide[o.at * width..]));
            });
            self.streams[context] = Stream { at, len: n * width, width };
        }
        self.overflows = overflows;
        self.overflows.clear();
    }

    /// All bytes, the place of each context, and the list of overflows.
    pub(crate) fn raw_parts_mut(&mut self) -> (&mut [u8], &mut [Stream], &mut Vec<Overflow>) {
        (&mut self.bytes, &mut self.streams, &mut self.overflows)
    }

    /// Elements of every context.
    pub fn counts(&self) -> Vec<usize> {
        self.streams.iter().map(|s| s.len / s.width).collect()
    }

    pub(crate) fn raw_parts(&self) -> (&[u8], &[Stream]) {
        (&self.bytes, &self.streams)
    }
}

/// The next place of a context in its stream.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) next: usize,
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// Bytes of an element.
    pub(crate) width: usize,
    /// The largest residual that fits.
    pub(crate) most: u64,
    pub(crate) context: u8,
}

/// The places of the contexts of elements of `width` bytes, in a buffer of `len` bytes. Kernels rely on [`BEHIND`] bytes after the end of
/// every stream, and on elements of `width` bytes or one.
pub(crate) fn places(len: usize, of: &[Stream], contexts: usize, width: usize) -> Vec<Place> {
    assert_eq!(of.len(), contexts, "a stream for every context");
    let place = |(context, s): (u8, &Stream)| {
        assert!(s.at <= len && s.len <= len - s.at && BEHIND <= len - s.at - s.len, "streams have room behind them");
        assert!(s.width == width || s.width == 1, "streams have the column's elements, or single bytes");
        let most = u64::MAX >> (64 - 8 * s.width);
        Place { next: s.at, first: s.at, end: s.at + s.len, width: s.width, most, context }
    };
    (0..).zip(of).map(place).collect()
}

/// [`places`], those of byte-wide streams separate from those of whole elements, if the widths differ.
pub(crate) fn places_by_width(len: usize, of: &[Stream], contexts: usize, width: usize) -> [Vec<Place>; 2] {
    let (single, whole) = places(len, of, contexts, width).into_iter().partition(|p| p.width == 1);
    [single, whole]
}

/// Truncates filled streams to their contents.
pub(crate) fn trim<'a>(streams: &mut [Stream], places: impl IntoIterator<Item = &'a Place>) {
    for p in places {
        streams[usize::from(p.context)].len = p.next - p.first;
    }
}
