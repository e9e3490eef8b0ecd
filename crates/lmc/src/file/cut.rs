//! Cuts a file into blocks, and each block into extents by tensor.
//!
//! Blocks begin at multiples of [`LEAF`](crate::format::checksum::LEAF) for any file, so that its content hash depends on its bytes alone.
//! The encoder chooses the lengths.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::block::structure::{Finder, LEAST};
use crate::block::{DerivedFrom, Extent, Group, Matrix, Recipe, Reference, Stepped};
use crate::format::bases::Chains;
use crate::format::bases::SourceRange;
use crate::format::checksum::LEAF;
use crate::format::limits::{MAX_BLOCK_COST, MAX_DEPTH, MAX_RAW};
use crate::refs::matching::{Distance, Matcher, Related, SAMPLED};
use lmc_kernels::cluster::RUN;
use lmc_kernels::predict::Conversion;
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::io::{ReadAt, read_at};
use lmc_layout::quantised::fields_of;
use lmc_layout::roles::{Role, role};
use lmc_layout::segment::Segment;

/// Raw bytes of a block.
pub(crate) const BLOCK: u64 = 1 << 20;
/// Raw bytes of a block with few changes, where head and tables are a notable part.
const LARGE_BLOCK: u64 = 8 << 20;
/// The last block may be longer by this much, so that no small block is left over.
const REST: u64 = BLOCK / 4;
/// A block may be large if by a sample less than one byte in this many changed.
const LITTLE: u64 = 64;
/// A tensor with at least one byte in this many of a block gets its own column.
const OWN_COLUMN: u64 = 4;
/// The same for second moments without a base, whose rows and columns tell their sizes.
const OWN_COLUMN_OF_MOMENTS: u64 = 8;
/// Bytes of a tensor whose repeats may be further apart than a block.
const REPEATING_LEAST: u64 = BLOCK;
/// Elements of a row of data whose shape is not known.
const UNKNOWN_ROW: u64 = 1 << 40;
/// Extents of a block before the rest of it is one opaque overlap: millions of tiny tensors must not make one head.
const MAX_EXTENTS: usize = 1 << 14;

const _: () = assert!(BLOCK.is_multiple_of(LEAF as u64) && LARGE_BLOCK.is_multiple_of(BLOCK));
const _: () = assert!(LARGE_BLOCK + REST <= MAX_RAW as u64);

/// Cuts a file, front to back, into blocks.
pub(crate) struct Cutter<'m> {
    layout: Arc<Layout>,
    /// Finds references to bases.
    matcher: Option<Matcher<'m>>,
    /// For each segment the earlier tensor of the file that predicts it, if any; empty if no tensor has one.
    siblings: Vec<Option<Reference>>,
    /// For each segment the step of an optimizer that it is, if any; empty if no tensor is one.
    steps: Vec<Option<Stepped>>,
    /// Start of the next block.
    at: u64,
    /// The first segment with bytes at or after `at`.
    first: usize,
    /// References of the segments from `first` on; none if there is nothing to refer to.
    seen: VecDeque<Seen>,
    /// Whether the block before had few changes: the next one may be large.
    calm: bool,
    /// Whether block lengths vary.
    adaptive: bool,
    /// Depths and costs of the blocks so far.
    chains: Chains,
    finder: Finder,
    /// Whether the elements of a segment repeat far apart.
    repeats: Option<(usize, bool)>,
    /// Whether elements may be on grids.
    grids: bool,
}

/// The references of a segment that the next blocks reach.
#[derive(Clone, Copy)]
struct Seen {
    /// Its possible predictions, the best first.
    related: [Option<Related>; 2],
    /// Its distance from the first of those; `None` for tensors of this file and converted ones.
    distance: Option<Distance>,
}

impl Seen {
    /// Without any.
    const NOTHING: Self = Self { related: [None; 2], distance: None };
}

/// The bytes of a segment that are in a range.
#[derive(Clone, Copy)]
struct Overlap {
    segment: usize,
    dtype: Option<Dtype>,
    /// In the file and in the segment.
    start: u64,
    pos: u64,
    len: u64,
}

impl<'m> Cutter<'m> {
    pub(crate) fn new(layout: Arc<Layout>, matcher: Option<Matcher<'m>>, siblings: Vec<Option<Reference>>) -> Self {
        Self {
            layout,
            matcher,
            siblings,
            steps: vec![],
            at: 0,
            first: 0,
            seen: VecDeque::new(),
            calm: true,
            adaptive: true,
            chains: Chains::default(),
            finder: Finder::default(),
            repeats: None,
            grids: false,
        }
    }

