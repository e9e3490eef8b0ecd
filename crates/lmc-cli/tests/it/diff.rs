//! `lmc diff`.

use crate::support::{Dir, model, noise, safetensors, weights};
use serde_json::{Value, json};

/// The object that `lmc diff --json` prints.
fn diff(dir: &Dir, old: &str, new: &str) -> Value {
    let run = dir.run(["diff", "--json", "-T", "2", old, new]);
    // A file that ends early is said to.
    if new == "cut" {
        assert!(run.stderr().contains("cut: it may have more tensors than are shown: it has 100000 bytes"), "{run:?}");
    } else {
        run.silent();
    }
    let [object] = &run.json()[..] else { panic!("{run:?}") };
    object.clone()
}

fn segment<'v>(diff: &'v Value, name: &str) -> &'v Value {
    let all = diff["segments"].as_array().unwrap();
    all.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("{name}: {diff}"))
}

/// bf16 elements with every seventh moved by `step` values.
fn moved(elements: &[u8], step: u16) -> Vec<u8> {
    let each = elements.chunks(2).map(|e| u16::from_le_bytes([e[0], e[1]])).enumerate();
    each.flat_map(|(i, e)| if i % 7 == 0 { e.wrapping_add(step) } else { e }.to_le_bytes()).collect()
}

#[test]
fn identical_files() {
    let dir = Dir::new();
    dir.write("old", &model());
    dir.write("new", &model());
    let d = diff(&dir, "old", "new");
    assert_eq!((&d["total"]["changed"], &d["total"]["compared"]), (&json!(0), &json!(96_097)));
    assert_eq!(d["total"]["states"], json!({ "same": 3 }));
    assert_eq!((&d["missing"], &segment(&d, "steps")["compared"]), (&json!([]), &json!(1)), "however small");
    assert!(d["segments"].as_array().unwrap().iter().all(|s| s["distance"].is_null() && s["changed"] == 0));
    assert!(segment(&d, "embed.weight")["delta_bits"].as_f64().unwrap() < 0.1);
    assert_eq!(diff(&dir, "old", "old")["total"], d["total"]);
}

#[test]
fn bases_beside_a_delta_are_found() {
    let dir = Dir::new();
    let old = weights(50_000, 1);
    let file = |w: &[u8]| safetensors(&[("a", "BF16", &[50_000], w)]);
    for (name, bytes) in [("old", file(&old)), ("new", file(&moved(&old, 1))), ("newer", file(&moved(&old, 2)))] {
        dir.write(name, &bytes);
    }
    std::fs::create_dir(dir.path("d")).unwrap();
    dir.run(["-q", "compress", "new", "--base", "old", "-o", "d/new.lmc"]).silent();
    dir.run(["-q", "compress", "newer", "--base", "new", "-o", "d/newer.lmc"]).silent();
    let expected = diff(&dir, "new", "newer")["total"]["dtypes"].clone();
    dir.run(["diff", "d/new.lmc", "d/newer.lmc"]).fails(&["is a delta itself, made from old"]);
    dir.run(["-q", "compress", "old", "-o", "d/x.lmc"]).silent();
    assert_eq!(diff(&dir, "d/new.lmc", "d/newer.lmc")["total"]["dtypes"], expected);
}

#[test]
fn sizes_are_those_of_compression() {
    let dir = Dir::new();
    let old = weights(900_000, 1);
    let tail = noise(4000, 3);
    let file = |w: &[u8]| safetensors(&[("a", "BF16", &[1000, 900], w), ("b", "F32", &[1000], &tail)]);
    dir.write("old", &file(&old));
    dir.write("new", &file(&moved(&old, 1)));
    for level in ["fast", "default"] {
        dir.run(["compress", "-l", level, "--base", "old", "new", "-o", "delta.lmc"]).silent();
        dir.run(["compress", "-l", level, "new", "-o", "alone.lmc"]).silent();
        for threads in ["1", "3"] {
            let run = dir.run(["diff", "--json", "-l", level, "-T", threads, "old", "new"]);
            let d = &run.json()[0];
            assert_eq!(d["total"]["delta_size"], dir.read("delta.lmc").len());
            assert_eq!(d["total"]["alone_size"], dir.read("alone.lmc").len());
            assert_eq!(segment(d, "a")["predictor"], "ulp");
        }
        for name in ["delta.lmc", "alone.lmc"] {
            std::fs::remove_file(dir.path(name)).unwrap();
        }
    }
}

