//! The `lmc` command.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::errors::Result;
use crate::work::detached;

/// Runs the `lmc` command, which takes the process for its own; its exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>) -> Result<u8> {
    detached(py, || Ok(lmc_cli::run(args)))
}
