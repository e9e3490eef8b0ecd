//! Gathers the extents of a block into columns, by dtype and reference.

use std::borrow::Cow;

use super::choose::RawColumn;
use super::opaque::edges;
use super::structure::{Finder, LEAST, PARTS, STEPS_LEAST, Structure, is_few_down};
use super::{Extent, Matrix};
use crate::cluster::RUN;
use crate::dtype::Dtype;
use crate::format::bases::SourceRange;
use crate::format::extents::Extents;
use crate::format::limits::{MAX_COLUMNS, MAX_EXTENTS};
use crate::predict::Conversion;
use crate::quantised::{Field, fields_of};

/// Properties that the extents of a column share.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    own: usize,
    prefix: bool,
    structure: Structure,
    /// A field of the blocks of a dtype, by its number.
    field: Option<(Dtype, u8)>,
}

/// A column while its extents are collected.
struct Gathered {
    kind: Kind,
    base: Vec<SourceRange>,
    prefix: Vec<SourceRange>,
    matrix: Option<Matrix>,
}

impl Gathered {
    fn new(kind: Kind) -> Self {
        Self { kind, base: vec![], prefix: vec![], matrix: None }
    }
}

/// The bytes of one column; copied if it has several extents.
pub(super) struct Source<'a> {
    kind: Kind,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Ranges that predict all its elements; empty if there are none.
    pub(super) base: Vec<SourceRange>,
    /// Bytes that those of an opaque column resemble; empty if there are none.
    pub(super) prefix: Vec<SourceRange>,
    /// Where its first element is, if all follow each other in a matrix.
    matrix: Option<Matrix>,
}

impl Source<'_> {
    pub(super) fn column(&self) -> RawColumn<'_> {
        let Kind { dtype, structure, .. } = self.kind;
        RawColumn { dtype, structure, matrix: self.matrix, bytes: &self.bytes }
    }

    pub(super) fn conversion(&self) -> Option<Conversion> {
        self.kind.base
    }
}

/// The kind of extents for which there is no further column.
const OPAQUE: Kind = Kind { dtype: None, base: None, own: 0, prefix: false, structure: NOISE, field: None };

const NOISE: Structure = Structure { few: false, repeats: false, steps: false };

/// Most columns with predictions; the others are for extents without.
const MAX_PREDICTED: usize = MAX_COLUMNS / 2;

/// Gathers extents of equal kind into columns; also returns their order. References are ignored unless `predict`.
///
/// An extent with structure gets a column of its own: its best method is not that of the others. Blocks of quantised
/// elements have a column for each field.
pub(super) fn gather<'a>(
    raw: &'a [u8],
    extents: &[Extent],
    predict: bool,
    finder: &mut Finder,
) -> (Vec<Source<'a>>, Extents) {
    let mut columns: Vec<Gathered> = Vec::new();
    let mut placed = Extents::new();
    for (i, (p, structure)) in find_structure(raw, extents, predict, finder).iter().enumerate() {
        let structure = *structure;
        if let Some((period, times)) = by_field(p, &mut columns, placed.count()) {
            placed.push_repeated(&period, times);
            continue;
        }
        let p = &if p.base.is_none() && p.dtype.is_some_and(Dtype::is_block) {
            Extent { dtype: None, own: 0, ..*p }
        } else {
            *p
        };
        // A typed extent that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let prefix = p.prefix.filter(|_| predict && p.dtype.is_none());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), own: p.own, prefix: prefix.is_some(), ..OPAQUE };
        let kind = Kind { base: base.map(|l| l.conversion), ..plain };
        let structured = Kind { structure, own: if p.own > 0 { p.own } else { usize::MAX - i }, ..plain };
        let fits = |kind: &Kind, most| columns.len() < most || columns.iter().any(|c| c.kind == *kind);
        let (kind, base) = if base.is_some() && fits(&kind, MAX_PREDICTED) {
            (kind, base)
        } else if !structure.is_noise() && fits(&structured, MAX_COLUMNS - 2) {
            (structured, None)
        } else if fits(&plain, MAX_COLUMNS - 1) {
            (plain, None)
        } else {
            (OPAQUE, None)
        };
        let column = columns.iter().position(|c| c.kind == kind).unwrap_or(columns.len());
        if column == columns.len() {
            columns.push(Gathered { matrix: p.matrix, ..Gathered::new(kind) });
        } else {
            columns[column].matrix = None;
        }
        let Gathered { base: operand, prefix: prefixes, .. } = &mut columns[column];
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("checked above");
            let len = (p.len / width * source_width) as u64;
            push(operand, SourceRange { source: l.source, offset: l.offset, len });
        }
        if let Some(prefix) = prefix.filter(|_| kind.prefix) {
            push(prefixes, prefix);
        }
        placed.push(column as u8, p.len);
    }
    let sources = (0..).zip(columns).map(|(column, Gathered { kind, base, prefix, matrix })| Source {
        kind,
        base,
        prefix,
        matrix,
        bytes: placed.gather(column, raw),
    });
    (sources.collect(), placed)
}

/// Least bytes of an extent that is split.
const SPLIT_LEAST: usize = 256 << 10;

