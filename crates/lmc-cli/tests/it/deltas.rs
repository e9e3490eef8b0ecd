//! `--base`: deltas on the command line.

use std::io::Write;

use crate::support::{Dir, Run, model, noise, safetensors, weights};
use lmc_testing::decoders::LIMIT;
use lmc_testing::handmade::{LEAF, copy, records, stored};
use lmc_testing::reference::write::File;
use serde_json::json;

/// The same values, with some moved to the next larger or smaller number.
fn trained(old: &[u8], seed: u64) -> Vec<u8> {
    let mut new = old.to_vec();
    for (w, n) in new.chunks_exact_mut(2).zip(noise(old.len() / 2, seed)) {
        let bits = u16::from_le_bytes([w[0], w[1]]);
        let moved = match n {
            0..40 => bits.wrapping_add(1),
            40..80 => bits.wrapping_sub(1),
            _ => bits,
        };
        w.copy_from_slice(&moved.to_le_bytes());
    }
    new
}

/// A snapshot of a model of two tensors at a step.
fn snapshot(steps: u64) -> Vec<u8> {
    let (mut a, mut b) = (weights(60_000, 1), weights(40_000, 2));
    for step in 0..steps {
        (a, b) = (trained(&a, 10 + step), trained(&b, 50 + step));
    }
    safetensors(&[("a.weight", "BF16", &[600, 100], &a), ("b.weight", "BF16", &[40_000], &b)])
}

/// A directory with two snapshots, and the second as a delta of the first.
fn delta() -> Dir {
    let dir = Dir::new();
    dir.write("old.safetensors", &snapshot(0));
    dir.write("new.safetensors", &snapshot(1));
    dir.run(["compress", "--base", "old.safetensors", "new.safetensors"]).silent();
    dir
}

#[test]
fn the_environment_limits_the_work() {
    let dir = delta();
    for command in ["decompress -o back", "test", "cat -o back"] {
        let run = |limit: &str| {
            let tensor = if command.starts_with("cat") { "a.weight" } else { "" };
            dir.shell(&format!(
                "LMC_MAX_WORK={limit} $LMC {command} --base old.safetensors new.safetensors.lmc {tensor}"
            ))
        };
        run("1k").fails(&["new.safetensors.lmc: ", "max_work is 1000 bytes"]);
        run("much").is_misused(&["LMC_MAX_WORK=much: unknown unit"]);
        run("1Gi").ok();
        dir.shell("rm -f back").silent();
    }
}

#[test]
fn a_delta_is_small_and_comes_back() {
    let dir = delta();
    let size = dir.read("new.safetensors.lmc").len();
    dir.run(["compress", "new.safetensors", "-o", "full.lmc"]).silent();
    assert!(size * 3 < dir.read("full.lmc").len(), "{size}");
    for threads in ["1", "3"] {
        let args =
            ["decompress", "-T", threads, "-f", "--base", "old.safetensors", "new.safetensors.lmc", "-o", "back"];
        dir.run(args).silent();
        assert!(dir.read("back") == snapshot(1));
        let piped =
            dir.feed(["decompress", "-T", threads, "--base", "old.safetensors"], &dir.read("new.safetensors.lmc"));
        assert!(piped.ok().0.stdout == snapshot(1));
        let again = dir.feed(["compress", "-T", threads, "--base", "old.safetensors"], &snapshot(1));
        // But for the features in the header.
        let (piped, file) = (&again.ok().0.stdout, dir.read("new.safetensors.lmc"));
        assert!(piped[..12] == file[..12] && piped[16..] == file[16..], "the same bytes by a pipe");
    }
    assert!(dir.run(["test", "--base", "old.safetensors", "new.safetensors.lmc"]).ok().stdout().contains("OK"));
    let rows = dir.run(["cat", "--base", "old.safetensors", "new.safetensors.lmc", "a.weight", "--rows", "10..12"]);
    let full = dir.run(["cat", "full.lmc", "a.weight", "--rows", "10..12"]);
    assert!(rows.ok().0.stdout.len() == 400 && rows.0.stdout == full.ok().0.stdout);
    // Whatever its name is now, and compressed or not.
    dir.write("else", &snapshot(0));
    dir.run(["compress", "else"]).silent();
    dir.run(["decompress", "-f", "--base", "else.lmc", "new.safetensors.lmc", "-o", "back"]).silent();
    assert!(dir.read("back") == snapshot(1));
}

