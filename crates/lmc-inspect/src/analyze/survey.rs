//! One pass over a checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use lmc::internals::{EncodedBoth, Sample, coding_of, encode_both, for_call, source};
use lmc::{Base, Compressor, Dtype, Error, ErrorKind, Segment};
use lmc_kernels::map::Map;

use super::bound::Bound;
use super::fields::{Fields, Histograms};
use super::flips;
use super::grids::Grids;
use super::input::Failed;
use super::names::{last_component, order_for};
use super::result::{AdamStep, FloatDelta};
use super::sums::{Magnitudes, Moves, Sums};
use super::training::{Norms, Older};
use crate::describe::GridDescription;
use crate::diff::changes::measure;
use crate::diff::counterparts::{Counterpart, Relation};
use crate::diff::pieces::{Buffers, Comparison, Piece};
use crate::kind::Kind;
use crate::shares::Shares;
use crate::truncated;

/// How checkpoints are passed over.
#[derive(Clone, Copy)]
pub(super) struct Passes<'a> {
    pub(super) compressor: &'a Compressor,
    /// Set to end them.
    pub(super) stop: &'a AtomicBool,
    /// Of so many blocks one is compressed; sizes are scaled.
    pub(super) every: u64,
}

/// The findings of a pass over a checkpoint.
pub(super) struct Survey {
    /// The names of the files.
    pub(super) files: Vec<String>,
    /// Their formats.
    pub(super) formats: Vec<String>,
    /// Bytes of the files: as they are, as `lmc` makes them without bases if that was counted, and given bases if there are any.
    pub(super) raw_size: u64,
    pub(super) lmc_size: u64,
    pub(super) delta_size: u64,
    /// Floats that have counterparts.
    pub(super) floats: FloatDelta,
    /// What the moments tell of the step from the checkpoint before.
    pub(super) adam: Option<AdamStep>,
    /// Every segment of every file, in order.
    pub(super) segments: Vec<Surveyed>,
    /// How large the floats of each kind and dtype are, if they were counted.
    pub(super) magnitudes: BTreeMap<(Kind, String), Magnitudes>,
    /// Tensors of the checkpoint before that are the counterpart of none.
    pub(super) missing: Listed,
    /// Tensors without a counterpart in the checkpoint before, if there is one.
    pub(super) new: Listed,
}

/// Some tensors.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) tensors: u64,
    /// The names of the first ones.
    pub(super) names: Vec<String>,
}

/// A segment, and its counts.
pub(super) struct Surveyed {
    pub(super) file: usize,
    pub(super) segment: Segment,
    pub(super) kind: Kind,
    pub(super) sums: Sums,
    pub(super) moves: Moves,
    pub(super) norms: Norms,
    /// How it came from its counterpart in the checkpoint before.
    pub(super) relation: Relation,
    /// Its bytes that were compressed.
    pub(super) sampled: u64,
    /// Its bytes that are on grids, in the file without the checkpoint before.
    pub(super) grids: Grids,
}

/// The scope of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Everything.
    Full,
    /// Sizes alone.
    Sizes,
}

/// A segment's bytes of a block.
struct Share {
    segment: usize,
    counted: Counted,
    moves: Moves,
    norms: Norms,
    /// Its bytes if they are floats with counterparts that were compressed, else 0.
    floats: u64,
    /// Its bytes if they were compressed, else 0.
    sampled: u64,
    lmc_size: u64,
    grids: Vec<(GridDescription, u64)>,
}

enum Counted {
    Nothing,
    /// The block has all of the segment.
    Whole(Sums, Magnitudes),
    Part(Box<Histograms>),
}

/// The findings of a block, and memory for the next one.
#[derive(Default)]
struct Block {
    shares: Vec<Share>,
    buffers: Buffers,
    older: Vec<u8>,
}

