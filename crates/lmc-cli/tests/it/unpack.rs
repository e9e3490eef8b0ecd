//! `unpack`: the tensors of files as safetensors.

use std::fs;

use serde_json::Value;

use crate::support::{Dir, model, safetensors, weights};

/// A file that torch wrote.
fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../testdata/layouts/torch/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Name, dtype, shape and bytes of each tensor, in the order of the file.
fn tensors(file: &[u8]) -> Vec<(String, String, Value, Vec<u8>)> {
    let (len, rest) = file.split_at(8);
    let len = u64::from_le_bytes(len.try_into().unwrap()) as usize;
    assert_eq!(len % 8, 0, "tensors are aligned");
    let (json, data) = rest.split_at(len);
    let header: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(header["__metadata__"]["format"], "pt");
    let infos = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let mut found: Vec<_> = infos
        .map(|(name, info)| {
            let place = |i: usize| info["data_offsets"][i].as_u64().unwrap() as usize;
            let dtype = info["dtype"].as_str().unwrap().to_owned();
            (place(0), (name.clone(), dtype, info["shape"].clone(), data[place(0)..place(1)].to_vec()))
        })
        .collect();
    found.sort_by_key(|(at, t)| (*at, t.3.len()));
    assert_eq!(found.iter().map(|(_, t)| t.3.len()).sum::<usize>(), data.len());
    found.into_iter().map(|(_, t)| t).collect()
}

fn f32s(values: impl IntoIterator<Item = u16>) -> Vec<u8> {
    values.into_iter().flat_map(|n| f32::from(n).to_le_bytes()).collect()
}

#[test]
fn what_torch_saved() {
    let dir = Dir::new();
    dir.write("shared.pt", &sample("shared.pt"));
    let run = dir.run(["unpack", "-v", "shared.pt", "-o", "out"]);
    run.ok();
    assert_eq!(run.stdout(), "");
    assert!(run.stderr().contains("shared.pt : 23 tensors, 584 B  (out/shared.safetensors)"), "{run:?}");
    let found = tensors(&dir.read("out/shared.safetensors"));
    let of = |name: &str| found.iter().find(|t| t.0 == name).unwrap_or_else(|| panic!("{name}: {found:?}"));
    assert_eq!((&of("second").2, &of("second").3), (&serde_json::json!([3, 4]), &f32s(4..16)));
    assert_eq!((&of("list.1.0").3, &of("7").3), (&f32s([6, 6]), &f32s([7, 7])));
    assert_eq!((&of("empty").2, of("empty").3.len()), (&serde_json::json!([0, 5]), 0));
    assert_eq!((&of("transposed").2, &of("transposed").3), (&serde_json::json!([3, 2]), &f32s([0, 3, 1, 4, 2, 5])));
    assert_eq!((&of("embed").3, &of("head").3), (&f32s(0..6), &f32s(0..6)));
    // Wide elements first.
    dir.write("kinds.pt", &sample("kinds.pt"));
    dir.run(["unpack", "kinds.pt", "-o", "out"]).fails(&["\"complex128\"", "safetensors files cannot hold"]);
    dir.run(["unpack", "kinds.pt", "-o", "out", "--prefix", "float"]).ok();
    let types: Vec<_> = tensors(&dir.read("out/kinds.safetensors")).into_iter().map(|t| t.1).collect();
    assert_eq!(types, ["F64", "F16", "F8_E4M3", "F8_E5M2", "F8_E8M0"]);
}