#[test]
fn a_missing_base_is_named() {
    let dir = delta();
    std::fs::remove_file(dir.path("new.safetensors")).unwrap();
    std::fs::create_dir(dir.path("a b")).unwrap();
    std::fs::rename(dir.path("new.safetensors.lmc"), dir.path("a b/x.lmc")).unwrap();
    let why = [
        "a b/x.lmc: is a delta of old.safetensors (195.5 KiB, content hash ",
        "); no file beside it has these bytes: give --base with that file, or its directory",
    ];
    for args in [&["decompress"][..], &["test"], &["cat", "-o", "t"], &["unpack", "-o", "u"]] {
        let tensor = if args[0] == "cat" { " a.weight" } else { "" };
        dir.shell(&format!("exec $LMC {} 'a b/x.lmc'{tensor}", args.join(" "))).fails(&why);
    }
    dir.run(["test", "-r", "a b"]).fails(&why);
    // One of its name, and of its size.
    dir.write("a b/old.safetensors", &snapshot(1));
    dir.run(["test", "a b/x.lmc"]).fails(&["a b/old.safetensors has other bytes, and no file beside it has those"]);
    std::fs::remove_file(dir.path("a b/old.safetensors")).unwrap();
    let piped = dir.feed(["decompress"], &dir.read("a b/x.lmc"));
    piped.fails(&["(stdin): the file is a delta: give the base that it was made from, \"old.safetensors\""]);
    dir.run(["compress", "old.safetensors", "-o", "full.lmc"]).silent();
    assert_eq!(dir.names(), ["a b", "a b/x.lmc", "full.lmc", "old.safetensors"], "nothing is left behind");
    let restored = dir.run(["decompress", "full.lmc", "--base", "old.safetensors"]);
    assert_eq!(restored.ok().stderr(), "lmc: full.lmc: is no delta, and needs no base\n");
    // The advice is what helps.
    dir.run(["test", "a b/x.lmc", "--base", "old.safetensors"]).ok();
    dir.run(["test", "a b/x.lmc", "--base", "."]).ok();
}

#[test]
fn bases_that_lie_beside_a_delta_are_found_by_their_contents() {
    let dir = delta();
    dir.write("last.safetensors", &snapshot(2));
    dir.run(["compress", "--base", "new.safetensors", "last.safetensors"]).silent();
    for name in ["new", "last"] {
        std::fs::remove_file(dir.path(format!("{name}.safetensors"))).unwrap();
    }
    let delta = "new.safetensors.lmc";
    let all = |last: &str, steps: u64| {
        for name in [delta, last] {
            dir.run(["test", name]).ok();
        }
        dir.run(["list", last]).ok();
        dir.run(["-q", "decompress", "-f", last, "-o", "out"]).silent();
        assert!(dir.read("out") == snapshot(steps));
        let rows = dir.run(["cat", last, "a.weight", "--rows", "0..600"]);
        assert!(snapshot(steps).windows(120_000).any(|part| part == rows.ok().0.stdout));
        dir.run(["unpack", "-q", "-f", last, "-o", "tensors"]).silent();
        let study = dir.run(["analyze", "--json", last]).json();
        assert_eq!(study[0]["checkpoints"].as_array().unwrap().len(), 1);
    };
    all(delta, 1);
    // That of a base, too; under other names, and compressed.
    all("last.safetensors.lmc", 2);
    std::fs::rename(dir.path("old.safetensors"), dir.path("first")).unwrap();
    dir.write("old.safetensors", &snapshot(3));
    all("last.safetensors.lmc", 2);
    std::fs::remove_file(dir.path("old.safetensors")).unwrap();
    dir.run(["compress", "--rm", "first"]).silent();
    all("last.safetensors.lmc", 2);
    // Bases that are elsewhere are given once for all files, one or the directory of all.
    dir.shell("mkdir -p bases/deep deltas/deep && mv first.lmc bases/deep && mv *.safetensors.lmc deltas").ok();
    dir.shell("cp deltas/new.safetensors.lmc deltas/deep").ok();
    let lost = dir.run(["test", "-r", "deltas"]);
    let needs = |file: &str, what: &str| {
        let line = format!("lmc: deltas/{file}.safetensors.lmc: is a delta of {what}");
        assert_eq!(lost.stderr().lines().filter(|l| l.starts_with(&line)).count(), 1, "{lost:?}");
    };
    needs("new", "old.safetensors (");
    needs("deep/new", "old.safetensors (");
    needs("last", "a delta, which needs old.safetensors (");
    for base in ["bases", "bases/deep/first.lmc"] {
        let tested = dir.run(["test", "-r", "--base", base, "deltas"]);
        assert_eq!(tested.ok().stdout().matches("OK").count(), 3, "{tested:?}");
        dir.run(["-q", "decompress", "-f", "-r", "--base", base, "deltas", "-o", "back"]).silent();
        assert!(
            dir.read("back/last.safetensors") == snapshot(2) && dir.read("back/deep/new.safetensors") == snapshot(1)
        );
    }
    // What is decompressed itself is a base of others as well as before.
    dir.shell("mv bases/deep/first.lmc deltas/old.safetensors.lmc && rm -r deltas/deep").ok();
    dir.run(["-q", "decompress", "--rm", "-r", "deltas"]).silent();
    for (name, n) in [("old", 0), ("new", 1), ("last", 2)] {
        assert!(dir.read(&format!("deltas/{name}.safetensors")) == snapshot(n), "{name}");
        assert!(!dir.has(&format!("deltas/{name}.safetensors.lmc")));
    }
    dir.run(["compress", "--base", "bases", "deltas/new.safetensors"]).fails(&["bases: is a directory"]);
}