impl Survey {
    /// Counts everything in a checkpoint, beside the one before it, and the one before that, if there are any. Given one, the sizes without it are those that
    /// [`Self::add_alone`] adds: blocks are not the same then.
    pub(super) fn full(
        passes: Passes<'_>,
        number: usize,
        new: &[Base<'_>],
        old: &[Base<'_>],
        older: &[Base<'_>],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Failed> {
        let survey = Self::new(passes, number, new, (old, older), Scope::Full, progress)?;
        if survey.segments.iter().any(|s| s.segment.name.is_some()) {
            return Ok(survey);
        }
        let why = if survey.raw_size == 0 {
            "it is empty: there is nothing to study"
        } else if new.iter().any(|file| file.layout() != "raw") {
            "it has no tensors: there is nothing to study"
        } else {
            "lmc finds no tensors in it: it is damaged, or of a format that lmc does not know"
        };
        let file = match &survey.files[..] {
            [one] => Some(one.clone()),
            _ => None,
        };
        Err(Failed { checkpoint: number, file, error: Error::new(ErrorKind::Usage, why) })
    }

    /// Measures the size of a delta from an earlier checkpoint.
    pub(super) fn delta(
        passes: Passes<'_>,
        number: usize,
        new: &[Base<'_>],
        old: &[Base<'_>],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Failed> {
        Self::new(passes, number, new, (old, &[]), Scope::Sizes, progress)
    }

    /// Adds the sizes that the checkpoint has without an earlier one to the counts beside one.
    pub(super) fn add_alone(
        &mut self,
        passes: Passes<'_>,
        number: usize,
        new: &[Base<'_>],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failed> {
        let mut alone = Self::new(passes, number, new, (&[], &[]), Scope::Sizes, progress)?;
        self.lmc_size = alone.lmc_size;
        for (s, alone) in self.segments.iter_mut().zip(alone.segments.drain(..)) {
            s.sums.lmc_size = alone.sums.lmc_size;
            s.moves.lmc_size = alone.sums.lmc_size;
            s.grids = alone.grids;
        }
        Ok(())
    }

    fn new(
        passes: Passes<'_>,
        number: usize,
        new: &[Base<'_>],
        (old, older): (&[Base<'_>], &[Base<'_>]),
        scope: Scope,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Failed> {
        let files = new.iter().map(|b| b.name().to_owned()).collect();
        let formats = new.iter().map(|b| b.layout().to_owned()).collect();
        let (raw_size, lmc_size, delta_size) = (new.iter().map(Base::raw_size).sum(), 0, 0);
        let (segments, missing, added) = (vec![], Listed::default(), Listed::default());
        let magnitudes = BTreeMap::new();
        let mut survey = Self {
            files,
            formats,
            raw_size,
            lmc_size,
            delta_size,
            floats: FloatDelta::default(),
            adam: None,
            segments,
            magnitudes,
            missing,
            new: added,
        };
        let bound = Bound::default();
        let mut used: Vec<Vec<bool>> = old.iter().map(|b| vec![false; b.segments().len()]).collect();
        let (mut before, mut all_floats) = (0, 0);
        for (i, file) in new.iter().enumerate() {
            let mut at = |done| progress(before + done);
            let (counterparts, floats) = survey
                .add_file(passes, i, file, (old, older), (scope, &bound), &mut at)
                .map_err(|error| Failed { checkpoint: number, file: Some(file.name().to_owned()), error })?;
            counterparts.into_iter().for_each(|(file, segment)| used[file][segment] = true);
            all_floats += floats;
            before += file.raw_size();
        }
        let floats = &mut survey.floats;
        floats.entropy_size = bound.size();
        if passes.every > 1 && floats.raw_size > 0 {
            for size in [&mut floats.delta_size, &mut floats.entropy_size] {
                *size = scaled(*size, floats.raw_size, all_floats);
            }
            floats.raw_size = all_floats;
        }
        for (base, used) in old.iter().zip(used) {
            let unused = base.segments().iter().zip(used).filter(|(_, used)| !used).map(|(s, _)| s);
            unused.filter_map(|s| s.name.as_deref()).for_each(|name| survey.missing.add(name));
        }
        Ok(survey)
    }

    /// Adds a file. Returns which segments of which old files are counterparts of its own, and how many bytes of floats have some.
    fn add_file(
        &mut self,
        passes: Passes<'_>,
        number: usize,
        file: &Base<'_>,
        (old, older): (&[Base<'_>], &[Base<'_>]),
        (scope, bound): (Scope, &Bound),
        progress: &mut dyn FnMut(u64),
    ) -> lmc::Result<(Vec<(usize, usize)>, u64)> {
        let order = order_for(file, old);
        // Deltas record the names of files without their directories.
        let named = |i: &usize| old[*i].clone().with_name(last_component(old[*i].name()));
        let old: Vec<Base<'_>> = order.iter().map(named).collect();
        let bases = for_call(passes.compressor, &old);
        let (c, layout) = Comparison::new(file, &bases)?;
        if let Some(why) = truncated::with_layout(&source(file), &layout, file.raw_size())? {
            return Err(Error::new(ErrorKind::Damaged, why));
        }
        let relations = c.counterparts.iter().map(|c| c.map_or(Relation::New, |c: Counterpart| c.relation));
        let older = Older::new(file, c.segments.iter().zip(relations), older);
        let first = self.segments.len();
        let (mut used, mut of_floats) = (Vec::new(), 0);
        for (segment, counterpart) in c.segments.iter().zip(&c.counterparts) {
            let relation = counterpart.map_or(Relation::New, |c: Counterpart| c.relation);
            match counterpart {
                Some(c) => {
                    used.push((order[c.place.0], c.place.1));
                    of_floats += if is_float(segment.dtype) { c.len.min(segment.len) } else { 0 };
                }
                None => segment.name.iter().filter(|_| !old.is_empty()).for_each(|name| self.new.add(name)),
            }
            self.segments.push(Surveyed::new(number, segment, relation));
        }
        // The histograms of a segment that later blocks continue.
        let mut open: Option<(usize, Box<Histograms>)> = None;
        let (segments, magnitudes, floats) = (&mut self.segments[first..], &mut self.magnitudes, &mut self.floats);
        let mut finish = |s: &mut Surveyed, sums: Sums, of: &Magnitudes| {
            if !of.counts.is_empty() {
                magnitudes.entry((s.kind, s.dtype().to_owned())).or_default().add(of);
            }
            s.finish(sums);
        };
        let (made, _) = encode_both(
            passes.compressor,
            (&source(file), file.raw_size(), layout),
            &bases,
            (false, Sample { every: passes.every, others: scope == Scope::Full }),
            |encoded, block| {
                if passes.stop.load(Ordering::Relaxed) {
                    return Err(stopped());
                }
                look(&c, encoded, scope, (!old.is_empty()).then_some(bound), &older, block)
            },
            |block, done| {
                for share in block.shares.drain(..) {
                    let s = &mut segments[share.segment];
                    s.sums.lmc_size += share.lmc_size;
                    s.sampled += share.sampled;
                    floats.raw_size += share.floats;
                    floats.delta_size += if share.floats > 0 { share.moves.delta_size } else { 0 };
                    s.moves.add(&share.moves);
                    s.norms.add(&share.norms);
                    share.grids.iter().for_each(|(grid, bytes)| s.grids.add(grid, *bytes));
                    match share.counted {
                        Counted::Nothing => {}
                        Counted::Whole(sums, magnitudes) => finish(s, sums, &magnitudes),
                        Counted::Part(h) => match &mut open {
                            Some((segment, all)) if *segment == share.segment => all.merge(&h),
                            _ => {
                                if let Some((before, all)) = open.replace((share.segment, h)) {
                                    finish(&mut segments[before], all.sums(), &all.magnitudes());
                                }
                            }
                        },
                    }
                }
                progress(done);
            },
        )?;
        if let Some((last, all)) = open {
            finish(&mut segments[last], all.sums(), &all.magnitudes());
        }
        let (size, of): (_, SizeOf) = match old.is_empty() {
            true => (&mut self.lmc_size, |s| &mut s.sums.lmc_size),
            false => (&mut self.delta_size, |s| &mut s.moves.delta_size),
        };
        *size += if passes.every > 1 { scale(segments, of) } else { made.compressed_size };
        segments.iter_mut().for_each(Surveyed::settle);
        Ok((used, of_floats))
    }
}

fn is_float(dtype: Option<Dtype>) -> bool {
    dtype.is_some_and(|d| coding_of(d).1 == Map::Rotate)
}

/// The size of a segment that a pass measures.
type SizeOf = fn(&mut Surveyed) -> &mut u64;

/// Takes the sizes of segments from the blocks that were compressed: from those that have a part of it, or of others of its
/// kind and dtype, or of the file. Returns their sum.
fn scale(segments: &mut [Surveyed], size_of: SizeOf) -> u64 {
    let mut groups: BTreeMap<(Kind, Option<Dtype>), (u64, u64)> = BTreeMap::new();
    let mut all = (0, 0);
    for s in segments.iter_mut() {
        let size = *size_of(s);
        for sum in [&mut all, groups.entry((s.kind, s.segment.dtype)).or_default()] {
            *sum = (sum.0 + size, sum.1 + s.sampled);
        }
    }
    let mut total = 0;
    for s in segments {
        let known = [(*size_of(s), s.sampled), groups[&(s.kind, s.segment.dtype)], all];
        let (size, of) = known.into_iter().find(|(_, of)| *of > 0).unwrap_or_default();
        *size_of(s) = scaled(size, of, s.segment.len);
        total += *size_of(s);
    }
    total
}

/// The size of `all` bytes, given that of `some` of them.
fn scaled(size: u64, some: u64, all: u64) -> u64 {
    match some {
        0 => 0,
        _ => (u128::from(size) * u128::from(all)).div_ceil(u128::from(some)) as u64,
    }
}

/// Counts the part of each segment in a block. `bound`: the differences, given a base.
fn look(
    c: &Comparison<'_>,
    encoded: &EncodedBoth<'_>,
    scope: Scope,
    bound: Option<&Bound>,
    older: &Older<'_>,
    block: &mut Block,
) -> lmc::Result<()> {
    let Block { shares, buffers, older: before } = block;
    let is_compressed = !encoded.record.is_empty();
    let (mut pieces, mut unreadable) = (Vec::new(), None);
    c.each_piece(encoded, buffers, |piece| {
        let whole = piece.bytes.end - piece.bytes.start == c.segments[piece.segment].len;
        let mut moves = Moves::default();
        let (mut counted, mut norms) = (Counted::Nothing, Norms::default());
        if scope == Scope::Full {
            let mut h = Box::new(Histograms::new(Fields::of(piece.dtype)));
            h.add(piece.elements);
            counted = if whole { Counted::Whole(h.sums(), h.magnitudes()) } else { Counted::Part(h) };
            look_at_changes(&piece, &mut moves);
            match older.read(&piece, before) {
                Ok(older) => norms = Norms::of(&piece, moves.changes.changed, older),
                Err(error) => unreadable = Some(error),
            }
            pieces.push(piece.weighted(&moves.changes));
        } else {
            // What is alone in a block has all of it, whatever changed.
            let shares = piece.bytes.end - piece.bytes.start < encoded.raw.len() as u64;
            let changes = piece.old.filter(|_| shares).map(|old| measure(piece.dtype, piece.compared, old));
            pieces.push(piece.weighted(&changes.unwrap_or_default()));
        }
        // Of a piece with a counterpart of its own for each element.
        let old = piece.old.filter(|_| piece.compared.len() == piece.elements.len());
        let len = piece.bytes.end - piece.bytes.start;
        let floats = match bound.zip(old).filter(|_| is_compressed) {
            Some((bound, old)) if bound.add(piece.dtype, piece.compared, old) => len,
            _ => 0,
        };
        let sampled = if is_compressed { len } else { 0 };
        let (segment, lmc_size, grids) = (piece.segment, 0, vec![]);
        shares.push(Share { segment, counted, moves, norms, floats, sampled, lmc_size, grids });
    })?;
    if let Some(error) = unreadable {
        return Err(error);
    }
    if !is_compressed {
        return Ok(());
    }
    let record = match bound {
        Some(_) => Shares::of_changes(encoded.record, &pieces)?,
        None => Shares::new(encoded.record)?,
    };
    for (share, piece) in shares.iter_mut().zip(&pieces) {
        let size = record.of(&piece.bytes);
        (share.lmc_size, share.moves.delta_size) = if bound.is_some() { (0, size) } else { (size, 0) };
        share.grids = if bound.is_some() { vec![] } else { record.grids(&piece.bytes) };
    }
    Ok(())
}

/// Counts the changes in a piece.
fn look_at_changes(piece: &Piece<'_>, moves: &mut Moves) {
    let Some(old) = piece.old else { return };
    moves.changes = measure(piece.dtype, piece.compared, old);
    if moves.changes.changed > 0 {
        moves.flips = flips::count(piece.dtype.map_or(1, Dtype::coding_width), piece.compared, old);
    }
}

/// Another thread ended the study.
pub(super) fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the study was stopped")
}

impl Listed {
    /// Names that are kept.
    const NAMES: usize = 8;

    fn add(&mut self, name: &str) {
        self.tensors += 1;
        if self.names.len() < Self::NAMES {
            self.names.push(name.to_owned());
        }
    }
}

impl Surveyed {
    fn new(file: usize, segment: &Segment, relation: Relation) -> Self {
        let kind = Kind::of(segment.name.as_deref());
        let (sums, moves, norms, grids) = (Sums::default(), Moves::default(), Norms::default(), Grids::default());
        Self { file, segment: segment.clone(), kind, sums, moves, norms, relation, sampled: 0, grids }
    }

    /// Everything of the segment was counted.
    fn finish(&mut self, sums: Sums) {
        self.sums = Sums { lmc_size: self.sums.lmc_size, ..sums };
    }

    /// Adds the figures that need no counting.
    fn settle(&mut self) {
        let tensors = u64::from(self.segment.name.is_some());
        (self.sums.tensors, self.sums.raw_size) = (tensors, self.segment.len);
        let m = &mut self.moves;
        (m.tensors, m.raw_size, m.lmc_size) = (tensors, self.segment.len, self.sums.lmc_size);
        // Those of another dtype are compared after conversion.
        let same = self.relation == Relation::Same && m.changes.compared == self.sums.elements;
        m.unchanged_tensors = u64::from(tensors > 0 && same && m.changes.changed == 0);
        // One count for each bit, even if none flipped.
        if m.changes.compared > 0 {
            m.flips.resize(8 * self.segment.dtype.map_or(1, Dtype::coding_width), 0);
        }
    }

    /// The name of the dtype.
    pub(super) fn dtype(&self) -> &str {
        self.segment.dtype.as_ref().map_or("opaque", Dtype::name)
    }
}
