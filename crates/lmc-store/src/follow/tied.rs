//! Names of tensors that share memory: a version must have the same bytes for all of them.

use super::spec::TensorSpec;
use crate::chunks::gather::Located;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::restore::{SnapshotReader, TensorBuffer};

/// Another name of a tensor that follows.
#[derive(Debug)]
pub(super) struct Tied {
    pub(super) name: String,
    /// Index of the tensor.
    pub(super) tensor: usize,
}

/// Checks that a version has the bytes of the tensors for their other names, too, as far as it has these. Where both
/// names are not the same block sets, which tied tensors of one file are only if they are large, both are decoded.
///
/// # Errors
/// `Usage` when they differ; those of [`SnapshotReader::read_tensors`].
pub(super) fn check(reader: &SnapshotReader, specs: &[TensorSpec], tied: &[Tied]) -> Result<()> {
    let step = reader.snapshot().step;
    for Tied { name, tensor } in tied {
        let spec = &specs[*tensor];
        let (there, extents) = match reader.tensor_extents(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            found => found?,
        };
        let other = TensorSpec { name: name.clone(), ..spec.clone() };
        let other_extents = other.extents_in(step, there, extents)?;
        let (there, extents) = reader.tensor_extents(&spec.name)?;
        let extents = spec.extents_in(step, there, extents)?;
        if !same_sets(reader, &extents, &other_extents)? && !same_bytes(reader, spec, &other)? {
            return Err(Error::usage(format!(
                "tensors {:?} and {name:?} share their memory, and step {step} of the store has different values for them: give each \
                 memory of its own, as by loading the model without tied weights",
                spec.name
            )));
        }
    }
    Ok(())
}

fn same_sets(reader: &SnapshotReader, a: &[Located], b: &[Located]) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.iter().zip(b) {
        let (set, other) = (reader.catalog().set(a.set)?, reader.catalog().set(b.set)?);
        let of_set = |e: &Located| (e.offset, e.from, e.len);
        if (set.raw_hash, set.raw_len) != (other.raw_hash, other.raw_len) || of_set(a) != of_set(b) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_bytes(reader: &SnapshotReader, a: &TensorSpec, b: &TensorSpec) -> Result<bool> {
    let len = a.byte_len()?;
    let len = usize::try_from(len).map_err(|_| Error::usage(format!("tensor {:?}: is too large", a.name)))?;
    let (mut of_a, mut of_b) = (vec![0; len], vec![0; len]);
    let rows = |spec: &TensorSpec| spec.first_row.map(|first| first..first + spec.shape[0]);
    reader.read_tensors([
        TensorBuffer { name: &a.name, rows: rows(a), out: &mut of_a },
        TensorBuffer { name: &b.name, rows: rows(b), out: &mut of_b },
    ])?;
    Ok(of_a == of_b)
}
