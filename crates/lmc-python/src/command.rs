//! The `lmc` command.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::errors::Result;
use crate::work::detached;

/// Runs the `lmc` command, which installs signal handlers for the whole process; returns its exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>) -> Result<u8> {
    detached(py, || Ok(lmc_cli::run(args)))
}
