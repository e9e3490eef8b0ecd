//! The tensors that a file declares, and that a study may lack.

use lmc::internals::source;
use lmc::{Base, Result, Tensors, tensors};

/// The tensors that a file declares: those that studies of it show, and those that they lack.
///
/// # Errors
/// Those of [`lmc::tensors`].
pub fn declared(file: &Base<'_>) -> Result<Tensors> {
    tensors(source(file), file.layout(), file.segments(), "")
}
