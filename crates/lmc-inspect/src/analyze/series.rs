//! What all passes found, put together.

use std::collections::{BTreeMap, HashMap};

use lmc::{Base, CompressOptions};

use super::advice::advice;
use super::duplicates;
use super::input::Failed;
use super::kind::Kind;
use super::result::{
    Analysis, Checkpoint, Delta, Distance, Group, GroupChange, GroupDelta, Pair, Tensor, TensorChange,
};
use super::sums::{Moves, Sums, rounded};
use super::survey::{Survey, Surveyed};

/// The most tensors that are listed one by one.
pub(super) const MAX_TENSORS: usize = 1 << 16;

/// Tensors by file of a checkpoint and name.
type Key = (usize, String);

/// A sequence of checkpoints, as far as it has been looked at.
pub(super) struct Series {
    checkpoints: Vec<Checkpoint>,
    pairs: Vec<Pair>,
    deltas: Vec<Delta>,
    changes: BTreeMap<(Kind, String), Moves>,
    /// What became of each tensor so far.
    history: HashMap<Key, History>,
    /// The last checkpoint.
    last: Option<Survey>,
}

#[derive(Default)]
struct History {
    pairs: u64,
    moves: Moves,
    /// For each pair so far.
    changed: Vec<Option<f64>>,
}

impl Series {
    pub(super) fn new() -> Self {
        Self {
            checkpoints: vec![],
            pairs: vec![],
            deltas: vec![],
            changes: BTreeMap::new(),
            history: HashMap::new(),
            last: None,
        }
    }

    /// Adds a checkpoint, which was compared with the one before it.
    pub(super) fn add(&mut self, number: usize, name: String, steps: &[u64], mut survey: Survey) {
        let (mut all, mut kinds, mut dtypes) = (Sums::default(), BTreeMap::new(), BTreeMap::new());
        for s in &survey.segments {
            all.add(&s.sums);
            kinds.entry(s.kind).or_insert_with(Sums::default).add(&s.sums);
            dtypes.entry(s.dtype()).or_insert_with(Sums::default).add(&s.sums);
        }
        (all.raw_size, all.lmc_size) = (survey.raw_size, survey.lmc_size);
        self.checkpoints.push(Checkpoint {
            name,
            step: steps[number],
            files: survey.files.clone(),
            formats: survey.formats.clone(),
            all: all.figures(),
            kinds: kinds.iter().map(|(kind, sums)| Group::new(kind.name(), sums)).collect(),
            dtypes: dtypes.iter().map(|(dtype, sums)| Group::new(dtype, sums)).collect(),
        });
        if number > 0 {
            self.add_pair(number, steps, &survey);
        }
        // There may be a million tensors, and what became of them is remembered elsewhere.
        survey.segments.iter_mut().for_each(|s| s.moves = Moves::default());
        self.last = Some(survey);
    }

    fn add_pair(&mut self, to: usize, steps: &[u64], survey: &Survey) {
        let (mut all, mut groups) = (Moves::default(), BTreeMap::new());
        for s in &survey.segments {
            all.add(&s.moves);
            groups.entry((s.kind, s.dtype().to_owned())).or_insert_with(Moves::default).add(&s.moves);
            self.remember(to, s);
        }
        (all.raw_size, all.delta_size, all.lmc_size) = (survey.raw_size, survey.delta_size, survey.lmc_size);
        let (from, distance) = (to - 1, steps[to] - steps[to - 1]);
        self.deltas.push(delta(from, to, steps, survey));
        for (key, moves) in &groups {
            self.changes.entry(key.clone()).or_default().add(moves);
        }
        let groups = groups.into_iter().map(|((kind, dtype), m)| GroupChange::new(kind, dtype, &m)).collect();
        self.pairs.push(Pair { from, to, steps: distance, all: all.change(), groups });
    }

    /// Remembers what became of a tensor.
    fn remember(&mut self, to: usize, s: &Surveyed) {
        let Some(name) = s.segment.name.as_deref() else { return };
        if s.moves.changes.compared == 0 {
            return;
        }
        let key = (s.file, name.to_owned());
        if self.history.len() >= MAX_TENSORS && !self.history.contains_key(&key) {
            return;
        }
        let h = self.history.entry(key).or_default();
        // A name may occur twice in a file: the first one counts.
        if h.changed.len() >= to {
            return;
        }
        h.changed.resize(to - 1, None);
        h.changed.push(Some(rounded(s.moves.changes.changed as f64 / s.moves.changes.compared as f64)));
        h.pairs += 1;
        h.moves.add(&s.moves);
    }

    /// Adds the size of a delta between others than neighbours.
    pub(super) fn add_delta(&mut self, from: usize, to: usize, steps: &[u64], survey: &Survey) {
        self.deltas.push(delta(from, to, steps, survey));
    }

