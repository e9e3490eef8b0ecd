//! Records of a store as Python objects.

use lmc_store::Metadata;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::metadata;
use crate::errors::Result;
use crate::info::Tensor;
use crate::repr::{Shown, record};

/// A snapshot of a store.
#[pyclass(frozen, module = "lmc.store")]
pub(crate) struct Snapshot(pub(crate) lmc_store::Snapshot);

impl Snapshot {
    fn shown(&self, _py: Python<'_>) -> String {
        let lmc_store::Snapshot { step, id, raw_size, new_size, .. } = &self.0;
        format!("Snapshot(step={step}, id=\"{id}\", raw_size={raw_size}, new_size={new_size})")
    }
}

record!(Snapshot(step, id, time, metadata, shards, raw_size, new_size, dropped) {
    #[classmethod]
    #[expect(clippy::too_many_arguments, reason = "they are fields")]
    fn _of(
        _class: &Bound<'_, PyType>,
        step: u64,
        id: &str,
        time: u64,
        #[pyo3(from_py_with = metadata::get)] metadata: Metadata,
        shards: Vec<String>,
        raw_size: u64,
        new_size: u64,
        dropped: u64,
    ) -> Result<Self> {
        let shards = shards.iter().map(|id| id.parse()).collect::<lmc_store::Result<_>>()?;
        let step = lmc_store::Step::new(step)?;
        let mut snapshot = lmc_store::Snapshot::new(step, id.parse()?, time, metadata, shards, raw_size, new_size);
        snapshot.dropped = dropped;
        Ok(Self(snapshot))
    }

    #[getter]
    fn step(&self) -> u64 {
        self.0.step.get()
    }

    #[getter]
    fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// Seconds since 1970, by the store's clock.
    #[getter]
    fn time(&self) -> u64 {
        self.0.time
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::dict(py, &self.0.metadata)
    }

    #[getter]
    fn shards(&self) -> Vec<String> {
        self.0.shards.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn raw_size(&self) -> u64 {
        self.0.raw_size
    }

    #[getter]
    fn new_size(&self) -> u64 {
        self.0.new_size
    }

    /// Bytes of files that it had before it lost the states of its optimizer.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }
});

/// A saved shard, not published yet.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Saved {
    pub(crate) shard: String,
    pub(crate) raw_size: u64,
    pub(crate) new_size: u64,
    /// Bytes of the document that locates the stored data.
    pub(crate) document_size: u64,
    /// The step of the snapshot that it was made from, if it was made from one.
    pub(crate) base_step: Option<u64>,
    /// Elements of the tensors.
    pub(crate) elements: u64,
    /// How many of them changed, where the deltas say that.
    pub(crate) changed: Option<u64>,
    /// Seconds of reading, compressing, and waiting for the store.
    pub(crate) read_seconds: f64,
    pub(crate) compress_seconds: f64,
    pub(crate) upload_seconds: f64,
    /// What is wrong with earlier snapshots, as far as it was noticed. Nothing that was saved depends on these.
    pub(crate) notes: Vec<String>,
}

impl From<lmc_store::Saved> for Saved {
    fn from(s: lmc_store::Saved) -> Self {
        Self {
            shard: s.shard.to_string(),
            raw_size: s.raw_size,
            new_size: s.new_size,
            document_size: s.document_size,
            base_step: s.base.map(lmc_store::Step::get),
            elements: s.elements,
            changed: s.changed,
            read_seconds: s.read.as_secs_f64(),
            compress_seconds: s.compress.as_secs_f64(),
            upload_seconds: s.upload.as_secs_f64(),
            notes: s.notes,
        }
    }
}

record!(Saved(
    shard,
    raw_size,
    new_size,
    document_size,
    base_step,
    elements,
    changed,
    read_seconds,
    compress_seconds,
    upload_seconds,
    notes
));

/// A file of a snapshot.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct FileInfo {
    name: String,
    nbytes: u64,
    layout: String,
    tensors: Vec<Py<Tensor>>,
}

impl FileInfo {
    pub(crate) fn of(py: Python<'_>, f: &lmc_store::FileInfo) -> Result<Self> {
        let tensors = f.segments.iter().filter_map(|s| Tensor::of(py, s));
        let tensors = tensors.map(|t| Ok(Py::new(py, t)?)).collect::<Result<_>>()?;
        Ok(Self { name: f.name.clone(), nbytes: f.len, layout: f.layout.clone(), tensors })
    }
}

