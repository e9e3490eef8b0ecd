//! All findings of a comparison of files, as every report of it tells them.

use std::collections::{BTreeMap, BTreeSet};

use lmc::{Base, Dtype, Segment};

use super::changes::Changes;
use super::counterparts::Relation;
use super::{Diff, SegmentDiff};
use crate::text::name;

/// What became of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// The one of its name, dtype and shape has the same bytes.
    Same,
    /// The one of its name, dtype and shape has others.
    Changed,
    /// As [`Relation::Reshaped`].
    Reshaped,
    /// As [`Relation::Resized`].
    Resized,
    /// As [`Relation::Retyped`].
    Retyped,
    /// As [`Relation::Renamed`].
    Renamed,
    /// As [`Relation::Derived`].
    Derived,
    /// It has no counterpart.
    New,
}

impl State {
    /// All states, in the order in which they are listed.
    const ALL: [State; 8] = [
        State::Same,
        State::Changed,
        State::Reshaped,
        State::Resized,
        State::Retyped,
        State::Renamed,
        State::Derived,
        State::New,
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Same => "same",
            State::Changed => "changed",
            State::Reshaped => "reshaped",
            State::Resized => "resized",
            State::Retyped => "retyped",
            State::Renamed => "renamed",
            State::Derived => "derived",
            State::New => "new",
        }
    }

    /// Its name in words.
    pub fn words(self) -> &'static str {
        if self == State::Retyped { "re-typed" } else { self.name() }
    }
}

/// Files that were compared with earlier ones.
pub struct Compared<'a> {
    /// The earlier files.
    pub old: Vec<Base<'a>>,
    /// The later files, and how each differs.
    pub new: Vec<(Base<'a>, Diff)>,
    /// Tensors of the earlier ones that are no counterpart: which file, which segment.
    pub missing: Vec<(usize, usize)>,
}

/// The figures of some segments.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DiffSums {
    /// How many segments.
    pub segments: u64,
    /// Elements, as [`SegmentDiff::elements`] counts them.
    pub elements: u64,
    /// Bytes as they are.
    pub raw_size: u64,
    /// Bytes in the delta.
    pub delta_size: u64,
    /// Bytes without bases.
    pub alone_size: u64,
    /// How elements changed.
    pub changes: Changes,
}

impl DiffSums {
    /// Adds a segment.
    pub fn add(&mut self, s: &SegmentDiff) {
        self.segments += 1;
        self.elements += s.elements();
        self.raw_size += s.segment.len;
        self.delta_size += s.delta_size;
        self.alone_size += s.alone_size;
        self.changes.add(&s.changes);
    }

    /// Bits of an element in the delta, and without bases; `None` if there are no elements.
    pub fn bits(&self) -> Option<[f64; 2]> {
        bits([self.delta_size, self.alone_size], self.elements)
    }
}

fn bits<const N: usize>(sizes: [u64; N], elements: u64) -> Option<[f64; N]> {
    (elements > 0).then(|| sizes.map(|size| 8.0 * size as f64 / elements as f64))
}

impl SegmentDiff {
    /// Elements as the codec counts them: bytes where they have fewer than eight bits, and of opaque data.
    pub fn elements(&self) -> u64 {
        self.segment.len / self.segment.dtype.map_or(1, |d| d.coding_width() as u64)
    }

    /// Bits of an element in the delta, and without bases; `None` if there are no elements.
    pub fn bits(&self) -> Option<[f64; 2]> {
        bits([self.delta_size, self.alone_size], self.elements())
    }

    /// What became of it.
    pub fn state(&self) -> State {
        match self.relation {
            Relation::Same if self.is_unchanged() => State::Same,
            Relation::Same => State::Changed,
            Relation::Reshaped => State::Reshaped,
            Relation::Resized => State::Resized,
            Relation::Retyped => State::Retyped,
            Relation::Renamed => State::Renamed,
            Relation::Derived => State::Derived,
            Relation::New => State::New,
        }
    }

    /// Whether all elements were compared, and none changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.counterpart.is_some() && self.changes.changed == 0 && self.changes.compared == self.elements()
    }
}

