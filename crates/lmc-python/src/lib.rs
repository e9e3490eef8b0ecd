//! The extension module `lmc._lmc` of the Python package `lmc`, which `python/lmc` wraps.
//!
//! Work runs without the GIL, on threads of the object concerned. After a fork, objects start new threads in the child.

#![deny(unsafe_code)]

mod analyze;
mod base;
mod bases;
mod buffer;
mod codec;
mod command;
mod dlpack;
mod errors;
mod file;
mod header;
mod info;
mod memory;
mod numbers;
mod open;
mod options;
mod process;
mod records;
mod source;
mod store;
mod stream;
mod target;
mod tensors;
mod text;
mod work;

use pyo3::prelude::*;

// Several places count on the interpreter's lock, as `PerProcess`: without it, they were not tested.
#[pymodule(gil_used = true)]
mod _lmc {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::analyze::analyze;
    #[pymodule_export]
    use crate::base::Base;
    #[pymodule_export]
    use crate::codec::{
        Compressor, Decompressor, compress, compress_bound, compress_into, decompress, decompress_into, estimate,
    };
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::dlpack::DlpackMemory;
    #[pymodule_export]
    use crate::header::Header;
    #[pymodule_export]
    use crate::info::Tensor;
    #[pymodule_export]
    use crate::open::File;
    #[pymodule_export]
    use crate::store::{
        DirectoryFollower, Snapshot, SnapshotReader, Staged, StagedTensors, Store, TensorFollower, is_url,
    };
    #[pymodule_export]
    use crate::stream::{compress_file, compress_stream, decompress_file, decompress_stream};
    #[pymodule_export]
    use crate::tensors::{TensorList, compress_tensors, compress_tensors_file};

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        // As the package's metadata have it: PEP 440 writes 0.9.0rc1 for 0.9.0-rc.1.
        m.add("__version__", env!("CARGO_PKG_VERSION").replace("-rc.", "rc"))?;
        m.add("LEVELS", lmc::Level::ALL.iter().map(|l| l.name()).collect::<Vec<_>>())
    }
}
