#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lmc_testing::targets::decode_vs_reference(bytes));