#[test]
fn a_wrong_base_is_refused() {
    let dir = delta();
    let mut altered = snapshot(0);
    altered[100_000] ^= 1;
    dir.write("altered", &altered);
    dir.write("short", &altered[1..]);
    for (base, why) in
        [("altered", "or was altered"), ("short", "is another file"), ("new.safetensors", "or was altered")]
    {
        let run = dir.run(["decompress", "--base", base, "new.safetensors.lmc", "-o", "out"]);
        run.fails(&["new.safetensors.lmc: the base", base, why, "\"old.safetensors\""]);
        dir.run(["test", "--base", base, "new.safetensors.lmc"]).fails(&[why]);
        dir.run(["list", "--base", base, "new.safetensors.lmc"]).fails(&[why]);
        assert!(!dir.has("out"));
    }
    let run =
        dir.run(["decompress", "--base", "old.safetensors", "--base", "short", "new.safetensors.lmc", "-o", "out"]);
    run.fails(&["was not made from the base \"short\""]);
    dir.run(["decompress", "--base", "no such", "new.safetensors.lmc", "-o", "out"]).fails(&["no such: cannot read"]);
    dir.run(["decompress", "--base", "-", "new.safetensors.lmc", "-o", "out"]).is_misused(&["name a file"]);
    assert!(!dir.has("out"));
}

#[test]
fn a_base_that_is_written_to_meanwhile_is_told_from_damage() {
    let dir = Dir::new();
    let (a, b) = (noise(600_000, 1), weights(400_000, 2));
    let file = |b: &[u8]| safetensors(&[("a", "U8", &[600_000], &a), ("b", "BF16", &[400_000], b)]);
    let old = file(&b);
    dir.write("old", &old);
    // Only the second block depends on the base.
    let new = safetensors(&[("a", "U8", &[600_000], &noise(600_000, 3)), ("b", "BF16", &[400_000], &trained(&b, 4))]);
    dir.write("new", &new);
    dir.run(["compress", "--base", "old", "new"]).silent();
    let delta = dir.read("new.lmc");
    for command in ["decompress", "test"] {
        dir.write("old", &old);
        let mut child = dir.spawn([command, "--base", "old"]);
        let mut stdin = child.stdin.take().unwrap();
        // More than a pipe holds, so that the base is already open when everything is written.
        stdin.write_all(&delta[..400_000]).unwrap();
        dir.write("old", &old.iter().map(|b| b ^ 1).collect::<Vec<_>>());
        stdin.write_all(&delta[400_000..]).unwrap();
        drop(stdin);
        Run(child.wait_with_output().unwrap()).fails(&["old: changed while it was read: try again"]);
    }
}

