//! The tensors that a file declares, and that a study may lack.

use lmc::internals::source;
use lmc::layout::{Tensors, tensors};
use lmc::{Base, Error, ErrorKind, Result};

use crate::truncated;

/// The tensors that a file declares: those that studies of it show, and those that they lack.
///
/// # Errors
/// Those of [`lmc::layout::tensors`], and `Damaged` for a file that ends early or is no model.
pub fn declared(file: &Base<'_>) -> Result<Tensors> {
    if let Some(why) = truncated(source(file))? {
        return Err(Error::new(ErrorKind::Damaged, why));
    }
    tensors(source(file), file.layout(), file.segments(), "")
}
