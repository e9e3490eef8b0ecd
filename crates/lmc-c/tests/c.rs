//! Compiles `reader.c` with the system's C compiler, links it with each library, and runs it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lmc::{Base, CompressOptions, Compressor};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{command:?}: {said}");
}

/// The newest of the libraries that cargo built with this test: it lies beside it, with a hash in its name or without.
fn library(suffix: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let files = fs::read_dir(program.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("liblmc_c") && name.ends_with(suffix)
    };
    let newest = files.filter(ours).max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).unwrap());
    newest.unwrap_or_else(|| panic!("cargo built no liblmc_c*{suffix} beside {}", program.display()))
}

fn prepare(folder: &Path) {
    let [old, new] =
        [300, 301].map(|step| fs::read(format!("{HERE}/../../testdata/gpt-step{step}-state.safetensors")).unwrap());
    let mut compressor = Compressor::new(&CompressOptions::default()).unwrap();
    let (mut alone, mut delta) = (Vec::new(), Vec::new());
    compressor.compress(&old, &[], &mut alone).unwrap();
    compressor.compress(&new, &[Base::new(&old).unwrap()], &mut delta).unwrap();
    let mut damaged = alone.clone();
    damaged[alone.len() / 2] ^= 1;
    for (name, bytes) in [("old", old), ("new", new), ("old.lmc", alone), ("new.lmc", delta), ("damaged.lmc", damaged)]
    {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

fn compile_and_run(library: &Path, links: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let program = folder.path().join("reader");
    let strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"];
    let sources = [format!("{HERE}/include"), format!("{HERE}/tests/reader.c")];
    run(Command::new("cc").args(strict).args(sources).arg("-o").arg(&program).arg(library).args(links));
    let beside = library.parent().unwrap();
    run(Command::new(&program).arg(folder.path()).env("LD_LIBRARY_PATH", beside).env("DYLD_LIBRARY_PATH", beside));
}

#[test]
fn static_library() {
    compile_and_run(&library(".a"), &["-lpthread", "-ldl", "-lm"]);
}

#[test]
fn shared_library() {
    compile_and_run(&library(std::env::consts::DLL_SUFFIX), &[]);
}
