//! What makes something new of tensors is complete or fails: `unpack` writes what the format's own library returns, or names the tensors that
//! it cannot write; `list`, `diff`, `analyze` and `cat` name those that they lack.

use std::fs;

use serde_json::Value;

use crate::support::{Dir, Tensors, tensors};

fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../testdata/layouts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What a format's own library returns, as `testdata/layouts/make.py` writes it.
fn of_library(name: &str) -> Tensors {
    let json: Value = serde_json::from_slice(&sample(name)).unwrap();
    let of = |(name, found): (&String, &Value)| {
        let dtype = match found[0].as_str().unwrap() {
            "bool" => "BOOL".to_owned(),
            "complex64" => "C64".to_owned(),
            "bfloat16" => "BF16".to_owned(),
            "float8_e8m0fnu" => "F8_E8M0".to_owned(),
            "float8_e4m3fn" => "F8_E4M3".to_owned(),
            other => other.replace("uint", "U").replace("int", "I").replace("float", "F").to_uppercase(),
        };
        let hex = found[2].as_str().unwrap();
        let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        (name.clone(), (dtype, found[1].clone(), bytes))
    };
    json.as_object().unwrap().iter().map(of).collect()
}

#[test]
fn tensors_are_those_of_the_library() {
    let dir = Dir::new();
    for (name, expected) in [("kinds.onnx", "kinds-onnx.json"), ("kinds.gguf", "kinds-gguf.json")] {
        dir.write(name, &sample(name));
        dir.run(["unpack", name, "-o", "plain"]).ok();
        assert_eq!(tensors(&dir.read("plain/kinds.safetensors")), of_library(expected), "{name}");
        dir.run(["compress", name]).ok();
        dir.run(["unpack", &format!("{name}.lmc"), "-o", "compressed"]).ok();
        assert_eq!(dir.read("plain/kinds.safetensors"), dir.read("compressed/kinds.safetensors"), "{name}");
        fs::remove_dir_all(dir.path("plain")).unwrap();
        fs::remove_dir_all(dir.path("compressed")).unwrap();
    }
}

/// Every tensor that is refused is named with its reason, and nothing is written: of a plain file and of a compressed one.
#[track_caller]
fn refused(dir: &Dir, name: &str, reasons: &[&str]) {
    dir.run(["unpack", name, "-o", "out"]).fails(&[&[name][..], reasons].concat());
    dir.run(["compress", "-f", name]).ok();
    let compressed = format!("{name}.lmc");
    dir.run(["unpack", &compressed, "-o", "out"]).fails(&[&[&compressed[..]][..], reasons].concat());
    assert!(!dir.has("out"), "something is left of {name}");
    let list = dir.run(["list", &compressed]);
    assert!(reasons.iter().all(|reason| list.stderr().contains(reason)), "{list:?}");
    let json: Value = serde_json::from_str(dir.run(["list", "--json", &compressed]).stdout()).unwrap();
    assert!(!json["missing"].as_array().unwrap().is_empty(), "{json}");
    let diff = dir.run(["diff", name, &compressed]);
    assert!(reasons.iter().all(|reason| diff.stderr().contains(reason)), "{diff:?}");
}

#[test]
fn onnx_whose_tensors_are_elsewhere() {
    let dir = Dir::new();
    dir.write("lost.onnx", &sample("lost.onnx"));
    refused(&dir, "lost.onnx", &["11 tensors cannot be given", "\"fp16\"", "int32_data"]);
    for (name, why) in [
        ("fp16", "int32_data"),
        ("int32", "int32_data"),
        ("int64", "variable length"),
        ("uint64", "variable length"),
        ("int4", "variable length"),
        ("strings", "are strings"),
        ("complex128", "two binary64"),
        ("odd", "no whole bytes"),
        ("external", "in the file \"weights.bin\""),
        ("sparse", "sparse tensor"),
    ] {
        let name = format!("{name:?}");
        let run = dir.run(["unpack", "lost.onnx", "-o", "out", "--prefix", name.trim_matches('"')]);
        run.fails(&[&name, why, "--prefix"]);
    }
    dir.run(["unpack", "lost.onnx", "-o", "out", "--prefix", "of."]).ok();
    assert_eq!(tensors(&dir.read("out/lost.safetensors")).keys().collect::<Vec<_>>(), ["float16"]);
    dir.write("external.onnx", &sample("external.onnx"));
    fs::remove_dir_all(dir.path("out")).unwrap();
    refused(&dir, "external.onnx", &["\"weight\"", "external.onnx.data"]);
}