    /// All that was found. `last`: the files of the last checkpoint.
    pub(super) fn finish(mut self, codec: &CompressOptions, last: &[Base<'_>]) -> Result<Analysis, Failed> {
        self.deltas.sort_by_key(|d| (d.to, std::cmp::Reverse(d.from)));
        let number = self.checkpoints.len().saturating_sub(1);
        let (mut tensors, mut left_out) = (vec![], 0);
        if let Some(survey) = self.last.take() {
            let listed: Vec<&Surveyed> = survey.segments.iter().filter(|s| s.segment.name.is_some()).collect();
            left_out = listed.len().saturating_sub(MAX_TENSORS) as u64;
            let listed = &listed[..listed.len().min(MAX_TENSORS)];
            let same = duplicates::find(listed, last).map_err(|(file, error)| Failed {
                checkpoint: number,
                file: Some(file),
                error,
            })?;
            let each = listed.iter().zip(same);
            tensors = each.map(|(s, duplicate_of)| self.tensor(s, duplicate_of)).collect();
        }
        let changes = self.changes.iter().map(|((kind, dtype), m)| GroupChange::new(*kind, dtype.clone(), m)).collect();
        let mut analysis = Analysis {
            version: 1,
            program: concat!("lmc ", env!("CARGO_PKG_VERSION")).to_owned(),
            level: codec.level.name().to_owned(),
            independent: codec.independent,
            distances: distances(&self.deltas),
            checkpoints: self.checkpoints,
            pairs: self.pairs,
            deltas: self.deltas,
            changes,
            tensors,
            tensors_left_out: left_out,
            engines: None,
            advice: vec![],
        };
        analysis.advice = advice(&analysis);
        Ok(analysis)
    }

    fn tensor(&mut self, s: &Surveyed, duplicate_of: Option<usize>) -> Tensor {
        let name = s.segment.name.as_deref().unwrap_or_default().to_owned();
        let pairs = self.checkpoints.len().saturating_sub(1);
        let change = self.history.remove(&(s.file, name.clone())).map(|mut h| {
            h.changed.resize(pairs, None);
            TensorChange {
                pairs: h.pairs,
                compared: h.moves.changes.compared,
                changed: h.moves.changes.changed,
                flips: h.moves.flips,
                distances: h.moves.changes.levels,
                delta_size: h.moves.delta_size,
                raw_size: h.moves.raw_size,
                changed_by_pair: h.changed,
            }
        });
        Tensor {
            file: s.file,
            name,
            kind: s.kind,
            dtype: s.dtype().to_owned(),
            shape: s.segment.shape.to_vec(),
            figures: s.sums.figures(),
            fits: s.sums.fits.map(str::to_owned),
            duplicate_of,
            change,
        }
    }
}

impl Group {
    fn new(name: &str, sums: &Sums) -> Self {
        Self { name: name.to_owned(), figures: sums.figures() }
    }
}

impl GroupChange {
    fn new(kind: Kind, dtype: String, moves: &Moves) -> Self {
        Self { kind, dtype, change: moves.change(), flips: moves.flips.clone() }
    }
}

/// The sizes of a delta.
fn delta(from: usize, to: usize, steps: &[u64], survey: &Survey) -> Delta {
    let mut groups: BTreeMap<(Kind, &str), (u64, u64)> = BTreeMap::new();
    for s in &survey.segments {
        let sizes = groups.entry((s.kind, s.dtype())).or_default();
        sizes.0 += s.segment.len;
        sizes.1 += s.moves.delta_size;
    }
    let groups = groups.into_iter().map(|((kind, dtype), (raw_size, delta_size))| GroupDelta {
        kind,
        dtype: dtype.to_owned(),
        raw_size,
        delta_size,
    });
    Delta {
        from,
        to,
        steps: steps[to] - steps[from],
        raw_size: survey.raw_size,
        delta_size: survey.delta_size,
        groups: groups.collect(),
    }
}

/// Deltas added up by distance.
fn distances(deltas: &[Delta]) -> Vec<Distance> {
    let mut all: BTreeMap<u64, Distance> = BTreeMap::new();
    for d in deltas {
        let none = || Distance { steps: d.steps, deltas: 0, raw_size: 0, delta_size: 0, groups: vec![] };
        let sum = all.entry(d.steps).or_insert_with(none);
        sum.deltas += 1;
        sum.raw_size += d.raw_size;
        sum.delta_size += d.delta_size;
        for g in &d.groups {
            match sum.groups.iter_mut().find(|s| (s.kind, &s.dtype) == (g.kind, &g.dtype)) {
                Some(s) => {
                    s.raw_size += g.raw_size;
                    s.delta_size += g.delta_size;
                }
                None => sum.groups.push(g.clone()),
            }
        }
    }
    all.into_values().collect()
}
