//! No command destroys the only copy of anything: bases, inputs and files just written stay.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Dir, Run, model, noise, safetensors, weights};

/// A snapshot of a run that is mostly equal to the one before.
fn snapshot(step: u8) -> Vec<u8> {
    let mut w = weights(60_000, 1);
    for i in 0..usize::from(step) * 100 {
        w[i * 7] ^= 1;
    }
    safetensors(&[("w", "BF16", &[60_000], &w)])
}

const NAMES: [&str; 3] = ["d/s1.safetensors", "d/s2.safetensors", "d/s3.safetensors"];

/// A directory with three snapshots.
fn snapshots() -> Dir {
    let dir = Dir::new();
    for (i, name) in NAMES.iter().enumerate() {
        dir.write(name, &snapshot(i as u8));
    }
    dir
}

/// Expects a usage error before anything is written or removed, with a message that contains all of `names`.
fn refused(dir: &Dir, args: &[&str], names: &[&str]) {
    let before: Vec<_> = dir.names().into_iter().map(|n| (fs::read(dir.path(&n)).ok(), n)).collect();
    let run = Run(dir.command(args).output().unwrap());
    run.is_misused(names);
    let after: Vec<_> = dir.names().into_iter().map(|n| (fs::read(dir.path(&n)).ok(), n)).collect();
    assert!(before == after, "{args:?} changed something");
}

#[test]
fn rm_does_not_remove_a_base() {
    let [s1, s2, s3] = NAMES;
    let dir = snapshots();
    symlink("s1.safetensors", dir.path("d/link")).unwrap();
    fs::create_dir(dir.path("other")).unwrap();
    for args in [
        &["compress", "-r", "--rm", "d", "--base", s1][..],
        &["compress", "--rm", s1, "--base", s1],
        &["compress", "--rm", s1, s2, s3, "--base", s1],
        &["compress", "--rm", s1, "--base", "d/link"],
        &["compress", "--rm", "d/../d/s1.safetensors", s2, "--base", s1],
        &["compress", "-f", "--rm", "d/link", s2, "--base", s1],
        &["compress", "-r", "--rm", "d", "-o", "other", "--base", s1],
    ] {
        refused(&dir, args, &["is the base", "s1.safetensors", "--rm"]);
    }
    fs::hard_link(dir.path(s1), dir.path("d/hard")).unwrap();
    refused(&dir, &["compress", "--rm", "d/hard", "--base", s1], &["d/hard", "is the base d/s1.safetensors"]);
    // The base of a base.
    dir.run(["compress", s2, "--base", s1]).silent();
    let args = ["compress", "--rm", s1, "--base", "d/s2.safetensors.lmc", "--base", s1];
    refused(&dir, &args, &["d/s1.safetensors: is the base d/s1.safetensors"]);
    // A compressed base, when it is restored.
    dir.run(["compress", s1]).silent();
    dir.run(["compress", s3, "--base", "d/s1.safetensors.lmc"]).silent();
    let args =
        ["decompress", "-f", "--rm", "d/s1.safetensors.lmc", "d/s3.safetensors.lmc", "--base", "d/s1.safetensors.lmc"];
    refused(&dir, &args, &["d/s1.safetensors.lmc: is the base"]);
}

#[test]
fn a_base_among_the_inputs_is_compressed_alone() {
    let dir = snapshots();
    let [s1, ..] = NAMES;
    dir.run(["compress", "-r", "d", "--base", s1]).silent();
    fs::remove_file(dir.path(s1)).unwrap();
    // It needs no base; the others are restored from it.
    dir.run(["decompress", "d/s1.safetensors.lmc"]).silent();
    for (i, name) in NAMES.iter().enumerate().skip(1) {
        let compressed = format!("{name}.lmc");
        assert!(dir.read(&compressed).len() * 3 < dir.read("d/s1.safetensors.lmc").len());
        dir.run(["decompress", &compressed, "--base", "d/s1.safetensors.lmc", "-o", "back", "-f"]).silent();
        assert!(dir.read("back") == snapshot(i as u8));
    }
}