/// The sizes of tensors that share a block are those that `lmc list` has for the same files.
#[test]
fn shares_of_a_block_are_those_of_list() {
    let dir = Dir::new();
    let still = weights(30_000, 2);
    let file = |seed: u64| {
        safetensors(&[
            ("dense", "U8", &[40_000], &noise(40_000, seed)),
            ("still", "BF16", &[30_000], &still),
            ("zeros", "F32", &[20_000], &[0; 80_000]),
        ])
    };
    dir.write("old", &file(3));
    dir.write("new", &file(4));
    dir.run(["compress", "--base", "old", "new", "-o", "delta.lmc"]).silent();
    dir.run(["compress", "new", "-o", "alone.lmc"]).silent();
    let d = diff(&dir, "old", "new");
    for (name, size) in [("delta.lmc", "delta_size"), ("alone.lmc", "alone_size")] {
        let listed = &dir.run(["list", "--json", name]).json()[0];
        assert!(listed["blocks"].as_u64().unwrap() < 4, "tensors share blocks: {listed}");
        let sizes = |segments: &Value, field: &str| {
            segments.as_array().unwrap().iter().map(|s| s[field].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&d["segments"], size), sizes(&listed["segments"], "compressed_size"), "{name}");
    }
    assert!(segment(&d, "dense")["alone_size"].as_u64().unwrap() > 39_000, "{d}");
    assert!(segment(&d, "zeros")["alone_size"].as_u64().unwrap() < 1000, "{d}");
}

/// Small tensors that are predicted together: what did not change takes nothing of what others take.
#[test]
fn one_of_many_small_tensors_changes() {
    let dir = Dir::new();
    let names: Vec<String> = (0..104).map(|i| format!("layers.{i}.norm")).collect();
    let each: Vec<Vec<u8>> = (0..104).map(|i| weights(2000, 1 + i)).collect();
    let file = |of: &dyn Fn(usize) -> Vec<u8>| {
        let contents: Vec<Vec<u8>> = (0..104).map(of).collect();
        let tensors: Vec<_> = names
            .iter()
            .zip(&contents)
            .map(|(n, w)| (&n[..], "BF16", &[2000_u64][..], &w[..]))
            .chain([("empty", "F32", &[0, 4][..], &[][..])])
            .collect();
        safetensors(&tensors)
    };
    dir.write("step1", &file(&|i| each[i].clone()));
    dir.write("step2", &file(&|i| if i == 40 { moved(&each[i], 3) } else { each[i].clone() }));
    let d = diff(&dir, "step1", "step2");
    assert_eq!(d["total"]["states"], json!({ "changed": 1, "same": 104 }), "one has no elements");
    let size = |s: &Value, of: &str| s[of].as_u64().unwrap();
    let (changed, same) = (segment(&d, "layers.40.norm"), segment(&d, "layers.41.norm"));
    assert_eq!((&changed["state"], &changed["changed"]), (&json!("changed"), &json!(286)));
    assert!(size(changed, "delta_size") > 100 && size(same, "delta_size") == 0, "{changed} {same}");
    assert!(size(same, "alone_size") > 2000, "{same}");
    let all = d["segments"].as_array().unwrap().iter().map(|s| size(s, "delta_size")).sum::<u64>();
    assert!((size(changed, "delta_size")..size(&d["total"], "delta_size")).contains(&all), "{all}");
    let a = &dir.run(["analyze", "--json", "step1", "step2"]).json()[0];
    let tensors = a["tensors"].as_array().unwrap();
    for s in d["segments"].as_array().unwrap().iter().filter(|s| s["name"] != "empty" && !s["name"].is_null()) {
        let t = tensors.iter().find(|t| t["name"] == s["name"]).unwrap();
        assert_eq!(t["change"]["delta_size"], s["delta_size"], "{t} {s}");
    }
    assert_eq!(a["pairs"][0]["all"]["unchanged_tensors"], 104);
}

