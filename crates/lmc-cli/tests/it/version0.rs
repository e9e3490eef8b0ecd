//! Files of lmc 0.1 are refused with one sentence that says what to do, and nothing is written.

use std::fs;
use std::path::Path;

use crate::support::{Dir, Run};

/// The text of each refusal.
const SENTENCE: &str = "written by lmc 0.1; restore it with that version, and see docs/upgrade.md";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A copy of the files of lmc 0.1.
fn version_0() -> Dir {
    let dir = Dir::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/version0"), &dir.path(""));
    dir
}

/// Every path in a directory, with the contents of files.
fn contents(dir: &Dir) -> Vec<(String, Option<Vec<u8>>)> {
    dir.names().into_iter().map(|name| (name.clone(), fs::read(dir.path(&name)).ok())).collect()
}

/// Runs a command on `culprit`, which `{}` stands for, and which has version 0: it must fail without a result.
#[track_caller]
fn refused(dir: &Dir, culprit: &str, command: &str) {
    let before = contents(dir);
    let command = command.replace("{}", culprit);
    let run = Run(dir.command(command.split(' ')).output().unwrap());
    run.fails(&[&format!("lmc: {culprit}: "), SENTENCE]);
    assert!(run.stdout().lines().all(|l| l.contains(r#""error":"#)), "{run:?}");
    assert!(contents(dir) == before, "{command} changed {:?}", dir.names());
}

#[test]
fn files_are_refused() {
    let dir = version_0();
    for file in ["step1.safetensors.lmc", "dcp/1/__0_97a1e427087d0093.lmc"] {
        for command in [
            "decompress {} -o out",
            "decompress {} -c",
            "decompress {} -f --rm",
            "decompress {} --json -o out",
            "test {}",
            "list {}",
            "list {} --json",
            "list {} -v",
            "cat {} w",
            "cat {} w -o out --rows 0..1",
            "diff {} step2.safetensors",
            "diff step2.safetensors {}",
        ] {
            refused(&dir, file, command);
        }
        let run = dir.feed(["decompress"], &dir.read(file));
        run.fails(&[SENTENCE]);
        assert_eq!(run.stdout(), "");
    }
}

#[test]
fn files_are_not_compressed_again() {
    let dir = version_0();
    let before = contents(&dir);
    let run = dir.run(["compress", "step1.safetensors.lmc", "-o", "again.lmc"]);
    let skipped = "step1.safetensors.lmc: skipped, it begins like a compressed file, but cannot be read: ";
    assert!(run.ok().stderr().contains(skipped), "{run:?}");
    assert!(contents(&dir) == before);
    // The format is uncertain: -q does not hide that nothing was done.
    let quiet = dir.run(["compress", "-q", "step1.safetensors.lmc", "-o", "again.lmc"]);
    assert_eq!(quiet.ok().stderr(), run.stderr());
    let json = dir.run(["compress", "-q", "--json", "step1.safetensors.lmc", "-o", "again.lmc"]).json();
    assert!(json[0]["skipped"].as_str().unwrap().contains("cannot be read"));
    assert!(contents(&dir) == before);
}

#[test]
fn deltas_are_refused() {
    let dir = version_0();
    for command in [
        "decompress {} -o out",
        "decompress {} -o out --base step1.safetensors",
        "test {}",
        "test {} --base step1.safetensors",
        "list {}",
        "list {} --base step1.safetensors",
        "cat {} w",
        "cat {} w --base step1.safetensors",
        "diff step1.safetensors {}",
        "diff step1.safetensors {} --base step1.safetensors",
    ] {
        refused(&dir, "step2.safetensors.lmc", command);
    }
}

#[test]
fn bases_are_refused() {
    let dir = version_0();
    dir.run(["compress", "step2.safetensors", "--base", "step1.safetensors", "-o", "new.lmc"]).ok();
    for base in ["step1.safetensors.lmc", "step2.safetensors.lmc"] {
        for command in [
            "compress step2.safetensors --base {} -o out",
            "decompress new.lmc --base {} -o out",
            "test new.lmc --base {}",
            "list new.lmc --base {}",
            "cat new.lmc w --base {}",
            "diff step1.safetensors step2.safetensors --base {}",
        ] {
            refused(&dir, base, command);
        }
    }
}

#[test]
fn stores_are_refused() {
    let dir = version_0();
    for store in ["store", "hf/lmc-store"] {
        for command in [
            "snapshot list {}",
            "snapshot list {} --json",
            "snapshot show {}",
            "snapshot show {} --at 1",
            "snapshot log {}",
            "snapshot verify {}",
            "snapshot verify {} --deep",
            "snapshot save {} step1.safetensors",
            "snapshot save {} step1.safetensors --step 3",
            "snapshot restore {} -o out",
            "snapshot restore {} --at 1 -o out",
            "snapshot restore {} --tensor w -o out",
            "snapshot prune {} --keep-last 1",
            "snapshot prune {} --keep-last 1 --yes",
            "snapshot gc {}",
            "snapshot gc {} -n",
            "snapshot copy {} new",
            "snapshot export {} new.tar",
        ] {
            refused(&dir, store, command);
        }
    }
}

#[test]
fn archives_are_refused() {
    let dir = version_0();
    for command in [
        "snapshot list {}",
        "snapshot show {}",
        "snapshot log {}",
        "snapshot verify {}",
        "snapshot restore {} -o out",
        "snapshot copy {} new",
        "snapshot import new {}",
    ] {
        refused(&dir, "store.tar", command);
    }
}

#[test]
fn nothing_is_copied_into_a_store_of_version_0() {
    let dir = version_0();
    dir.run(["snapshot", "save", "new", "step1.safetensors"]).ok();
    dir.run(["snapshot", "export", "new", "new.tar"]).ok();
    refused(&dir, "store", "snapshot copy new {}");
    refused(&dir, "store", "snapshot import {} new.tar");
}