    /// A cutter with blocks of one length: a file has the same blocks with bases and without.
    pub(crate) fn uniform(self) -> Self {
        Self { adaptive: false, ..self }
    }

    /// A cutter of segments that are steps of an optimizer: for each its step, if it is one.
    pub(crate) fn with_steps(self, steps: Vec<Option<Stepped>>) -> Self {
        Self { steps, ..self }
    }

    /// Whether blocks may depend on others of the file.
    fn has_depths(&self) -> bool {
        !self.siblings.is_empty()
            || !self.steps.is_empty()
            || self.matcher.as_ref().is_some_and(Matcher::has_own_scales)
    }

    /// A cutter whose blocks may have grids.
    pub(crate) fn with_grids(self, grids: bool) -> Self {
        Self { grids, ..self }
    }

    /// The number of bytes that [`Self::next_block`] must be able to read, unless the file ends before.
    pub(crate) fn lookahead(&self) -> u64 {
        // A tensor that begins at the end of a block is sampled.
        self.most() + REST + 1 + SAMPLED
    }

    /// Most raw bytes of the next block, without the rest of the file.
    fn most(&self) -> u64 {
        if self.adaptive { LARGE_BLOCK } else { BLOCK }
    }

    /// Length and extents of the next block. `ahead` bytes are left in the file (not 0), or at least
    /// [`Self::lookahead`]: bytes beyond make no difference. `raw` is the file; no bytes beyond those are read.
    ///
    /// The length of a typed overlap is a multiple of its dtype's coding width.
    pub(crate) fn next_block(&mut self, raw: &dyn ReadAt, ahead: u64, extents: &mut Vec<Extent>) -> Result<usize> {
        self.next_block_within(raw, ahead, u64::MAX, extents)
    }

    /// [`Self::next_block`] of at most `limit` bytes, not 0: the rest of the file, or whole leaves.
    pub(crate) fn next_block_within(
        &mut self,
        raw: &dyn ReadAt,
        ahead: u64,
        limit: u64,
        extents: &mut Vec<Extent>,
    ) -> Result<usize> {
        assert!(ahead > 0 && limit > 0);
        let block = if ahead <= BLOCK + REST { ahead } else { BLOCK };
        let large = if ahead <= LARGE_BLOCK + REST { ahead } else { LARGE_BLOCK };
        let calm = self.adaptive && self.changed_little(raw, ahead, block)?;
        let is_large = calm && self.calm && self.changed_little(raw, ahead, large)?;
        let len = if is_large { large } else { block.max(self.repeating(raw, ahead)?) }.min(limit);
        extents.clear();
        for overlap in self.overlaps(len) {
            self.see(raw, ahead, overlap.segment)?;
            self.push(overlap, len, extents);
        }
        if self.has_depths() {
            self.keep_shallow(len, extents);
        }
        self.calm = calm;
        self.advance(len);
        Ok(len as usize)
    }

    /// Passes over the next bytes, as far as a block may begin, without finding their references.
    pub(crate) fn skip(&mut self, len: u64) {
        if len == 0 {
            return;
        }
        if self.has_depths() {
            self.chains.push_of(len, 0, len);
        }
        self.calm = true;
        self.advance(len);
    }

    /// The extents of the next `len` bytes, in order.
    fn overlaps(&self, len: u64) -> impl Iterator<Item = Overlap> + use<> {
        let (start, end) = (self.at, self.at + len);
        let layout = self.layout.clone();
        let tail = layout.segments.last().map_or(0, Segment::end);
        let segments = self.first..=layout.segments.len();
        segments
            .map(move |segment| {
                let (dtype, from, to) = match layout.segments.get(segment) {
                    Some(s) => (s.dtype, s.offset, s.end()),
                    None => (layout.tail, tail, u64::MAX),
                };
                let first = from.max(start);
                Overlap { segment, dtype, start: first, pos: first - from, len: to.min(end).saturating_sub(first) }
            })
            .take_while(move |e| e.start < end)
            .filter(|e| e.len > 0)
    }

