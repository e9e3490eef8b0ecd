//! Combines the findings of all passes.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::atomic::AtomicBool;

use lmc::{Base, CompressOptions};

use super::advice::advice;
use super::duplicates;
use super::input::{Failed, Metric, StepsFrom};
use super::names::{last_component, uncompressed};
use super::result::{
    Analysis, Checkpoint, Course, Delta, Distance, FloatDelta, Group, GroupChange, GroupCourse, GroupDelta,
    GroupMagnitudes, Pair, Tensor, TensorChange,
};
use super::sums::{Moves, Sums, rounded};
use super::survey::{Survey, Surveyed};
use super::training::{Norms, Track, layer};
use crate::diff::counterparts::Relation;
use crate::kind::Kind;

/// The most tensors that are listed one by one.
pub(super) const MAX_TENSORS: usize = 1 << 16;

/// The most points of the courses of tensors that are kept and listed one by one.
const MAX_POINTS: usize = 1_000_000;
/// The most layers that are listed one by one.
const MAX_LAYERS: usize = 256;

/// A tensor of any checkpoint: its name, and where several have that name, the name of its file, compressed or not, with
/// directories if several files have that name: directories may have the step in their names. Which file of how many it is
/// may change.
type Key = (String, Option<String>);

/// A sequence of checkpoints, as far as it has been analysed.
pub(super) struct Series {
    checkpoints: Vec<Checkpoint>,
    pairs: Vec<Pair>,
    deltas: Vec<Delta>,
    changes: BTreeMap<(Kind, String), Moves>,
    kinds: BTreeMap<Kind, Track>,
    /// The layers of the model, and of the copies of its weights.
    layers: [BTreeMap<(String, Option<u64>), Track>; 2],
    /// The changes so far of each tensor of the last checkpoint.
    history: HashMap<Key, History>,
    /// How many points their courses have; `None` once they are too many, and left out.
    points: Option<usize>,
    /// The last checkpoint.
    last: Option<Survey>,
}

/// The changes of a tensor since it has its dtype and shape.
struct History {
    dtype: String,
    shape: Vec<u64>,
    pairs: u64,
    /// Pairs in which all elements stayed as they were.
    unchanged: u64,
    moves: Moves,
    /// The last pair that was counted.
    to: usize,
    track: Track,
}

/// How many tensors, and how many files, of a checkpoint have a name.
struct Names<'s> {
    tensors: HashMap<&'s str, u32>,
    files: HashMap<String, u32>,
}

impl<'s> Names<'s> {
    fn new(survey: &'s Survey) -> Self {
        let (mut tensors, mut files) = (HashMap::new(), HashMap::new());
        for name in survey.segments.iter().filter_map(|s| s.segment.name.as_deref()) {
            *tensors.entry(name).or_default() += 1;
        }
        for file in &survey.files {
            *files.entry(last_component(uncompressed(file))).or_default() += 1;
        }
        Self { tensors, files }
    }

    fn key(&self, name: &str, file: &str) -> Key {
        let several = self.tensors.get(name).is_some_and(|&n| n > 1);
        let file = several.then(|| {
            let (path, last) = (uncompressed(file), last_component(uncompressed(file)));
            if self.files.get(&last) == Some(&1) { last } else { path.to_owned() }
        });
        (name.to_owned(), file)
    }
}

impl Series {
    pub(super) fn new() -> Self {
        Self {
            checkpoints: vec![],
            pairs: vec![],
            deltas: vec![],
            changes: BTreeMap::new(),
            kinds: BTreeMap::new(),
            layers: Default::default(),
            history: HashMap::new(),
            points: Some(0),
            last: None,
        }
    }

