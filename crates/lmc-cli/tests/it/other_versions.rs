//! Files and stores of another version are refused with one sentence that names both versions, and nothing is written.

use std::fs;

use crate::support::{Dir, Run, model};

/// Part of the text of each refusal.
const SENTENCE: &str = "reads version 1: use the lmc that wrote it, or a newer one";

/// Files, a store and an archive that say that they have version 2.
fn version_2() -> Dir {
    let dir = Dir::new();
    let (old, mut new) = (model(), model());
    *new.last_mut().unwrap() ^= 1;
    dir.write("step1.safetensors", &old);
    dir.write("step2.safetensors", &new);
    dir.run(["compress", "step1.safetensors", "-o", "step1.safetensors.lmc"]).ok();
    dir.run(["compress", "step2.safetensors", "--base", "step1.safetensors", "-o", "step2.safetensors.lmc"]).ok();
    dir.run(["snapshot", "save", "store", "step1.safetensors", "--step", "1"]).ok();
    dir.run(["snapshot", "save", "store", "step2.safetensors", "--step", "2"]).ok();
    dir.run(["snapshot", "export", "store", "store.tar"]).ok();
    for file in ["step1.safetensors.lmc", "step2.safetensors.lmc"] {
        let mut bytes = dir.read(file);
        bytes[8] = 2;
        dir.write(file, &bytes);
    }
    for file in ["store/lmc-store.json", "store.tar"] {
        let (mut bytes, version) = (dir.read(file), br#""lmc-store","version":1"#);
        let at = bytes.windows(version.len()).position(|w| w == version).unwrap();
        bytes[at + version.len() - 1] = b'2';
        dir.write(file, &bytes);
    }
    dir
}

/// Every path in a directory, with the contents of files.
fn contents(dir: &Dir) -> Vec<(String, Option<Vec<u8>>)> {
    dir.names().into_iter().map(|name| (name.clone(), fs::read(dir.path(&name)).ok())).collect()
}

/// Runs commands on `culprit`, which `{}` stands for, and which has version 2: each must fail without a result.
#[track_caller]
fn refused(dir: &Dir, culprit: &str, commands: &[&str]) {
    let before = contents(dir);
    for command in commands {
        let command = command.replace("{}", culprit);
        let run = Run(dir.command(command.split(' ')).output().unwrap());
        run.fails(&[&format!("lmc: {culprit}: "), SENTENCE]);
        assert!(run.stdout().lines().all(|l| l.contains(r#""error":"#)), "{run:?}");
        assert!(contents(dir) == before, "{command} changed {:?}", dir.names());
    }
}

#[test]
fn files_are_refused() {
    let dir = version_2();
    let file = "step1.safetensors.lmc";
    refused(
        &dir,
        file,
        &[
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
        ],
    );
    let run = dir.feed(["decompress"], &dir.read(file));
    run.fails(&[SENTENCE]);
    assert_eq!(run.stdout(), "");
}

#[test]
fn files_are_not_compressed_again() {
    let dir = version_2();
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
    let dir = version_2();
    refused(
        &dir,
        "step2.safetensors.lmc",
        &[
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
        ],
    );
}

#[test]
fn bases_are_refused() {
    let dir = version_2();
    dir.run(["compress", "step2.safetensors", "--base", "step1.safetensors", "-o", "new.lmc"]).ok();
    for base in ["step1.safetensors.lmc", "step2.safetensors.lmc"] {
        refused(
            &dir,
            base,
            &[
                "compress step2.safetensors --base {} -o out",
                "decompress new.lmc --base {} -o out",
                "test new.lmc --base {}",
                "list new.lmc --base {}",
                "cat new.lmc w --base {}",
                "diff step1.safetensors step2.safetensors --base {}",
            ],
        );
    }
}

#[test]
fn stores_are_refused() {
    let dir = version_2();
    let store = "store";
    refused(
        &dir,
        store,
        &[
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
        ],
    );
}

#[test]
fn archives_are_refused() {
    let dir = version_2();
    refused(
        &dir,
        "store.tar",
        &[
            "snapshot list {}",
            "snapshot show {}",
            "snapshot log {}",
            "snapshot verify {}",
            "snapshot restore {} -o out",
            "snapshot copy {} new",
        ],
    );
}

#[test]
fn nothing_is_copied_into_a_store_of_version_2() {
    let dir = version_2();
    dir.run(["snapshot", "save", "new", "step1.safetensors"]).ok();
    dir.run(["snapshot", "export", "new", "new.tar"]).ok();
    refused(&dir, "store", &["snapshot copy new {}", "snapshot copy new.tar {}"]);
}
