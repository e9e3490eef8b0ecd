//! The parts of a block that is to be encoded: the bytes of all extents of one kind, and what they may be predicted from.

use std::borrow::Cow;

use super::{Extent, Link};
use crate::dtype::Dtype;
use crate::format::bases::Dependency;
use crate::format::limits::MAX_PARTS;
use crate::predict::Conversion;

/// What the extents of a part have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    column: usize,
}

/// The bytes of one part, gathered if its extents are several.
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

/// What an extent belongs to when there is no room for a further part.
const OPAQUE: Kind = Kind { dtype: None, base: None, column: 0 };

/// Parts with predictions, at most: the rest is for extents without.
const MAX_PREDICTED: usize = MAX_PARTS / 2;

/// Puts the extents of a kind together; says for every extent to which part it went. With `predict` false links are left out.
pub(super) fn gather<'a>(raw: &'a [u8], extents: &[Extent], predict: bool) -> (Vec<Source<'a>>, Vec<(u8, usize)>) {
    let mut kinds: Vec<(Kind, Vec<Dependency>)> = Vec::new();
    let mut placed: Vec<(u8, usize)> = Vec::new();
    for p in extents {
        // A typed extent that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), base: None, column: p.column };
        let kind = Kind { base: base.map(|l| l.conversion), ..plain };
        let fits = |kind: &Kind, most| kinds.len() < most || kinds.iter().any(|k| k.0 == *kind);
        let (kind, base) = if base.is_some() && fits(&kind, MAX_PREDICTED) {
            (kind, base)
        } else if fits(&plain, MAX_PARTS - 1) {
            (plain, None)
        } else {
            (OPAQUE, None)
        };
        let part = kinds.iter().position(|k| k.0 == kind).unwrap_or(kinds.len());
        if part == kinds.len() {
            kinds.push((kind, vec![]));
        }
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("it was checked");
            push(&mut kinds[part].1, &l, p.len / width * source_width);
        }
        match placed.last_mut() {
            Some(l) if usize::from(l.0) == part => l.1 += p.len,
            _ => placed.push((part as u8, p.len)),
        }
    }
    let source = |(part, (kind, base))| Source { kind, base, bytes: bytes_of(part, raw, &placed) };
    (kinds.into_iter().enumerate().map(source).collect(), placed)
}

/// The bytes of a part: those of the block, if they lie next to each other there.
fn bytes_of<'a>(part: usize, raw: &'a [u8], placed: &[(u8, usize)]) -> Cow<'a, [u8]> {
    let mut at = 0;
    let own = placed.iter().filter_map(|&(p, len)| {
        at += len;
        (usize::from(p) == part).then(|| &raw[at - len..at])
    });
    match own.collect::<Vec<_>>()[..] {
        [only] => Cow::Borrowed(only),
        ref several => Cow::Owned(several.concat()),
    }
}

/// Appends a range, which may go on where the last one stopped.
fn push(list: &mut Vec<Dependency>, link: &Link, len: usize) {
    let len = len as u64;
    match list.last_mut() {
        Some(d) if d.source == link.source && d.end() == link.offset => d.len += len,
        _ => list.push(Dependency { source: link.source, offset: link.offset, len }),
    }
}
