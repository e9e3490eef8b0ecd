#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| drop(lmc_store::testing::follow_versions(input)));