    /// Finds the references of a segment.
    fn see(&mut self, raw: &dyn ReadAt, ahead: u64, segment: usize) -> Result<()> {
        if self.matcher.is_none() && self.siblings.is_empty() {
            return Ok(());
        }
        for i in self.first + self.seen.len()..=segment {
            let (dtype, offset, len) = match self.layout.segments.get(i) {
                Some(s) => (s.dtype, s.offset, s.len),
                None => (self.layout.tail, self.layout.segments.last().map_or(0, Segment::end), u64::MAX),
            };
            // The bytes of the segment that can be read.
            let known = len.min(SAMPLED).min((self.at + ahead).saturating_sub(offset));
            let base = match &mut self.matcher {
                Some(m) => m.relate(&self.layout, i, raw, known)?,
                None => None,
            };
            let sibling = self.siblings.get(i).copied().flatten().map(|reference| Related { reference, len });
            // Equal and rounded tensors are exact predictions; one of half the bits is no better than a base.
            let related = match sibling {
                Some(s) if s.reference.conversion != Conversion::WidenBf16 => [sibling, base],
                _ => [base, sibling],
            };
            let distance = match (&self.matcher, related[0]) {
                (Some(m), Some(r)) if r.len >= known => m.distance(dtype, offset, &r.reference, raw, known)?,
                _ => None,
            };
            self.seen.push_back(Seen { related, distance });
        }
        Ok(())
    }

    /// The result of [`Self::see`].
    fn seen(&self, segment: usize) -> &Seen {
        self.seen.get(segment - self.first).unwrap_or(&Seen::NOTHING)
    }