#[test]
fn blocks_that_cannot_have_what_they_depend_on_leave_nothing() {
    let dir = Dir::new();
    let old = b"base.base.base.";
    dir.write("old", old);
    let at = |source, offset| copy(&[(source, offset, b"aaaaa")]);
    let first = || stored(b"first");
    let files = [
        // The block itself, later ones, each other, a missing one.
        vec![first(), at(0, LEAF), first()],
        vec![first(), at(0, 2 * LEAF), first()],
        vec![first(), at(0, 2 * LEAF), at(0, LEAF)],
        vec![first(), at(0, 4 * LEAF), first()],
        vec![first(), at(0, u64::MAX - 4), first()],
        vec![first(), at(1, 11), first()],
        vec![first(), at(2, 0), first()],
    ];
    for (i, blocks) in files.iter().enumerate() {
        let mut file = File::delta(&[old], records(blocks));
        file.redigest(&[old], LIMIT);
        let file = file.to_bytes();
        dir.write("new.lmc", &file);
        for threads in ["1", "3"] {
            dir.run(["decompress", "-T", threads, "--base", "old", "new.lmc"]).fails(&["new.lmc: ", "(block 1, "]);
            dir.run(["test", "-T", threads, "--base", "old", "new.lmc"]).fails(&["new.lmc: ", "(block 1, "]);
            let piped = dir.feed(["decompress", "-T", threads, "--base", "old", "-o", "new"], &file);
            piped.fails(&["(stdin): ", "(block 1, "]);
            assert_eq!(dir.names(), ["new.lmc", "old"], "file {i}");
        }
    }
}

#[test]
fn bases_that_are_deltas_take_their_own() {
    let dir = Dir::new();
    for i in 0..4 {
        dir.write(&format!("s{i}"), &snapshot(i));
    }
    dir.run(["compress", "s0"]).silent();
    dir.run(["compress", "--base", "s0.lmc", "s1"]).silent();
    dir.run(["compress", "--base", "s1.lmc", "s2"]).fails(&["s1.lmc: is a delta itself, made from s0.lmc", "--base"]);
    dir.run(["compress", "--base", "s1.lmc", "--base", "s0", "s2"]).silent();
    dir.run(["compress", "--base", "s2.lmc", "--base", "s0.lmc", "--base", "s1.lmc", "s3"]).silent();
    let bases = |file: &str| dir.run(["list", "--json", file]).json()[0]["bases"].clone();
    assert_eq!(bases("s3.lmc").as_array().unwrap().len(), 1);
    assert_eq!((&bases("s3.lmc")[0]["name"], &bases("s1.lmc")[0]["name"]), (&json!("s2.lmc"), &json!("s0.lmc")));
    let args = ["decompress", "--base", "s0", "--base", "s2.lmc", "--base", "s1.lmc", "s3.lmc", "-o", "back"];
    dir.run(args).silent();
    assert!(dir.read("back") == snapshot(3));
    // Those that lie beside them need not be given.
    dir.run(["test", "--base", "s2.lmc", "s3.lmc"]).ok();
    dir.shell("mkdir d && cp s2.lmc d").ok();
    dir.run(["test", "--base", "d/s2.lmc", "s3.lmc"]).fails(&["d/s2.lmc: is a delta itself, made from s1.lmc"]);
    // Several at once: each uses the bases that it needs.
    let run =
        dir.run(["test", "--base", "s2.lmc", "--base", "s0.lmc", "--base", "s1.lmc", "s1.lmc", "s3.lmc", "s0.lmc"]);
    assert_eq!(run.ok().stdout().matches("OK").count(), 3);
}

