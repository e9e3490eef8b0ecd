//! Arithmetic on elements and lanes: how elements are predicted, split into symbol and raw bits, and coded, for each
//! instruction set.
//!
//! [`arch`] has the kernels (portable, AVX2, AVX-512, NEON) and the only dispatch: an [`Isa`](isa::Isa) is proof that the
//! machine has an instruction set. All kernels agree to the bit with the portable ones, and the tests of this crate compare
//! them. It knows neither files nor blocks. The crate `lmc` is the interface for callers; what is public here may change in
//! any release.

#![deny(unsafe_code)]

pub mod arch;
pub mod bits;
pub mod cluster;
pub mod entropy;
mod float;
#[allow(unsafe_code)] // an array written element by element
pub mod inline;
pub mod isa;
#[allow(unsafe_code)] // functions that are compiled for an instruction set
mod loops;
pub mod map;
pub mod planes;
pub mod predict;
pub mod varint;
