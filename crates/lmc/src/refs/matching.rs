//! Matches the tensors of a file with those of its bases: by name, shape and dtype, then by name without wrappers, then by content.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use crate::block::{DerivedFrom, Recipe, Reference};
use crate::refs::base::Base;
use crate::refs::derived;
use crate::refs::fingerprint::Fingerprint;
use lmc_kernels::cluster::element::zeros_in;
use lmc_kernels::predict::derived::Number;
use lmc_kernels::predict::{self, Conversion};
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::io::{ReadAt, read_at};
use lmc_layout::segment::Segment;
use lmc_layout::wrappers::Unwrapped;

/// A possible prediction of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// The place of the predictions, from the segment's beginning on.
    pub reference: Reference,
    /// Bytes of the segment, from its beginning on, that have predictions.
    pub len: u64,
}

/// Least bytes of a segment that is worth a reference.
const LINK_MIN: u64 = 64;
/// Least bytes of a tensor that is searched for by content.
const SEARCH_MIN: u64 = 1024;
/// Most comparisons of fingerprints for one file: some tenths of a second.
const COMPARISONS: usize = 1 << 24;
/// Candidates around a tensor's own rank that are compared once those are used up.
const NEIGHBOURS: usize = 32;

/// Bytes at the beginning of a tensor that must be known to match it.
pub(crate) const SAMPLED: u64 = Fingerprint::REACH;
/// Sample windows that estimate the distance of two tensors: most windows, bytes of each, and at most one per this many bytes.
const WINDOWS: u64 = 16;
const WINDOW: usize = 128;
const WINDOW_EVERY: u64 = 1 << 14;

/// Bits of residuals without leading zeros, and bits of the sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distance {
    pub(crate) differ: u64,
    pub(crate) seen: u64,
}

impl Distance {
    /// The distance from zeros of `len` bytes of `raw` at `offset`. All bits of a nonzero element count as different.
    pub(crate) fn from_zero(dtype: Dtype, offset: u64, len: u64, raw: &dyn ReadAt) -> Result<Self> {
        let width = dtype.coding_width();
        Self::sampled(dtype, offset, len, raw, |_, own| Ok(8 * (own.len() - width * zeros_in(width, own)) as u64))
    }

    /// The distance of `len` bytes of `raw` at `offset`; a function gives the differing bits of a window at a distance from `offset`.
    fn sampled(
        dtype: Dtype,
        offset: u64,
        len: u64,
        raw: &dyn ReadAt,
        differ: impl Fn(u64, &[u8]) -> Result<u64>,
    ) -> Result<Self> {
        let width = dtype.coding_width() as u64;
        let mut distance = Self::default();
        let windows = (len / WINDOW_EVERY).clamp(1, WINDOWS);
        for i in 0..windows {
            let at = len / windows * i / width * width;
            let n = ((len - at).min(WINDOW as u64) / width * width) as usize;
            let mut own = [0; WINDOW];
            let own = &mut own[..n];
            read_at(raw, "the input", own, offset + at)?;
            distance.differ += differ(at, own)?;
            distance.seen += 8 * n as u64;
        }
        Ok(distance)
    }
}

/// Finds the references of each segment of a file.
pub struct Matcher<'m> {
    given: &'m [Base<'m>],
    /// The bases that the file will name, in order.
    bases: Vec<&'m Base<'m>>,
    /// For each segment, and for the tail after them.
    found: Vec<Found>,
    pools: Vec<Pool>,
    /// Comparisons with tensors of the same shape, and of others.
    comparisons: [usize; 2],
    /// For each segment, the best-fitting tensor of its name.
    named: Vec<Option<Named>>,
    /// Index of each of `bases` among the given ones.
    numbers: Vec<usize>,
}

/// A tensor of a base with the name of one of the file, or with that name but for wrappers.
#[derive(Clone, Copy)]
pub struct Named {
    /// Index of the base among the given ones, and of its segment.
    pub base: usize,
    /// Index among them.
    pub segment: usize,
    /// How well it fits.
    pub fit: Fit,
    /// The conversion of its elements to the dtype of the file's tensor.
    pub conversion: Conversion,
    /// Bytes of the tensor, from its beginning on, that have a counterpart.
    pub len: u64,
}

