//! `unpack` of directories: the chunks of checkpoints of `torch.distributed.checkpoint`, joined.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use lmc_testing::distcp::{Entry, Place, metadata, place, whole};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Dir, Tensors, Way, safetensors, tensors, wait_until};

/// A checkpoint that torch wrote, or its whole tensors.
fn sample(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/../../testdata/layouts/dcp/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// A directory with a copy of a checkpoint, called `c`.
fn with_copy(name: &str) -> Dir {
    let dir = Dir::new();
    for entry in fs::read_dir(sample(name)).unwrap() {
        let entry = entry.unwrap();
        dir.write(&format!("c/{}", entry.file_name().to_str().unwrap()), &fs::read(entry.path()).unwrap());
    }
    dir
}

/// The whole tensors, as torch loads them.
fn expected(name: &str) -> Tensors {
    tensors(&fs::read(sample(&format!("{name}.safetensors"))).unwrap())
}

fn unpacked(dir: &Dir, out: &str) -> Tensors {
    tensors(&dir.read(&format!("{out}/model.safetensors")))
}

#[test]
fn what_ranks_saved() {
    for (name, files) in [("fsdp", 2), ("grid", 4), ("named", 2)] {
        let dir = with_copy(name);
        let run = dir.run(["unpack", "-v", "c", "-o", "out"]);
        run.ok();
        assert_eq!(run.stdout(), "");
        assert!(run.stderr().contains("(out/model.safetensors)"), "{run:?}");
        assert_eq!(run.stderr().contains("c: left out 15 entries that are not tensors: "), name == "fsdp", "{run:?}");
        assert_eq!(unpacked(&dir, "out"), expected(name), "{name}");
        // Compressed, and one of them as a delta of the other.
        let distcp: Vec<_> = dir.names().into_iter().filter(|n| n.ends_with(".distcp")).collect();
        assert_eq!(distcp.len(), files);
        dir.write("base", &dir.read(&distcp[0]));
        for file in &distcp {
            dir.run(["compress", file, "--base", "base", "--rm"]).ok();
        }
        if name == "fsdp" {
            // Others need not be deltas: they are small.
            dir.run(["unpack", "c", "-o", "again"]).fails(&["c/__0_0.distcp.lmc", "is a delta of base", "--base"]);
            assert!(dir.try_names("again").is_empty());
        }
        dir.run(["unpack", "-q", "c", "-o", "again", "--base", "base"]).silent();
        assert_eq!(dir.read("out/model.safetensors"), dir.read("again/model.safetensors"), "{name}");
    }
}

/// It pickles members of enumerations as calls of `getattr`.
#[test]
fn what_python_3_11_2_saved() {
    let dir = with_copy("python3.11.2");
    let run = dir.run(["unpack", "c", "-o", "out", "--prefix", "model."]);
    assert_eq!(run.ok().stderr(), "");
    let w = (0..12u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let expected = [
        ("b".to_owned(), ("BF16".to_owned(), json!([5]), [0x80, 0x3f].repeat(5))),
        ("w".to_owned(), ("F32".to_owned(), json!([3, 4]), w)),
    ];
    assert_eq!(unpacked(&dir, "out"), Tensors::from(expected));
    dir.run(["compress", "c/__0_0.distcp"]).ok();
    assert!(dir.run(["list", "c/__0_0.distcp.lmc"]).ok().stdout().contains("model.w "));
}

#[test]
fn several_files_and_a_prefix() {
    let dir = with_copy("fsdp");
    dir.run(["unpack", "-q", "c", "-o", "out", "--max-shard-size", "500"]).silent();
    let names = ["out/model-00001-of-00003.safetensors", "out/model-00002-of-00003.safetensors"];
    let last = ["out/model-00003-of-00003.safetensors", "out/model.safetensors.index.json"];
    assert_eq!(dir.try_names("out"), [names, last].concat());
    let index: Value = serde_json::from_slice(&dir.read(last[1])).unwrap();
    let mut all = Tensors::new();
    for name in names.iter().chain(&last[..1]) {
        for (tensor, value) in tensors(&dir.read(name)) {
            assert_eq!(format!("out/{}", index["weight_map"][&tensor].as_str().unwrap()), *name);
            all.insert(tensor, value);
        }
    }
    assert_eq!(all, expected("fsdp"));
    let total: usize = all.values().map(|(.., bytes)| bytes.len()).sum();
    assert_eq!(index["metadata"]["total_size"].as_u64(), Some(total as u64));
    // A part of one model is none of another.
    dir.run(["unpack", "c", "-o", "out"]).fails(&["out/model", "is there already"]);
    dir.run(["unpack", "-f", "c", "-o", "out"]).fails(&["out/model", "is there already"]);
    let again = ["unpack", "c", "-o", "out", "--max-shard-size", "500"];
    dir.run(again).fails(&["out/model-00001-of-00003.safetensors", "exists; -f overwrites it"]);
    dir.run(["unpack", "-fq", "c", "-o", "out", "--max-shard-size", "500"]).silent();
    let run = dir.run(["unpack", "c", "-o", "weights", "--prefix", "model."]);
    run.silent();
    let weights = expected("fsdp").into_iter().filter_map(|(n, t)| Some((n.strip_prefix("model.")?.to_owned(), t)));
    assert_eq!(unpacked(&dir, "weights"), weights.collect());
    dir.run(["unpack", "c", "-o", "no", "--prefix", "none."]).fails(&["c/.metadata", "\"none.\""]);
    dir.run(["unpack", "c", "c", "-o", "no"]).is_misused(&["no/model.safetensors"]);
    dir.run(["unpack", "s3://bucket/c", "-o", "no"]).fails(&["s3://bucket/c: is a URL"]);
    // As of stores.
    dir.run(["unpack", "s3:/bucket/c", "-o", "no"]).is_misused(&["s3:/bucket/c: is a URL without"]);
    dir.run(["analyze", "s3:/bucket/c"]).is_misused(&["s3:/bucket/c: is a URL without"]);
    dir.run(["analyze", "ftp://bucket/c"]).is_misused(&["ftp://bucket/c: not the location of a store"]);
}

/// A checkpoint with `.metadata` of these entries and places; its data file is that of a sample.
fn refused(entries: &[Entry<'_>], places: &[Place<'_>], parts: &[&str]) {
    let dir = with_copy("fsdp");
    dir.write("c/.metadata", &metadata(entries, places));
    let run = dir.run(["unpack", "c", "-o", "out"]);
    run.fails(parts);
    assert!(dir.try_names("out").is_empty(), "something is left");
}

/// The place of the 3 first rows of a tensor of 4 columns of fp32.
fn first<'a>(name: &'a str, file: &'a str) -> Place<'a> {
    place(name, 2, file, 0, 1577)
}

#[test]
fn what_does_not_fit() {
    let one = [whole("t", &[3, 4])];
    let dir = with_copy("fsdp");
    dir.write("c/.metadata", &metadata(&one, &[first("t", "__0_0.distcp")]));
    dir.run(["unpack", "c", "-o", "out"]).silent();
    assert_eq!(unpacked(&dir, "out")["t"].2, expected("fsdp")["model.0.weight"].2[..48]);
    // Chunks without elements are ignored wherever they are.
    let none = |rank: usize, offset: i128, size: i128| (vec![offset; rank], [&[size][..], &vec![0; rank - 1]].concat());
    let odd = [none(2, 0, 3), none(3, 0, 3), none(1, (1 << 63) - 1, 0), none(2, (1 << 63) - 1, 5)];
    let chunks = [&one[0].chunks[..], &odd].concat();
    let places: Vec<_> = chunks.iter().map(|c| Place { offsets: c.0.clone(), ..first("t", "__0_0.distcp") }).collect();
    dir.write("c/.metadata", &metadata(&[Entry { chunks, ..whole("t", &[3, 4]) }], &places));
    dir.run(["unpack", "-f", "c", "-o", "out"]).silent();
    assert_eq!(unpacked(&dir, "out")["t"].2, expected("fsdp")["model.0.weight"].2[..48]);
    // Of the metadata.
    let split = |chunks: &[(&[i128], &[i128])]| {
        let chunks = chunks.iter().map(|(o, s)| (o.to_vec(), s.to_vec())).collect();
        [Entry { chunks, ..whole("t", &[3, 4]) }]
    };
    let at = |file| [first("t", file)];
    let file = "__0_0.distcp";
    let here = ["c/.metadata: ", "tensor \"t\""];
    let with = |what: &'static str| [here[0], here[1], what];
    refused(
        &split(&[(&[0, 0], &[2, 4])]),
        &at(file),
        &with("do not cover its shape [3, 4]: 4 of 12 elements are missing"),
    );
    refused(&split(&[(&[0, 0], &[4, 4])]), &at(file), &with("[0..4, 0..4] is not inside of its shape [3, 4]"));
    let overlapping = [first("t", file), Place { offsets: vec![1, 0], ..first("t", file) }];
    refused(&split(&[(&[0, 0], &[2, 4]), (&[1, 0], &[2, 4])]), &overlapping, &with("overlaps another one"));
    refused(&one, &[], &with("nothing says where its chunk [0..3, 0..4] is stored"));
    for huge in [1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, -1] {
        refused(&[whole("t", &[huge, 4])], &at(file), &here);
        refused(&split(&[(&[huge, 0], &[3, 4])]), &at(file), &here);
        refused(&split(&[(&[0, 0], &[huge, 4])]), &at(file), &here);
        refused(&split(&[(&[huge, 0], &[huge, 4])]), &at(file), &here);
    }
    refused(
        &[Entry { dtype: Some("qint8"), ..whole("t", &[3, 4]) }],
        &at(file),
        &with("torch.qint8, which safetensors"),
    );
    let many = [whole("a", &[1 << 60]), whole("b", &[1 << 60])];
    refused(&many, &[place("a", 1, file, 0, 1), place("b", 1, file, 0, 1)], &["c/.metadata", "more than 2^63"]);
    // Of the data file.
    let there = |what: &'static str| ["c/__0_0.distcp: ", "tensor \"t\"", what];
    refused(
        &[Entry { dtype: Some("bfloat16"), ..whole("t", &[3, 4]) }],
        &at(file),
        &there("should be of torch.bfloat16"),
    );
    refused(&[whole("t", &[4, 3])], &at(file), &there("has the sizes [3, 4] in the data file"));
    refused(&[whole("t", &[1 << 50])], &[place("t", 1, file, 0, 1577)], &there("has the sizes [3, 4]"));
    refused(&one, &[place("t", 2, file, 1, 1577)], &there("at byte 1 torch.save did not write a tensor"));
    for (offset, len) in [(0, 1 << 60), ((1 << 63) - 1, (1 << 63) - 1), (34822, 1)] {
        refused(&one, &[place("t", 2, file, offset, len)], &there("but the data file has 34822 bytes"));
    }
    refused(&one, &[Place { transform: Some("stream.zstd"), ..first("t", file) }], &there("extension \"stream.zstd\""));
    // Others of the same file are sound, and written before.
    let later = [whole("a", &[3, 4]), whole("t", &[3, 4])];
    refused(&later, &[first("a", file), place("t", 2, file, 0, 7)], &there("at byte 0"));
    for (name, parts) in [
        ("unsupported", ["c/.metadata: ", "\"complex128\" is of type torch.complex128", "--prefix"]),
        ("named", ["c/__1_0.distcp: ", "tensor \"", "in the data file"]),
    ] {
        let dir = with_copy(name);
        if name == "named" {
            dir.write("c/__1_0.distcp", &safetensors(&[("rows", "F32", &[1, 3], &[0; 12])]));
        }
        let run = dir.run(["unpack", "c", "-o", "out"]);
        assert!(parts[..2].iter().all(|part| run.stderr().contains(part)), "{run:?}");
        assert!(dir.try_names("out").is_empty());
    }
}

/// As a name without its prefix.
#[test]
fn a_name_that_a_file_cannot_have() {
    let dir = with_copy("fsdp");
    let names = ["m.w", "m.__metadata__"];
    let places = names.map(|name| first(name, "__0_0.distcp"));
    dir.write("c/.metadata", &metadata(&names.map(|name| whole(name, &[3, 4])), &places));
    // The name would be in the second file.
    let run = dir.run(["unpack", "c", "-o", "out", "--max-shard-size", "48", "--prefix", "m."]);
    run.fails(&["c/.metadata", "\"__metadata__\"", "safetensors files cannot hold", "--prefix"]);
    assert!(dir.try_names("out").is_empty());
}

#[test]
fn more_files_than_may_be_open() {
    let dir = with_copy("fsdp");
    let names: Vec<_> = (0..300).map(|i| format!("t{i}")).collect();
    let entries: Vec<_> = names.iter().map(|name| whole(name, &[3, 4])).collect();
    let places: Vec<_> = names.iter().map(|name| first(name, "__0_0.distcp")).collect();
    dir.write("c/.metadata", &metadata(&entries, &places));
    let unpack = "exec $LMC unpack c -o out --max-shard-size 1";
    dir.shell(&format!("ulimit -n 256; {unpack}")).fails(&[
        "301 files are to be written together, and a process can have 256 open files here",
        "--max-shard-size",
    ]);
    assert!(dir.try_names("out").is_empty());
    dir.shell(&format!("ulimit -S -n 256; {unpack}")).silent();
    assert_eq!(dir.try_names("out").len(), 301);
}

#[test]
fn files_that_are_none() {
    let one = [whole("t", &[3, 4])];
    let there = |dir: &Dir, name: &str, parts: &[&str]| {
        dir.write("c/.metadata", &metadata(&one, &[first("t", name)]));
        dir.run(["unpack", "c", "-o", "out"]).fails(parts);
        assert!(dir.try_names("out").is_empty());
    };
    let dir = with_copy("fsdp");
    let absolute = dir.path("c/__0_0.distcp");
    let hostile =
        ["../c/__0_0.distcp", "/etc/hostname", absolute.to_str().unwrap(), "a/../__0_0.distcp", "", ".", "x/"];
    for name in hostile {
        there(&dir, name, &["c/.metadata: names the data file", "not inside of the checkpoint"]);
    }
    there(&dir, "none.distcp", &["c/none.distcp: is missing, and so is c/none.distcp.lmc"]);
    dir.shell("mkfifo c/pipe; mkdir c/folder; ln -s pipe c/link").ok();
    for name in ["pipe", "folder", "link"] {
        there(&dir, name, &[&format!("c/{name}: is not a regular file")]);
    }
    there(&dir, ".metadata", &["c/.metadata: ", "tensor \"t\""]);
    // A link to a file counts as its target.
    fs::rename(dir.path("c/__0_0.distcp"), dir.path("elsewhere")).unwrap();
    symlink("../elsewhere", dir.path("c/__0_0.distcp")).unwrap();
    symlink("c", dir.path("d")).unwrap();
    dir.write("c/.metadata", &metadata(&one, &[first("t", "__0_0.distcp")]));
    dir.run(["unpack", "d", "-o", "out"]).silent();
    // No file of the checkpoint is replaced.
    symlink("model.safetensors", dir.path("c/__9_0.distcp")).unwrap();
    fs::copy(dir.path("elsewhere"), dir.path("c/model.safetensors")).unwrap();
    dir.write("c/.metadata", &metadata(&one, &[first("t", "__9_0.distcp")]));
    dir.run(["unpack", "-f", "c", "-o", "c"]).is_misused(&["c/model.safetensors: is the input file"]);
    // `.metadata` itself.
    fs::remove_file(dir.path("c/.metadata")).unwrap();
    dir.run(["unpack", "c", "-o", "no"]).fails(&["c: is a directory without .metadata"]);
    dir.shell("mkfifo c/.metadata").ok();
    dir.run(["unpack", "c", "-o", "no"]).fails(&["c/.metadata: is a named pipe"]);
    dir.shell("rm c/.metadata; mkdir c/.metadata").ok();
    dir.run(["unpack", "c", "-o", "no"]).fails(&["c/.metadata: is a directory"]);
}

#[test]
fn what_is_damaged() {
    let dir = with_copy("fsdp");
    let (whole, data) = (dir.read("c/.metadata"), dir.read("c/__1_0.distcp"));
    let fails = |parts: &[&str]| {
        dir.run(["unpack", "c", "-o", "out"]).fails(parts);
        assert!(dir.try_names("out").is_empty());
    };
    for len in (0..whole.len()).step_by(997) {
        dir.write("c/.metadata", &whole[..len]);
        fails(&["c/.metadata: is no metadata of torch.distributed.checkpoint"]);
    }
    dir.write("c/.metadata", &whole);
    for len in (0..data.len()).step_by(9973) {
        dir.write("c/__1_0.distcp", &data[..len]);
        fails(&["c/__1_0.distcp: ", "tensor \""]);
        // So that something is written before it is noticed.
        dir.run(["unpack", "c", "-o", "out", "--max-shard-size", "1"]).fails(&["c/__1_0.distcp: "]);
        assert!(dir.try_names("out").is_empty());
    }
    // A sparse file that claims to be larger than any metadata.
    File::options().write(true).open(dir.path("c/.metadata")).unwrap().set_len(1 << 40).unwrap();
    fails(&["c/.metadata: has 1099511627776 bytes"]);
}

#[test]
fn signals_leave_nothing() {
    let dir = Dir::new();
    // 64 GB of zeros, so that it is never done.
    let n = 1u64 << 36;
    let header = format!(r#"{{"t":{{"dtype":"U8","shape":[{n}],"data_offsets":[0,{n}]}}}}"#);
    dir.write("c/f", &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    File::options().write(true).open(dir.path("c/f")).unwrap().set_len(n + 8 + header.len() as u64).unwrap();
    let n = i128::from(n);
    let entry = Entry { dtype: Some("uint8"), ..whole("t", &[n]) };
    dir.write("c/.metadata", &metadata(&[entry], &[place("t", 1, "f", 0, n)]));
    for way in Way::BOTH {
        for signal in [Signal::INT, Signal::TERM] {
            let before = dir.names();
            let mut child = dir.spawn_mortal(way, ["unpack", "c", "-o", "."]);
            wait_until("it has begun", || dir.has_begun(&child, "model.safetensors"));
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert!(!child.wait().unwrap().success());
            assert_eq!(dir.names(), before, "{signal:?}");
        }
    }
}
