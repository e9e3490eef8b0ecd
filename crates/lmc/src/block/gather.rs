//! Gathers the extents of a block into columns, by dtype and reference.

use std::borrow::Cow;
use std::ops::Range;

use super::choose::RawColumn;
use super::methods::predicted::derived::{Derivation, MAX_SCALED};
use super::structure::opaque::{is_divided, parts};
use super::structure::{Finder, LEAST, PARTS, STEPS_LEAST, Structure, is_few_down};
use super::{DerivedFrom, Extent, Group, Matrix, Recipe, Reference, Step};
use crate::format::bases::SourceRange;
use crate::format::extents::Extents;
use crate::format::limits::{MAX_COLUMNS, MAX_EXTENTS};
use lmc_kernels::cluster::RUN;
use lmc_kernels::predict::Conversion;
use lmc_layout::dtype::Dtype;
use lmc_layout::quantised::{Field, fields_of};

/// Properties that the extents of a column share.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    dtype: Option<Dtype>,
    base: Option<Conversion>,
    step: Option<Step>,
    derived: Option<Derivation>,
    group: Group,
    structure: Structure,
    /// A field of the blocks of a dtype, by its number.
    field: Option<(Dtype, u8)>,
}

/// A column while its extents are collected.
struct Gathered {
    kind: Kind,
    base: Vec<SourceRange>,
    others: [Vec<SourceRange>; 3],
    matrix: Option<Matrix>,
}

impl Gathered {
    fn new(kind: Kind) -> Self {
        Self { kind, base: vec![], others: Default::default(), matrix: None }
    }
}

/// The bytes of one column; copied if it has several extents.
pub(super) struct Source<'a> {
    kind: Kind,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Ranges that predict all its elements; empty if there are none.
    pub(super) base: Vec<SourceRange>,
    /// The further operands of their step, in order, or their scales; without any, none.
    pub(super) others: [Vec<SourceRange>; 3],
    /// Where its first element is, if all follow each other in a matrix.
    matrix: Option<Matrix>,
}

impl Source<'_> {
    /// The column, which may be on a grid if `grids` says so.
    pub(super) fn column(&self, grids: bool) -> RawColumn<'_> {
        let Kind { dtype, structure, .. } = self.kind;
        RawColumn { dtype, structure, matrix: self.matrix, grids, bytes: &self.bytes }
    }

    pub(super) fn step(&self) -> Option<Step> {
        self.kind.step
    }

    pub(super) fn derived(&self) -> Option<Derivation> {
        self.kind.derived
    }

    pub(super) fn conversion(&self) -> Option<Conversion> {
        self.kind.base
    }
}

/// The kind of extents for which there is no further column.
const OPAQUE: Kind =
    Kind { dtype: None, base: None, step: None, derived: None, group: Group::Others, structure: NOISE, field: None };

const NOISE: Structure = Structure { few: false, repeats: false, steps: false };

/// Most columns with predictions; the others are for extents without.
const MAX_PREDICTED: usize = MAX_COLUMNS / 2;
/// Most columns where further ones are derived from other data, of which next to nothing is left.
const MAX_DERIVED: usize = MAX_COLUMNS - 3;

/// The columns of a block.
pub(super) struct Columns<'a> {
    pub(super) sources: Vec<Source<'a>>,
    /// The order of their bytes.
    pub(super) placed: Extents,
    /// Whether opaque bytes were divided by what they look like.
    pub(super) divided: bool,
}

/// Gathers extents of equal kind into columns. References are ignored unless `predict`; opaque bytes are divided only if `divide`.
///
/// An extent with structure gets a column of its own: its best method is not that of the others. Blocks of quantised
/// elements have a column for each field.
pub(super) fn gather<'a>(
    raw: &'a [u8],
    extents: &[Extent],
    predict: bool,
    divide: bool,
    finder: &mut Finder,
) -> Columns<'a> {
    let mut columns: Vec<Gathered> = Vec::new();
    let mut placed = Extents::new();
    let (pieces, divided) = find_structure(raw, extents, (predict, divide), finder);
    for Piece { extent: p, structure, number } in &pieces {
        if let Some((period, times)) = by_field(p, predict, &mut columns, placed.count()) {
            placed.push_repeated(&period, times);
            continue;
        }
        let p = &if p.base.is_none() && p.dtype.is_some_and(Dtype::is_block) {
            Extent { dtype: None, group: Group::Others, ..*p }
        } else {
            *p
        };
        // A typed extent that ends within an element can only be coded as bytes.
        let whole = p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width()));
        let width = p.dtype.map_or(1, Dtype::coding_width);
        let base = p.base.filter(|l| predict && whole && l.conversion.source_width(width).is_some());
        let plain = Kind { dtype: p.dtype.filter(|_| whole), group: p.group, ..OPAQUE };
        let step = p.step.filter(|_| base.is_some_and(|l| l.conversion == Conversion::None));
        let derived = p.derived.filter(|d| predict && whole && has_room(d, p, &columns));
        let kind = match &derived {
            Some(d) => Kind { base: d.conversion(), derived: d.derivation(0), ..plain },
            None => Kind { base: base.map(|l| l.conversion), step: step.map(|s| s.step), ..plain },
        };
        let structured = Kind {
            structure: *structure,
            group: if p.group == Group::Others { Group::Part(*number) } else { p.group },
            ..plain
        };
        let fits = |kind: &Kind, most| columns.len() < most || columns.iter().any(|c| c.kind == *kind);
        let is_predicted = base.is_some() || derived.is_some();
        let most = if derived.is_some() { MAX_DERIVED } else { MAX_PREDICTED };
        let (kind, base, derived) = if is_predicted && fits(&kind, most) {
            (kind, base, derived)
        } else if !structure.is_noise() && fits(&structured, MAX_COLUMNS - 2) {
            (structured, None, None)
        } else if fits(&plain, MAX_COLUMNS - 1) {
            (plain, None, None)
        } else {
            (OPAQUE, None, None)
        };
        let (known, column) = (columns.len(), column_of(kind, &mut columns));
        let Gathered { base: operand, others, matrix, .. } = &mut columns[usize::from(column)];
        *matrix = p.matrix.filter(|_| usize::from(column) == known);
        if let Some(l) = base {
            let source_width = l.conversion.source_width(width).expect("checked above");
            let len = (p.len / width * source_width) as u64;
            push(operand, SourceRange { source: l.source, offset: l.offset, len });
            for (list, other) in others.iter_mut().zip(step.into_iter().flat_map(|s| s.others)) {
                if let Some(Reference { source, offset, .. }) = other {
                    push(list, SourceRange { source, offset, len });
                }
            }
        }
        if let Some(d) = derived {
            d.data(p.dtype, p.len as u64, |range| push(operand, range));
            others[0].extend(d.scales(p.len as u64));
        }
        placed.push(column, p.len);
    }
    let sources = (0..).zip(columns).map(|(column, Gathered { kind, base, others, matrix })| Source {
        kind,
        base,
        others,
        matrix,
        bytes: placed.gather(column, raw),
    });
    Columns { sources: sources.collect(), placed, divided }
}

