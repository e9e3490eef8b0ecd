#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lmc_testing::targets::grids(bytes));