/// Tied ones, those with strides, slices: what torch loads, and no other names.
#[test]
fn every_tensor_of_a_state() {
    let dir = Dir::new();
    dir.write("zip.pt", &sample("shared.pt"));
    dir.write("legacy.pt", &sample("shared-legacy.pt"));
    let sorted = |file: &[u8]| {
        let mut found = tensors(file);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let expected = sorted(&sample("shared.safetensors"));
    for name in ["zip", "legacy"] {
        dir.run(["unpack", &format!("{name}.pt"), "-o", "plain"]).silent();
        let plain = dir.read(&format!("plain/{name}.safetensors"));
        assert_eq!(sorted(&plain), expected, "{name}");
        dir.run(["compress", &format!("{name}.pt")]).silent();
        dir.run(["unpack", &format!("{name}.pt.lmc"), "-o", "compressed"]).silent();
        assert_eq!(dir.read(&format!("compressed/{name}.safetensors")), plain, "{name}");
    }
    // As plain bytes.
    dir.shell("$LMC compress <zip.pt >piped.lmc && $LMC unpack piped.lmc -o piped").silent();
    assert_eq!(dir.read("piped/piped.safetensors"), dir.read("plain/zip.safetensors"));
    // A prefix selects among all of the names.
    for (prefix, name, value) in [("hea", "d", f32s(0..6)), ("ema.shadow.", "w", vec![0, 0, 0x80, 0x3f, 0, 0x40])] {
        dir.run(["unpack", "-f", "zip.pt", "-o", "some", "--prefix", prefix]).silent();
        let found = tensors(&dir.read("some/zip.safetensors"));
        assert_eq!(found.iter().map(|t| (&t.0[..], &t.3)).collect::<Vec<_>>(), [(name, &value)]);
    }
    dir.run(["unpack", "zip.pt", "-o", "no", "--prefix", "data/"]).fails(&["has no tensor whose name begins", "data/"]);
    // The list shows ranges of the file.
    assert!(dir.run(["list", "zip.pt.lmc"]).stdout().contains("data/"));
}

/// Of a file that torch wrote, what is no plain tensor is refused by name.
#[test]
fn tensors_that_are_not_plain() {
    let dir = Dir::new();
    dir.write("odd.pt", &sample("odd.pt"));
    let unpack = |prefix: &str| dir.run(["unpack", "odd.pt", "-o", "out", "--prefix", prefix]);
    for name in ["conjugate", "negative", "sparse", "quantised", "meta"] {
        unpack(name).fails(&["odd.pt", "not a plain tensor", &format!("tensor {name:?}"), "--prefix"]);
    }
    unpack("").fails(&["odd.pt", "not a plain tensor"]);
    assert!(dir.try_names("out").is_empty());
    unpack("pl").ok();
    let found = tensors(&dir.read("out/odd.safetensors"));
    let found: Vec<_> = found.iter().map(|t| (&t.0[..], &t.3[..])).collect();
    assert_eq!(found, [("ain", &f32s(0..5)[..]), ("ain.scale", &0.5f32.to_le_bytes())]);
}

#[test]
fn names_that_a_file_cannot_have() {
    let dir = Dir::new();
    let unpack = |name: &str, prefix: &str| dir.run(["unpack", name, "-o", "out", "--prefix", prefix]);
    // Two keys and one that has a dot give the same name.
    dir.write("views.pt", &sample("views.pt"));
    unpack("views.pt", "").fails(&["views.pt", "\"a.b\"", "two tensors have", "--prefix"]);
    unpack("views.pt", "a").fails(&["\".b\"", "two tensors have"]);
    // The second one would be lost.
    let header =
        r#"{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"v":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    dir.write("v.safetensors", &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[1; 8]].concat());
    let bytes = format!("bytes {} to {}", header.len() + 8, header.len() + 12);
    unpack("v.safetensors", "").fails(&["v.safetensors", &bytes]);
    dir.run(["compress", "v.safetensors"]).silent();
    unpack("v.safetensors.lmc", "").fails(&["v.safetensors.lmc", &bytes]);
    dir.write("m.safetensors", &safetensors(&[("m.__metadata__", "U8", &[4], &[1; 4]), ("m.w", "U8", &[4], &[2; 4])]));
    unpack("m.safetensors", "m.").fails(&["m.safetensors", "\"__metadata__\"", "safetensors files cannot hold"]);
    assert!(dir.try_names("out").is_empty(), "something is left");
    unpack("m.safetensors", "").silent();
    unpack("views.pt", "s").ok();
    assert_eq!(tensors(&dir.read("out/views.safetensors"))[0].3, f32s(4..16));
}

#[test]
fn compressed_files_and_deltas() {
    let dir = Dir::new();
    dir.write("old.pt", &sample("state.pt"));
    dir.write("new.pt", &sample("state.pt"));
    dir.run(["compress", "new.pt", "--base", "old.pt"]).ok();
    dir.run(["unpack", "new.pt", "-o", "plain", "--prefix", "model."]).ok();
    dir.shell("mkdir at && mv old.pt at && rm new.pt").ok();
    dir.run(["unpack", "new.pt.lmc", "-o", "out"])
        .fails(&["is a delta of old.pt", "no file beside it has these bytes"]);
    assert!(!dir.has("out/new.safetensors"));
    dir.run(["unpack", "new.pt.lmc", "-o", "deep/out", "--base", "none.pt"]).fails(&["none.pt"]);
    assert!(!dir.has("deep"), "no directory is created before the bases are open");
    dir.run(["unpack", "new.pt.lmc", "-o", "out", "--base", "at/old.pt", "--prefix", "model."]).ok();
    assert_eq!(dir.read("plain/new.safetensors"), dir.read("out/new.safetensors"));
    let names: Vec<_> = tensors(&dir.read("out/new.safetensors")).into_iter().map(|t| t.0).collect();
    assert_eq!(names, ["0.weight", "0.bias", "1.weight", "1.bias"]);
}

#[test]
fn several_files() {
    let dir = Dir::new();
    dir.write("a.pt", &sample("state.pt"));
    dir.write("b.safetensors", &model());
    dir.run(["unpack", "a.pt", "b.safetensors", "-o", "out/deep"]).ok();
    assert_eq!(dir.try_names("out/deep"), ["out/deep/a.safetensors", "out/deep/b.safetensors"]);
    let again = dir.run(["unpack", "b.safetensors", "-o", "out/deep"]);
    again.fails(&["out/deep/b.safetensors", "-f"]);
    dir.run(["unpack", "-f", "b.safetensors", "-o", "out/deep"]).ok();
    dir.write("a.bin", &sample("state.pt"));
    dir.run(["unpack", "a.pt", "a.bin", "-o", "x"]).is_misused(&["a.bin", "x/a.safetensors"]);
    assert!(!dir.has("x"));
    // Onto itself.
    dir.run(["unpack", "-f", "b.safetensors", "-o", "."]).is_misused(&["b.safetensors", "is the input file"]);
    assert_eq!(dir.read("b.safetensors"), model());
}

#[test]
fn what_cannot_be_unpacked() {
    let dir = Dir::new();
    dir.write("raw", b"no tensors");
    dir.run(["unpack", "raw", "-o", "out"]).fails(&["raw", "no format", "or is damaged"]);
    dir.write("none.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    dir.run(["unpack", "none.safetensors", "-o", "out"]).fails(&["a file of safetensors without tensors"]);
    dir.write("m.safetensors", &safetensors(&[("t", "F9_E5M3", &[2, 8], &weights(9, 1))]));
    dir.run(["unpack", "m.safetensors", "-o", "out"]).fails(&["\"t\"", "F9_E5M3", "--prefix"]);
    dir.write("n.safetensors", &model());
    dir.run(["unpack", "n.safetensors", "-o", "out", "--prefix", "no."]).fails(&["\"no.\"", "lmc list"]);
    dir.run(["unpack", ".", "-o", "out"]).fails(&["is a directory without .metadata"]);
    dir.run(["unpack", "-", "-o", "out"]).is_misused(&["standard input"]);
    dir.write("bad.lmc", &[&lmc::MAGIC[..], &[1; 100]].concat());
    dir.run(["unpack", "bad.lmc", "-o", "out"]).fails(&["bad.lmc"]);
    assert!(dir.try_names("out").is_empty(), "nothing is left");
}

/// An archive has bytes between any two tensors: one row for all.
#[test]
fn bytes_between_tensors_are_one_row() {
    let dir = Dir::new();
    dir.write("old.pt", &sample("state.pt"));
    dir.write("new.pt", &sample("state-next.pt"));
    dir.run(["compress", "new.pt"]).silent();
    let rows = |text: &str| text.lines().filter(|l| l.starts_with("(no tensor")).map(str::to_owned).collect::<Vec<_>>();
    let list = dir.run(["list", "new.pt.lmc"]);
    assert!(list.stdout().lines().next().unwrap().contains(", torch, 16 tensors, "), "{list:?}");
    let [row] = &rows(list.stdout())[..] else { panic!("{list:?}") };
    assert!(row.starts_with("(no tensor, 17 ranges)"), "{row}");
    assert_eq!(rows(dir.run(["list", "-v", "new.pt.lmc"]).stdout()).len(), 17);
    let diff = dir.run(["diff", "old.pt", "new.pt"]);
    let [row] = &rows(diff.stdout())[..] else { panic!("{diff:?}") };
    assert!(row.starts_with("(no tensor, 17 ranges)"), "{row}");
    assert!(diff.stdout().contains("tensors: 3 same, 13 changed"), "{diff:?}");
    assert_eq!(rows(dir.run(["diff", "-v", "old.pt", "new.pt"]).stdout()).len(), 17);
}
