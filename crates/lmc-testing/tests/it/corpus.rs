//! Replays the inputs that fuzzing found worth keeping, and every input that ever failed, through the fuzz targets.

use lmc_testing::targets::{TARGETS, corpus};
use lmc_testing::thorough;

#[track_caller]
fn replay(name: &str) {
    let (_, target) = TARGETS.iter().find(|t| t.0 == name).expect("it is a target");
    let inputs = corpus(name).expect("each target has an archive");
    assert!(inputs.len() >= 50, "{name} has {} inputs", inputs.len());
    target(b"");
    // A quarter of them, unless all are to be replayed.
    for (name, input) in inputs.into_iter().step_by(if thorough() { 1 } else { 4 }) {
        println!("{name}");
        target(&input);
    }
}

/// A test for each target, which run side by side.
macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed() {
            assert_eq!(TARGETS.map(|t| t.0), [$(stringify!($name)),*]);
        }
    };
}

replayed!(container decode_vs_reference delta_roundtrip delta_vs_reference grids isas_agree layout roundtrip);
