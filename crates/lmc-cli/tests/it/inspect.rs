//! Information about files: `list`, `cat`, `test`, JSON, versions, completions and manuals.

use std::fs;

use crate::support::{Dir, model, noise, safetensors, weights};
use lmc_testing::input::Random;
use serde_json::{Value, json};

fn compressed(data: &[u8]) -> Dir {
    let dir = Dir::new();
    dir.write("m", data);
    dir.run(["compress", "m"]).silent();
    dir
}

#[test]
fn list_for_people() {
    let dir = compressed(&model());
    let run = dir.run(["list", "m.lmc"]);
    run.silent();
    let text = run.stdout();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|l| l.split("  ").filter(|c| !c.is_empty()).map(str::trim).collect()).collect();
    assert!(lines[0][0].starts_with("m.lmc : ") && text.lines().next().unwrap().contains("safetensors"), "{text}");
    assert!(lines[1][0].starts_with("content hash "), "{text}");
    assert!(lines[1][0].ends_with(&format!(", format 1, by lmc {} default", env!("CARGO_PKG_VERSION"))), "{text}");
    assert_eq!(lines[2], ["required features: grids, steps of optimizers"]);
    assert_eq!(lines[4], ["tensor", "dtype", "shape", "raw", "compressed", "ratio", "coder"]);
    let row = |name: &str| lines.iter().find(|l| l.first() == Some(&name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert_eq!(row("embed.weight")[1..4], ["BF16", "[1000, 96]", "187.5 KiB"]);
    assert_eq!(row("layer.0.bias")[1..4], ["F32", "[96]", "384 B"]);
    assert_eq!(row("steps")[1..4], ["I64", "[]", "8 B"]);
    assert!(row("(index)")[4].ends_with(" B"), "{text}");
    assert!(text.lines().all(|l| l == l.trim_end()), "{text}");
    let verbose = dir.run(["list", "-v", "m.lmc"]);
    assert!(verbose.stdout().starts_with(text) && verbose.stdout().contains("coded as"), "{verbose:?}");
}

#[test]
fn list_for_programs() {
    let dir = compressed(&model());
    dir.write("n", b"some text");
    dir.run(["compress", "n"]).silent();
    let run = dir.run(["list", "--json", "m.lmc", "n.lmc"]);
    let [m, n] = &run.json()[..] else { panic!("{run:?}") };
    assert_eq!((&m["file"], &m["layout"], &n["layout"]), (&json!("m.lmc"), &json!("safetensors"), &json!("raw")));
    assert_eq!((&m["version"], &m["required_features"]), (&json!(1), &json!(["grids", "steps of optimizers"])));
    assert_eq!(m["writer"], format!("lmc {} default", env!("CARGO_PKG_VERSION")));
    assert_eq!(m["raw_size"], model().len());
    assert_eq!(m["compressed_size"], dir.read("m.lmc").len());
    let segments = m["segments"].as_array().unwrap();
    let names: Vec<_> = segments.iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["embed.weight", "layer.0.bias", "steps"]);
    assert_eq!(segments[1]["shape"], json!([1000, 96]));
    let sum = |of: &str| segments.iter().map(|s| s[of].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("raw_size"), model().len() as u64);
    let verbose = dir.run(["list", "--json", "-v", "m.lmc"]).json();
    let blocks = verbose[0]["block_list"].as_array().unwrap();
    assert_eq!(m["blocks"], blocks.len());
    assert_eq!(sum("compressed_size"), blocks.iter().map(|b| b["compressed_size"].as_u64().unwrap()).sum::<u64>());
    assert_eq!(m["compressed_size"], sum("compressed_size") + m["container_size"].as_u64().unwrap());
    assert!(blocks.iter().all(|b| b["columns"][0]["method"].is_string()));
    assert_eq!(m["block_list"], Value::Null);
}

