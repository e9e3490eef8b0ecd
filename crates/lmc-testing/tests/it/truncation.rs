//! No truncated file is accepted, by any decoder on any instruction set.

use lmc_testing::decoders::agree;
use lmc_testing::samples;

#[test]
fn every_truncation_is_refused() {
    for (name, file, raw) in samples::all() {
        assert!(agree(&file).is_ok_and(|decoded| decoded == raw), "{name}");
        for length in 0..file.len() {
            assert!(agree(&file[..length]).is_err(), "{name}: the first {length} bytes of {}", file.len());
        }
    }
}

#[test]
fn a_file_with_something_after_it_is_refused() {
    for (name, mut file, _) in samples::all() {
        for after in [&[0][..], b"LMCend\r\n", &file.clone()] {
            let length = file.len();
            file.extend(after);
            assert!(agree(&file).is_err(), "{name}");
            file.truncate(length);
        }
    }
}
