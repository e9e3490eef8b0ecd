//! Code shared by the tests and the fuzz targets of `lmc`: files of every valid shape, damaged ones, and the comparison
//! of all decoders with the reference.

#![deny(unsafe_code)]

pub use lmc_test_inputs::{cases, distcp, exhaustive, flipped_bits, safetensors, thorough};

pub mod blocks;
pub mod data;
pub mod decoders;
pub mod deltas;
pub mod dequantised;
mod derivations;
pub mod format1;
pub mod handmade;
pub mod hostile;
pub mod input;
pub mod interchange;
pub mod json;
pub mod one_grid;
mod predictions;
pub mod reference;
pub mod samples;
pub mod snapshots;
mod streams;
pub mod targets;
pub mod three_contexts;