impl<'a> Compared<'a> {
    /// The findings: earlier files, and later ones, each with how it differs from those.
    pub fn new(old: Vec<Base<'a>>, new: Vec<(Base<'a>, Diff)>) -> Self {
        let mut met: Vec<Vec<bool>> = old.iter().map(|b| vec![false; b.segments().len()]).collect();
        for (base, i) in new.iter().flat_map(|(_, d)| &d.segments).filter_map(|s| s.counterpart) {
            met[base][i] = true;
        }
        let tensors = old.iter().enumerate().flat_map(|(base, b)| {
            let named = b.segments().iter().enumerate().filter(|(_, s)| s.name.is_some());
            named.map(move |(i, _)| (base, i))
        });
        let missing = tensors.filter(|&(base, i)| !met[base][i]).collect();
        Self { old, new, missing }
    }

    /// The segments of the later files that are tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &SegmentDiff> {
        self.new.iter().flat_map(|(_, d)| &d.segments).filter(|s| s.segment.name.is_some())
    }

    /// The figures of tensors by a property. Distances add up for elements of one dtype alone.
    pub fn sums<K: Ord>(&self, key: impl Fn(&SegmentDiff) -> K) -> BTreeMap<K, DiffSums> {
        let mut sums: BTreeMap<K, DiffSums> = BTreeMap::new();
        self.tensors().for_each(|s| sums.entry(key(s)).or_default().add(s));
        sums
    }

    /// The tensors that do not follow from the earlier files: that are new, or have elements that are not those of their counterpart,
    /// or not those that are computed from it. Scales that codes are computed with are taken as they are, if all of these codes are what
    /// the earlier files give with them: they are not compared with the weights.
    pub fn unattested(&self) -> impl Iterator<Item = &SegmentDiff> {
        self.new.iter().flat_map(|(_, d)| {
            let scales: BTreeSet<usize> =
                d.segments.iter().filter(|s| s.is_unchanged()).filter_map(|s| s.scales).collect();
            let is_other = move |i: usize, s: &SegmentDiff| {
                s.segment.name.is_some() && s.segment.len > 0 && !s.is_unchanged() && !scales.contains(&i)
            };
            d.segments.iter().enumerate().filter(move |&(i, s)| is_other(i, s)).map(|(_, s)| s)
        })
    }

    /// Bytes of the later files: as they are, as deltas, and without bases.
    pub fn sizes(&self) -> [u64; 3] {
        self.new.iter().fold([0; 3], |[raw, delta, alone], (file, d)| {
            [raw + file.raw_size(), delta + d.delta.compressed_size, alone + d.alone.compressed_size]
        })
    }

    /// The number of tensors in each state that occurs, and how many are missing, if any.
    pub fn states(&self) -> (Vec<(State, u64)>, u64) {
        let count = |state| self.tensors().filter(|s| s.state() == state).count() as u64;
        let all = State::ALL.map(|state| (state, count(state)));
        (all.into_iter().filter(|(_, n)| *n > 0).collect(), self.missing.len() as u64)
    }

    /// A missing tensor.
    pub fn old_segment(&self, (base, i): (usize, usize)) -> &Segment {
        &self.old[base].segments()[i]
    }

    /// The state of a segment in words, and its earlier name, shape or dtype if that differs.
    pub fn state(&self, s: &SegmentDiff, shape: impl Fn(&[u64]) -> String) -> String {
        let state = s.state().words();
        let Some(old) = s.counterpart.map(|place| self.old_segment(place)) else { return state.to_owned() };
        match s.relation {
            Relation::Renamed => match old.name.as_deref() {
                None | Some("") => format!("{state}, was (unnamed)"),
                Some(old) => format!("{state}, was {}", name(old)),
            },
            Relation::Derived => format!("{state} from {}", old.dtype.as_ref().map_or("–", Dtype::name)),
            Relation::Retyped => format!("{state}, was {}", old.dtype.as_ref().map_or("–", Dtype::name)),
            Relation::Reshaped | Relation::Resized => format!("{state}, was {}", shape(&old.shape)),
            Relation::New | Relation::Same => state.to_owned(),
        }
    }
}