#[test]
fn what_shares_a_block_is_told_apart() {
    let bytes = noise(4096, 4);
    let small: Vec<_> = (0..40).map(|i| (format!("layer.{i}.norm"), weights(3000, 10 + i))).collect();
    let mut tensors: Vec<_> = small.iter().map(|(n, w)| (n.as_str(), "BF16", &[3000][..], &w[..])).collect();
    let (zeros, large) = (vec![0; 12_000], weights(2 << 20, 5));
    tensors.extend([("random", "U8", &[4096][..], &bytes[..]), ("z", "F32", &[3000], &zeros)]);
    tensors.push(("zz", "BF16", &[2 << 20], &large));
    let (mut at, mut header, mut data) = (0, Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes.len();
        header.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{end}]}}"#));
        (at, data) = (end, [&data, bytes].concat());
    }
    let header = format!("{{{}}}", header.join(","));
    let dir = compressed(&[&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat());
    let json = &dir.run(["list", "--json", "-v", "m.lmc"]).json()[0];
    let segments = json["segments"].as_array().unwrap();
    let size = |s: &Value| s["compressed_size"].as_u64().unwrap();
    let named = |name: &str| segments.iter().find(|s| s["name"] == name).unwrap();
    assert_eq!((&segments[0]["name"], &segments[0]["coder"]), (&Value::Null, &json!("zstd")));
    assert!(size(&segments[0]) < 600 && segments[0]["raw_size"].as_u64().unwrap() > 2500, "{}", segments[0]);
    assert!((4096..4200).contains(&size(named("random"))), "{}", named("random"));
    assert!(size(named("z")) < 600, "{}", named("z"));
    let norm = named("layer.7.norm");
    assert_eq!((&norm["coder"], &named("random")["coder"]), (&named("zz")["coder"], &json!("stored")));
    assert!((3500..5500).contains(&size(norm)), "{norm}");
    let blocks = json["block_list"].as_array().unwrap();
    let columns = || blocks.iter().flat_map(|b| b["columns"].as_array().unwrap());
    assert!(columns().count() > blocks.len(), "no block has several columns");
    let all = segments.iter().map(size).sum::<u64>();
    assert_eq!((blocks.iter().map(size).sum(), columns().map(size).sum()), (all, all));
}

#[test]
fn elements_without_a_base_are_listed_too() {
    let zeros: Vec<u8> = noise(1 << 20, 6).chunks(2).flat_map(|n| [if n[0] == 7 { n[1] } else { 0 }, 0]).collect();
    let dir = compressed(&safetensors(&[("pruned", "BF16", &[1 << 19], &zeros)]));
    let run = dir.run(["list", "-v", "m.lmc"]);
    assert!(run.ok().stdout().contains(" listed elements") && !run.stdout().contains("change"), "{run:?}");
}

#[test]
fn list_goes_on_after_a_bad_file() {
    let dir = compressed(b"data");
    dir.write("bad.lmc", &noise(100, 1));
    let run = dir.run(["list", "--json", "bad.lmc", "m.lmc"]);
    run.fails(&["bad.lmc"]);
    let json = run.json();
    assert!(json[0]["error"].as_str().unwrap().starts_with("bad.lmc: ") && json[1]["layout"] == "raw");
    dir.run(["list", "-"]).is_misused(&["name a file"]);
}

#[test]
fn list_of_many_tensors() {
    let data = noise(64, 1);
    let names: Vec<String> = (0..10_000).map(|i| format!("model.layers.{i}.bias")).collect();
    let tensors: Vec<_> = names.iter().map(|n| (n.as_str(), "F32", &[16][..], &data[..])).collect();
    let dir = compressed(&safetensors(&tensors));
    let run = dir.run(["list", "m.lmc"]);
    let rows: Vec<&str> = run.ok().stdout().lines().filter(|l| l.starts_with("model.")).collect();
    assert_eq!(rows.len(), names.len());
    let column = rows[0].find("F32");
    assert!(rows.iter().all(|r| r.find("F32") == column), "the columns are not aligned");
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let dir = compressed(&safetensors(&[("a\u{1b}]0;x\u{7}\nb\u{202e}", "U8", &[4], b"abcd")]));
    let run = dir.run(["list", "-v", "m.lmc"]);
    assert!(
        !run.stdout().contains(['\u{1b}', '\u{7}', '\u{202e}']) && run.stdout().contains("a\\u{1b}]0;x"),
        "{run:?}"
    );
    dir.run(["cat", "m.lmc", "\u{1b}[2J"]).fails(&["\\u{1b}[2J"]);
    dir.run(["compress", "\u{1b}[2J\n"]).fails(&["\\u{1b}[2J\\n: cannot read"]);
}

