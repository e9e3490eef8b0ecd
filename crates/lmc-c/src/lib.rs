//! The C interface of lmc: `include/lmc.h` describes it.
//!
//! [`abi`] has the functions, and all of the `unsafe`: it turns C's pointers into references, slices and strings. What
//! they do is safe code, in [`file`]. No panic reaches C, and each error is kept as a text for its thread.

mod abi;
mod failure;
mod file;