impl Named {
    /// Tensor `i` of a base, if it fits one of the file.
    fn of(new: &Segment, bases: &[&Base<'_>], base: usize, i: usize) -> Option<Self> {
        let (fit, conversion, len) = fit(new, &bases[base].segments()[i])?;
        Some(Self { base, segment: i, fit, conversion, len })
    }
}

enum Found {
    Nothing,
    Related(Related),
    /// In another precision.
    Derived(Box<DerivedFrom>),
    /// To be searched in a pool by content; with its rank among the tensors of its shape that search there.
    Search {
        pool: usize,
        rank: usize,
    },
}

/// Tensors of the bases of one dtype and length, those of equal shape together.
#[derive(Default)]
struct Pool {
    candidates: Vec<Candidate>,
}

struct Candidate {
    source: u32,
    segment: usize,
    /// Matched with a tensor of the file already.
    taken: bool,
    /// `None` until it is needed.
    fingerprint: Option<Fingerprint>,
}

/// How well a base's tensor fits, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Dtype and shape are the same.
    Same,
    /// As many elements of the same dtype.
    Reshaped,
    /// As many elements of a dtype that is converted.
    Retyped,
    /// More or fewer rows.
    Resized,
}

/// How the elements of a tensor correspond to those of a base's: the fit, the conversion, and the number of bytes.
fn fit(new: &Segment, old: &Segment) -> Option<(Fit, Conversion, u64)> {
    let (to, from) = (new.dtype?, old.dtype?);
    let conversion = match (from, to) {
        _ if from == to => Conversion::None,
        // Floats of 8 bits have scales, mostly.
        _ if to.bits() < 16 => return None,
        _ => Conversion::between(Number::of(from)?, Number::of(to)?)?,
    };
    let retyped = conversion != Conversion::None;
    let elements = |s: &Segment, d: Dtype| u128::from(s.len) * 8 / u128::from(d.bits());
    if elements(new, to) == elements(old, from) {
        let fit = match new.shape == old.shape {
            _ if retyped => Fit::Retyped,
            true => Fit::Same,
            false => Fit::Reshaped,
        };
        return Some((fit, conversion, new.len));
    }
    let ((&rows, row), (&old_rows, old_row)) = (new.shape.split_first()?, old.shape.split_first()?);
    if row != old_row || rows == 0 || !new.len.is_multiple_of(rows) {
        return None;
    }
    Some((Fit::Resized, conversion, new.len / rows * rows.min(old_rows)))
}

/// Agreement of fingerprints, whether the candidate is free, and nearness of rank.
type Order = (usize, bool, Reverse<usize>);