#[test]
fn cat_tensors_and_rows() {
    let big = weights(12 << 20, 1); // 24 MiB: more than is decoded at once
    let small = weights(96_000, 2);
    let bytes = noise(9, 3);
    let dir = compressed(&safetensors(&[
        ("big", "BF16", &[3 << 10, 4 << 10], &big),
        ("small", "BF16", &[1000, 96], &small),
        ("fp4", "F4", &[6, 3], &bytes),
        ("scalar", "BF16", &[], &small[..2]),
        ("none", "F32", &[0, 5], &[]),
    ]));
    assert!(dir.run(["cat", "m.lmc", "big"]).ok().0.stdout == big);
    assert!(dir.run(["cat", "m.lmc", "big", "--rows", "1..3000"]).ok().0.stdout == big[8 << 10..3000 * (8 << 10)]);
    assert!(dir.run(["cat", "m.lmc", "small"]).ok().0.stdout == small);
    assert_eq!(dir.run(["cat", "m.lmc", "small", "--rows", "10..12"]).ok().0.stdout, small[1920..2304]);
    assert_eq!(dir.run(["cat", "m.lmc", "small", "--rows", "999.."]).ok().0.stdout, small[999 * 192..]);
    assert_eq!(dir.run(["cat", "m.lmc", "small", "--rows", "..1"]).ok().0.stdout, small[..192]);
    assert_eq!(dir.run(["cat", "m.lmc", "small", "--rows", "5..5"]).ok().0.stdout, b"");
    assert_eq!(dir.run(["cat", "m.lmc", "none"]).ok().0.stdout, b"");
    assert_eq!(dir.run(["cat", "m.lmc", "none", "--rows", "0..0"]).ok().0.stdout, b"");
    assert_eq!(dir.run(["cat", "m.lmc", "fp4", "--rows", "2..4"]).ok().0.stdout, bytes[3..6]);
    dir.run(["cat", "m.lmc", "fp4", "--rows", "1..4"]).fails(&["fp4", "12 bits"]);
    dir.run(["cat", "m.lmc", "small", "--rows", "999..1001"]).fails(&["small", "has 1000 rows"]);
    dir.run(["cat", "m.lmc", "scalar", "--rows", "0..1"]).fails(&["has no rows"]);
    dir.run(["cat", "m.lmc", "smal"]).fails(&["no tensor \"smal\"", "lmc list"]);
    dir.run(["cat", "-", "small"]).is_misused(&["name a file"]);
    let run = dir.run(["cat", "m.lmc", "small", "--rows", "1..3", "-o", "out", "--json"]);
    let header: Value = serde_json::from_str(run.ok().stderr()).unwrap();
    assert_eq!(header, json!({ "name": "small", "dtype": "BF16", "shape": [2, 96], "size": 384 }));
    assert_eq!(dir.read("out"), small[192..576]);
    dir.run(["cat", "m.lmc", "small", "-o", "out"]).fails(&["out: exists"]);
    dir.run(["cat", "m.lmc", "small", "-f", "-o", "out"]).silent();
    assert_eq!(dir.read("out"), small);
}

#[test]
fn cat_reads_what_it_needs() {
    let dir = compressed(&safetensors(&[
        ("first", "BF16", &[4 << 20], &weights(4 << 20, 1)),
        ("last", "BF16", &[4 << 20], &weights(4 << 20, 2)),
    ]));
    let mut file = dir.read("m.lmc");
    let half = file.len() / 4;
    file[half] ^= 1;
    dir.write("m.lmc", &file);
    dir.run(["cat", "m.lmc", "last"]).ok();
    dir.run(["cat", "m.lmc", "first", "-o", "x"]).fails(&["first"]);
    assert!(!dir.has("x"));
}

