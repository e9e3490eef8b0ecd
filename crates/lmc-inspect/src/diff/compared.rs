//! All findings of a comparison of files, as every report of it tells them.

use std::collections::BTreeMap;

use lmc::{Base, Dtype, Segment};

use super::changes::Changes;
use super::counterparts::Relation;
use super::{Diff, SegmentDiff};
use crate::text::name;

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
    pub fn state(&self) -> Relation {
        match self.relation {
            Relation::Same if !self.is_unchanged() => Relation::Changed,
            relation => relation,
        }
    }

    /// Why it does not follow from the earlier files, if it does not.
    fn unattested(&self) -> Option<String> {
        let Changes { compared, changed, .. } = self.changes;
        let (all, of) = (self.elements(), if self.relation == Relation::Derived { "computed" } else { "there" });
        if self.segment.len == 0 || self.is_unchanged() && self.scales != Some(false) {
            return None;
        }
        Some(match self.counterpart {
            _ if self.is_unchanged() => "codes follow from stated scales, and these not from the weights".to_owned(),
            None => "is new".to_owned(),
            Some(_) if compared < all => format!("{} of {all} elements have no counterpart", all - compared),
            Some(_) => format!("{changed} of {all} elements are not those {of}"),
        })
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

    /// The tensors that do not follow from the earlier files, and why: that are new, or have elements that are not those of their
    /// counterpart, or not those that are computed from it, or codes that are computed with such scales.
    pub fn unattested(&self) -> impl Iterator<Item = (&SegmentDiff, String)> {
        self.tensors().filter_map(|s| Some((s, s.unattested()?)))
    }

    /// Bytes of the later files: as they are, as deltas, and without bases.
    pub fn sizes(&self) -> [u64; 3] {
        self.new.iter().fold([0; 3], |[raw, delta, alone], (file, d)| {
            [raw + file.raw_size(), delta + d.delta.compressed_size, alone + d.alone.compressed_size]
        })
    }

    /// The number of tensors in each state that occurs, and how many are missing, if any.
    pub fn states(&self) -> (Vec<(Relation, u64)>, u64) {
        let count = |state| self.tensors().filter(|s| s.state() == state).count() as u64;
        let all = Relation::ALL.map(|state| (state, count(state)));
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
            Relation::Derived => {
                let scales = if s.scales == Some(false) { ", scales as stated" } else { "" };
                format!("{state} from {}{scales}", old.dtype.as_ref().map_or("–", Dtype::name))
            }
            Relation::Retyped => format!("{state}, was {}", old.dtype.as_ref().map_or("–", Dtype::name)),
            Relation::Reshaped | Relation::Resized => format!("{state}, was {}", shape(&old.shape)),
            Relation::New | Relation::Same | Relation::Changed => state.to_owned(),
        }
    }
}
