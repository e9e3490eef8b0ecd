//! Files of very many or very large tensors: output takes little memory.

use std::fs;

use crate::support::{Dir, safetensors};
use serde_json::Value;

const TENSORS: u64 = 40_000;
/// Memory limit in KiB. A row of JSON as a value took 8 KiB per tensor, a row of a table 4 and 2.
const LIMIT: u64 = 184 << 10;

fn checkpoint(step: u8) -> Vec<u8> {
    let names: Vec<String> = (0..TENSORS).map(|i| format!("model.layers.{}.experts.{}.weight", i / 8, i % 8)).collect();
    let data: Vec<[u8; 4]> = (0..TENSORS).map(|i| [(i >> 8) as u8, i as u8, step, 0x3c]).collect();
    let tensors = names.iter().zip(&data).map(|(name, data)| (&name[..], "BF16", &[2][..], &data[..]));
    safetensors(&tensors.collect::<Vec<_>>())
}

#[test]
fn rows_take_little_memory() {
    let dir = Dir::new();
    dir.write("old", &checkpoint(1));
    dir.write("new", &checkpoint(3));
    dir.run(["compress", "--base", "old", "new"]).silent();
    for command in ["diff -T 1 old new", "list new.lmc"] {
        let run = dir.shell(&format!("ulimit -v {LIMIT}; exec $LMC {command}"));
        run.silent();
        let rows = run.stdout().lines().filter(|l| l.starts_with("model.layers.")).count();
        assert_eq!(rows as u64, TENSORS, "{command}");
        let run = dir.shell(&format!("ulimit -v {LIMIT}; exec $LMC {command} --json"));
        run.silent();
        let object: Value = serde_json::from_str(run.stdout()).unwrap();
        assert_eq!(object["segments"].as_array().unwrap().len() as u64, TENSORS + 1, "{command}");
    }
}

#[test]
fn tensors_that_no_index_can_have_are_counted() {
    let dir = Dir::new();
    let long = "n".repeat(1 << 16);
    let data = [7; 4];
    dir.write("m", &safetensors(&[("a", "U8", &[4], &data), (&long, "U8", &[4], &data), ("z", "U8", &[4], &data)]));
    let run = dir.run(["compress", "m"]);
    assert!(run.ok().stderr().contains("lmc: m: 1 tensor not in the index, where"), "{run:?}");
    let listed = &dir.run(["list", "--json", "m.lmc"]).json()[0];
    let names = listed["segments"].as_array().unwrap().iter().filter_map(|s| s["name"].as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "z"]);
    let run = dir.run(["compress", "--json", "-f", "m"]);
    assert_eq!(run.json()[0]["unlisted_tensors"], 1);
    dir.run(["decompress", "m.lmc", "-o", "back"]).silent();
    assert_eq!(dir.read("back"), dir.read("m"));
}

#[test]
fn a_large_tensor_is_restored_in_pieces() {
    let dir = Dir::new();
    let tensor = 320 << 20;
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{tensor}]}}}}"#, tensor / 4);
    let path = dir.write("w", &[&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat());
    fs::File::options().write(true).open(path).unwrap().set_len(8 + header.len() as u64 + tensor).unwrap();
    dir.run(["-q", "snapshot", "save", "s", "w"]).silent();
    // Writable memory, in KiB: address space would count what threads reserve.
    let restore = "ulimit -d 262144; exec $LMC snapshot restore s --tensor w -T 1";
    let run = dir.shell(&format!("({restore}) | wc -c"));
    run.silent();
    assert_eq!(run.stdout().trim(), tensor.to_string());
}
