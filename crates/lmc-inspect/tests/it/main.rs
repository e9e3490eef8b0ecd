//! Tests of the crate's public API.

mod advice;
mod analyze;
mod density;
mod describe;
mod diff;
mod page;
mod vega;

use lmc_test_inputs::safetensors;