/// A file of GGUF whose tensors have these types, each of 64 bytes.
fn gguf(types: &[(&str, u32)]) -> Vec<u8> {
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &(types.len() as u64).to_le_bytes(), &[0; 8]].concat();
    for (i, (name, kind)) in types.iter().enumerate() {
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(16u64.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend((64 * i as u64).to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend((0..64 * types.len()).map(|i| i as u8));
    file
}

#[test]
fn gguf_of_unknown_types() {
    let dir = Dir::new();
    dir.write("m.gguf", &gguf(&[("first", 156), ("known", 0), ("last", 250)]));
    refused(&dir, "m.gguf", &["\"first\"", "number 156", "\"last\"", "number 250"]);
    dir.run(["unpack", "m.gguf", "-o", "out", "--prefix", "known"]).ok();
    // Their bytes end where others begin, or the file ends.
    for (name, first) in [("first", 0u8), ("known", 64), ("last", 128)] {
        dir.run(["cat", "m.gguf.lmc", name, "-o", name]).ok();
        assert_eq!(dir.read(name), (first..first + 64).collect::<Vec<_>>(), "{name}");
    }
    dir.run(["cat", "m.gguf.lmc", "none", "-o", "none"]).fails(&["has no tensor \"none\""]);
    dir.run(["cat", "m.gguf.lmc", "last", "--rows", "0..1", "-o", "none"]).fails(&["has no rows"]);
    dir.write("alone.gguf", &gguf(&[("w", 156)]));
    let run = dir.run(["unpack", "alone.gguf", "-o", "out"]);
    run.fails(&["\"w\"", "number 156"]);
    assert!(!run.stderr().contains("without tensors"), "{run:?}");
}

/// A file of NumPy.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// An archive with these entries as they are.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let (len, offset) = ((data.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
        let name_len = (name.len() as u16).to_le_bytes();
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0; 4], &len, &len, &name_len, &[0; 2]].concat();
        file.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &offset, name.as_bytes()].concat());
    }
    let (at, len, n) = (file.len() as u32, directory.len() as u32, (entries.len() as u16).to_le_bytes());
    let end = [b"PK\x05\x06\0\0\0\0", &n[..], &n, &len.to_le_bytes(), &at.to_le_bytes(), &[0; 2]].concat();
    [file, directory, end].concat()
}

#[test]
fn arrays_of_numpy() {
    let dir = Dir::new();
    let data: Vec<u8> = (0..24).collect();
    let plain = npy("'<f4'", false, "(2, 3)", &data);
    for (name, why) in [("big-endian", ">f4"), ("structured", "structures"), ("complex128", "<c16")] {
        dir.write(&format!("{name}.npy"), &sample(&format!("{name}.npy")));
        refused(&dir, &format!("{name}.npy"), &[why]);
    }
    let all = zip(&[
        ("a.npy", &plain),
        ("big.npy", &npy("'>f4'", false, "(2, 3)", &data)),
        ("c16.npy", &npy("'<c16'", false, "(1,)", &data[..16])),
        ("text", b"not an array"),
        ("short.npy", &npy("'<f8'", false, "(4,)", &data)),
    ]);
    dir.write("all.npz", &all);
    refused(&dir, "all.npz", &["\"big\"", ">f4", "\"c16\"", "\"text\"", "no array", "\"short\"", "ends before"]);
    dir.run(["unpack", "all.npz", "-o", "out", "--prefix", "a"]).ok();
    fs::remove_dir_all(dir.path("out")).unwrap();
    dir.write("compressed.npz", &sample("compressed.npz"));
    refused(&dir, "compressed.npz", &["are compressed"]);
    // Which of them numpy reads depends on its version.
    for again in ["a.npy", "a"] {
        dir.write("twice.npz", &zip(&[("a.npy", &plain), (again, &plain)]));
        refused(&dir, "twice.npz", &["\"a\"", "two entries"]);
    }
    // As in C's order.
    let fortran = npy("'|u1'", true, "(2, 3)", &[0, 3, 1, 4, 2, 5]);
    dir.write("f.npy", &fortran);
    dir.write("f.npz", &zip(&[("w.npy", &fortran), ("flat.npy", &npy("'|u1'", true, "(3, 1)", &[7, 8, 9]))]));
    for name in ["f.npy", "f.npz"] {
        dir.run(["unpack", "-f", name, "-o", "out"]).ok();
        let found = tensors(&dir.read("out/f.safetensors"));
        let w = &found[if name == "f.npy" { "" } else { "w" }];
        assert_eq!(w, &("U8".to_owned(), serde_json::json!([2, 3]), (0..6).collect()), "{name}");
        if let Some(flat) = found.get("flat") {
            assert_eq!(flat, &("U8".to_owned(), serde_json::json!([3, 1]), vec![7, 8, 9]));
        }
    }
}

