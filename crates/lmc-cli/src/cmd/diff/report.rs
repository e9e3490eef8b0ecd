//! The findings of a comparison of files.

use lmc::{Base, Segment};
use lmc_inspect::{Changes, Diff};

/// All findings.
pub(super) struct Report {
    pub(super) old: Vec<Base<'static>>,
    /// The later files, and how they differ.
    pub(super) new: Vec<(Base<'static>, Diff)>,
    /// Tensors without a later one: which file, which segment.
    pub(super) missing: Vec<(usize, usize)>,
    pub(super) total: Total,
}

/// Sums over all files.
#[derive(Default)]
pub(super) struct Total {
    pub(super) raw_size: u64,
    pub(super) delta_size: u64,
    pub(super) alone_size: u64,
    pub(super) elements: u64,
    /// Sums over tensors alone.
    pub(super) changes: Changes,
}

impl Report {
    pub(super) fn new(old: Vec<Base<'static>>, new: Vec<(Base<'static>, Diff)>) -> Self {
        let mut total = Total::default();
        let mut met: Vec<Vec<bool>> = old.iter().map(|b| vec![false; b.segments().len()]).collect();
        for (file, diff) in &new {
            total.raw_size += file.raw_size();
            total.delta_size += diff.delta.compressed_size;
            total.alone_size += diff.alone.compressed_size;
            for s in &diff.segments {
                if let Some((base, i)) = s.counterpart {
                    met[base][i] = true;
                }
                if s.segment.name.is_some() {
                    total.elements += elements(&s.segment);
                    total.changes.add(&s.changes);
                }
            }
        }
        let tensors = old.iter().enumerate().flat_map(|(base, b)| {
            let named = b.segments().iter().enumerate().filter(|(_, s)| s.name.is_some());
            named.map(move |(i, _)| (base, i))
        });
        let missing = tensors.filter(|&(base, i)| !met[base][i]).collect();
        Self { old, new, missing, total }
    }

    /// The number of tensors in each state that occurs.
    pub(super) fn states(&self) -> Vec<(&'static str, usize)> {
        let relations = self.new.iter().flat_map(|(_, d)| &d.segments).filter(|s| s.segment.name.is_some());
        let names: Vec<&str> =
            relations.map(|s| s.relation.name()).chain(self.missing.iter().map(|_| "missing")).collect();
        let all = ["same", "reshaped", "resized", "retyped", "renamed", "new", "missing"];
        let counted = all.map(|state| (state, names.iter().filter(|n| **n == state).count()));
        counted.into_iter().filter(|(_, n)| *n > 0).collect()
    }
}

/// Elements as the codec counts them: bytes where they have fewer than eight bits, and of opaque data.
pub(super) fn elements(segment: &Segment) -> u64 {
    segment.len / segment.dtype.map_or(1, |d| d.coding_width() as u64)
}

/// Bits of a compressed element.
pub(super) fn bits(compressed: u64, segment: &Segment) -> Option<f64> {
    let elements = elements(segment);
    (elements > 0).then(|| 8.0 * compressed as f64 / elements as f64)
}