    /// Adds a checkpoint, which was compared with the one before it.
    pub(super) fn add(
        &mut self,
        number: usize,
        (name, metadata): (String, BTreeMap<String, String>),
        steps: &[u64],
        mut survey: Survey,
    ) {
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
            metadata,
            files: survey.files.clone(),
            formats: survey.formats.clone(),
            all: all.figures(),
            kinds: kinds.iter().map(|(kind, sums)| Group::new(kind.name(), sums)).collect(),
            dtypes: dtypes.iter().map(|(dtype, sums)| Group::new(dtype, sums)).collect(),
        });
        self.add_courses(number, &survey);
        if number > 0 {
            self.add_pair(number, steps, &survey);
        }
        // There may be a million tensors, and their changes are kept elsewhere.
        survey.segments.iter_mut().for_each(|s| s.moves = Moves::default());
        self.last = Some(survey);
    }

    /// Adds how kinds and layers moved.
    fn add_courses(&mut self, number: usize, survey: &Survey) {
        let mut kinds: BTreeMap<Kind, Norms> = BTreeMap::new();
        let mut layers: [BTreeMap<(String, Option<u64>), Norms>; 2] = Default::default();
        for s in survey.segments.iter().filter(|s| s.kind != Kind::Other) {
            kinds.entry(s.kind).or_default().add(&s.norms);
            let of = match s.kind {
                Kind::Weights | Kind::Embedding | Kind::Norm => &mut layers[0],
                Kind::Master => &mut layers[1],
                _ => continue,
            };
            of.entry(layer(s.segment.name.as_deref().unwrap_or_default())).or_default().add(&s.norms);
        }
        kinds.iter().for_each(|(kind, norms)| self.kinds.entry(*kind).or_default().add(number, norms));
        for (all, layers) in self.layers.iter_mut().zip(layers) {
            for (layer, norms) in layers {
                if all.len() < MAX_LAYERS || all.contains_key(&layer) {
                    all.entry(layer).or_default().add(number, &norms);
                }
            }
        }
    }

    fn add_pair(&mut self, to: usize, steps: &[u64], survey: &Survey) {
        let (mut all, mut groups) = (Moves::default(), BTreeMap::new());
        let names = Names::new(survey);
        let mut before = take(&mut self.history);
        for s in &survey.segments {
            all.add(&s.moves);
            groups.entry((s.kind, s.dtype().to_owned())).or_insert_with(Moves::default).add(&s.moves);
            if let Some(name) = s.segment.name.as_deref() {
                let key = names.key(name, &survey.files[s.file]);
                match s.relation {
                    Relation::Same if s.moves.changes.compared > 0 => self.remember(key, &mut before, to, s),
                    Relation::Same => {}
                    // It became another tensor: in another dtype or shape, or new.
                    _ => self.drop_points(before.remove(&key)),
                }
            }
        }
        // Those of tensors that are gone would take the places of others.
        self.drop_points(before.into_values());
        (all.raw_size, all.delta_size, all.lmc_size) = (survey.raw_size, survey.delta_size, survey.lmc_size);
        let (from, distance) = (to - 1, steps[to] - steps[to - 1]);
        self.deltas.push(delta(from, to, steps, survey));
        for (key, moves) in &groups {
            self.changes.entry(key.clone()).or_default().add(moves);
        }
        let groups = groups.into_iter().map(|((kind, dtype), m)| GroupChange::new(kind, dtype, &m)).collect();
        self.pairs.push(Pair {
            from,
            to,
            steps: distance,
            all: all.change(),
            groups,
            adam: survey.adam,
            missing_tensors: survey.missing.tensors,
            missing_names: survey.missing.names.clone(),
            new_tensors: survey.new.tensors,
            new_names: survey.new.names.clone(),
        });
    }

    /// Records the changes of a tensor. `before`: the histories that no tensor of the checkpoint has gone on with yet.
    fn remember(&mut self, key: Key, before: &mut HashMap<Key, History>, to: usize, s: &Surveyed) {
        if self.history.len() >= MAX_TENSORS && !self.history.contains_key(&key) {
            return;
        }
        let (dtype, shape) = (s.dtype(), &s.segment.shape[..]);
        let earlier = before.remove(&key);
        let h = self.history.entry(key).or_insert_with(|| earlier.unwrap_or_else(|| History::new(dtype, shape)));
        // A name may occur twice in a file: the first one counts.
        if h.to >= to {
            return;
        }
        // Another tensor of its name may have been in several files meanwhile.
        if (&h.dtype[..], &h.shape[..]) != (dtype, shape) {
            self.points = self.points.map(|n| n - h.track.len());
            *h = History::new(dtype, shape);
        }
        h.to = to;
        h.pairs += 1;
        h.unchanged += s.moves.unchanged_tensors;
        h.moves.add(&s.moves);
        if let Some(n) = &mut self.points {
            *n -= h.track.len();
            h.track.add(to, &s.norms);
            *n += h.track.len();
            if *n > MAX_POINTS {
                self.points = None;
                self.history.values_mut().for_each(|h| h.track = Track::default());
            }
        }
    }

    /// Takes the points of histories that ended off the count.
    fn drop_points(&mut self, ended: impl IntoIterator<Item = History>) {
        let n: usize = ended.into_iter().map(|h| h.track.len()).sum();
        self.points = self.points.map(|all| all - n);
    }

    /// Adds the size of a delta between others than neighbours.
    pub(super) fn add_delta(&mut self, from: usize, to: usize, steps: &[u64], survey: &Survey) {
        self.deltas.push(delta(from, to, steps, survey));
    }

    /// All findings. `last`: the files of the last checkpoint.
    pub(super) fn finish(
        mut self,
        (codec, every): (&CompressOptions, u64),
        steps_from: StepsFrom,
        last: &[Base<'_>],
        log: Vec<Metric>,
        stop: &AtomicBool,
    ) -> Result<Analysis, Failed> {
        self.deltas.sort_by_key(|d| (d.to, std::cmp::Reverse(d.from)));
        let number = self.checkpoints.len().saturating_sub(1);
        let (mut tensors, mut left_out, mut magnitudes) = (vec![], 0, vec![]);
        if let Some(mut survey) = self.last.take() {
            magnitudes.extend(take(&mut survey.magnitudes).into_iter().map(|((kind, dtype), m)| GroupMagnitudes {
                kind,
                dtype,
                lowest: m.lowest,
                counts: m.counts,
            }));
            let listed: Vec<&Surveyed> = survey.segments.iter().filter(|s| s.segment.name.is_some()).collect();
            left_out = listed.len().saturating_sub(MAX_TENSORS) as u64;
            let listed = &listed[..listed.len().min(MAX_TENSORS)];
            let same = duplicates::find(listed, last, stop).map_err(|(file, error)| Failed {
                checkpoint: number,
                file: Some(file),
                error,
            })?;
            let each = listed.iter().zip(same);
            let names = Names::new(&survey);
            let pairs = number;
            if listed.len().saturating_mul(pairs) > MAX_POINTS {
                self.points = None;
            }
            let mut tensor = |(s, duplicate_of): (&&Surveyed, _)| {
                let key = names.key(s.segment.name.as_deref().unwrap_or_default(), &survey.files[s.file]);
                self.tensor(key, s, pairs, duplicate_of)
            };
            tensors = each.map(&mut tensor).collect();
        }
        let changes = self.changes.iter().map(|((kind, dtype), m)| GroupChange::new(*kind, dtype.clone(), m)).collect();
        let checkpoints = self.checkpoints.len();
        let kinds =
            self.kinds.into_iter().map(|(kind, t)| GroupCourse::new(kind.name().to_owned(), t.course(checkpoints)));
        let [model, copies] = self.layers;
        let layers = if model.is_empty() { copies } else { model };
        let layers = layers.into_iter().map(|((word, n), t)| {
            GroupCourse::new(n.map_or(word.clone(), |n| format!("{word}.{n}")), t.course(checkpoints))
        });
        let mut analysis = Analysis {
            metrics: metrics(&self.checkpoints, log),
            kinds: kinds.filter(|g| !g.course.norm.is_empty()).collect(),
            layers: layers.filter(|g| g.course.norm.iter().any(Option::is_some)).collect(),
            version: 1,
            program: concat!("lmc ", env!("CARGO_PKG_VERSION")).to_owned(),
            level: codec.level.name().to_owned(),
            sample: every,
            steps_from,
            distances: distances(&self.deltas),
            checkpoints: self.checkpoints,
            pairs: self.pairs,
            deltas: self.deltas,
            changes,
            magnitudes,
            tensors,
            tensors_left_out: left_out,
            engines: None,
            advice: vec![],
        };
        analysis.advice = advice(&analysis);
        Ok(analysis)
    }

    fn tensor(&mut self, key: Key, s: &Surveyed, pairs: usize, duplicate_of: Option<usize>) -> Tensor {
        let history = self.history.remove(&key);
        // A name may occur twice in a file.
        let history = history.filter(|h| (&h.dtype[..], &h.shape[..]) == (s.dtype(), &s.segment.shape[..]));
        let mut course = Course::default();
        let change = history.map(|h| {
            if self.points.is_some() {
                course = h.track.course(pairs + 1);
            }
            TensorChange {
                pairs: h.pairs,
                unchanged_pairs: h.unchanged,
                compared: h.moves.changes.compared,
                changed: h.moves.changes.changed,
                flips: h.moves.flips,
                distances: h.moves.changes.levels,
                delta_size: h.moves.delta_size,
                raw_size: h.moves.raw_size,
            }
        });
        Tensor {
            file: s.file,
            name: key.0,
            kind: s.kind,
            dtype: s.dtype().to_owned(),
            shape: s.segment.shape.to_vec(),
            figures: s.sums.figures(),
            distinct_values: s.sums.values,
            fits: s.sums.fits.map(str::to_owned),
            quantised: s.grids.most().map(|(format, _)| format.to_owned()),
            quantised_part: s.grids.most().map_or(0.0, |(_, bytes)| rounded(bytes as f64 / s.segment.len as f64)),
            duplicate_of,
            change,
            course,
        }
    }
}

