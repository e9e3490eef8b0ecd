//! The parts of a block that is to be encoded: the bytes of all pieces of one kind, and what they may be predicted from.

use std::borrow::Cow;

use super::{Link, Piece};
use crate::dtype::Dtype;
use crate::format::bases::Dependency;
use crate::format::limits::MAX_PARTS;
use crate::predict::Conversion;

/// What the pieces of a part have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    column: usize,
}

/// The bytes of one part, gathered if its pieces are several.
pub(super) struct Source<'a> {
    kind: Kind,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where predictions of all its elements are; empty if there are none.
    pub(super) base: Vec<Dependency>,
}

impl Source<'_> {
    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.kind.dtype
    }

    pub(super) fn conversion(&self) -> Option<Conversion> {
        self.kind.base
    }
}

/// What a piece belongs to when there is no room for a further part.
const OPAQUE: Kind = Kind { dtype: None, base: None, column: 0 };

/// Parts with predictions, at most: the rest is for pieces without.
const MAX_PREDICTED: usize = MAX_PARTS / 2;

/// Puts the pieces of a kind together; says for every piece to which part it went. With `predict` false links are left out.
pub(super) fn gather<'a>(raw: &'a [u8], pieces: &[Piece], predict: bool) -> (Vec<Source<'a>>, Vec<(u8, usize)>) {
    let mut sources: Vec<Source<'a>> = Vec::new();
    let mut placed: Vec<(u8, usize)> = Vec::new();
    let mut at = 0;
    for p in pieces {
        let bytes = &raw[at..at + p.len];
        at += p.len;
        // A typed piece that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), base: None, column: p.column };
        let kind = Kind { base: base.map(|l| l.conversion), ..plain };
        let fits = |kind: &Kind, most| sources.len() < most || sources.iter().any(|s| s.kind == *kind);
        let (kind, base) = if base.is_some() && fits(&kind, MAX_PREDICTED) {
            (kind, base)
        } else if fits(&plain, MAX_PARTS - 1) {
            (plain, None)
        } else {
            (OPAQUE, None)
        };
        let part = match sources.iter().position(|s| s.kind == kind) {
            None => {
                sources.push(Source { kind, bytes: Cow::Borrowed(bytes), base: vec![] });
                sources.len() - 1
            }
            Some(i)
                if placed.last().is_some_and(|l| usize::from(l.0) == i)
                    && matches!(sources[i].bytes, Cow::Borrowed(_)) =>
            {
                // The same part goes on where it stopped: no copy is needed as long as it is the only stretch.
                let only = placed.iter().filter(|l| usize::from(l.0) == i).count() == 1;
                if only {
                    let len = sources[i].bytes.len() + p.len;
                    sources[i].bytes = Cow::Borrowed(&raw[at - len..at]);
                } else {
                    sources[i].bytes.to_mut().extend_from_slice(bytes);
                }
                i
            }
            Some(i) => {
                sources[i].bytes.to_mut().extend_from_slice(bytes);
                i
            }
        };
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("it was checked");
            push(&mut sources[part].base, &l, p.len / width * source_width);
        }
        match placed.last_mut() {
            Some(l) if usize::from(l.0) == part => l.1 += p.len,
            _ => placed.push((part as u8, p.len)),
        }
    }
    (sources, placed)
}

/// Appends a range, which may go on where the last one stopped.
fn push(list: &mut Vec<Dependency>, link: &Link, len: usize) {
    let len = len as u64;
    match list.last_mut() {
        Some(d) if d.source == link.source && d.end() == link.offset => d.len += len,
        _ => list.push(Dependency { source: link.source, offset: link.offset, len }),
    }
}
