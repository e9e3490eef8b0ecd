//! Gathers the extents of a block into columns, by dtype and reference.

use std::borrow::Cow;

use super::Extent;
use super::opaque::edges;
use super::structure::{Finder, LEAST, PARTS, Structure};
use crate::cluster::RUN;
use crate::dtype::Dtype;
use crate::format::bases::SourceRange;
use crate::format::limits::MAX_COLUMNS;
use crate::predict::Conversion;

/// What the extents of a column have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    own: usize,
    prefix: bool,
    structure: Structure,
}

/// The bytes of one column; copied if it has several extents.
pub(super) struct Source<'a> {
    kind: Kind,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Ranges that predict all its elements; empty if there are none.
    pub(super) base: Vec<SourceRange>,
    /// Bytes that those of an opaque column resemble; empty if there are none.
    pub(super) prefix: Vec<SourceRange>,
}

impl Source<'_> {
    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.kind.dtype
    }

    pub(super) fn structure(&self) -> Structure {
        self.kind.structure
    }

    pub(super) fn conversion(&self) -> Option<Conversion> {
        self.kind.base
    }
}

/// The kind of extents for which there is no further column.
const OPAQUE: Kind = Kind { dtype: None, base: None, own: 0, prefix: false, structure: NOISE };

const NOISE: Structure = Structure { few: false, repeats: false };

/// Most columns with predictions; the others are for extents without.
const MAX_PREDICTED: usize = MAX_COLUMNS / 2;

/// Gathers extents of equal kind into columns; also returns `(column, bytes)` in raw order. References are ignored unless `predict`.
///
/// An extent with structure gets a column of its own: what suits it does not suit others.
pub(super) fn gather<'a>(
    raw: &'a [u8],
    extents: &[Extent],
    predict: bool,
    finder: &mut Finder,
) -> (Vec<Source<'a>>, Vec<(u8, usize)>) {
    let mut kinds: Vec<(Kind, [Vec<SourceRange>; 2])> = Vec::new();
    let mut placed: Vec<(u8, usize)> = Vec::new();
    for (i, (p, structure)) in find_structure(raw, extents, predict, finder).iter().enumerate() {
        let structure = *structure;
        // A typed extent that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let prefix = p.prefix.filter(|_| predict && p.dtype.is_none());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), own: p.own, prefix: prefix.is_some(), ..OPAQUE };
        let kind = Kind { base: base.map(|l| l.conversion), ..plain };
        let structured = Kind { structure, own: if p.own > 0 { p.own } else { usize::MAX - i }, ..plain };
        let fits = |kind: &Kind, most| kinds.len() < most || kinds.iter().any(|k| k.0 == *kind);
        let (kind, base) = if base.is_some() && fits(&kind, MAX_PREDICTED) {
            (kind, base)
        } else if !structure.is_noise() && fits(&structured, MAX_COLUMNS - 2) {
            (structured, None)
        } else if fits(&plain, MAX_COLUMNS - 1) {
            (plain, None)
        } else {
            (OPAQUE, None)
        };
        let column = kinds.iter().position(|k| k.0 == kind).unwrap_or(kinds.len());
        if column == kinds.len() {
            kinds.push((kind, Default::default()));
        }
        let [operand, prefixes] = &mut kinds[column].1;
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("checked above");
            let len = (p.len / width * source_width) as u64;
            push(operand, SourceRange { source: l.source, offset: l.offset, len });
        }
        if let Some(prefix) = prefix.filter(|_| kind.prefix) {
            push(prefixes, prefix);
        }
        match placed.last_mut() {
            Some(l) if usize::from(l.0) == column => l.1 += p.len,
            _ => placed.push((column as u8, p.len)),
        }
    }
    let sources = kinds.into_iter().enumerate().map(|(column, (kind, [base, prefix]))| Source {
        kind,
        base,
        prefix,
        bytes: bytes_of(column, raw, &placed),
    });
    (sources.collect(), placed)
}

/// Least bytes of an extent that is split.
const SPLIT_LEAST: usize = 256 << 10;

/// The extents with their structure; one of which only a part repeats is split, and so is one of opaque bytes in which elements begin
/// later.
fn find_structure(raw: &[u8], extents: &[Extent], predict: bool, finder: &mut Finder) -> Vec<(Extent, Structure)> {
    let (mut found, mut end) = (Vec::with_capacity(extents.len()), 0);
    for (i, p) in extents.iter().enumerate() {
        end += p.len;
        let width = p.dtype.map_or(1, Dtype::coding_width);
        if p.dtype.is_none()
            && let Some((head, tail)) = edges(&raw[end - p.len..end])
        {
            let mut at = 0;
            for (len, own) in [(head, 0), (p.len - head - tail, usize::MAX - i), (tail, 0)] {
                let base = p.base.map(|l| l.at(None, at as u64));
                found.extend((len > 0).then_some((Extent { len, base, own, ..*p }, NOISE)));
                at += len;
            }
            continue;
        }
        if p.dtype.is_none() || p.base.is_some() && predict || p.len < LEAST || !p.len.is_multiple_of(width) {
            found.push((*p, NOISE));
            continue;
        }
        let bytes = &raw[end - p.len..end];
        let structure = finder.find(width, bytes);
        let parts = if structure.repeats && p.len >= SPLIT_LEAST { finder.parts(bytes) } else { [true; PARTS] };
        // Whole runs, so that those of a row stay together.
        let part = p.len / PARTS / (RUN * width) * (RUN * width);
        let mut left = p.len;
        for repeats in parts.chunk_by(|a, b| a == b) {
            let is_last = repeats.len() * part + PARTS * RUN * width > left;
            let len = if is_last { left } else { repeats.len() * part };
            left -= len;
            let structure = if repeats[0] { structure } else { Structure { repeats: false, ..structure } };
            if len > 0 {
                found.push((Extent { len, ..*p }, structure));
            }
        }
    }
    found
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
fn push(list: &mut Vec<SourceRange>, range: SourceRange) {
    match list.last_mut() {
        Some(d) if d.source == range.source && d.end() == range.offset => d.len += range.len,
        _ => list.push(range),
    }
}