#[test]
fn nothing_is_written_over_a_base() {
    let [s1, s2, _] = NAMES;
    let dir = snapshots();
    symlink("s1.safetensors", dir.path("d/link")).unwrap();
    fs::hard_link(dir.path(s1), dir.path("d/hard")).unwrap();
    for target in [s1, "d/link", "d/hard", "d/../d/./s1.safetensors"] {
        refused(&dir, &["compress", "-f", s2, "--base", s1, "-o", target], &[target, "is the base d/s1.safetensors"]);
        refused(&dir, &["compress", "-f", "--rm", s2, "--base", s1, "-o", target], &["is the base"]);
    }
    // The output is the base under the same name.
    fs::remove_file(dir.path("d/hard")).unwrap();
    fs::remove_file(dir.path("d/link")).unwrap();
    dir.run(["compress", s1]).silent();
    dir.write(s1, &snapshot(2));
    for force in ["-f", "-f --rm"] {
        let base = "--base d/s1.safetensors.lmc";
        let args: Vec<&str> = ["compress", force, s1, base].iter().flat_map(|args| args.split(' ')).collect();
        refused(&dir, &args, &["d/s1.safetensors.lmc: is the base d/s1.safetensors.lmc"]);
        let args: Vec<&str> = ["compress -r", force, "d", base].iter().flat_map(|args| args.split(' ')).collect();
        refused(&dir, &args, &["is the base"]);
    }
    // Restoring, and extracting a part of a file.
    dir.run(["compress", s2, "--base", "d/s1.safetensors.lmc"]).silent();
    for target in ["d/s1.safetensors.lmc", "d/s2.safetensors.lmc"] {
        let delta = "d/s2.safetensors.lmc";
        let args = ["decompress", "-f", delta, "--base", "d/s1.safetensors.lmc", "-o", target];
        refused(&dir, &args, &[target]);
    }
    let args =
        ["cat", "-f", "d/s2.safetensors.lmc", "w", "--base", "d/s1.safetensors.lmc", "-o", "d/s1.safetensors.lmc"];
    refused(&dir, &args, &["is the base"]);
    // Standard input and output.
    let over = "$LMC compress -f - --base d/s1.safetensors -o d/s1.safetensors < d/s2.safetensors";
    dir.shell(over).is_misused(&["is the base"]);
    let onto = "$LMC compress -c d/s2.safetensors --base d/s1.safetensors >> d/s1.safetensors";
    dir.shell(onto).is_misused(&["(stdout): is the base d/s1.safetensors"]);
    assert!(dir.read(s1) == snapshot(2));
}

#[test]
fn inputs_of_the_run_are_not_replaced() {
    let dir = Dir::new();
    dir.write("a", b"what a is");
    dir.write("a.lmc", b"something else, which is nowhere else");
    refused(&dir, &["compress", "-f", "a", "a.lmc"], &["a.lmc: is the input file a.lmc"]);
    refused(&dir, &["compress", "-f", "--rm", "a", "a.lmc"], &["a.lmc: is the input file a.lmc"]);
    // Without -f the other files are still processed.
    dir.run(["compress", "a", "a.lmc"]).fails(&["a.lmc: exists"]);
    assert!(dir.has("a.lmc.lmc"));
}

#[test]
fn one_output_does_not_replace_another() {
    let dir = Dir::new();
    dir.write("x/a", &noise(3000, 1));
    symlink("x", dir.path("way")).unwrap();
    // By two names of one directory, which a comparison of names does not reveal.
    dir.write("x/a.lmc", b"old");
    dir.run(["compress", "-f", "x/a", "way/a"]).is_misused(&["way/a.lmc: is x/a.lmc, which was written a moment ago"]);
    dir.run(["decompress", "x/a.lmc", "-o", "back"]).silent();
    assert_eq!(dir.read("back"), noise(3000, 1));
    // In a separate run it works.
    dir.run(["compress", "-f", "way/a"]).silent();
}

#[test]
fn rm_removes_what_can_be_restored() {
    let dir = snapshots();
    let [s1, s2, s3] = NAMES;
    dir.run(["compress", "--rm", s2, s3, "--base", s1]).silent();
    assert_eq!(dir.names(), ["d", s1, "d/s2.safetensors.lmc", "d/s3.safetensors.lmc"]);
    dir.run(["decompress", "--rm", "d/s2.safetensors.lmc", "d/s3.safetensors.lmc", "--base", s1]).silent();
    assert_eq!(dir.names(), ["d", s1, s2, s3]);
    for (i, name) in NAMES.iter().enumerate() {
        assert!(dir.read(name) == snapshot(i as u8));
    }
    // A base that shares nothing with a file is not needed to restore it.
    dir.write("other", &model());
    assert!(dir.run(["compress", "--rm", "other", "--base", s1]).ok().stderr().contains("is restored without --base"));
    dir.run(["decompress", "--rm", "other.lmc"]).silent();
    assert!(dir.read("other") == model());
    let run = dir.run(["compress", "--help"]);
    let help = run.ok().stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("decoded from disk and compared"), "{help}");
}