    /// Whether the next `span` bytes (or those up to the end) differ little from their predictions; tensors without predictions are
    /// compared with zeros.
    fn changed_little(&mut self, raw: &dyn ReadAt, ahead: u64, span: u64) -> Result<bool> {
        // Changed bits, extrapolated from the samples.
        let mut changed = 0;
        for e in self.overlaps(span) {
            self.see(raw, ahead, e.segment)?;
            let &Seen { related, distance } = self.seen(e.segment);
            let bits = 8 * e.len;
            changed += match (e.dtype, distance) {
                (_, Some(Distance { differ, seen })) if seen > 0 => {
                    (bits as u128 * differ as u128 / seen as u128) as u64
                }
                (Some(dtype), _) if related == [None; 2] => {
                    let Distance { differ, seen } = Distance::from_zero(dtype, e.start, e.len, raw)?;
                    (bits as u128 * differ as u128 / seen.max(1) as u128) as u64
                }
                // A header costs the same in any block.
                (None, _) if e.len <= LEAF as u64 => 0,
                _ => bits,
            };
            if changed * LITTLE >= 8 * span {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The length of a block of elements that repeat further apart than a block of the usual length reaches; 0 if those at its start do not.
    fn repeating(&mut self, raw: &dyn ReadAt, ahead: u64) -> Result<u64> {
        let len = BLOCK.min(ahead);
        if !self.adaptive || !self.has_long(len) {
            return Ok(0);
        }
        let most = self.overlaps(len).max_by_key(|e| e.len);
        let Some((dtype, segment)) = most.and_then(|e| Some((e.dtype?, e.segment))) else { return Ok(0) };
        let Some(s) = self.layout.segments.get(segment).filter(|s| s.len >= REPEATING_LEAST) else { return Ok(0) };
        // Earlier bytes may be gone.
        let (offset, end) = (s.offset.max(self.at), s.end());
        if self.repeats.is_none_or(|(of, _)| of != segment) {
            // As much as a stream can read, too.
            let known = (self.at + ahead.min(self.lookahead())).min(end).saturating_sub(offset).min(LARGE_BLOCK);
            let read = |at: usize, to: &mut [u8]| read_at(raw, "the input", to, offset + at as u64);
            let found = self.finder.find_repeats(dtype.coding_width(), known as usize, read)?;
            self.repeats = Some((segment, found));
        }
        if !self.repeats.is_some_and(|(_, found)| found) {
            return Ok(0);
        }
        let len = (end - self.at).next_multiple_of(LEAF as u64).min(LARGE_BLOCK);
        Ok(if ahead <= len + REST { ahead } else { len })
    }

    /// Whether a segment of at least [`REPEATING_LEAST`] bytes overlaps the next `len` bytes, which are no more. Only
    /// the first and the last segment there can be that long.
    fn has_long(&self, len: u64) -> bool {
        let segments = &self.layout.segments[self.first.min(self.layout.segments.len())..];
        let last = segments.partition_point(|s| s.offset < self.at + len).saturating_sub(1);
        [segments.first(), segments.get(last)].into_iter().flatten().any(|s| s.len >= REPEATING_LEAST)
    }

    /// Appends an overlap, in parts where not all of it has the same type or reference.
    fn push(&self, overlap: Overlap, block_len: u64, extents: &mut Vec<Extent>) {
        let Overlap { segment, dtype, pos, len, .. } = overlap;
        let width = dtype.map_or(1, Dtype::coding_width) as u64;
        // Elements that cross the block's edges become opaque bytes.
        let to_next = |unit: u64| (pos.next_multiple_of(unit) - pos).min(len);
        let mut head = to_next(width);
        let tail = (len - head) % width;
        let reference_at = |pos: u64| {
            let elements = len - (pos - overlap.pos) - tail;
            let at_most = |r: &Related| {
                let l = r.reference.at(dtype, pos);
                let source_width = l.conversion.source_width(width as usize).map_or(width, |n| n as u64);
                // A block cannot refer to itself.
                let before = if l.source == 0 { self.at.saturating_sub(l.offset) / source_width } else { u64::MAX };
                let n = r.len.saturating_sub(pos).min(elements).min(before.saturating_mul(width));
                (l, n - n % width)
            };
            let possible = self.seen(segment).related.iter().flatten().map(at_most);
            // The first of those that reach furthest.
            possible.filter(|l| l.1 > 0).min_by_key(|l| Reverse(l.1))
        };
        let found = reference_at(pos + head);
        // Blocks of quantised elements are coded field by field, or are no better than opaque bytes, for which zstd is tried.
        let fields = dtype.filter(|_| found.is_none()).and_then(fields_of);
        let row = self.layout.segments.get(segment).and_then(|s| s.shape.last());
        let run = RUN as u64;
        let is_derived = self.matcher.as_ref().is_some_and(|m| m.derived(segment).is_some());
        let unit = match fields {
            Some((_, block)) => block as u64,
            // Rows differ in scale: align runs with rows.
            None if found.is_none() && !is_derived && row.is_some_and(|row| row.is_multiple_of(run)) && pos > 0 => {
                width * run
            }
            None => width,
        };
        head = to_next(unit);
        let tail = if fields.is_some() { (len - head) % unit } else { tail.min(len - head) };
        let elements = len - head - tail;
        let (reference, linked) = found.map_or((None, 0), |(l, n)| (Some(l), n));
        let alone = dtype.filter(|d| fields.is_some() || !d.is_block());
        let columns =
            [(None, head, None), (dtype, linked, reference), (alone, elements - linked, None), (None, tail, None)];
        let is_own = len >= block_len / OWN_COLUMN
            || found.is_none() && len >= block_len / OWN_COLUMN_OF_MOMENTS && self.is_second_moment(segment);
        let group = if is_own { Group::Segment(segment) } else { Group::Others };
        let mut at = pos;
        for (dtype, len, base) in columns.into_iter().filter(|p| p.1 > 0) {
            let step = base.and_then(|base| self.step_at(segment, dtype, at, len, base));
            let derived = if base.is_none() { self.derived_at(segment, dtype, at, len) } else { None };
            let row = row.copied().unwrap_or(UNKNOWN_ROW);
            let matrix = (self.grids && row > 0).then_some(Matrix { row, position: at / width });
            at += len;
            let (dtype, base, step, derived) =
                if extents.len() < MAX_EXTENTS { (dtype, base, step, derived) } else { (None, None, None, None) };
            let group = match derived {
                // Codes of one column have groups that follow each other; other elements do not depend on their place.
                Some(DerivedFrom { recipe: Recipe::Codes { .. }, .. }) => Group::Segment(segment),
                Some(_) => Group::Others,
                None if dtype.is_some() => group,
                None => Group::Others,
            };
            match extents.last_mut() {
                Some(p)
                    if (p.dtype, p.group) == (dtype, group)
                        && goes_on(p, base)
                        && p.step.map(|s| s.at(p.dtype, p.len as u64)) == step
                        && (p.derived, derived) == (None, None)
                        // Structure is found in whole tensors.
                        && (dtype.is_none() || base.is_some() || len < LEAST as u64) =>
                {
                    p.len += len as usize;
                    p.matrix = None;
                }
                _ => extents.push(Extent { dtype, len: len as usize, base, step, derived, group, matrix }),
            }
        }
    }

    /// The step that predicts `len` bytes of a segment from byte `pos` on, whose base is `base`: if that is in a base, and operands in
    /// this file are before the block.
    fn step_at(&self, segment: usize, dtype: Option<Dtype>, pos: u64, len: u64, base: Reference) -> Option<Stepped> {
        let step = self.steps.get(segment).copied().flatten()?.at(dtype, pos);
        let is_there = |r: &Reference| r.source > 0 || r.offset + len <= self.at;
        let fits = base.source > 0 && base.conversion == Conversion::None && step.others.iter().flatten().all(is_there);
        fits.then_some(step)
    }

    /// What `len` bytes of a segment from byte `pos` on are derived from: by a copy of their scales, unless these are before the block.
    fn derived_at(&self, segment: usize, dtype: Option<Dtype>, pos: u64, len: u64) -> Option<DerivedFrom> {
        dtype?;
        let derived = self.matcher.as_ref()?.derived(segment)?.at(dtype, pos);
        let is_there = |r: SourceRange| r.source > 0 || r.end() <= self.at;
        Some(if derived.scales(len).is_none_or(is_there) { derived } else { derived.with_own_scales() })
    }

    fn is_second_moment(&self, segment: usize) -> bool {
        let Some(s) = self.layout.segments.get(segment).filter(|s| s.dtype == Some(Dtype::F32)) else { return false };
        s.name.as_deref().is_some_and(|name| role(name) == Role::ExpAvgSq)
    }

    /// Removes references that would make the next block deeper than the format allows, or of a higher cost.
    fn keep_shallow(&mut self, len: u64, extents: &mut [Extent]) {
        let (mut depth, mut ranges) = (0, Vec::new());
        for p in &mut *extents {
            let before = ranges.len();
            ranges.extend(of_step(p));
            let of_step = ranges[before..].iter().map(|range| self.chains.of_range(range)).max().unwrap_or(0);
            if of_step > MAX_DEPTH {
                p.step = None;
                ranges.truncate(before);
            } else {
                depth = depth.max(of_step);
            }
            if let Some(range) = of_own_scales(p) {
                match self.chains.of_range(&range) {
                    above if above > MAX_DEPTH => p.derived = p.derived.map(DerivedFrom::with_own_scales),
                    own => {
                        depth = depth.max(own);
                        ranges.push(range);
                    }
                }
            }
            let Some(range) = of_base(p) else { continue };
            match self.chains.of_range(&range) {
                above if above > MAX_DEPTH => {
                    forget(p);
                    ranges.truncate(before);
                }
                own => {
                    depth = depth.max(own);
                    ranges.push(range);
                }
            }
        }
        let mut cost = len + self.chains.cost_of(&ranges);
        if cost > MAX_BLOCK_COST {
            // It takes thousands of small tensors that depend on blocks far apart.
            for p in extents {
                if of_step(p).any(|range| range.source == 0) {
                    p.step = None;
                }
                if of_base(p).is_some_and(|range| range.source == 0) {
                    forget(p);
                }
                p.derived = p.derived.map(DerivedFrom::with_own_scales);
            }
            (depth, cost) = (0, len);
        }
        self.chains.push_of(len, depth, cost);
    }

    /// Advances by `len` bytes.
    fn advance(&mut self, len: u64) {
        self.at += len;
        while self.layout.segments.get(self.first).is_some_and(|s| s.end() <= self.at) {
            self.first += 1;
            self.seen.pop_front();
        }
    }
}

/// The range of the scales of codes, unless the column has a copy of them.
fn of_own_scales(p: &Extent) -> Option<SourceRange> {
    let derived = p.derived.filter(|d| !matches!(d.recipe, Recipe::Codes { in_column: true, .. }))?;
    derived.scales(p.len as u64)
}

/// The ranges that an extent takes as a step of an optimizer, besides its base.
fn of_step(p: &Extent) -> impl Iterator<Item = SourceRange> + use<> {
    let len = p.len as u64;
    let others = p.step.into_iter().flat_map(|s| s.others).flatten();
    others.map(move |r| SourceRange { source: r.source, offset: r.offset, len })
}

/// The range that an extent takes as its base.
fn of_base(p: &Extent) -> Option<SourceRange> {
    let width = p.dtype.map_or(1, Dtype::coding_width);
    let Reference { source, offset, conversion } = p.base?;
    let len = (p.len / width * conversion.source_width(width).unwrap_or(width)) as u64;
    Some(SourceRange { source, offset, len })
}

/// Lets an extent depend on nothing. Blocks of quantised elements may begin anywhere in it.
fn forget(p: &mut Extent) {
    (p.base, p.step, p.dtype) = (None, None, p.dtype.filter(|d| !d.is_block()));
}

/// Whether `base` continues the reference of an extent.
fn goes_on(p: &Extent, base: Option<Reference>) -> bool {
    p.base.map(|l| l.at(p.dtype, p.len as u64)) == base
}

#[cfg(test)]
mod tests;
