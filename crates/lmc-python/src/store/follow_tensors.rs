//! `lmc._lmc.TensorFollower`: tensors in memory that follow a store, for `lmc.sync`.

use lmc::ReadAt;
use lmc_store::{Snapshot as Found, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::exclusive::Exclusive;
use super::records::Snapshot;
use crate::buffer::{Buffer, Writable, check_disjoint};
use crate::errors::{Failure, Result};
use crate::info::Tensor;
use crate::numbers;
use crate::options::dtype;
use crate::text::text;
use crate::work::Signals;

/// The tensors of an iterable of `(name, dtype, shape, first_row)`.
pub(super) fn specs(tensors: &Bound<'_, PyAny>) -> Result<Vec<TensorSpec>> {
    let one = |one: PyResult<Bound<'_, PyAny>>| {
        let (name, of, shape, first): Parts<'_> = one?.extract()?;
        let name = text(&name)?.to_owned();
        let shape = numbers::shape(&shape, &name)?;
        let first_row = first.map(|first| numbers::number(&first, &format!("a row of {name:?}"))).transpose()?;
        Ok(TensorSpec { name, dtype: dtype(text(&of)?)?, shape, first_row })
    };
    tensors.try_iter()?.map(one).collect()
}

type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// The changes, ready to be committed.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct StagedTensors(lmc_store::StagedTensors);

/// Tensors in memory that follow a store. Their memory is passed to each call, in the order of the specifications.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct TensorFollower(Exclusive<lmc_store::TensorFollower>);

impl TensorFollower {
    pub(super) fn new(follower: lmc_store::TensorFollower) -> Self {
        Self(Exclusive::new("follower", follower))
    }
}

fn readable(tensors: &Bound<'_, PyAny>) -> Result<Vec<Buffer>> {
    let get = |t: PyResult<Bound<'_, PyAny>>| Buffer::get(&t?, "a tensor must be a C-contiguous buffer");
    tensors.try_iter()?.map(get).collect()
}

fn writable(tensors: &Bound<'_, PyAny>) -> Result<Vec<Writable>> {
    let all = tensors.try_iter()?.map(|t| Writable::get(&t?)).collect::<Result<Vec<_>>>()?;
    check_disjoint(&all)?;
    Ok(all)
}

fn slices(tensors: &mut [Writable]) -> Vec<&mut [u8]> {
    tensors.iter_mut().map(Writable::as_mut_slice).collect()
}

/// Calls `f` with tensors that can be read until a signal comes.
fn reading<T>(
    tensors: &[Buffer],
    signals: &Signals,
    f: impl FnOnce(&[&dyn ReadAt]) -> lmc_store::Result<T>,
) -> lmc_store::Result<T> {
    let sources: Vec<_> = tensors.iter().map(|t| signals.interrupting(t)).collect();
    f(&sources.iter().map(|s| s as &dyn ReadAt).collect::<Vec<_>>())
}

#[pymethods]
impl TensorFollower {
    /// The step and the id of the snapshot that the tensors hold, or `None`.
    #[getter]
    fn current(&self) -> Result<Option<(u64, String)>> {
        self.0.with(|f| Ok(f.current().map(|(step, id)| (step.get(), id.to_string()))))
    }

    /// The store's last snapshot, or `None` if the tensors hold it, or there is none.
    fn newest(&self, py: Python<'_>) -> Result<Option<Snapshot>> {
        Ok(self.0.work(py, |f| f.newest())?.map(Snapshot))
    }

    /// The names of the tensors of a snapshot.
    fn names(&self, py: Python<'_>, snapshot: &Snapshot) -> Result<Vec<String>> {
        self.0.work(py, |f| f.names(&snapshot.0))
    }

    /// A tensor of a snapshot.
    fn tensor(&self, py: Python<'_>, snapshot: &Snapshot, #[pyo3(from_py_with = text)] name: &str) -> Result<Tensor> {
        let segment = self.0.work(py, |f| f.tensor(&snapshot.0, name))?;
        Ok(Tensor::of(py, &segment).expect("a named segment is a tensor"))
    }

