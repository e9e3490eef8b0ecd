//! Gathers the extents of a block into columns, by dtype and reference.

use std::borrow::Cow;

use super::{Extent, Reference};
use crate::dtype::Dtype;
use crate::format::bases::Dependency;
use crate::format::limits::MAX_COLUMNS;
use crate::predict::Conversion;

/// What the extents of a column have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    own: usize,
}

/// The bytes of one column; copied if it has several extents.
pub(super) struct Source<'a> {
    kind: Kind,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Dependencies that predict all its elements; empty if there are none.
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

/// The kind of extents for which there is no further column.
const OPAQUE: Kind = Kind { dtype: None, base: None, own: 0 };

/// Most columns with predictions; the others are for extents without.
const MAX_PREDICTED: usize = MAX_COLUMNS / 2;

/// Gathers extents of equal kind into columns; also returns `(column, bytes)` in raw order. References are ignored unless `predict`.
pub(super) fn gather<'a>(raw: &'a [u8], extents: &[Extent], predict: bool) -> (Vec<Source<'a>>, Vec<(u8, usize)>) {
    let mut kinds: Vec<(Kind, Vec<Dependency>)> = Vec::new();
    let mut placed: Vec<(u8, usize)> = Vec::new();
    for p in extents {
        // A typed extent that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), base: None, own: p.own };
        let kind = Kind { base: base.map(|l| l.conversion), ..plain };
        let fits = |kind: &Kind, most| kinds.len() < most || kinds.iter().any(|k| k.0 == *kind);
        let (kind, base) = if base.is_some() && fits(&kind, MAX_PREDICTED) {
            (kind, base)
        } else if fits(&plain, MAX_COLUMNS - 1) {
            (plain, None)
        } else {
            (OPAQUE, None)
        };
        let column = kinds.iter().position(|k| k.0 == kind).unwrap_or(kinds.len());
        if column == kinds.len() {
            kinds.push((kind, vec![]));
        }
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("checked above");
            push(&mut kinds[column].1, &l, p.len / width * source_width);
        }
        match placed.last_mut() {
            Some(l) if usize::from(l.0) == column => l.1 += p.len,
            _ => placed.push((column as u8, p.len)),
        }
    }
    let source = |(column, (kind, base))| Source { kind, base, bytes: bytes_of(column, raw, &placed) };
    (kinds.into_iter().enumerate().map(source).collect(), placed)
}

/// The bytes of a column: borrowed from the block if they are contiguous there.
fn bytes_of<'a>(column: usize, raw: &'a [u8], placed: &[(u8, usize)]) -> Cow<'a, [u8]> {
    let mut at = 0;
    let own = placed.iter().filter_map(|&(p, len)| {
        at += len;
        (usize::from(p) == column).then(|| &raw[at - len..at])
    });
    match own.collect::<Vec<_>>()[..] {
        [only] => Cow::Borrowed(only),
        ref several => Cow::Owned(several.concat()),
    }
}

/// Appends a range; joins it with the last one if they are contiguous.
fn push(list: &mut Vec<Dependency>, reference: &Reference, len: usize) {
    let len = len as u64;
    match list.last_mut() {
        Some(d) if d.source == reference.source && d.end() == reference.offset => d.len += len,
        _ => list.push(Dependency { source: reference.source, offset: reference.offset, len }),
    }
}
