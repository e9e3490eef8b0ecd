//! Tests of the crate's public API.

mod advice;
mod analyze;
mod charts;
mod describe;
mod diff;
mod page;

use lmc_test_inputs::safetensors;