/// The extents with their structure. An extent is split if only a part of it repeats, or if it is opaque and elements
/// begin after its first byte.
fn find_structure(raw: &[u8], extents: &[Extent], predict: bool, finder: &mut Finder) -> Vec<(Extent, Structure)> {
    let (mut found, mut end) = (Vec::with_capacity(extents.len()), 0);
    for (i, p) in extents.iter().enumerate() {
        end += p.len;
        let quantised = p.base.is_none() && p.dtype.is_some_and(Dtype::is_block);
        if quantised && !finder.find(1, &raw[end - p.len..end]).repeats {
            found.push((*p, NOISE));
            continue;
        }
        // Whole blocks repeat: zstd is tried.
        let p = &Extent { dtype: p.dtype.filter(|_| !quantised), ..*p };
        let width = p.dtype.map_or(1, Dtype::coding_width);
        if p.dtype.is_none()
            && let Some((head, tail)) = edges(&raw[end - p.len..end])
        {
            let mut at = 0;
            for (len, own) in [(head, 0), (p.len - head - tail, usize::MAX - i), (tail, 0)] {
                let base = p.base.map(|l| l.at(None, at as u64));
                // Of head and tail, a few bytes each, a prefix would be longer than they are.
                let prefix = p.prefix.filter(|_| own > 0);
                found.extend((len > 0).then_some((Extent { len, base, own, prefix, ..*p }, NOISE)));
                at += len;
            }
            continue;
        }
        if p.dtype.is_none() || p.base.is_some() && predict || p.len < STEPS_LEAST || !p.len.is_multiple_of(width) {
            found.push((*p, NOISE));
            continue;
        }
        let bytes = &raw[end - p.len..end];
        let mut structure = finder.find(width, bytes);
        // Groups of quantised weights may go down columns, where neighbours in a row have different scales.
        structure.few |= width > 1 && p.len >= LEAST && p.matrix.is_some_and(|m| is_few_down(width, bytes, m.row));
        let parts = if structure.repeats && p.len >= SPLIT_LEAST { finder.parts(bytes) } else { [true; PARTS] };
        // Whole runs, so that those of a row stay together.
        let part = p.len / PARTS / (RUN * width) * (RUN * width);
        let mut left = p.len;
        for repeats in parts.chunk_by(|a, b| a == b) {
            let is_last = repeats.len() * part + PARTS * RUN * width > left;
            let len = if is_last { left } else { repeats.len() * part };
            let at = (p.len - left) / width;
            left -= len;
            let structure = if repeats[0] { structure } else { Structure { repeats: false, ..structure } };
            if len > 0 {
                let matrix = p.matrix.map(|m| Matrix { position: m.position + at as u64, ..m });
                found.push((Extent { len, matrix, ..*p }, structure));
            }
        }
    }
    found
}

/// The columns and lengths of the fields of quantised blocks, and the number of blocks; `None` if these are not such, or if there are too
/// few columns or extents left for them.
fn by_field(p: &Extent, columns: &mut Vec<Gathered>, extents: usize) -> Option<(Vec<(u8, usize)>, usize)> {
    let dtype = p.dtype.filter(|_| p.base.is_none())?;
    let (fields, len) = fields_of(dtype).filter(|f| p.len.is_multiple_of(f.1))?;
    let times = p.len / len;
    let kind = |i: usize, f: &Field| Kind { dtype: Some(f.dtype), own: p.own, field: Some((dtype, i as u8)), ..OPAQUE };
    let of_fields = fields.iter().enumerate().map(|(i, f)| (kind(i, f), f.len));
    let new = of_fields.clone().filter(|(kind, _)| columns.iter().all(|c| c.kind != *kind)).count();
    // One column is left for opaque bytes, and half of the extents for tensors that are not quantised.
    if columns.len() + new > MAX_COLUMNS - 1 || extents + times * fields.len() > MAX_EXTENTS / 2 {
        return None;
    }
    let place = |(kind, len)| {
        let column = columns.iter().position(|c| c.kind == kind).unwrap_or(columns.len());
        if column == columns.len() {
            columns.push(Gathered::new(kind));
        }
        (column as u8, len)
    };
    Some((of_fields.map(place).collect(), times))
}

/// Appends a range; joins it with the last one if they are contiguous.
fn push(list: &mut Vec<SourceRange>, range: SourceRange) {
    match list.last_mut() {
        Some(d) if d.source == range.source && d.end() == range.offset => d.len += range.len,
        _ => list.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    #[test]
    fn prefixes_are_of_elements_and_not_of_edges() {
        let mut random = Random::new(1);
        let integers: Vec<u8> = (0..3000).flat_map(|_| (random.u64() % 50_000).to_le_bytes()).collect();
        let raw = [&[7; 3], &integers[..], &[9; 5]].concat();
        let prefix = SourceRange { source: 1, offset: 0, len: 1 << 20 };
        let extent = Extent { dtype: None, len: raw.len(), base: None, own: 0, prefix: Some(prefix), matrix: None };
        let (columns, _) = gather(&raw, &[extent], true, &mut Finder::default());
        let found: Vec<_> = columns.iter().map(|c| (c.bytes.len(), &c.prefix[..])).collect();
        assert_eq!(found, [(8, &[][..]), (integers.len(), &[prefix][..])]);
    }
}
