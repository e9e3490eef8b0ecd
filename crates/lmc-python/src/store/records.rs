//! Snapshots as Python objects, and what else a store returns as the records of `lmc/_records.py`.

use lmc_store::Metadata;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::metadata;
use crate::errors::Result;
use crate::info::Tensor;
use crate::records::{Record, compared, record};

/// A snapshot of a store.
#[pyclass(frozen, module = "lmc.store")]
pub(crate) struct Snapshot(pub(crate) lmc_store::Snapshot);

compared!(Snapshot(step, id, time, metadata, shards, raw_size, new_size, dropped) {
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

    fn __repr__(&self) -> String {
        let lmc_store::Snapshot { step, id, raw_size, new_size, .. } = &self.0;
        format!("Snapshot(step={step}, id=\"{id}\", raw_size={raw_size}, new_size={new_size})")
    }
});

pub(super) fn saved(py: Python<'_>, s: lmc_store::Saved) -> Result<Record<'_>> {
    let lmc_store::Saved { raw_size, new_size, document_size, elements, changed, notes, .. } = s;
    let (shard, base) = (s.shard.to_string(), s.base.map(lmc_store::Step::get));
    let [read, compress, upload] = [s.read, s.compress, s.upload].map(|time| time.as_secs_f64());
    let fields = (shard, raw_size, new_size, document_size, base, elements, changed, read, compress, upload, notes);
    record(py, "Saved", fields)
}

pub(super) fn file_info<'py>(py: Python<'py>, f: &lmc_store::FileInfo) -> Result<Record<'py>> {
    let tensors: Vec<_> = f.segments.iter().filter_map(|s| Tensor::of(py, s)).collect();
    record(py, "FileInfo", (&f.name, f.len, &f.layout, tensors))
}

fn problem(py: Python<'_>, p: lmc_store::Problem) -> Result<Record<'_>> {
    record(py, "Problem", (p.step.get(), p.lost, p.intact, p.message, p.remedy))
}

pub(super) fn verified(py: Python<'_>, v: lmc_store::Verified) -> Result<Record<'_>> {
    let problems = v.problems.into_iter().map(|p| problem(py, p)).collect::<Result<Vec<_>>>()?;
    record(py, "Verified", (v.objects, v.block_sets, problems, v.tags, v.notes))
}

pub(super) fn cost(py: Python<'_>, c: lmc_store::Cost) -> Result<Record<'_>> {
    record(py, "Cost", (c.block_sets, c.stored_size, c.longest_chain))
}

fn steps<'s>(of: impl IntoIterator<Item = &'s lmc_store::Step>) -> Vec<u64> {
    of.into_iter().map(|step| step.get()).collect()
}

fn steps_of(of: &[lmc_store::Snapshot]) -> Vec<u64> {
    steps(of.iter().map(|s| &s.step))
}

fn steps_of_damaged(of: &[lmc_store::DamagedRecord]) -> Vec<u64> {
    steps(of.iter().map(|bad| &bad.step))
}

pub(super) fn prune_plan(py: Python<'_>, p: lmc_store::PrunePlan) -> Result<Record<'_>> {
    let (keep, prune, states) = (steps_of(&p.keep), steps_of(&p.prune), steps(p.states.iter().map(|s| &s.step)));
    let (damaged, left_out) = (steps_of_damaged(&p.damaged), steps_of_damaged(&p.left_out));
    let mut broken = steps(p.broken.iter().map(|p| &p.step));
    broken.dedup();
    let rebase = steps(&p.rebase);
    let fields = (keep, p.why, prune, states, damaged, left_out, rebase, broken, p.before, p.after, p.obstacle);
    record(py, "PrunePlan", fields)
}

pub(super) fn pruned(py: Python<'_>, p: lmc_store::Pruned) -> Result<Record<'_>> {
    record(py, "Pruned", (steps(&p.pruned), steps_of(&p.rebased), steps_of(&p.reduced), steps(&p.changed)))
}

pub(super) fn garbage(py: Python<'_>, g: lmc_store::Garbage) -> Result<Record<'_>> {
    let orphan = |o: lmc_store::Orphan| record(py, "Orphan", (o.key, o.size, o.time));
    let all = |of: Vec<lmc_store::Orphan>| of.into_iter().map(orphan).collect::<Result<Vec<_>>>();
    record(py, "Garbage", (g.time, all(g.orphans)?, all(g.young)?, g.unseen))
}

pub(super) fn copied(py: Python<'_>, c: lmc_store::Copied) -> Result<Record<'_>> {
    let snapshots: Vec<_> = c.snapshots.into_iter().map(Snapshot).collect();
    let damaged: Vec<_> = c.damaged.into_iter().map(|(step, why)| (step.get(), why)).collect();
    record(py, "Copied", (snapshots, c.skipped, damaged, steps_of_damaged(&c.left_out), c.notes))
}

pub(super) fn version<'py>(py: Python<'py>, v: &lmc_store::Version) -> Result<Record<'py>> {
    record(py, "Version", (v.step.get(), v.id.to_string(), &v.path))
}