impl<'m> Matcher<'m> {
    /// Matches a file by names, shapes and dtypes.
    pub fn new(layout: &Layout, bases: &'m [Base<'m>]) -> Self {
        let mut m = Self::by_names(layout, bases);
        m.keep_needed();
        m
    }

    /// Matches a file by those, and finds tensors that are copies in another precision. `read` fills a buffer with raw bytes of the
    /// file from an offset on.
    pub fn with_derived(
        layout: &Layout,
        bases: &'m [Base<'m>],
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Self {
        let mut m = Self::by_names(layout, bases);
        // Of a tensor with the name the elements are the same, or nearly so; where others are converted, that is not sure.
        let is_open = |i: usize| m.named[i].is_none_or(|n| n.fit == Fit::Retyped && n.conversion != Conversion::None);
        for (i, found) in derived::find(&layout.segments, &m.bases, is_open, read) {
            m.found[i] = match found {
                derived::Found::Cast(reference) => Found::Related(Related { reference, len: layout.segments[i].len }),
                derived::Found::Derived(from) => Found::Derived(Box::new(from)),
            };
        }
        m.keep_needed();
        m
    }

    fn by_names(layout: &Layout, bases: &'m [Base<'m>]) -> Self {
        let tensors = layout.segments.len();
        let mut m = Self {
            given: bases,
            bases: bases.iter().collect(),
            found: (0..=tensors).map(|_| Found::Nothing).collect(),
            pools: vec![],
            comparisons: [0; 2],
            named: vec![None; tensors],
            numbers: vec![],
        };
        let mut taken = m.by_name(layout);
        taken.extend(m.by_unwrapped_name(layout));
        let mut votes = vec![0usize; bases.len()];
        taken.iter().for_each(|&(base, _)| votes[base] += 1);
        m.by_position(layout, &votes);
        m.by_content(layout, &votes, &taken);
        m
    }

    /// The bases that the file names, in order.
    pub(crate) fn bases(&self) -> &[&'m Base<'m>] {
        &self.bases
    }

    /// The given bases.
    pub(crate) fn given(&self) -> &'m [Base<'m>] {
        self.given
    }

    /// The source of a given base, which the file will name.
    pub(crate) fn source(&mut self, given: usize) -> u32 {
        let at = self.numbers.iter().position(|&n| n == given).unwrap_or_else(|| {
            self.bases.push(&self.given[given]);
            self.numbers.push(given);
            self.numbers.len() - 1
        });
        at as u32 + 1
    }

    /// The best-fitting tensor of a segment's name, of any size.
    pub fn named(&self, i: usize) -> Option<&Named> {
        self.named.get(i)?.as_ref()
    }

    /// The index among the given bases of source `source` (≥ 1) of the file.
    pub fn number(&self, source: u32) -> usize {
        self.numbers[source as usize - 1]
    }

    /// Notes the tensor of a base that one of the file corresponds to; returns its base and segment.
    fn link(&mut self, number: usize, named: Named) -> (usize, usize) {
        self.named[number] = Some(named);
        if named.len >= LINK_MIN {
            let offset = self.bases[named.base].segments()[named.segment].offset;
            let reference = Reference { source: named.base as u32 + 1, offset, conversion: named.conversion };
            self.found[number] = Found::Related(Related { reference, len: named.len });
        }
        (named.base, named.segment)
    }

    /// Matches tensors by name; returns the matches: base and segment.
    fn by_name(&mut self, layout: &Layout) -> Vec<(usize, usize)> {
        let named: Vec<Vec<(&str, usize)>> = self.bases.iter().map(|b| by_name(matched(b))).collect();
        let mut taken = Vec::new();
        for (number, segment) in layout.segments.iter().enumerate() {
            let Some(name) = name_of(segment).filter(|_| segment.len > 0) else { continue };
            let best = named.iter().enumerate().filter_map(|(base, names)| {
                let at = names.partition_point(|&(n, _)| n < name);
                let &(_, i) = names.get(at).filter(|&&(n, _)| n == name)?;
                Named::of(segment, &self.bases, base, i)
            });
            let best = best.min_by_key(|named| (named.fit, named.base));
            taken.extend(best.map(|named| self.link(number, named)));
        }
        taken
    }

    /// Matches the tensors whose names the bases do not have, by their names without wrappers; returns the matches. A name counts only if
    /// one such tensor of the file has it, and one of the base whose name the file does not have.
    fn by_unwrapped_name(&mut self, layout: &Layout) -> Vec<(usize, usize)> {
        let tensors = || layout.segments.iter().enumerate().filter_map(|(i, s)| Some((name_of(s)?, i)));
        let named = &self.named;
        if tensors().all(|(_, i)| named[i].is_some() || layout.segments[i].len == 0) {
            return vec![];
        }
        let ours: HashSet<&str> = tensors().map(|(name, _)| name).collect();
        let searching = Unwrapped::new(tensors().filter(|&(_, i)| named[i].is_none()));
        let theirs: Vec<Unwrapped<'_>> = self
            .bases
            .iter()
            .map(|b| {
                let names = matched(b).iter().enumerate().filter_map(|(i, s)| Some((name_of(s)?, i)));
                Unwrapped::new(names.filter(|(name, _)| !ours.contains(name)))
            })
            .collect();
        let mut taken = Vec::new();
        for (name, number) in searching.iter() {
            let segment = &layout.segments[number];
            let best = theirs.iter().enumerate().filter_map(|(base, names)| {
                let i = names.get(name)?;
                Named::of(segment, &self.bases, base, i).filter(|n| segment.len > 0 && n.fit < Fit::Resized)
            });
            let best = best.min_by_key(|named| (named.fit, named.base));
            taken.extend(best.map(|named| self.link(number, named)));
        }
        taken
    }

    /// Matches segments without names by offset: headers, or all of a file of unknown format.
    fn by_position(&mut self, layout: &Layout, votes: &[usize]) {
        let related = |base: usize, offset, len| {
            let reference = Reference { source: base as u32 + 1, offset, conversion: Conversion::None };
            Found::Related(Related { reference, len })
        };
        if layout.name == lmc_layout::RAW {
            let raw = |b: &&Base<'_>| b.is_raw() && b.raw_size() >= LINK_MIN;
            if let Some(base) = self.bases.iter().position(raw) {
                *self.found.last_mut().expect("there is the tail") = related(base, 0, self.bases[base].raw_size());
            }
            return;
        }
        let most = votes.iter().copied().max().unwrap_or(0);
        let Some(base) = votes.iter().position(|&v| v == most).filter(|_| most > 0) else { return };
        let opaque = |segments: &'m [Segment]| segments.iter().filter(|s| s.dtype.is_none() && s.len > 0);
        let mut theirs = opaque(self.bases[base].segments());
        let mut ours = layout.segments.iter().zip(&mut self.found).filter(|(s, _)| s.dtype.is_none() && s.len > 0);
        if let Some(((segment, found), header)) = ours.next().zip(theirs.next())
            && segment.len.min(header.len) >= LINK_MIN
        {
            *found = related(base, header.offset, segment.len.min(header.len));
        }
        for (segment, found) in ours.filter(|(s, _)| s.len >= LINK_MIN) {
            match theirs.find(|t| t.len == segment.len) {
                Some(t) => *found = related(base, t.offset, segment.len),
                None => break,
            }
        }
    }

    /// Prepares a search for the tensors without match, in the bases with most matches.
    fn by_content(&mut self, layout: &Layout, votes: &[usize], taken: &[(usize, usize)]) {
        let mut pool_of: BTreeMap<(Dtype, u64), usize> = BTreeMap::new();
        let mut ranks: BTreeMap<(Dtype, &[u64]), usize> = BTreeMap::new();
        for (segment, found) in layout.segments.iter().zip(&mut self.found) {
            let (Found::Nothing, Some(dtype)) = (&*found, segment.dtype) else { continue };
            if segment.len < SEARCH_MIN {
                continue;
            }
            let new = pool_of.len();
            let pool = *pool_of.entry((dtype, segment.len)).or_insert(new);
            if pool == new {
                self.pools.push(Pool::default());
            }
            let searching = ranks.entry((dtype, &segment.shape)).or_default();
            *found = Found::Search { pool, rank: *searching };
            *searching += 1;
        }
        if pool_of.is_empty() {
            return;
        }
        let mut taken = taken.to_vec();
        taken.sort_unstable();
        let strangers = votes.iter().all(|&v| v == 0);
        for (i, base) in self.bases.iter().enumerate().filter(|&(i, _)| strangers || votes[i] > 0) {
            for (segment, s) in matched(base).iter().enumerate() {
                let Some(dtype) = s.dtype else { continue };
                if let Some(&pool) = pool_of.get(&(dtype, s.len)) {
                    let taken = taken.binary_search(&(i, segment)).is_ok();
                    let source = i as u32 + 1;
                    self.pools[pool].candidates.push(Candidate { source, segment, taken, fingerprint: None });
                }
            }
        }
        let bases = &self.bases;
        for pool in &mut self.pools {
            pool.candidates.sort_by(|a, b| a.shape(bases).cmp(b.shape(bases)));
        }
    }

    /// Drops the bases without matches, and renumbers the others.
    fn keep_needed(&mut self) {
        let mut number = vec![0u32; self.bases.len() + 1];
        for f in &self.found {
            match f {
                Found::Nothing => {}
                Found::Related(r) => number[r.reference.source as usize] = 1,
                Found::Derived(d) => number[d.source as usize] = 1,
                Found::Search { pool, .. } => {
                    self.pools[*pool].candidates.iter().for_each(|c| number[c.source as usize] = 1);
                }
            }
        }
        self.numbers = (0..self.bases.len()).filter(|&i| number[i + 1] > 0).collect();
        let mut needed = number[1..].iter().map(|&n| n > 0);
        self.bases.retain(|_| needed.next().expect("a flag for each base"));
        let mut next = 0;
        number.iter_mut().filter(|n| **n > 0).for_each(|n| {
            next += 1;
            *n = next;
        });
        for f in &mut self.found {
            if let Found::Derived(d) = f {
                d.source = number[d.source as usize];
            }
            if let Found::Related(r) = f {
                r.reference.source = number[r.reference.source as usize];
            }
        }
        let candidates = self.pools.iter_mut().flat_map(|p| &mut p.candidates);
        candidates.for_each(|c| c.source = number[c.source as usize]);
    }

    /// The reference of a segment by its name.
    pub(crate) fn related(&self, i: usize) -> Option<Related> {
        if let Found::Related(related) = self.found[i] { Some(related) } else { None }
    }

    /// What a segment is derived from, if it is.
    pub fn derived(&self, i: usize) -> Option<DerivedFrom> {
        if let Some(Found::Derived(from)) = self.found.get(i) { Some(**from) } else { None }
    }

    /// Whether a tensor is derived by means of scales that are in the file itself.
    pub(crate) fn has_own_scales(&self) -> bool {
        self.found.iter().any(|f| matches!(f, Found::Derived(d) if matches!(d.recipe, Recipe::Codes { .. })))
    }

    /// The reference of a segment; the file has at least `len` bytes of it. The tail follows the segments.
    pub fn relate(&mut self, layout: &Layout, i: usize, raw: &dyn ReadAt, len: u64) -> Result<Option<Related>> {
        match self.found[i] {
            Found::Nothing | Found::Derived(_) => Ok(None),
            Found::Related(r) => Ok(Some(r)),
            Found::Search { pool, rank } => self.search(&layout.segments[i], pool, rank, raw, len),
        }
    }

    /// The distance of `len` bytes at `offset` from their predictions, by a sample of up to 2 KiB. `None` if the reference is to the file
    /// itself, or needs a conversion.
    pub(crate) fn distance(
        &self,
        dtype: Option<Dtype>,
        offset: u64,
        reference: &Reference,
        raw: &dyn ReadAt,
        len: u64,
    ) -> Result<Option<Distance>> {
        if reference.source == 0 || reference.conversion != Conversion::None {
            return Ok(None);
        }
        let base = self.bases[reference.source as usize - 1];
        let dtype = dtype.unwrap_or(Dtype::U8);
        let differ = |at, own: &[u8]| {
            let mut theirs = [0; WINDOW];
            base.read(reference.offset + at, &mut theirs[..own.len()])?;
            Ok(predict::bits_apart(dtype, own, &theirs[..own.len()]))
        };
        Distance::sampled(dtype, offset, len, raw, differ).map(Some)
    }

    fn search(
        &mut self,
        segment: &Segment,
        pool: usize,
        rank: usize,
        raw: &dyn ReadAt,
        len: u64,
    ) -> Result<Option<Related>> {
        let dtype = segment.dtype.expect("only tensors are searched for");
        let pool = &mut self.pools[pool];
        // Blocks are planned before the bytes after them are available.
        if len < segment.len.min(Fingerprint::REACH) || pool.candidates.is_empty() {
            return Ok(None);
        }
        let read = |buf: &mut [u8], at: u64| read_at(raw, "the input", buf, segment.offset + at);
        let fingerprint = Fingerprint::take(dtype, segment.len, read)?;
        if fingerprint.is_constant() {
            return Ok(None);
        }
        let bases = &self.bases;
        let ours = &segment.shape[..];
        let first = pool.candidates.partition_point(|c| c.shape(bases) < ours);
        let end = first + pool.candidates[first..].partition_point(|c| c.shape(bases) == ours);
        let mut best: Option<(Order, usize, Reference)> = None;
        // Other shapes cost nothing where one of the same shape is found.
        for (others, [tried, more]) in
            [[first..end, 0..0], [0..first, end..pool.candidates.len()]].into_iter().enumerate()
        {
            let n = tried.len() + more.len();
            let from = |i: usize| if i < tried.len() { tried.start + i } else { more.start + i - tried.len() };
            let trials = if self.comparisons[others] + n <= COMPARISONS {
                self.comparisons[others] += n;
                0..n
            } else {
                let from = rank.min(n - 1).saturating_sub(NEIGHBOURS);
                from..n.min(from + 2 * NEIGHBOURS)
            };
            for i in trials {
                let at = from(i);
                let c = &mut pool.candidates[at];
                let base = bases[c.source as usize - 1];
                let offset = base.segments()[c.segment].offset;
                let theirs = match &mut c.fingerprint {
                    Some(s) => s,
                    none => none.insert(Fingerprint::take(dtype, segment.len, |buf, at| base.read(offset + at, buf))?),
                };
                // Of equal ones: a free one, then the one of the nearest rank.
                let order = (fingerprint.agreement(theirs), !c.taken, Reverse(i.abs_diff(rank)));
                if fingerprint.is_related(theirs) && best.is_none_or(|b| order > b.0) {
                    best = Some((order, at, Reference { source: c.source, offset, conversion: Conversion::None }));
                }
            }
            if best.is_some() {
                break;
            }
        }
        let Some((_, i, reference)) = best else { return Ok(None) };
        pool.candidates[i].taken = true;
        Ok(Some(Related { reference, len: segment.len }))
    }
}

impl Candidate {
    fn shape<'b>(&self, bases: &[&'b Base<'_>]) -> &'b [u64] {
        &bases[self.source as usize - 1].segments()[self.segment].shape
    }
}

/// The tensors of a base that those of a file are matched with.
fn matched<'b>(base: &'b Base<'_>) -> &'b [Segment] {
    if base.is_beside() { &[] } else { base.segments() }
}

/// The name of a tensor; raw data has none.
fn name_of(segment: &Segment) -> Option<&str> {
    segment.name.as_deref().filter(|n| !n.is_empty())
}

/// The named tensors, sorted by name; the first one of each name.
fn by_name(segments: &[Segment]) -> Vec<(&str, usize)> {
    let named = segments.iter().enumerate().filter_map(|(i, s)| Some((name_of(s)?, i)));
    let mut named: Vec<_> = named.collect();
    named.sort_unstable();
    named.dedup_by_key(|n| n.0);
    named
}
