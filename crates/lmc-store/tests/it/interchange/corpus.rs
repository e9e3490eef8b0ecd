//! The inputs of the fuzz target `interchange`: those that are kept, and the output of lmc, whole and damaged.

use std::fs;
use std::path::Path;

use lmc_store::testing::{follow_versions, pack_versions};
use lmc_store::{Checksum, DeltaEncoding};
use lmc_testing::targets::corpus;

use super::{Run, options};

/// Directories that lmc wrote, as inputs.
fn written() -> Vec<Vec<u8>> {
    let mut inputs = vec![];
    for encoding in DeltaEncoding::ALL {
        for checksum in Checksum::ALL {
            let run = Run::of_three(options(encoding, checksum), 4);
            inputs.extend([0, 2, 3].map(|later| pack_versions(&run.versions(), later).unwrap()));
        }
    }
    let run = Run::of_three(options(DeltaEncoding::Xor, Checksum::Xxh3), 4);
    (1..4).for_each(|n| run.without_own(n, n > 1));
    inputs.push(pack_versions(&run.versions(), 2).unwrap());
    inputs
}

#[test]
fn what_is_written_is_followed_by_the_fuzz_target() {
    let inputs = written();
    for (i, input) in inputs.iter().enumerate() {
        let steps: Vec<u64> = follow_versions(input).iter().map(|s| s.get()).collect();
        // All is written after the first look, or the third version alone, or the last two.
        let expected = [&[3, 3][..], &[1, 3, 3], &[2, 3, 3]][if i + 1 == inputs.len() { 1 } else { i % 3 }];
        assert_eq!(steps, expected, "input {i}");
        for at in (0..input.len()).step_by(input.len() / 3) {
            let mut bad = input.clone();
            bad[at] ^= 1 << (at % 8);
            follow_versions(&bad);
            follow_versions(&input[..at]);
        }
    }
    // New ones, to begin fuzzing with.
    if let Ok(folder) = std::env::var("LMC_FUZZ_SEEDS") {
        for (i, input) in inputs.iter().enumerate() {
            fs::write(Path::new(&folder).join(format!("written-{i}")), input).unwrap();
        }
    }
}

#[test]
fn the_corpus_is_replayed() {
    let inputs = corpus("interchange").unwrap();
    assert!(inputs.len() >= 10, "{} inputs", inputs.len());
    follow_versions(b"");
    let mut followed = 0;
    for (name, input) in inputs {
        println!("{name}");
        followed += follow_versions(&input).len();
    }
    assert!(followed > 10, "{followed}");
}