#[test]
fn checkpoints_of_several_files() {
    let dir = Dir::new();
    let tensors: Vec<Vec<u8>> = (0..4).map(|i| weights(20_000, i)).collect();
    let new: Vec<Vec<u8>> = tensors.iter().zip(0..).map(|(t, i)| trained(t, 30 + i)).collect();
    let names = ["a", "b", "c", "d"];
    let write = |folder: &str, data: &[Vec<u8>], files: &[&[usize]]| {
        let mut map = serde_json::Map::new();
        for (i, tensors) in files.iter().enumerate() {
            let file = format!("model-{i}.safetensors");
            let list: Vec<_> = tensors.iter().map(|&t| (names[t], "BF16", &[20_000][..], &data[t][..])).collect();
            dir.write(&format!("{folder}/{file}"), &safetensors(&list));
            tensors.iter().for_each(|&t| _ = map.insert(names[t].to_owned(), json!(file)));
        }
        let index = json!({ "metadata": {}, "weight_map": map }).to_string();
        dir.write(&format!("{folder}/model.safetensors.index.json"), index.as_bytes());
    };
    write("old", &tensors, &[&[0, 1], &[2], &[3]]);
    write("new", &new, &[&[0], &[1, 2, 3]]);
    let (old, index) = ("old/model.safetensors.index.json", "new/model.safetensors.index.json");
    dir.run(["compress", "--base", old, index]).silent();
    let bases =
        |i: u32| dir.run(["list", "--json", &format!("new/model-{i}.safetensors.lmc")]).json()[0]["bases"].clone();
    assert_eq!((bases(0).as_array().unwrap().len(), bases(1).as_array().unwrap().len()), (1, 3));
    assert!(dir.read("new/model-1.safetensors.lmc").len() * 3 < dir.read("new/model-1.safetensors").len());
    // By now the old files may be compressed.
    dir.run(["compress", "--rm", "old/model-1.safetensors"]).silent();
    dir.shell("mkdir back && cp new/*.lmc new/*.json back").silent();
    dir.run(["decompress", "--base", old, "back/model.safetensors.index.json"]).silent();
    for i in 0..2 {
        let name = format!("model-{i}.safetensors");
        assert!(dir.read(&format!("back/{name}")) == dir.read(&format!("new/{name}")));
    }
    assert!(dir.run(["test", "--base", old, index]).ok().stdout().matches("OK").count() == 2);
    // Commands for one file say which.
    let given =
        "old/model.safetensors.index.json: is the index of a checkpoint of 3 files: name one of its files, such as ";
    for args in [&["list", old][..], &["cat", old, "a"], &["unpack", old, "-o", "u"]] {
        dir.shell(&format!("exec $LMC {}", args.join(" "))).fails(&[given, "old/model-0.safetensors"]);
    }
    dir.run(["list", index]).fails(&["of 2 files", "such as new/model-0.safetensors.lmc"]);
    assert!(!dir.has("u"));
    dir.write("bad/x.index.json", br#"{"weight_map":{"a":"../y"}}"#);
    dir.run(["compress", "--base", "bad/x.index.json", "new/model-0.safetensors", "-o", "z"])
        .fails(&["not the name of a file"]);
    dir.write("none.index.json", br#"{"weights":{}}"#);
    dir.run(["compress", "none.index.json"]).silent();
    assert!(dir.has("none.index.json.lmc"), "a file like any other");
}

#[test]
fn list_tells_what_tensors_are_predicted_from() {
    let dir = delta();
    let text = dir.run(["list", "new.safetensors.lmc"]);
    let text = text.ok().stdout();
    assert!(text.contains("\ndelta of old.safetensors (195.5 KiB, content hash "), "{text}");
    assert!(text.contains("\nfeatures: ranges\n"), "{text}");
    let json = &dir.run(["list", "--json", "new.safetensors.lmc"]).json()[0];
    assert_eq!(json["features"], json!(["ranges"]));
    let row = |name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .unwrap()
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect::<Vec<_>>()
    };
    assert!(row("tensor").ends_with(&["predictor", "from"]), "{text}");
    assert_eq!(row("b.weight").last(), Some(&"old.safetensors"), "{text}");
    let given = dir.run(["list", "--base", "old.safetensors", "new.safetensors.lmc"]);
    assert!(given.ok().stdout().contains("which is given"));
    let json = &dir.run(["list", "--json", "-v", "new.safetensors.lmc"]).json()[0];
    assert_eq!((&json["bases"][0]["name"], &json["segments"][2]["sources"]), (&json!("old.safetensors"), &json!([1])));
    assert!(
        json["block_list"][0]["columns"].as_array().unwrap().iter().any(|p| p["prediction"]["predictor"].is_string())
    );
    let plain = Dir::new();
    plain.write("m", &model());
    plain.write("same", &model());
    plain.run(["compress", "--base", "same", "m"]).silent();
    assert!(plain.read("m.lmc").len() * 50 < model().len(), "a file is a delta of its copy");
}
