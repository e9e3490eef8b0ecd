//! `lmc analyze`.

use crate::support::{Dir, Run, model, safetensors, weights};
use serde_json::{Value, json};

/// Runs `lmc analyze`.
fn run(dir: &Dir, args: &[&str]) -> Run {
    Run(dir.command(["analyze"].iter().chain(args)).output().unwrap())
}

/// The object that `lmc analyze --json` prints.
fn study(dir: &Dir, args: &[&str]) -> Value {
    let run = run(dir, &[&["--json", "-T", "2"], args].concat());
    // Tensors of dtypes that lmc lacks are named.
    let says = |line: &str| line.contains(": not shown: tensor ");
    assert!(run.ok().stderr().lines().all(says), "{run:?}");
    let [object] = &run.json()[..] else { panic!("{run:?}") };
    object.clone()
}

fn file(w: &[u8]) -> Vec<u8> {
    safetensors(&[("model.w", "BF16", &[1000, 100], w), ("model.norm.weight", "F32", &[4], &[0; 16])])
}

/// The elements with the lowest bit of every tenth flipped, from a number on.
fn moved(elements: &[u8], from: usize) -> Vec<u8> {
    let mut new = elements.to_vec();
    new.chunks_mut(2).skip(from).step_by(10).for_each(|e| e[0] ^= 1);
    new
}

/// Three steps of a run, in files, in directories, compressed, and in a store.
fn run_of_three() -> Dir {
    let dir = Dir::new();
    let w = weights(100_000, 1);
    let mut last = w;
    for step in [100, 101, 104] {
        last = moved(&last, step % 10);
        let name = format!("step{step}.safetensors");
        dir.write(&name, &file(&last));
        dir.write(&format!("run/step{step}/model.safetensors"), &file(&last));
        dir.write(&format!("run/step{step}/config.json"), b"{}");
        dir.run(["compress", "-q", &name]).silent();
        dir.run(["snapshot", "save", "-q", "store", &name, "--step", &step.to_string()]).silent();
    }
    dir
}

#[test]
fn the_page_of_fields_names_all() {
    let dir = Dir::new();
    let page = include_str!("../../../../docs/json.md");
    let (_, section) = page.split_once("## `lmc analyze`").unwrap();
    let words: Vec<&str> = section.split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).collect();
    dir.write("x.safetensors", &file(&weights(100_000, 1)));
    let found = study(&dir, &["x.safetensors"]);
    let of_tensor = found["tensors"][0].as_object().unwrap();
    for field in found.as_object().unwrap().keys().chain(of_tensor.keys()) {
        assert!(words.contains(&&field[..]), "{field}");
    }
}