#[test]
fn test_says_what_is_good_and_what_is_not() {
    let dir = compressed(&model());
    dir.write("bad.lmc", &dir.read("m.lmc")[1..]);
    let run = dir.run(["test", "bad.lmc", "m.lmc"]);
    run.fails(&["bad.lmc: "]);
    assert!(run.stdout().starts_with("m.lmc : OK  (188"), "{run:?}");
    let run = dir.run(["test", "--json", "bad.lmc", "m.lmc"]);
    let [bad, good] = &run.json()[..] else { panic!("{run:?}") };
    assert!(bad["error"].is_string() && bad["ok"] == Value::Null && good["ok"] == json!(true));
    assert_eq!(dir.run(["test", "-q", "m.lmc"]).stdout(), "");
    assert_eq!(dir.names(), ["bad.lmc", "m", "m.lmc"]);
}

#[test]
fn json_of_the_work() {
    let dir = Dir::new();
    dir.write("a", &model());
    let run = dir.run(["compress", "--json", "a", "missing"]);
    run.fails(&["missing"]);
    let [a, missing] = &run.json()[..] else { panic!("{run:?}") };
    assert_eq!((&a["file"], &a["output"]), (&json!("a"), &json!("a.lmc")));
    assert_eq!(a["raw_size"], model().len());
    assert_eq!(a["compressed_size"], dir.read("a.lmc").len());
    assert_eq!(a["content_hash"].as_str().unwrap().len(), 32);
    assert!(missing["error"].as_str().unwrap().starts_with("missing: "));
    fs::remove_file(dir.path("a")).unwrap();
    let run = dir.run(["decompress", "--json", "a.lmc"]);
    let back = &run.ok().json()[0];
    assert_eq!((&back["content_hash"], &back["raw_size"]), (&a["content_hash"], &a["raw_size"]));
    assert_eq!(dir.run(["list", "--json", "a.lmc"]).json()[0]["content_hash"], a["content_hash"]);
}

#[test]
fn versions() {
    let dir = Dir::new();
    let version = format!("lmc {} (file format {})\n", env!("CARGO_PKG_VERSION"), lmc::FORMAT_VERSION);
    for flag in ["--version", "-V"] {
        assert_eq!(dir.run([flag]).ok().stdout(), version);
    }
    let run = dir.run(["-v", "--version"]);
    assert!(run.ok().stdout().starts_with(&version) && run.stdout().contains("instruction sets: portable"), "{run:?}");
    dir.shell("LMC_ISA=portable $LMC -vV | grep -q 'using portable'").silent();
    dir.shell("LMC_ISA=mmx $LMC compress -c </dev/null >x").is_misused(&["mmx"]);
}

#[test]
fn help() {
    let dir = Dir::new();
    let help = dir.run(["--help"]);
    for command in ["compress", "decompress", "test", "list", "cat", "completions"] {
        assert!(help.ok().stdout().contains(&format!("\n  {command} ")), "{command} is not in the help");
        let help = dir.run([command, "--help"]);
        assert!(help.ok().stdout().contains("Usage: lmc "), "{help:?}");
        assert!(help.stdout().lines().all(|l| l.chars().count() <= 120), "{}", help.stdout());
    }
}

#[test]
fn completions_and_manuals() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = dir.run(["completions", shell]);
        assert!(run.ok().stdout().contains("decompress"), "{shell}");
    }
    dir.write("lmc.bash", dir.run(["completions", "bash"]).stdout().as_bytes());
    dir.shell("! command -v bash >/dev/null || bash -n lmc.bash").silent();
    dir.run(["man", "pages"]).silent();
    assert!(dir.has("pages/lmc.1") && dir.has("pages/lmc-compress.1"));
    assert!(dir.read("pages/lmc-cat.1").starts_with(b".ie"));
}