#[test]
fn distances_are_told_for_each_dtype() {
    let dir = Dir::new();
    let (w, m) = (weights(6000, 1), noise(24_000, 2));
    let file = |w: &[u8], m: &[u8]| safetensors(&[("w", "BF16", &[6000], w), ("m", "I32", &[6000], m)]);
    let far: Vec<u8> = m.chunks(4).flat_map(|e| [e[0], e[1], e[2] ^ 1, e[3]]).collect();
    dir.write("old", &file(&w, &m));
    dir.write("new", &file(&moved(&w, 1), &far));
    let d = diff(&dir, "old", "new");
    let dtypes = d["total"]["dtypes"].as_array().unwrap();
    let of = |name: &str| dtypes.iter().find(|t| t["dtype"] == name).unwrap();
    assert_eq!((&of("BF16")["distance"]["max"], &of("I32")["distance"]["median"]), (&json!(1), &json!(16)));
    assert_eq!((&of("I32")["changed"], &of("BF16")["elements"]), (&json!(6000), &json!(6000)));
    let text = dir.run(["diff", "old", "new"]).ok().stdout().to_owned();
    let line = |start: &str| text.lines().rfind(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
    assert!(
        line("BF16").contains("2^0") && line("I32").contains("2^16") && !line("changed: ").contains("2^"),
        "{text}"
    );
}

#[test]
fn one_element() {
    let dir = Dir::new();
    let (old, mut new) = (model(), model());
    let n = new.len();
    // An element of the embedding, in the middle, moves by four values; the counter at the end by one.
    new[(n / 2) & !1] ^= 4;
    new[n - 8] += 1;
    dir.write("old", &old);
    dir.write("new", &new);
    let d = diff(&dir, "old", "new");
    let (embed, steps) = (segment(&d, "embed.weight"), segment(&d, "steps"));
    assert_eq!((&embed["changed"], &embed["distance"]["max"]), (&json!(1), &json!(4)));
    assert_eq!(embed["distance"]["log2"], json!([0, 0, 1]));
    assert_eq!((&embed["distance"]["median"], &embed["distance"]["p99"]), (&json!(2), &json!(2)));
    assert_eq!((&steps["changed"], &steps["distance"]["log2"]), (&json!(1), &json!([1])));
    assert_eq!(d["total"]["changed"], 2);
}

#[test]
fn zeros_and_what_is_not_a_number() {
    let dir = Dir::new();
    let floats = |v: [f32; 32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (mut a, mut b) = ([1.0; 32], [1.0; 32]);
    (a[3], b[3]) = (0.0, -0.0);
    (a[4], b[4]) = (f32::NAN, f32::NAN);
    (a[5], b[5]) = (f32::INFINITY, f32::from_bits(0x7f80_0001));
    (a[6], b[6]) = (f32::NAN, 1.0);
    let file = |v| safetensors(&[("t", "F32", &[32], &floats(v))]);
    dir.write("old", &file(a));
    dir.write("new", &file(b));
    let d = diff(&dir, "old", "new");
    let t = segment(&d, "t");
    assert_eq!((&t["compared"], &t["changed"]), (&json!(32), &json!(3)), "the same NaN is the same");
    assert_eq!(t["distance"]["log2"][0], 2);
    assert_eq!(t["distance"]["max"], 0x7fc0_0000_u32 - 0x3f80_0000);
}

#[test]
fn states_of_tensors() {
    let dir = Dir::new();
    let [a, b, c, e] = [1, 2, 3, 4].map(|seed| weights(20_000, seed));
    let wide: Vec<u8> = e.chunks(2).flat_map(|e| [0, 0, e[0], e[1]]).collect();
    let old = safetensors(&[
        ("stays", "BF16", &[200, 100], &a),
        ("old.name", "BF16", &[100, 200], &b),
        ("grows", "BF16", &[200, 100], &c),
        ("flat", "BF16", &[20_000], &e),
        ("narrow", "F32", &[20_000], &wide),
        ("counts", "I32", &[100], &noise(400, 8)),
        ("gone", "U8", &[300], &noise(300, 9)),
    ]);
    let grown = [moved(&c, 3), weights(5000, 6)].concat();
    let new = safetensors(&[
        ("stays", "BF16", &[200, 100], &moved(&a, 1)),
        ("new.name", "BF16", &[100, 200], &moved(&b, 2)),
        ("grows", "BF16", &[250, 100], &grown),
        ("flat", "BF16", &[100, 200], &e),
        ("narrow", "BF16", &[20_000], &moved(&e, 1)),
        ("counts", "F32", &[100], &noise(400, 10)),
        ("added", "BF16", &[77, 100], &weights(7700, 5)),
    ]);
    dir.write("old", &old);
    dir.write("new", &new);
    let d = diff(&dir, "old", "new");
    let states = ["stays", "new.name", "grows", "flat", "narrow", "counts", "added"].map(|n| {
        let s = segment(&d, n);
        (s["state"].as_str().unwrap(), s["compared"].as_u64().unwrap(), s["changed"].as_u64().unwrap())
    });
    let sevenths = 20_000_u64.div_ceil(7);
    assert_eq!(states[0], ("changed", 20_000, sevenths));
    assert_eq!(states[1], ("renamed", 20_000, sevenths));
    assert_eq!(states[2], ("resized", 20_000, sevenths));
    assert_eq!(states[3], ("reshaped", 20_000, 0));
    assert_eq!(states[4], ("retyped", 20_000, sevenths));
    assert_eq!(states[5], ("retyped", 0, 0), "nothing converts integers to floats");
    assert_eq!(states[6], ("new", 0, 0));
    assert_eq!(segment(&d, "new.name")["old"]["name"], "old.name");
    assert_eq!(segment(&d, "new.name")["distance"]["log2"], json!([0, sevenths]));
    assert_eq!((&d["missing"].as_array().unwrap().len(), &d["missing"][0]["name"]), (&1, &json!("gone")));
    assert_eq!(d["total"]["elements"], 20_000 * 4 + 25_000 + 100 + 7700);

    let run = dir.run(["diff", "old", "new"]);
    run.silent();
    let text = run.stdout();
    for words in ["renamed, was old.name", "resized, was [200, 100]", "reshaped, was [20000]", "re-typed, was F32"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let line = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("gone").contains("missing") && line("added").contains(" new "), "{text}");
    assert!(line("tensors: ").ends_with("1 changed, 1 reshaped, 1 resized, 2 re-typed, 1 renamed, 1 new, 1 missing"));
    assert!(line("stays").contains("14.29 %") && line("stays").contains("2^0"), "{text}");
    assert!(text.lines().all(|l| l == l.trim_end()));
    let verbose = dir.run(["diff", "-v", "old", "new"]);
    assert!(verbose.stdout().contains('█') && verbose.stdout().len() > text.len(), "{verbose:?}");
}

#[test]
fn unrelated_files_and_other_data() {
    let dir = Dir::new();
    dir.write("old", &safetensors(&[("a", "BF16", &[5000], &weights(5000, 1))]));
    dir.write("new", &safetensors(&[("b", "BF16", &[5001], &weights(5001, 2))]));
    let d = diff(&dir, "old", "new");
    assert_eq!(d["total"]["states"], json!({ "missing": 1, "new": 1 }));
    assert_eq!((&d["total"]["compared"], &d["total"]["changed"]), (&json!(0), &json!(0)));

    let text = noise(3000, 1);
    dir.write("x", &text);
    dir.write("y", &[&text[..1000], b"!", &text[1001..2500]].concat());
    let d = diff(&dir, "x", "y");
    let [all] = &d["segments"].as_array().unwrap()[..] else { panic!("{d}") };
    assert_eq!((&all["name"], &all["compared"], &all["changed"]), (&Value::Null, &json!(2500), &json!(1)));
    assert!(dir.run(["diff", "x", "y"]).ok().stdout().contains("no tensors"));
    dir.write("empty", b"");
    assert_eq!(diff(&dir, "x", "empty")["segments"], json!([]));
    assert_eq!(diff(&dir, "empty", "x")["segments"][0]["state"], "new");
    // A model whose end is missing: the rest of the last tensor is not a tensor.
    dir.write("cut", &model()[..100_000]);
    dir.write("model", &model());
    assert_eq!(diff(&dir, "model", "cut")["total"]["raw_size"], 100_000);
}

#[test]
fn compressed_files_and_sets() {
    let dir = Dir::new();
    let old = weights(300_000, 1);
    let file = |name: &str, w: &[u8]| safetensors(&[(name, "BF16", &[300_000], w)]);
    dir.write("old", &file("w", &old));
    dir.write("new", &file("w", &moved(&old, 1)));
    let plain = diff(&dir, "old", "new");
    dir.run(["compress", "old"]).silent();
    dir.run(["compress", "--base", "old", "new"]).silent();
    // The delta's own base is OLD, in any form.
    for (a, b) in [("old.lmc", "new"), ("old", "new.lmc"), ("old.lmc", "new.lmc"), ("new.lmc", "old")] {
        let d = diff(&dir, a, b);
        assert_eq!(segment(&d, "w")["changed"], segment(&plain, "w")["changed"], "{a} {b}");
        if b.starts_with("new") {
            // The delta refers to its base by another name.
            assert_eq!(d["total"]["alone_size"], plain["total"]["alone_size"], "{a} {b}");
        }
    }
    // A delta of a third file.
    dir.write("newer", &file("w", &moved(&old, 2)));
    dir.run(["compress", "--base", "new", "newer"]).silent();
    std::fs::rename(dir.path("newer.lmc"), dir.write("moved/newer.lmc", b"")).unwrap();
    dir.run(["diff", "old", "moved/newer.lmc"]).fails(&["newer.lmc", "is a delta itself", "--base"]);
    let run = dir.run(["diff", "--json", "--base", "new", "old", "moved/newer.lmc"]);
    assert_eq!(segment(&run.json()[0], "w")["distance"]["max"], 2);
    // A set of files, and one that has all.
    dir.write("1", &file("a", &old));
    dir.write("2", &file("b", &weights(300_000, 9)));
    dir.write("set.index.json", br#"{"weight_map": {"a": "1", "b": "2"}}"#);
    let both =
        safetensors(&[("b", "BF16", &[300_000], &weights(300_000, 9)), ("a", "BF16", &[300_000], &moved(&old, 1))]);
    dir.write("both", &both);
    let d = diff(&dir, "set.index.json", "both");
    assert_eq!((&segment(&d, "b")["changed"], &segment(&d, "b")["old"]["file"]), (&json!(0), &json!("2")));
    let d = diff(&dir, "both", "set.index.json");
    assert_eq!((&segment(&d, "b")["file"], &d["total"]["states"]), (&json!("2"), &json!({ "changed": 1, "same": 1 })));
    assert_eq!(d["missing"], json!([]), "what one file lacks is in another");
}

#[test]
fn misuse() {
    let dir = Dir::new();
    dir.write("x", &model());
    dir.run(["diff", "x", "y"]).fails(&["y: cannot read", "no such file"]);
    dir.run(["diff", "y", "x"]).fails(&["y: cannot read", "no such file"]);
    dir.run(["diff", "-", "x"]).is_misused(&["standard input", "OLD"]);
    dir.run(["diff", "x", "-"]).is_misused(&["standard input", "NEW"]);
    dir.run(["diff", "x", "."]).fails(&["is a directory"]);
    assert_eq!(dir.run(["diff", "x"]).0.status.code(), Some(2));
    dir.run(["compress", "x"]).silent();
    let mut broken = dir.read("x.lmc");
    let n = broken.len();
    broken[n / 2] ^= 1;
    dir.write("broken.lmc", &broken);
    dir.run(["diff", "x", "broken.lmc"]).fails(&["broken.lmc"]);
    dir.run(["diff", "broken.lmc", "x"]).fails(&["broken.lmc"]);
    dir.write("cut.lmc", &broken[..n / 2]);
    dir.run(["diff", "x", "cut.lmc"]).fails(&["cut.lmc"]);
}

/// The scales of rows and the codes of bf16 weights, as 8-bit integers; `scale` gives one from the largest magnitude of a row.
fn quantised(weights: &[u8], columns: usize, scale: impl Fn(usize, f32) -> f32) -> (Vec<u8>, Vec<u8>) {
    let of = |e: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([e[0], e[1]])) << 16);
    let (mut scales, mut codes) = (Vec::new(), Vec::new());
    for (i, row) in weights.chunks(2 * columns).enumerate() {
        let s = scale(i, row.chunks(2).map(|e| of(e).abs()).fold(0.0, f32::max));
        scales.extend(s.to_le_bytes());
        codes.extend(row.chunks(2).map(|e| (of(e) / s).round_ties_even() as i8 as u8));
    }
    (scales, codes)
}

#[test]
fn forged_scales_are_not_attested() {
    let dir = Dir::new();
    let (rows, columns) = (96, 512);
    let mut w = weights(rows * columns, 1);
    // A row of zeros: its scale is what keeps its quantiser from dividing by 0.
    w[..2 * columns].fill(0);
    let shape = [rows as u64, columns as u64];
    dir.write("base", &safetensors(&[("m.w", "BF16", &shape, &w)]));
    let honest = |_: usize, a: f32| (a / 127.0).max(1e-12);
    let copy = |name: &str, of: &dyn Fn(usize, f32) -> f32, change: &dyn Fn(&mut Vec<u8>)| {
        let (scales, mut codes) = quantised(&w, columns, of);
        change(&mut codes);
        dir.write(
            name,
            &safetensors(&[("m.w_scale", "F32", &[rows as u64, 1], &scales), ("m.w", "I8", &shape, &codes)]),
        );
        dir.run(["diff", "--attest", "base", name])
    };
    let run = copy("copy", &honest, &|_| ());
    let text = run.ok().stdout();
    assert!(text.contains("tensors: 2 derived") && !text.contains("as stated"), "{text}");
    copy("halves", &|_, a| (a / 127.5).max(1e-12), &|_| ()).ok();
    copy("inverse", &|_, a| 1.0 / (127.0 / a.max(1e-9)), &|_| ()).ok();

    let stated = "m.w (codes follow from stated scales";
    let forged = |i: usize, a: f32| 3.0 * honest(i, a);
    let run = copy("all", &forged, &|_| ());
    run.fails(&[
        "2 of 2 tensors do not follow from base",
        stated,
        "m.w_scale (95 of 96 elements are not those computed)",
    ]);
    let one = |i: usize, a: f32| if i == 41 { 300.0 * a } else { honest(i, a) };
    copy("one", &one, &|_| ()).fails(&[stated, "m.w_scale (1 of 96 elements are not those computed)"]);
    // Whoever multiplies zeros with it has no zeros.
    let infinite = |i: usize, a: f32| if a == 0.0 { f32::INFINITY } else { honest(i, a) };
    copy("infinite", &infinite, &|_| ()).fails(&[stated, "m.w_scale (1 of 96 elements are not those computed)"]);
    let clipped = |i: usize, a: f32| 0.9 * honest(i, a);
    copy("clipped", &clipped, &|_| ()).fails(&[stated, "m.w_scale (95 of 96"]);
    copy("code", &honest, &|codes| codes[5000] ^= 1)
        .fails(&["1 of 2 tensors", "m.w (1 of 49152 elements are not those"]);
    let run = dir.run(["diff", "base", "one"]);
    let text = run.ok().stdout();
    assert!(text.contains("derived from BF16, scales as stated"), "{text}");

    // One scale of all.
    let most = w.chunks(2).map(|e| u16::from_le_bytes([e[0], e[1]]) & 0x7fff).max().unwrap();
    let most = f32::from_bits(u32::from(most) << 16);
    let run = |s: f32| {
        let (_, codes) = quantised(&w, columns, |_, _| s);
        dir.write(
            "tensor",
            &safetensors(&[("m.w_scale", "F32", &[1], &s.to_le_bytes()), ("m.w", "I8", &shape, &codes)]),
        );
        dir.run(["diff", "--attest", "base", "tensor"])
    };
    run(most / 127.0).ok();
    run(most / 100.0).fails(&["2 of 2 tensors", stated]);
}

#[test]
fn constant_tensors_follow_from_constant_ones() {
    let dir = Dir::new();
    let ones: Vec<u8> = [0x80, 0x3f].repeat(1000);
    let (w, zeros) = (weights(1000, 1), [0; 2000]);
    let shape: &[u64] = &[1000];
    dir.write(
        "old",
        &safetensors(&[("a", "BF16", shape, &w), ("b", "BF16", shape, &zeros), ("c", "BF16", shape, &ones)]),
    );
    let wide = |x: f32| x.to_le_bytes().repeat(1000);
    let new = |x: &[u8], y: &[u8]| {
        safetensors(&[("x", "F32", shape, x), ("y", "F32", shape, y), ("z", "BF16", shape, &ones)])
    };
    dir.write("new", &new(&wide(1.0), &wide(0.0)));
    let run = dir.run(["diff", "--attest", "old", "new"]);
    let text = run.ok().stdout();
    assert!(text.contains("tensors: 1 re-typed, 2 renamed"), "{text}");
    let mut other = wide(0.0);
    other[3999] = 1;
    dir.write("new", &new(&wide(2.0), &other));
    dir.run(["diff", "--attest", "old", "new"]).fails(&["2 of 3 tensors do not follow", "x (is new), y (is new)"]);
}