#[test]
fn files_directories_and_stores_are_the_same() {
    let dir = run_of_three();
    let files = study(&dir, &["step100.safetensors", "step101.safetensors", "step104.safetensors"]);
    let steps = |v: &Value| v["checkpoints"].as_array().unwrap().iter().map(|c| c["step"].clone()).collect::<Vec<_>>();
    assert_eq!(steps(&files), [100, 101, 104]);
    assert_eq!(files["checkpoints"][0]["name"], "step100.safetensors");
    let w = &files["tensors"][0];
    assert_eq!((&w["name"], &w["kind"], &w["dtype"]), (&json!("model.w"), &json!("weights"), &json!("BF16")));
    let flips: Vec<u64> = w["change"]["flips"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((flips[0], flips[1..].iter().sum::<u64>()), (20_000, 0));
    assert_eq!(w["course"]["changed"], json!([0.1, 0.1]));
    assert_eq!(
        files["distances"].as_array().unwrap().iter().map(|d| d["steps"].clone()).collect::<Vec<_>>(),
        [1, 3, 4]
    );
    let same = |other: &Value| {
        // The whole delta has the base's name, which is not always as long.
        for field in ["changes", "tensors", "advice"] {
            assert_eq!(other[field], files[field], "{field}");
        }
        for i in 0..3 {
            assert_eq!(other["deltas"][i]["groups"], files["deltas"][i]["groups"], "delta {i}");
        }
        assert_eq!(steps(other), steps(&files));
    };
    assert_eq!((&files["steps_from"], &study(&dir, &["store"])["steps_from"]), (&json!("names"), &json!("store")));
    same(&study(&dir, &["run/step100", "run/step101", "run/step104"]));
    same(&study(&dir, &["step100.safetensors.lmc", "step101.safetensors.lmc", "step104.safetensors.lmc"]));
    same(&study(&dir, &["store"]));
    let every = study(&dir, &["store", "--every", "3"]);
    assert_eq!(steps(&every), [100, 104], "and the last one");
    let chosen = study(&dir, &["store", "--distances", "0"]);
    let steps: Vec<_> = chosen["distances"].as_array().unwrap().iter().map(|d| d["steps"].clone()).collect();
    assert_eq!(steps, [1, 3]);
}

#[test]
fn a_page_is_written_or_nothing_is() {
    let dir = run_of_three();
    let both = ["analyze", "step100.safetensors", "step101.safetensors", "--html", "page.html"];
    let shown = dir.run(both);
    assert!(shown.ok().stdout().contains("of the size over 1 step (1 delta)"), "{shown:?}");
    let page = dir.read("page.html");
    assert!(page.starts_with(b"<!DOCTYPE html>") && page.ends_with(b"</html>\n"));
    dir.run(both).fails(&["page.html: exists; -f overwrites it"]);
    run(&dir, &[&both[1..], &["-f", "--json"]].concat()).ok();
    assert_eq!(dir.read("page.html"), page, "the same for the same files");
    let shown = dir.run(["analyze", "step100.safetensors", "step101.safetensors", "--html", "-"]);
    assert_eq!(shown.ok().stdout().as_bytes(), page);
    dir.run(["analyze", "step100.safetensors", "--html", "step100.safetensors", "-f"])
        .is_misused(&["is the input file"]);
    dir.run(["analyze", "store", "--html", "store/page.html"]).is_misused(&["is in the store"]);
    dir.run(["analyze", "step100.safetensors", "--html", "-", "--json"]).is_misused(&["both the page and --json"]);
    let cut = dir.read("step101.safetensors");
    dir.write("cut.safetensors", &cut[..cut.len() - 1]);
    dir.run(["analyze", "step100.safetensors", "cut.safetensors", "--html", "no.html"])
        .fails(&["cut.safetensors: it has 200175 bytes"]);
    assert!(!dir.path("no.html").exists());
}

#[test]
fn other_compressors_on_a_sample() {
    let dir = run_of_three();
    let args = ["step100.safetensors", "step101.safetensors", "--engines", "zstd-1,zstd-3"];
    let e = study(&dir, &args)["engines"].clone();
    assert_eq!((&e["of"], &e["pieces"]), (&json!("BF16 elements of step101.safetensors"), &json!(1)));
    let rows: Vec<_> = e["engines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| format!("{} {} {}", r["name"], r["order"], r["given"]))
        .collect();
    assert_eq!(rows.len(), 2 + 2 * 4, "{rows:?}");
    assert_eq!(rows[0].replace('"', ""), "lmc default as is nothing");
    for row in e["engines"].as_array().unwrap() {
        assert_eq!(row["raw_size"], e["sample_size"]);
        assert!(row["size"].as_u64().unwrap() > 0 && row["compress_of_memcpy"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(e["xor_by"], "zstd 1");
    let [d] = &e["distances"].as_array().unwrap()[..] else { panic!("{e}") };
    assert_eq!((&d["steps"], &d["deltas"], &d["raw_size"]), (&json!(1), &json!(1), &e["sample_size"]));
    // The sample is that of the table.
    let size = |order: &str, given: &str, name: &str| {
        let mut rows = e["engines"].as_array().unwrap().iter();
        rows.find(|r| r["order"] == order && r["given"] == given && r["name"] == name).unwrap()["size"].clone()
    };
    assert_eq!(d["xor_size"], size("as is", "xor", "zstd 1"));
    assert_eq!(d["xor_grouped_size"], size("grouped", "xor", "zstd 1"));
    assert_eq!(d["lmc_size"], size("as is", "base", "lmc default"));
    // One element in ten moved up or down by one value: 0.569 bits each. That it is every tenth is more than H knows.
    assert!((7000..7250).contains(&d["entropy_size"].as_u64().unwrap()), "{d}");
    let args = ["step100.safetensors", "step101.safetensors", "step104.safetensors", "--engines", "zstd-3"];
    let e = study(&dir, &args)["engines"].clone();
    let steps: Vec<_> = e["distances"].as_array().unwrap().iter().map(|d| d["steps"].clone()).collect();
    assert_eq!((&e["xor_by"], &steps[..]), (&json!("zstd 3"), &[json!(1), json!(3), json!(4)][..]));
    let alone = study(&dir, &["step100.safetensors", "--engines", "all"]);
    assert_eq!(alone["engines"]["distances"], json!([]));
    assert_eq!(alone["engines"]["engines"].as_array().unwrap().len(), 1 + 3 * 2);
    dir.run(["analyze", "step100.safetensors", "--engines", "zip"]).is_misused(&["unknown engine \"zip\""]);
}

/// Snapshots have metadata, and `Trainer` writes a log beside its checkpoints.
#[test]
fn metrics_of_snapshots_and_of_trainers() {
    let dir = run_of_three();
    for (step, loss) in [(100, "2.5"), (101, "2.25")] {
        let (file, step) = (format!("step{step}.safetensors"), step.to_string());
        let meta = [format!("loss={loss}"), "run=a".to_owned()];
        dir.run(["snapshot", "save", "with-loss", &file, "--step", &step, "--meta", &meta[0], "--meta", &meta[1]]).ok();
    }
    let a = study(&dir, &["with-loss"]);
    assert_eq!(a["metrics"], json!([{"name": "loss", "points": [[100, 2.5], [101, 2.25]], "spikes": []}]));
    assert_eq!(a["checkpoints"][1]["metadata"], json!({"loss": "2.25", "run": "a"}));

    for step in [100, 101] {
        let to = format!("hf/checkpoint-{step}");
        std::fs::create_dir_all(dir.path(&to)).unwrap();
        std::fs::copy(dir.path(format!("step{step}.safetensors")), dir.path(format!("{to}/model.safetensors")))
            .unwrap();
    }
    let log = r#"{"log_history": [{"step": 50, "loss": 3.5, "epoch": 0.5}, {"step": 100, "loss": 3.25, "text": "no number"},
                  {"loss": 7.0}, 3, {"step": 101, "eval_loss": 3}]}"#;
    dir.write("hf/checkpoint-101/trainer_state.json", log.as_bytes());
    let metrics = study(&dir, &["hf"])["metrics"].clone();
    let expected = json!([["epoch", [[50, 0.5]]], ["eval_loss", [[101, 3.0]]], ["loss", [[50, 3.5], [100, 3.25]]]]);
    let found: Vec<_> = metrics.as_array().unwrap().iter().map(|m| json!([m["name"], m["points"]])).collect();
    assert_eq!(json!(found), expected);
    // One that is no log is none.
    dir.write("hf/checkpoint-101/trainer_state.json", b"{");
    assert_eq!(study(&dir, &["hf"])["metrics"], json!([]));
}

#[test]
fn each_file_of_a_directory_counts_once() {
    let dir = Dir::new();
    let (a, b) = (weights(1000, 1), weights(2000, 2));
    let (one, two) = (safetensors(&[("a", "BF16", &[1000], &a)]), safetensors(&[("b", "BF16", &[2000], &b)]));
    let index = json!({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).to_string();
    dir.write("m/model-1.safetensors", &one);
    dir.write("m/deep/model-2.safetensors", &two);
    dir.write("m/model.safetensors.index.json", index.as_bytes());
    dir.run(["compress", "-q", "m/model-1.safetensors"]).silent();
    dir.write("m/.git/lfs/objects/12/34/1234", &one);
    std::fs::hard_link(dir.path("m/model-1.safetensors"), dir.path("m/same.safetensors")).unwrap();
    std::os::unix::fs::symlink("deep/model-2.safetensors", dir.path("m/link.safetensors")).unwrap();
    let c = study(&dir, &["m"])["checkpoints"][0].clone();
    assert_eq!(c["all"]["raw_size"], (one.len() + two.len()) as u64, "{c}");
    assert_eq!(c["files"], json!(["deep/model-2.safetensors", "model-1.safetensors"]));
    dir.write("m/deep/model-2.safetensors", &two[..two.len() - 1]);
    dir.run(["analyze", "m"]).fails(&["m/deep/model-2.safetensors: it has"]);
    // An index as an argument names its files, in its directory.
    dir.write("m/model-2.safetensors", &two);
    let c = study(&dir, &["m/model.safetensors.index.json"])["checkpoints"][0].clone();
    assert_eq!(c["all"]["raw_size"], (one.len() + two.len()) as u64, "{c}");
}

/// The tensors of every format, and an element of one of them that changes.
#[test]
fn every_layout_is_studied() {
    let dir = Dir::new();
    for (name, layout, tensors) in [
        ("types.gguf", "gguf", &["plain.f32 F32 [2,3]", "plain.f16 F16 [5]", "quantised.bf16 BF16 [2,64]"][..]),
        ("arrays.npz", "npz", &["weight F32 [3,4]", "deep/bias F16 [5]", "columns F64 [3,2]", "scalar I64 []"]),
        ("model.onnx", "onnx", &["weight F32 [4,3]", "half F16 [4]", "bf16 BF16 [2,4]", "int4 INT4 [6]"]),
        ("torch/module.pt", "torch", &["b I64 [4]", "a.weight F32 [2,3]", "a.bias F32 [2]"]),
        ("torch/dcp/__0_0.distcp", "distcp", &["1 F32 [3,4]", "2 I64 [3]"]),
    ] {
        let old = std::fs::read(format!("{}/../../testdata/layouts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let base = lmc::Base::new(&old[..]).unwrap();
        let moved = base.segments().iter().find(|s| s.name.is_some() && s.dtype == Some(lmc::Dtype::F32)).unwrap();
        let mut new = old.clone();
        new[moved.offset as usize + 4] ^= 1;
        let suffix = name.rsplit('.').next().unwrap();
        let names = [1, 2].map(|step| format!("step{step}.{suffix}"));
        dir.write(&names[0], &old);
        dir.write(&names[1], &new);
        let a = study(&dir, &[&names[0], &names[1]]);
        assert_eq!(a["checkpoints"][1]["formats"], json!([layout]), "{name}");
        let listed = a["tensors"].as_array().unwrap();
        let text =
            |t: &Value| format!("{} {} {}", t["name"].as_str().unwrap(), t["dtype"].as_str().unwrap(), t["shape"]);
        for wanted in tensors {
            assert!(listed.iter().any(|t| text(t) == *wanted), "{name}: {wanted} in {listed:?}");
        }
        let raw: u64 = base.segments().iter().filter(|s| s.name.is_some()).map(|s| s.len).sum();
        assert_eq!(listed.iter().map(|t| t["raw_size"].as_u64().unwrap()).sum::<u64>(), raw, "{name}");
        for t in listed.iter().filter(|t| t["raw_size"] != 0) {
            let changed = u64::from(t["name"].as_str() == moved.name.as_deref());
            assert_eq!(t["change"]["changed"], changed, "{name}: {t}");
        }
    }
}

/// Ranks write chunks of tensors, by numbers: each of them is a tensor by itself.
#[test]
fn chunks_of_distcp_count_singly() {
    let dir = Dir::new();
    let folder = format!("{}/../../testdata/layouts/dcp/fsdp", env!("CARGO_MANIFEST_DIR"));
    let mut tensors = 0;
    for name in ["__0_0.distcp", "__1_0.distcp", ".metadata"] {
        let file = std::fs::read(format!("{folder}/{name}")).unwrap();
        if name != ".metadata" {
            let base = lmc::Base::new(&file[..]).unwrap();
            tensors += base.segments().iter().filter(|s| s.name.is_some()).count();
        }
        dir.write(&format!("step1/{name}"), &file);
        dir.write(&format!("step2/{name}"), &file);
    }
    let a = study(&dir, &["step1", "step2"]);
    assert!(tensors > 2);
    assert_eq!(a["tensors"].as_array().unwrap().len(), tensors);
    let c = &a["checkpoints"][0];
    assert_eq!((&c["files"], &c["all"]["tensors"]), (&json!(["__0_0.distcp", "__1_0.distcp"]), &json!(tensors)));
    assert_eq!(a["pairs"][0]["all"]["unchanged_tensors"], tensors);
    // A file of an earlier save by more ranks.
    dir.write("step2/__2_0.distcp", &dir.read("step2/__1_0.distcp"));
    assert_eq!(study(&dir, &["step1", "step2"]), a);
    std::fs::remove_file(dir.path("step2/__1_0.distcp")).unwrap();
    dir.run(["analyze", "step2"]).fails(&["__1_0.distcp", "is missing"]);
}

/// Directories with metadata are steps, if their names are numbers.
#[test]
fn numbers_of_distributed_checkpoints_are_steps() {
    let dir = Dir::new();
    let folder = format!("{}/../../testdata/layouts/dcp/named", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (name, file) = (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
        for step in [1, 2] {
            dir.write(&format!("run/{step}/{name}"), &file);
        }
    }
    let a = study(&dir, &["run"]);
    let c = a["checkpoints"].as_array().unwrap();
    assert_eq!((c.len(), &c[0]["name"], &c[1]["step"]), (2, &json!("run/1"), &json!(2)), "{c:?}");
    assert_eq!(study(&dir, &["run/1", "run/2"]), a);
    // Of two that are no steps, neither is a part of the other.
    std::fs::rename(dir.path("run/1"), dir.path("run/best")).unwrap();
    dir.run(["analyze", "run"]).is_misused(&["run: has several checkpoints, such as run/best and run/2"]);
}

#[test]
fn steps_in_one_directory_are_checkpoints() {
    let dir = run_of_three();
    let expected = study(&dir, &["run/step100", "run/step101", "run/step104"]);
    assert_eq!(study(&dir, &["run"]), expected);
    for (i, step) in [100, 101, 104].into_iter().enumerate() {
        let file = dir.read(&format!("step{step}.safetensors"));
        dir.write(&format!("flat/step{step}.safetensors"), &file);
        dir.write(&format!("flat/metrics-step{step}.json"), b"{}");
        for rank in [0, 1] {
            dir.write(&format!("ranks/deep/step{step}-rank{rank}.safetensors"), &file);
        }
        // A step in the name of a step's directory, and one checkpoint alone.
        dir.write(&format!("nested/checkpoint-{step}/global_step{step}/optim.safetensors"), &file);
        dir.write(&format!("nested/checkpoint-{step}/model.safetensors"), &file);
        dir.write(&format!("shards/model-{i}-of-3.safetensors"), &file);
    }
    let of = |a: &Value, field: &str| {
        a["checkpoints"].as_array().unwrap().iter().map(|c| c[field].clone()).collect::<Vec<_>>()
    };
    let flat = study(&dir, &["flat"]);
    assert_eq!(of(&flat, "name"), ["flat/step100.safetensors", "flat/step101.safetensors", "flat/step104.safetensors"]);
    for field in ["tensors", "changes", "advice"] {
        assert_eq!(flat[field], expected[field], "{field}");
    }
    dir.run(["analyze", "ranks"])
        .is_misused(&["step 100 has ranks/deep/step100-rank0.safetensors and", "a directory of its own"]);
    let nested = study(&dir, &["nested"]);
    assert_eq!(
        (of(&nested, "step"), of(&nested, "files")[0].as_array().unwrap().len()),
        (vec![json!(100), json!(101), json!(104)], 2)
    );
    assert_eq!(study(&dir, &["nested/checkpoint-100"])["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(study(&dir, &["shards"])["checkpoints"].as_array().unwrap().len(), 1);
    // Files of no step, and steps of two runs.
    dir.write("run/final/model.safetensors", &dir.read("step104.safetensors"));
    let shown = run(&dir, &["--json", "run"]);
    assert!(shown.ok().stderr().contains("run: 3 steps are studied, without run/final/model.safetensors, of no step"));
    assert_eq!(shown.json()[0], expected);
    dir.write("two/run/step100/m.safetensors", &dir.read("step100.safetensors"));
    dir.write("two/run/step101/m.safetensors", &dir.read("step101.safetensors"));
    dir.write("two/other/step100/m.safetensors", &dir.read("step100.safetensors"));
    dir.run(["analyze", "two"])
        .is_misused(&["two: step 100 is in two/other/step100 and in two/run/step100: name the checkpoints of one run"]);
}

#[test]
fn deltas_without_their_bases() {
    let dir = run_of_three();
    let (old, new) = ("step100.safetensors", "step101.safetensors");
    let delta = ["compress", "-q", "-f", new, "--base", old, "-o", "deltas/model.lmc"];
    std::fs::create_dir(dir.path("deltas")).unwrap();
    dir.run(delta).silent();
    dir.run(["analyze", "deltas/model.lmc"])
        .is_misused(&["model.lmc: is a delta, made from step100.safetensors", "name that"]);
    let shown = run(&dir, &["deltas"]);
    assert_eq!(shown.0.status.code(), Some(2), "{shown:?}");
    assert!(shown.stderr().contains("deltas: has no files with tensors"), "{shown:?}");
    let after = study(&dir, &[old, "deltas"]);
    assert_eq!(after["pairs"][0]["all"]["changed"], 10_000);
    dir.write("deltas/whole.safetensors", &dir.read(new));
    let shown = run(&dir, &["--json", "deltas"]);
    assert!(shown.ok().stderr().contains("left out: it is a delta, made from step100.safetensors"), "{shown:?}");
    assert_eq!(shown.json()[0]["checkpoints"][0]["files"], json!(["whole.safetensors"]));
}

/// Ranks write tensors of the same names.
#[test]
fn files_of_ranks_are_compared_with_their_own() {
    let dir = Dir::new();
    for rank in 0..4 {
        let w = weights(100_000, 1 + rank);
        for step in [100, 200] {
            dir.write(&format!("step{step}/rank{rank}.safetensors"), &file(&moved(&w, step / 100)));
        }
        // A file that is compressed is the same.
        if rank % 2 == 0 {
            dir.run(["compress", "-q", "--rm", &format!("step200/rank{rank}.safetensors")]).silent();
        }
    }
    let a = study(&dir, &["step100", "step200"]);
    let ws: Vec<_> = a["tensors"].as_array().unwrap().iter().filter(|t| t["name"] == "model.w").collect();
    assert_eq!(ws.len(), 4);
    for w in ws {
        assert_eq!((&w["change"]["compared"], &w["change"]["changed"]), (&json!(100_000), &json!(20_000)), "{w}");
    }
}

#[test]
fn steps_that_are_not_known_are_places() {
    let dir = Dir::new();
    let w = weights(100_000, 1);
    let names = ["2026-01-31.safetensors", "2026-02-01.safetensors"];
    names.iter().zip([0, 1]).for_each(|(name, i)| _ = dir.write(name, &file(&moved(&w, i))));
    let a = study(&dir, &names);
    assert_eq!((&a["steps_from"], &a["checkpoints"][1]["step"]), (&json!("places"), &json!(1)));
    let shown = run(&dir, &[&names[..], &["--distances", "5"]].concat());
    assert!(shown.ok().stdout().contains("of the size over 1 checkpoint (1 delta)"), "{shown:?}");
    assert!(shown.stdout().contains("distance in checkpoints") && !shown.stdout().contains("step"), "{shown:?}");
    assert!(shown.stderr().contains("is so many checkpoints apart"), "{shown:?}");
}

#[test]
fn mistakes_are_told_before_the_work() {
    let dir = run_of_three();
    let (a, b, c) = ("step100.safetensors", "step101.safetensors", "step104.safetensors");
    dir.run(["analyze", "missing", "--engines", "zstd-1,zip"]).is_misused(&["unknown engine \"zip\""]);
    dir.run(["analyze", a, "--html", "/dev/stdout", "--json"]).is_misused(&["both the page and --json"]);
    dir.run(["analyze", a, c, b]).is_misused(&["step104.safetensors is named before step101.safetensors"]);
    let shown = run(&dir, &["--json", a, b, c, "--distances", "0,3,2"]);
    assert_eq!(
        shown.ok().stderr(),
        "lmc: --distances 2: no pair of checkpoints to be compared is so many steps apart\n"
    );
    assert_eq!(
        study(&dir, &[a, "--engines", "zstd-1", "--level", "fast"])["engines"]["engines"][0]["name"],
        "lmc fast"
    );
}

#[test]
fn what_cannot_be_studied() {
    let dir = Dir::new();
    dir.write("model.safetensors", &model());
    dir.write("empty.safetensors", b"");
    dir.write("notes.txt", b"nothing but text");
    dir.write("texts/notes.txt", b"nothing but text");
    dir.run(["analyze", "empty.safetensors"]).fails(&["empty.safetensors: it is empty: fetch or write it again\n"]);
    dir.run(["analyze", "model.safetensors", "notes.txt"]).is_misused(&["notes.txt: lmc finds no tensors in it"]);
    dir.write("none.safetensors", &safetensors(&[]));
    dir.run(["analyze", "none.safetensors"]).is_misused(&["none.safetensors: it has no tensors"]);
    std::fs::create_dir(dir.path("empty")).unwrap();
    dir.run(["analyze", "empty"]).is_misused(&["empty: has no files with tensors, and is no store"]);
    dir.run(["analyze", "texts"]).is_misused(&["texts: has no files with tensors, and is no store"]);
    dir.run(["analyze", "missing"]).fails(&["missing: cannot read"]);
    dir.run(["analyze", "model.safetensors", "--every", "2"]).is_misused(&["--every is for the snapshots of a store"]);
    dir.run(["analyze", "-"]).is_misused(&["not standard input"]);
    dir.run(["compress", "-q", "model.safetensors"]).silent();
    let mut damaged = dir.read("model.safetensors.lmc");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    dir.write("damaged.lmc", &damaged);
    dir.run(["analyze", "model.safetensors", "damaged.lmc"]).fails(&["damaged.lmc: "]);
}

#[test]
fn stores_that_cannot_be_studied() {
    let dir = Dir::new();
    dir.write("model.safetensors", &model());
    dir.run(["snapshot", "save", "-q", "store", "model.safetensors", "--step", "1"]).silent();
    dir.run(["snapshot", "export", "-q", "store", "run.tar"]).silent();
    let imported = ["run.tar: is an archive of a store", "lmc snapshot copy ARCHIVE STORE"];
    dir.run(["analyze", "run.tar"]).is_misused(&imported);
    dir.run(["analyze", "model.safetensors", "run.tar"]).is_misused(&imported);
    dir.run(["snapshot", "copy", "-q", "run.tar", "imported"]).silent();
    assert_eq!(study(&dir, &["imported"])["checkpoints"], study(&dir, &["store"])["checkpoints"]);
    // It has the marker of a store, and nothing else.
    dir.write("none/lmc-store.json", &dir.read("store/lmc-store.json"));
    dir.run(["analyze", "none"]).is_misused(&["none: the store has no snapshots"]);
}

#[test]
fn names_in_the_short_report_do_nothing() {
    let dir = Dir::new();
    dir.write("a.safetensors", &safetensors(&[("lm_head\u{1b}[2J", "F32", &[2], &[0; 8])]));
    let shown = dir.run(["analyze", "a.safetensors"]);
    assert!(!shown.ok().stdout().contains('\u{1b}'), "{shown:?}");
}