#[test]
fn a_store_is_listed_by_another_command() {
    let dir = Dir::new();
    dir.write("w", b"data");
    dir.run(["snapshot", "save", "a store", "w"]).ok();
    dir.run(["list", "a store"]).fails(&["a store: is a store: use lmc snapshot list 'a store'"]);
    std::fs::create_dir(dir.path("other")).unwrap();
    dir.run(["list", "other"]).fails(&["other: is a directory"]);
}

#[test]
fn list_names_required_features() {
    let weights = weights(1 << 20, 7);
    let dir = compressed(&safetensors(&[("a", "BF16", &[1 << 20], &weights), ("b", "BF16", &[1 << 20], &weights)]));
    let run = dir.run(["list", "m.lmc"]);
    assert!(
        run.ok()
            .stdout()
            .contains("\nrequired features: ranges of bases, ranges of the file itself, grids, steps of optimizers\n"),
        "{run:?}"
    );
    let m = &dir.run(["list", "--json", "m.lmc"]).json()[0];
    assert_eq!(
        m["required_features"],
        json!(["ranges of bases", "ranges of the file itself", "grids", "steps of optimizers"])
    );
}

/// bf16 weights that had 4 bits, in groups of 64 with a scale each.
fn dequantised() -> Vec<u8> {
    let mut r = Random::new(4);
    let mut elements = Vec::new();
    for _ in 0..2048 {
        let scale = 0.001 + r.below(1000) as f32 / 1e6;
        for _ in 0..64 {
            // The sum of two dice.
            let level = (r.below(8) + r.below(8)) as f32 - 7.0;
            elements.extend_from_slice(&(scale * level).to_bits().to_le_bytes()[2..]);
        }
    }
    safetensors(&[("w", "BF16", &[128, 1024], &elements)])
}

#[test]
fn grids_are_listed() {
    let dir = Dir::new();
    let raw = dequantised();
    dir.write("m", &raw);
    dir.run(["compress", "m", "-o", "m.lmc"]).silent();
    assert!(10 * dir.read("m.lmc").len() < 3 * raw.len(), "{} of {}", dir.read("m.lmc").len(), raw.len());
    dir.run(["decompress", "-f", "m.lmc", "-o", "back"]).silent();
    assert_eq!(dir.read("back"), raw);
    let run = dir.run(["list", "m.lmc"]);
    let text = run.ok().stdout();
    assert!(text.contains("required features: grids") && text.contains("grid int4 1 × 64"), "{text}");
    let run = dir.run(["list", "--json", "-v", "m.lmc"]);
    let text = run.ok().stdout();
    assert!(
        text.contains(r#""grid":{"format":"int4","group":[1,64],"levels":15,"offsets":false,"row":64,"scales":2048}"#),
        "{text}"
    );
}

/// Q4_1 of GGUF.
#[test]
fn grids_with_offsets_are_listed() {
    let dir = Dir::new();
    let mut r = Random::new(6);
    let mut elements = Vec::new();
    for _ in 0..4096 {
        let (scale, offset) = (0.001 + r.below(1000) as f32 / 1e6, -0.02 - r.below(1000) as f32 / 1e6);
        for _ in 0..32 {
            let level = (r.below(9) + r.below(8)) as f32;
            let bits = (scale * level + offset).to_bits();
            // To nearest, ties to even.
            elements.extend_from_slice(&(bits + 0x7fff + (bits >> 16 & 1)).to_le_bytes()[2..]);
        }
    }
    let raw = safetensors(&[("w", "BF16", &[128, 1024], &elements)]);
    dir.write("m", &raw);
    dir.run(["compress", "m", "-o", "m.lmc"]).silent();
    dir.run(["decompress", "m.lmc", "-o", "back"]).silent();
    assert_eq!(dir.read("back"), raw);
    assert!(100 * dir.read("m.lmc").len() < 35 * raw.len(), "{}", dir.read("m.lmc").len());
    let run = dir.run(["list", "m.lmc"]);
    assert!(run.ok().stdout().contains("grid uint4 with offsets 1 × 32"), "{}", run.stdout());
    let run = dir.run(["list", "--json", "-v", "m.lmc"]);
    assert!(run.ok().stdout().contains(r#""offsets":true"#), "{}", run.stdout());
}