    /// Further tensors follow, which hold nothing.
    fn add(&self, tensors: &Bound<'_, PyAny>) -> Result<()> {
        let specs = specs(tensors)?;
        self.0.with(|f| Ok(f.add(specs)?))
    }

    /// Says that these tensors hold nothing any more.
    fn forget(&self, tensors: Vec<usize>) -> Result<()> {
        self.0.with(|f| {
            f.forget(&tensors);
            Ok(())
        })
    }

    /// Other names of tensors, for which a version must have the same bytes.
    fn tie(&self, names: Vec<(String, usize)>) -> Result<()> {
        self.0.with(|f| {
            f.tie(names);
            Ok(())
        })
    }

    /// Fills the tensors with those of a snapshot; returns how many bytes were fetched.
    fn load(&self, py: Python<'_>, snapshot: &Snapshot, tensors: &Bound<'_, PyAny>) -> Result<u64> {
        let (snapshot, mut tensors): (&Found, _) = (&snapshot.0, writable(tensors)?);
        self.0.watch(py, |f, signals| f.load(snapshot, &mut slices(&mut tensors), &mut signals.progress()))
    }

    /// Says that the tensors hold a snapshot, after comparing their bytes with its hashes.
    fn adopt(&self, py: Python<'_>, snapshot: &Snapshot, tensors: &Bound<'_, PyAny>) -> Result<()> {
        let (snapshot, tensors): (&Found, _) = (&snapshot.0, readable(tensors)?);
        self.0.watch(py, |f, signals| reading(&tensors, signals, |tensors| f.adopt(snapshot, tensors)))
    }

    /// Fetches the changes from the tensors' snapshot to another one.
    fn stage(&self, py: Python<'_>, snapshot: &Snapshot, tensors: &Bound<'_, PyAny>) -> Result<StagedTensors> {
        let (snapshot, tensors): (&Found, _) = (&snapshot.0, readable(tensors)?);
        let staged = self.0.watch(py, |f, signals| {
            reading(&tensors, signals, |tensors| f.stage(snapshot, tensors, &mut signals.progress()))
        })?;
        Ok(StagedTensors(staged))
    }

    /// Writes the changes.
    fn commit(&self, py: Python<'_>, staged: &StagedTensors, tensors: &Bound<'_, PyAny>) -> Result<()> {
        let mut tensors = writable(tensors)?;
        self.0.work(py, |f| f.commit(&staged.0, &mut slices(&mut tensors)))
    }

    /// Ends it. The tensors stay as they are.
    fn close(&self, py: Python<'_>) -> Result<()> {
        self.0.close(py)
    }
}

#[pymethods]
impl StagedTensors {
    #[getter]
    fn step(&self) -> u64 {
        self.0.step().get()
    }

    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// The step of the version that it was made from.
    #[getter]
    fn base_step(&self) -> u64 {
        self.0.from().get()
    }

    /// How many elements get another value.
    #[getter]
    fn changed(&self) -> u64 {
        self.0.changed()
    }

    /// Bytes that were fetched from the store.
    #[getter]
    fn fetched_size(&self) -> u64 {
        self.0.fetched_size()
    }

    /// The number of patches.
    fn __len__(&self) -> usize {
        self.0.patches().len()
    }

    /// A patch: the index of its tensor; bytes of an element; the range of elements that it covers; which of these changed, as integers of
    /// 64 bits counted through the tensor, or `None` for all; and the values.
    fn patch<'py>(&self, py: Python<'py>, number: usize) -> Result<PatchParts<'py>> {
        let patch =
            self.0.patches().get(number).ok_or_else(|| Failure::usage(format!("there is no patch {number}")))?;
        let indices = patch.indices().map(|indices| {
            PyBytes::new_with(py, 8 * indices.len(), |out| {
                for (out, i) in out.as_chunks_mut::<8>().0.iter_mut().zip(indices) {
                    *out = i.to_ne_bytes();
                }
                Ok(())
            })
        });
        let (elements, values) = (patch.elements(), PyBytes::new(py, patch.values()));
        Ok((patch.tensor(), patch.width(), elements.start, elements.end, indices.transpose()?, values))
    }
}

type PatchParts<'py> = (usize, usize, u64, u64, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);