#[test]
fn files_of_safetensors_that_its_library_refuses() {
    let dir = Dir::new();
    let file = |header: &str, data: &[u8]| [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat();
    let v = r#"{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    dir.write("m.safetensors", &file(&format!("{v}}}"), &[1; 9]));
    let from = 8 + v.len() + 1 + 4;
    refused(&dir, "m.safetensors", &[&format!("no tensor has the bytes {from} to {}", from + 5)]);
    let hole = format!("{v},{}}}", r#""w":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}"#);
    dir.write("m.safetensors", &file(&hole, &[1; 12]));
    refused(&dir, "m.safetensors", &["no tensor has the bytes"]);
    let wrong = format!("{v},{}}}", r#""w":{"dtype":"F32","shape":[4],"data_offsets":[4,8]}"#);
    dir.write("m.safetensors", &file(&wrong, &[1; 8]));
    refused(&dir, "m.safetensors", &["\"w\"", "do not fit each other"]);
    let twice = format!("{v},{}}}", r#""v":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}"#);
    dir.write("m.safetensors", &file(&twice, &[1; 8]));
    refused(&dir, "m.safetensors", &["\"v\"", "occurs twice"]);
    // One that ends early is damaged: `unpack` fails, and others name the tensor.
    let whole = file(&format!("{v}}}"), &[1; 4]);
    dir.write("m.safetensors", &whole[..whole.len() - 1]);
    dir.run(["unpack", "m.safetensors", "-o", "out"]).fails(&["ends early"]);
    dir.run(["compress", "-f", "m.safetensors"]).ok();
    let list = dir.run(["list", "m.safetensors.lmc"]);
    assert!(list.stderr().contains("tensor \"v\": the file ends before it does"), "{list:?}");
}

/// What torch's own reader refuses, and what is no plain tensor.
#[test]
fn files_of_torch() {
    let dir = Dir::new();
    let one = sample("torch/one.pt");
    dir.write("one.pt", &one);
    dir.run(["unpack", "one.pt", "-o", "out"]).ok();
    fs::remove_dir_all(dir.path("out")).unwrap();
    dir.write("two.pt", &[&one[..], &one].concat());
    refused(&dir, "two.pt", &["several files of torch.save"]);
    for (name, reasons) in [
        ("numpy.pt", &["\"model.w\"", "array of numpy"][..]),
        ("only-numpy.pt", &["\"w\"", "array of numpy"]),
        ("storage.pt", &["\"s\"", "is a storage"]),
        ("storage-legacy.pt", &["\"s\"", "is a storage"]),
        ("complex128.pt", &["\"w\"", "complex128"]),
        ("complex32.pt", &["\"w\"", "complex32"]),
        ("no-version.pt", &["no version"]),
        ("two-folders.pt", &["several folders"]),
        ("other-first.pt", &["several folders"]),
        ("deep.pt", &["no version"]),
        ("twice.pt", &["two entries", "same name"]),
        ("long-storage.pt", &["\"w\"", "storage"]),
    ] {
        dir.write(name, &sample(&format!("torch/lost/{name}")));
        refused(&dir, name, reasons);
    }
    dir.run(["unpack", "numpy.pt", "-o", "out", "--prefix", "ema"]).ok();
    // As safetensors writes pairs of FP4.
    for name in ["fp4.pt", "fp4-legacy.pt"] {
        dir.write(name, &sample(&format!("torch/{name}")));
        dir.run(["unpack", name, "-o", "out"]).ok();
        let found = tensors(&dir.read(&format!("out/{}.safetensors", name.trim_end_matches(".pt"))));
        assert_eq!(found, tensors(&sample("torch/fp4.safetensors")), "{name}");
    }
}

#[test]
fn recursive_compression_takes_the_data_of_models() {
    let dir = Dir::new();
    let model = sample("external.onnx");
    let data = sample("external.onnx.data");
    let location = b"external.onnx.data";
    let renamed = |to: &[u8; 18]| {
        let mut renamed = model.clone();
        while let Some(at) = renamed.windows(location.len()).position(|w| w == location) {
            renamed[at..at + location.len()].copy_from_slice(to);
        }
        renamed
    };
    dir.write("m/external.onnx", &model);
    dir.write("m/external.onnx.data", &data);
    dir.write("m/other.onnx", &renamed(b"weights-of-another"));
    dir.write("m/weights-of-another", &data);
    dir.write("m/outside.onnx", &renamed(b"../outside-of-it-8"));
    dir.write("outside-of-it-8", &data);
    dir.write("m/config.json", b"{}");
    dir.run(["compress", "-r", "--rm", "m"]).ok();
    let left: Vec<_> = dir.try_names("m").into_iter().filter(|name| !name.ends_with(".lmc")).collect();
    assert_eq!(left, ["m/config.json"]);
    assert!(dir.has("outside-of-it-8"));
    let layout_of = |name: &str| {
        let json: Value = serde_json::from_str(dir.run(["list", "--json", name]).stdout()).unwrap();
        json["layout"].as_str().unwrap().to_owned()
    };
    for name in ["m/external.onnx.data.lmc", "m/weights-of-another.lmc"] {
        assert_eq!(layout_of(name), "onnx", "{name}");
    }
    // The data again, when their models are compressed already.
    for name in ["m/external.onnx.data", "m/weights-of-another"] {
        dir.run(["decompress", "--rm", &format!("{name}.lmc")]).ok();
    }
    assert!(!dir.has("m/external.onnx") && !dir.has("m/other.onnx"));
    dir.run(["compress", "-r", "--rm", "m"]).ok();
    for name in ["m/external.onnx.data.lmc", "m/weights-of-another.lmc"] {
        assert_eq!(layout_of(name), "onnx", "{name}");
    }
    dir.run(["unpack", "m/external.onnx.data.lmc", "-o", "out"]).ok();
    assert_eq!(tensors(&dir.read("out/external.onnx.safetensors")).keys().collect::<Vec<_>>(), ["half", "weight"]);
}
