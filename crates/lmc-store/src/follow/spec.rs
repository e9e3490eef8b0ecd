//! Which tensors follow, and which of their rows.

use lmc::{Dtype, Segment};

use crate::chunks::gather::{Located, part};
use crate::error::{Error, Result};
use crate::format::ids::Step;

/// A tensor that follows, or some of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the store.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its dimensions in memory, outermost first: those of the store, except for the number of rows, if it has only some.
    pub shape: Vec<u64>,
    /// The first of its rows, counted along the outermost dimension as the store has it; `None` if it has all of them.
    pub first_row: Option<u64>,
}

impl TensorSpec {
    /// Bytes in memory.
    pub(super) fn byte_len(&self) -> Result<u64> {
        let Self { name, dtype, shape, .. } = self;
        lmc::layout::tensor_len(*dtype, shape)
            .ok_or_else(|| Error::usage(format!("tensor {name:?}: {dtype} of shape {shape:?} has no length in bytes")))
    }

    /// Where a snapshot has its bytes, given where it has those of the whole tensor.
    ///
    /// # Errors
    /// `Usage` when that has another type or shape, or too few rows.
    pub(super) fn extents_in(&self, step: Step, there: &Segment, extents: Vec<Located>) -> Result<Vec<Located>> {
        let differs = || {
            let dtype = there.dtype.map_or_else(|| "?".to_owned(), |d| d.to_string());
            let rows = self.first_row.map_or_else(String::new, |first| format!(" from row {first} on"));
            let (shape, here) = (&there.shape, &self.shape);
            Error::usage(format!(
                "tensor {:?}: is {dtype} of shape {shape:?} in step {step}, and {} of shape {here:?}{rows} here",
                self.name, self.dtype
            ))
        };
        if there.dtype != Some(self.dtype) {
            return Err(differs());
        }
        let Some(first) = self.first_row else {
            return if there.shape[..] == self.shape { Ok(extents) } else { Err(differs()) };
        };
        let (Some((&rows, rest)), Some((&all, rest_there))) = (self.shape.split_first(), there.shape.split_first())
        else {
            return Err(differs());
        };
        if rest != rest_there || first.checked_add(rows).is_none_or(|end| end > all) {
            return Err(differs());
        }
        let before = lmc::layout::tensor_len(self.dtype, &[&[first], rest].concat());
        let (Some(before), Some(len)) = (before, lmc::layout::tensor_len(self.dtype, &self.shape)) else {
            let Self { name, dtype, .. } = self;
            return Err(Error::usage(format!("tensor {name:?}: row {first} of {dtype} does not begin with a byte")));
        };
        Ok(part(&extents, before, len))
    }
}
