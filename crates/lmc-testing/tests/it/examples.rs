//! The examples of the crate `lmc`.

#![allow(dead_code, unreachable_pub, reason = "each example is a program of its own")]

#[path = "../../../lmc/examples/delta.rs"]
mod delta;
#[path = "../../../lmc/examples/file.rs"]
mod file;
#[path = "../../../lmc/examples/stream.rs"]
mod stream;
#[path = "../../../lmc/examples/tensors.rs"]
mod tensors;

use std::fs;
use std::path::{Path, PathBuf};

/// A state of training.
fn state(step: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/gpt-step{step}-state.safetensors"))
}

#[test]
fn files_and_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let (packed, restored) = (folder.path().join("state.lmc"), folder.path().join("state"));
    let raw = fs::read(state(300)).unwrap();
    let sizes = file::compress(&state(300), &packed).unwrap();
    assert_eq!(sizes, (raw.len() as u64, fs::metadata(&packed).unwrap().len()));
    file::restore(&packed, &restored).unwrap();
    assert!(fs::read(&restored).unwrap() == raw);
    assert!(file::restore(&packed, &restored).is_err(), "it replaced a file");

    let listed = tensors::list(&packed).unwrap();
    assert!(listed.contains(&"model.norm.weight BF16 [128]".to_owned()), "{listed:?}");
    let tensor = tensors::read(&packed, "model.norm.weight").unwrap();
    assert!(tensor.len() == 256 && raw.windows(256).any(|bytes| bytes == tensor));
    assert!(tensors::read(&packed, "none").is_err());
}

#[test]
fn deltas() {
    let [old, new] = [300, 301].map(|step| fs::read(state(step)).unwrap());
    let delta = delta::make(&old, &new).unwrap();
    assert!(delta.len() < new.len() / 3, "{} bytes", delta.len());
    assert!(delta::apply(&old, &delta).unwrap() == new);
    assert_eq!(delta::apply(&new, &delta).unwrap_err().kind(), lmc::ErrorKind::Base);
}

#[test]
fn streams() {
    let raw = fs::read(state(300)).unwrap();
    let (mut packed, mut restored) = (Vec::new(), Vec::new());
    stream::compress(&raw[..], &mut packed).unwrap();
    stream::restore(&packed[..], &mut restored).unwrap();
    assert!(packed.len() < raw.len() && restored == raw);
    assert!(stream::restore(&packed[..packed.len() - 1], &mut Vec::new()).is_err(), "it was cut");
}
