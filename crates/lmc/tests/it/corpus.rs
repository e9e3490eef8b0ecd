//! Replays the inputs that fuzzing found worth keeping, and every input that ever failed, through the fuzz targets.

use lmc_testing::targets::TARGETS;
use std::fs;
use std::path::Path;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut inputs: Vec<_> = fs::read_dir(corpus.join(name))
            .expect("each target has a folder")
            .map(|entry| entry.expect("the folder can be read").path())
            .collect();
        inputs.sort();
        assert!(inputs.len() >= 50, "{name} has {} inputs", inputs.len());
        for input in inputs {
            println!("{}", input.display());
            target(&fs::read(&input).expect("the input can be read"));
        }
    }
}