impl FileInfo {
    fn shown(&self, _py: Python<'_>) -> String {
        let n = self.tensors.len();
        format!("FileInfo(name={:?}, nbytes={}, layout={:?}, {n} tensors)", self.name, self.nbytes, self.layout)
    }
}

record!(FileInfo(name, nbytes, layout, tensors) shown by itself);

/// A problem of a snapshot.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Problem {
    step: u64,
    /// File, and tensor or `None` for bytes between tensors; empty if the whole snapshot is lost.
    lost: Vec<(String, Option<String>)>,
    /// Whether the snapshot can be restored whole all the same.
    intact: bool,
    message: String,
    /// What can be done.
    remedy: Option<String>,
}

impl Problem {
    fn shown(&self, _py: Python<'_>) -> String {
        let Self { step, lost, intact, message, .. } = self;
        format!("Problem(step={step}, {} lost, intact={}, message={message:?})", lost.len(), intact.shown())
    }
}

record!(Problem(step, lost, intact, message, remedy) shown by itself);

/// The result of a verification.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Verified {
    objects: u64,
    block_sets: u64,
    problems: Vec<Py<Problem>>,
    /// What is wrong with tags: they cannot be read, or name snapshots that are gone.
    tags: Vec<String>,
    /// Foreign or superseded objects in the store.
    notes: Vec<String>,
}

impl Verified {
    pub(crate) fn of(py: Python<'_>, v: lmc_store::Verified) -> Result<Self> {
        let problem = |p: lmc_store::Problem| {
            let lmc_store::Problem { step, lost, intact, message, remedy, .. } = p;
            Problem { step: step.get(), lost, intact, message, remedy }
        };
        let problems = v.problems.into_iter().map(|p| Py::new(py, problem(p))).collect::<PyResult<_>>()?;
        Ok(Self { objects: v.objects, block_sets: v.block_sets, problems, tags: v.tags, notes: v.notes })
    }
}

impl Verified {
    fn shown(&self, _py: Python<'_>) -> String {
        let (problems, tags, notes) = (self.problems.len(), self.tags.len(), self.notes.len());
        format!(
            "Verified(objects={}, block_sets={}, {problems} problems, {tags} of tags, {notes} notes)",
            self.objects, self.block_sets
        )
    }
}

record!(Verified(objects, block_sets, problems, tags, notes) shown by itself);

/// The cost of restoring a snapshot.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Cost {
    block_sets: u64,
    stored_size: u64,
    longest_chain: u32,
}

impl From<lmc_store::Cost> for Cost {
    fn from(c: lmc_store::Cost) -> Self {
        Self { block_sets: c.block_sets, stored_size: c.stored_size, longest_chain: c.longest_chain }
    }
}

record!(Cost(block_sets, stored_size, longest_chain));

fn steps(of: &[lmc_store::Snapshot]) -> Vec<u64> {
    of.iter().map(|s| s.step.get()).collect()
}

/// The plan of a pruning: steps, and bytes of data that snapshots need.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct PrunePlan {
    keep: Vec<u64>,
    /// For each step to keep, the rules that keep it: `last`, `every`, `within`, `step`, `best KEY` and `tag NAME`.
    why: Vec<Vec<String>>,
    prune: Vec<u64>,
    /// Those that stay without the states of their optimizers.
    states: Vec<u64>,
    damaged: Vec<u64>,
    left_out: Vec<u64>,
    rebase: Vec<u64>,
    /// Those that would stay and cannot be restored: nothing is pruned as long as there is one.
    broken: Vec<u64>,
    before: u64,
    after: u64,
    obstacle: Option<String>,
}