/// Whether a block has room for the data that an extent is derived from: those of scales are many times longer than they are.
fn has_room(derived: &DerivedFrom, p: &Extent, columns: &[Gathered]) -> bool {
    let Recipe::Scales(_) = derived.recipe else { return true };
    let of_scales = columns.iter().filter(|c| matches!(c.kind.derived, Some(Derivation::Scales(_))));
    let mut len: u64 = of_scales.flat_map(|c| &c.base).map(|range| range.len).sum();
    derived.data(p.dtype, p.len as u64, |range| len += range.len);
    len <= MAX_SCALED
}

/// The column of a kind, which may be new.
fn column_of(kind: Kind, columns: &mut Vec<Gathered>) -> u8 {
    let column = columns.iter().position(|c| c.kind == kind).unwrap_or(columns.len());
    if column == columns.len() {
        columns.push(Gathered::new(kind));
    }
    column as u8
}

/// A part of an extent.
struct Piece {
    extent: Extent,
    structure: Structure,
    number: usize,
}

/// Least bytes of an extent that is split.
const SPLIT_LEAST: usize = 256 << 10;

/// The extents with their structure. An extent is split if only a part of it repeats, or if it is opaque and has elements that begin after
/// its first byte; also returns whether one is divided at more places than its edges.
fn find_structure(
    raw: &[u8],
    extents: &[Extent],
    (predict, divide): (bool, bool),
    finder: &mut Finder,
) -> (Vec<Piece>, bool) {
    let mut divided = false;
    let (mut found, mut end) = (Vec::with_capacity(extents.len()), 0);
    let mut push = |extent: Extent, structure| {
        let number = found.len();
        found.extend((extent.len > 0).then_some(Piece { extent, structure, number }));
    };
    for (i, p) in extents.iter().enumerate() {
        end += p.len;
        let bytes = &raw[end - p.len..end];
        let quantised = p.base.is_none() && p.dtype.is_some_and(Dtype::is_block);
        let is_derived = p.derived.is_some() && predict;
        if is_derived || quantised && !finder.find(1, bytes).repeats {
            push(*p, NOISE);
            continue;
        }
        // Whole blocks repeat: zstd is tried.
        let p = &Extent { dtype: p.dtype.filter(|_| !quantised), ..*p };
        let width = p.dtype.map_or(1, Dtype::coding_width);
        if p.dtype.is_none() {
            let parts = parts(bytes, divide);
            divided |= is_divided(&parts);
            for part in &parts {
                let Range { start, end } = part.place;
                let is_cut = end - start < p.len;
                // All elements of one width have one column.
                let group =
                    if is_cut && part.width > 0 { Group::Elements { extent: i, width: part.width } } else { p.group };
                let base = p.base.map(|l| l.at(None, start as u64));
                push(Extent { len: end - start, base, group, ..*p }, NOISE);
            }
            continue;
        }
        if p.base.is_some() && predict || p.len < STEPS_LEAST || !p.len.is_multiple_of(width) {
            push(*p, NOISE);
            continue;
        }
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
            let matrix = p.matrix.map(|m| Matrix { position: m.position + at as u64, ..m });
            push(Extent { len, matrix, ..*p }, structure);
        }
    }
    (found, divided)
}

/// The columns and lengths of the fields of quantised blocks, and the number of blocks; `None` if these are not such, or if there are too
/// few columns or extents left for them.
fn by_field(
    p: &Extent,
    predict: bool,
    columns: &mut Vec<Gathered>,
    extents: usize,
) -> Option<(Vec<(u8, usize)>, usize)> {
    let dtype = p.dtype.filter(|_| p.base.is_none())?;
    let (fields, len) = fields_of(dtype).filter(|f| p.len.is_multiple_of(f.1))?;
    let times = p.len / len;
    let derived = p.derived.filter(|d| predict && matches!(d.recipe, Recipe::Blocks(..)));
    let kind = |i: usize, f: &Field| Kind {
        dtype: Some(f.dtype),
        derived: derived.and_then(|d| d.derivation(i as u8)),
        group: p.group,
        field: Some((dtype, i as u8)),
        ..OPAQUE
    };
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
        if let Some(d) = derived {
            d.data(p.dtype, p.len as u64, |range| push(&mut columns[column].base, range));
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
