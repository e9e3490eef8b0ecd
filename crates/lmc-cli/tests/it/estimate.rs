//! `lmc estimate`, and `lmc compress -n`: what compressing would make, against what it makes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};

use serde_json::Value;

use crate::support::*;

/// The field of each record, by file.
fn field(run: &Run, name: &str) -> Vec<(String, Value)> {
    run.json().iter().map(|r| (r["file"].as_str().unwrap().to_owned(), r[name].clone())).collect()
}

/// A directory `d` with models, known by their names or contents, and other files.
fn models() -> Dir {
    let dir = Dir::new();
    dir.write("d/config.json", b"{}");
    dir.write("d/model.safetensors", &model());
    dir.write("d/blobs/1a2b", &model());
    dir.write("d/sub/w.bin", &noise(70_000, 3));
    dir.write("d/empty.pt", b"");
    dir.run(["-q", "compress", "d/model.safetensors", "-o", "d/old.safetensors.lmc"]).silent();
    dir
}

#[test]
fn small_files_are_estimated_exactly() {
    let dir = models();
    let before = dir.names();
    let run = dir.run(["estimate", "d", "--json"]);
    run.ok();
    let names = ["d/blobs/1a2b", "d/empty.pt", "d/model.safetensors", "d/sub/w.bin"];
    assert_eq!(run.json().iter().map(|r| r["file"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for record in run.json() {
        let name = record["file"].as_str().unwrap();
        dir.run(["-q", "compress", name, "-o", "out", "-f"]).silent();
        let (raw, compressed) = (dir.read(name).len(), dir.read("out").len());
        assert_eq!((record["raw_size"].as_u64(), record["sampled"].as_u64()), (Some(raw as u64), Some(raw as u64)));
        assert_eq!((record["compressed_size"].as_u64(), record["margin"].as_u64()), (Some(compressed as u64), Some(0)));
        assert_eq!(record["ratio"].as_f64(), (raw > 0).then(|| compressed as f64 / raw as f64));
    }
    fs::remove_file(dir.path("out")).unwrap();
    assert_eq!(dir.names(), before);
    let one = dir.run(["estimate", "d/model.safetensors"]);
    let text = one.ok().stdout();
    assert!(text.starts_with("d/model.safetensors : ") && text.contains(" KiB), saves ") && text.lines().count() == 1);
}

#[test]
fn files_of_a_directory_have_rows_and_many_of_them_one_together() {
    let dir = models();
    let run = dir.run(["estimate", "d"]);
    let text = run.ok().stdout();
    assert!(text.starts_with("4 files : ") && !text.contains('±'), "{text}");
    let rows: Vec<&str> = text.lines().skip(2).map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(rows, ["file", "d/blobs/1a2b", "d/empty.pt", "d/model.safetensors", "d/sub/w.bin"]);
    for i in 0..40 {
        dir.write(&format!("d/many/{i}.npy"), &noise(100, i));
    }
    let run = dir.run(["estimate", "d"]);
    let text = run.ok().stdout();
    let rows: Vec<&str> = text.lines().skip(2).map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(rows, ["directory", "d: 2 files", "d/blobs: 1 file", "d/many: 40 files", "d/sub: 1 file"], "{text}");
    assert_eq!(dir.run(["estimate", "-v", "d"]).ok().stdout().lines().count(), 2 + 1 + 44);
}

#[test]
fn what_is_no_estimate_is_said() {
    let dir = models();
    dir.run(["-q", "snapshot", "save", "s", "d/config.json", "--step", "1"]).silent();
    dir.run(["estimate", "s"]).is_misused(&["s: is a store", "lmc snapshot list s"]);
    dir.run(["estimate", "none"]).fails(&["none: cannot read: no such file or directory"]);
    dir.run(["estimate", "-"]).is_misused(&["not standard input: name a file"]);
    dir.run(["estimate", "d/empty.pt", "d/empty.pt"]).is_misused(&["d/empty.pt: is given twice"]);
    fs::create_dir(dir.path("nothing")).unwrap();
    dir.run(["estimate", "nothing"])
        .fails(&["nothing: has no regular file with the suffix of a checkpoint, or with tensors: lmc compress --all"]);
    let run = dir.run(["estimate", "d/old.safetensors.lmc", "d/empty.pt", "none", "--json"]);
    assert_eq!(run.0.status.code(), Some(1));
    assert_eq!(field(&run, "skipped")[0].1, "it is already compressed");
    assert_eq!(field(&run, "error")[2].1, "none: cannot read: no such file or directory");
    assert_eq!(field(&run, "compressed_size")[1].0, "d/empty.pt");
    // A pointer of Git LFS is compressed as it is.
    dir.write("p.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n");
    let run = dir.run(["estimate", "p.safetensors"]);
    assert!(run.ok().stderr().contains("p.safetensors: ") && run.stdout().starts_with("p.safetensors : "), "{run:?}");
}

#[test]
fn an_index_is_estimated_with_its_files_and_a_base() {
    let dir = Dir::new();
    let (old, new) = (weights(200_000, 1), weights(100_000, 2));
    let tensors = |second: &[u8]| safetensors(&[("a", "BF16", &[200_000], &old), ("b", "BF16", &[100_000], second)]);
    dir.write("old.safetensors", &tensors(&weights(100_000, 1)));
    dir.write("d/x.safetensors", &tensors(&new));
    dir.write("d/model.safetensors.index.json", br#"{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}"#);
    let run = dir.run(["estimate", "d/model.safetensors.index.json", "--base", "old.safetensors", "--json"]);
    let size = field(run.ok(), "compressed_size");
    dir.run(["-q", "compress", "d/x.safetensors", "--base", "old.safetensors"]).silent();
    assert_eq!(size, [("d/x.safetensors".to_owned(), dir.read("d/x.safetensors.lmc").len().into())]);
}

#[test]
fn of_many_files_some_are_sampled() {
    let dir = Dir::new();
    let mut real = 0;
    for i in 0..300 {
        // Weights in one directory, noise in the other.
        let bytes = if i < 150 { weights(2000, i) } else { noise(4000, i) };
        dir.write(&format!("d/{}/{i:03}.npy", i / 150), &bytes);
    }
    let run = dir.run(["estimate", "d", "--json", "-l", "fast"]);
    let records = run.ok().json();
    let sampled: Vec<_> = records.iter().filter(|r| r["sampled"].as_u64() > Some(0)).collect();
    // One may have a byte of several pieces.
    assert!(records.len() == 300 && (100..=128).contains(&sampled.len()), "{}", sampled.len());
    assert!(sampled.iter().all(|r| r["margin"] == 0 && r["sampled"] == r["raw_size"]));
    dir.run(["-q", "compress", "-l", "fast", "-r", "d", "-o", "out"]).silent();
    let mut estimated = 0;
    for record in &records {
        real += dir.read(&format!("out{}.lmc", &record["file"].as_str().unwrap()[1..])).len() as u64;
        estimated += record["compressed_size"].as_u64().unwrap();
    }
    assert!(estimated.abs_diff(real) < real / 100, "{estimated} of {real}");
    // Which ones does not depend on the run.
    assert_eq!(dir.run(["estimate", "d", "--json", "-l", "fast"]).json(), records);
    let run = dir.run(["estimate", "d"]);
    let text = run.ok().stdout();
    let said = format!("sampled: {} files; the others ", sampled.len());
    assert!(text.lines().nth(1).unwrap().starts_with(&said), "{text}");
}

#[test]
fn of_a_large_file_a_sample_is_read() {
    let dir = Dir::new();
    // 400 GB of layers, of which one has bytes that are not zero.
    let layers = 80_u64;
    let len = 5_000_000_000_u64;
    let names = (0..layers).map(|i| {
        let (begin, end) = (i * len, (i + 1) * len);
        format!(r#""layers.{i}.w":{{"dtype":"BF16","shape":[{}],"data_offsets":[{begin},{end}]}}"#, len / 2)
    });
    let header = format!("{{{}}}", names.collect::<Vec<_>>().join(","));
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let file = File::create(dir.path("model.safetensors")).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.set_len(start.len() as u64 + layers * len).unwrap();
    let run = dir.run(["estimate", "-l", "fast", "model.safetensors", "--json"]);
    let record = &run.ok().json()[0];
    assert_eq!(record["raw_size"], start.len() as u64 + layers * len);
    let number = |name: &str| record[name].as_u64().unwrap();
    assert!((64 << 20..=512 << 20).contains(&number("sampled")), "{record}");
    assert!(number("compressed_size") < 100 << 20, "{record}");
}

#[test]
fn a_margin_covers_what_a_sample_does_not_show() {
    let dir = Dir::new();
    // Layers of two dtypes, whose weights take more and more bits.
    let all = weights(1_000_000, 1);
    let masked = |kept: u32| -> Vec<u8> {
        all.chunks_exact(2)
            .flat_map(|w| (u16::from_le_bytes([w[0], w[1]]) & (0xffff << (8 - 2 * kept))).to_le_bytes())
            .collect()
    };
    let masked: Vec<Vec<u8>> = (0..4).map(masked).collect();
    let layer = |i: usize| {
        let (first, last) = masked[i / 18].split_at(2000 * i);
        [last, first].concat()
    };
    let layers: Vec<(String, Vec<u8>)> = (0..72).map(|i| (format!("layers.{i}.w"), layer(i))).collect();
    let dtype = |i: usize| if i.is_multiple_of(2) { "BF16" } else { "F16" };
    let shape: &[u64] = &[1_000_000];
    let tensors = layers.iter().enumerate().map(|(i, (name, data))| (&**name, dtype(i), shape, &data[..]));
    dir.write("m.safetensors", &safetensors(&tensors.collect::<Vec<_>>()));
    let run = dir.run(["estimate", "-l", "fast", "m.safetensors", "--json"]);
    let record = &run.ok().json()[0];
    dir.run(["-q", "compress", "-l", "fast", "m.safetensors"]).silent();
    let (real, number) = (dir.read("m.safetensors.lmc").len() as u64, |name: &str| record[name].as_u64().unwrap());
    assert!(number("margin") > 0 && number("sampled") <= 64 << 20, "{record}");
    assert!(number("compressed_size").abs_diff(real) <= number("margin"), "{real}, {record}");
    assert!(dir.run(["estimate", "-l", "fast", "m.safetensors"]).ok().stdout().contains(" ± "));
}

/// What `compress -n` says is what `compress` does with the same arguments, and it changes nothing itself.
#[track_caller]
fn foretold<const N: usize>(dir: &Dir, args: [&str; N]) {
    let contents = || -> Vec<_> {
        let modified = |name: &str| fs::metadata(dir.path(name)).and_then(|m| m.modified()).ok();
        let bytes = |name: &str| dir.path(name).is_file().then(|| dir.read(name));
        dir.names().into_iter().map(|name| (modified(&name), bytes(&name), name)).collect()
    };
    let before = contents();
    let run = |args: &[&str]| Run(dir.command(args).output().unwrap());
    let told = run(&[&["compress", "-n"], &args[..]].concat());
    let as_json = run(&[&["compress", "--json", "-n"], &args[..]].concat());
    assert!(contents() == before, "{args:?}");
    let real = run(&[&["compress", "--json"], &args[..]].concat());
    assert_eq!(told.0.status.code(), real.0.status.code(), "{told:?} {real:?}");
    // Files are looked at ahead of those that are estimated.
    let sorted = |run: &Run| -> Vec<String> {
        let mut lines: Vec<_> = run.stderr().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&told), sorted(&real));
    for name in ["raw_size", "compressed_size", "ratio", "output", "skipped", "error"] {
        assert_eq!(field(&as_json, name), field(&real, name), "{name}");
    }
    for (_, output) in field(&as_json, "output").iter().filter(|(_, output)| !output.is_null()) {
        assert!(told.stdout().contains(output.as_str().unwrap()), "{told:?}");
    }
}

#[test]
fn a_dry_run_foretells_the_run() {
    let dir = models();
    symlink("nothing", dir.path("d/dangling.pt")).unwrap();
    dir.write("d/p.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n");
    dir.write("d/sub/w.bin.lmc", b"there");
    foretold(&dir, ["-r", "d", "-o", "mirror/deep"]);
    foretold(&dir, ["-r", "d", "-o", "mirror/deep"]);
    foretold(&dir, ["-r", "d"]);
    foretold(&dir, ["d/model.safetensors", "d/old.safetensors.lmc", "none"]);
    foretold(&dir, ["-f", "--rm", "-r", "d/sub"]);
    foretold(&dir, ["-f", "d/model.safetensors", "--base", "d/blobs/1a2b"]);
    foretold(&dir, ["d/empty.pt", "-o", "d"]);
    foretold(&dir, ["d/empty.pt", "-o", "none/e.lmc"]);
    foretold(&dir, ["d/empty.pt", "-f", "-o", "d/empty.pt"]);
    foretold(&dir, ["d/empty.pt", "--rm", "-o", "/dev/null"]);
    foretold(&dir, ["d/empty.pt", "--rm", "--base", "d/empty.pt"]);
}

#[test]
fn a_dry_run_reads_no_pipe() {
    let dir = models();
    dir.feed(["compress", "-n"], b"data").is_misused(&["not standard input: name a file"]);
    assert_eq!(dir.run(["compress", "-n", "-c", "d/empty.pt"]).0.status.code(), Some(2));
}