impl From<lmc_store::PrunePlan> for PrunePlan {
    fn from(p: lmc_store::PrunePlan) -> Self {
        let rebase = p.rebase.iter().map(|s| s.get()).collect();
        let (keep, prune) = (steps(&p.keep), steps(&p.prune));
        let bad = |of: &[lmc_store::DamagedRecord]| of.iter().map(|bad| bad.step.get()).collect();
        let (damaged, left_out) = (bad(&p.damaged), bad(&p.left_out));
        let mut broken: Vec<u64> = p.broken.iter().map(|p| p.step.get()).collect();
        broken.dedup();
        let states = p.states.iter().map(|s| s.step.get()).collect();
        let lmc_store::PrunePlan { why, before, after, obstacle, .. } = p;
        Self { keep, why, prune, states, damaged, left_out, rebase, broken, before, after, obstacle }
    }
}

record!(PrunePlan(keep, why, prune, states, damaged, left_out, rebase, broken, before, after, obstacle));

/// The result of a pruning.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Pruned {
    pruned: Vec<u64>,
    rebased: Vec<u64>,
    /// Those that lost the states of their optimizers.
    reduced: Vec<u64>,
    changed: Vec<u64>,
}

impl From<lmc_store::Pruned> for Pruned {
    fn from(p: lmc_store::Pruned) -> Self {
        let steps_of = |s: &[lmc_store::Step]| s.iter().map(|s| s.get()).collect();
        let (rebased, reduced) = (steps(&p.rebased), steps(&p.reduced));
        Self { pruned: steps_of(&p.pruned), rebased, reduced, changed: steps_of(&p.changed) }
    }
}

record!(Pruned(pruned, rebased, reduced, changed));

/// An object that no snapshot needs.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Orphan {
    key: String,
    size: u64,
    time: u64,
}

record!(Orphan(key, size, time));

/// The objects that no snapshot needs.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Garbage {
    time: u64,
    orphans: Vec<Py<Orphan>>,
    young: Vec<Py<Orphan>>,
    unseen: Option<String>,
}

impl Garbage {
    pub(crate) fn of(py: Python<'_>, g: lmc_store::Garbage) -> Result<Self> {
        let orphan = |o: lmc_store::Orphan| Py::new(py, Orphan { key: o.key, size: o.size, time: o.time });
        let all = |of: Vec<lmc_store::Orphan>| of.into_iter().map(orphan).collect::<PyResult<Vec<_>>>();
        Ok(Self { time: g.time, orphans: all(g.orphans)?, young: all(g.young)?, unseen: g.unseen })
    }
}

impl Garbage {
    fn shown(&self, py: Python<'_>) -> String {
        let size = self.orphans.iter().map(|o| o.borrow(py).size).sum::<u64>();
        let (orphans, young) = (self.orphans.len(), self.young.len());
        format!("Garbage(time={}, {orphans} orphans of {size} bytes, {young} young)", self.time)
    }
}

record!(Garbage(time, orphans, young, unseen) shown by itself);

/// The result of copying snapshots.
#[pyclass(frozen, get_all, module = "lmc.store")]
pub(crate) struct Copied {
    /// The copied snapshots.
    snapshots: Vec<Py<Snapshot>>,
    /// How many were there already.
    skipped: u64,
    /// Steps that cannot be copied, each with the reason.
    damaged: Vec<(u64, String)>,
    /// Steps whose records in the destination cannot be read.
    left_out: Vec<u64>,
    /// What is wrong with snapshots of the destination, as far as it was noticed. No copy depends on these.
    pub(crate) notes: Vec<String>,
}

impl Copied {
    pub(crate) fn of(py: Python<'_>, c: lmc_store::Copied) -> Result<Self> {
        let snapshots = c.snapshots.into_iter().map(|s| Py::new(py, Snapshot(s))).collect::<PyResult<_>>()?;
        let damaged = c.damaged.into_iter().map(|(step, why)| (step.get(), why)).collect();
        let left_out = c.left_out.iter().map(|bad| bad.step.get()).collect();
        Ok(Self { snapshots, skipped: c.skipped as u64, damaged, left_out, notes: c.notes })
    }

    fn shown(&self, _py: Python<'_>) -> String {
        let Self { snapshots, skipped, damaged, left_out, notes } = self;
        let (copied, damaged, left_out, notes) = (snapshots.len(), damaged.len(), left_out.len(), notes.len());
        format!("Copied({copied} snapshots, skipped={skipped}, {damaged} damaged, {left_out} left out, {notes} notes)")
    }
}

record!(Copied(snapshots, skipped, damaged, left_out, notes) shown by itself);