impl History {
    fn new(dtype: &str, shape: &[u64]) -> Self {
        let (dtype, shape) = (dtype.to_owned(), shape.to_vec());
        Self { dtype, shape, pairs: 0, unchanged: 0, moves: Moves::default(), to: 0, track: Track::default() }
    }
}

impl GroupCourse {
    fn new(name: String, course: Course) -> Self {
        Self { name, course }
    }
}

/// The numbers among the metadata of checkpoints by step, and those that a log has besides.
fn metrics(checkpoints: &[Checkpoint], log: Vec<Metric>) -> Vec<Metric> {
    let mut all: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
    for c in checkpoints {
        let numbers = c.metadata.iter().filter_map(|(name, text)| Some((name, text.parse().ok()?)));
        numbers.for_each(|(name, x)| all.entry(name).or_default().push((c.step, x)));
    }
    let mut all: Vec<_> = all.into_iter().map(|(name, points)| Metric::new(name.to_owned(), points)).collect();
    let more: Vec<_> = log.into_iter().filter(|m| all.iter().all(|known| known.name != m.name)).collect();
    all.extend(more);
    all.retain(|m| !m.points.is_empty());
    all
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
        floats: survey.floats,
    }
}

/// Deltas added up by distance.
fn distances(deltas: &[Delta]) -> Vec<Distance> {
    let mut all: BTreeMap<u64, Distance> = BTreeMap::new();
    for d in deltas {
        let (groups, floats) = (vec![], FloatDelta::default());
        let none = || Distance { steps: d.steps, deltas: 0, raw_size: 0, delta_size: 0, groups, floats };
        let sum = all.entry(d.steps).or_insert_with(none);
        sum.deltas += 1;
        sum.raw_size += d.raw_size;
        sum.delta_size += d.delta_size;
        sum.floats.raw_size += d.floats.raw_size;
        sum.floats.delta_size += d.floats.delta_size;
        sum.floats.entropy_size += d.floats.entropy_size;
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

#[cfg(test)]
mod tests {
    use lmc::{Dtype, Segment};

    use super::*;
    use crate::analyze::grids::Grids;
    use crate::analyze::survey::Listed;

    #[test]
    fn tensors_that_are_gone_take_no_places() {
        let tensors = MAX_TENSORS as u64 * 2 / 3;
        let checkpoint = |prefix: &str, relation| {
            let segment = |i: u64| {
                let name = Some(format!("{prefix}{i}").as_str().into());
                let segment = Segment::new(name, Some(Dtype::U8), [1].into_iter().collect(), i, 1).unwrap();
                let mut moves = Moves::default();
                (moves.changes.compared, moves.changes.changed) = (1, i % 2);
                let (sums, norms, grids) = (Sums::default(), Norms::default(), Grids::default());
                Surveyed { file: 0, segment, kind: Kind::Other, sums, moves, norms, relation, sampled: 1, grids }
            };
            Survey {
                files: vec!["file".to_owned()],
                formats: vec!["safetensors".to_owned()],
                raw_size: tensors,
                lmc_size: tensors,
                delta_size: 0,
                floats: FloatDelta::default(),
                adam: None,
                segments: (0..tensors).map(segment).collect(),
                magnitudes: BTreeMap::new(),
                missing: Listed::default(),
                new: Listed::default(),
            }
        };
        let (new, same) = (Relation::New, Relation::Same);
        let mut series = Series::new();
        for (i, (prefix, relation)) in
            [("a", new), ("a", same), ("b", new), ("b", same), ("c", same)].iter().enumerate()
        {
            let name = (prefix.to_string(), BTreeMap::new());
            series.add(i, name, &[0, 1, 2, 3, 4], checkpoint(prefix, *relation));
            // A tensor has a point for each checkpoint so far; those before it was there count, too.
            let (listed, each) = if *relation == same { (tensors as usize, i + 1) } else { (0, 0) };
            assert_eq!((series.history.len(), series.points), (listed, Some(listed * each)), "{i}");
            assert!(series.history.keys().all(|(name, _)| name.starts_with(prefix)), "{i}");
        }
    }
}
