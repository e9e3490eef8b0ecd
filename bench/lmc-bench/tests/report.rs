//! What `lmc-bench` measures, not how fast anything is. It compares every round trip with the data itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PEERS: [&str; 9] = ["zstd 1", "zstd 3", "zstd 19", "lz4 ", "gzip 6", "bzip2 9", "brotli 9", "xz 6", "snappy "];
const LEVELS: [&str; 3] = ["fast", "default", "max"];

/// The report on a file of `testdata`.
fn report(args: &[&str]) -> Value {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lmc-bench"));
    let done =
        command.current_dir(testdata).args(["--seconds", "0", "--sample", "400000"]).args(args).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The results of the only file, all of which are plausible.
fn results(report: &Value) -> &[Value] {
    let results = report["files"][0]["results"].as_array().unwrap();
    for r in results {
        assert!(r["size"].as_u64().unwrap() > 0 && r["ratio"].as_f64().unwrap() < 1.1, "{r}");
        for way in ["compress", "decompress"] {
            assert!(r[way]["gb_per_s"].as_f64().unwrap() > 0.0 && r[way]["rounds"] == 1, "{r}");
        }
    }
    results
}

/// Checks that all general-purpose codecs were measured, as they are and grouped.
fn has_peers(results: &[Value], given: &str) {
    for grouped in [false, true] {
        let rows = results.iter().filter(|r| r["given"] == given && r["grouped"] == grouped);
        let name = |r: &Value| format!("{} {}", r["codec"].as_str().unwrap(), r["level"].as_str().unwrap());
        let seen: BTreeSet<String> = rows.map(name).collect();
        assert!(PEERS.iter().all(|p| seen.contains(*p)), "{seen:?}");
    }
}

#[test]
fn a_file() {
    let report = report(&["gpt-step310-weights.safetensors"]);
    let results = results(&report);
    has_peers(results, "nothing");
    let levels: Vec<&Value> = results.iter().filter(|r| r["codec"] == "lmc").map(|r| &r["level"]).collect();
    assert_eq!(levels, LEVELS);
    let sampled: BTreeSet<&str> =
        results.iter().filter(|r| r["sampled"] == true).map(|r| r["codec"].as_str().unwrap()).collect();
    assert_eq!(sampled, BTreeSet::from(["brotli", "bzip2", "xz", "zstd"]));
    for key in ["cpu", "isas", "lmc", "rustc", "profile"] {
        assert!(!report["machine"][key].is_null(), "{key}: {report}");
    }
}

#[test]
fn a_delta() {
    let report = report(&["--base", "gpt-step300-state.safetensors", "gpt-step310-state.safetensors"]);
    let results = results(&report);
    has_peers(results, "xor");
    for level in LEVELS {
        let size = |given: &str| {
            let row = results.iter().find(|r| r["codec"] == "lmc" && r["level"] == level && r["given"] == given);
            row.unwrap_or_else(|| panic!("{level} {given}"))["size"].as_u64().unwrap()
        };
        assert!(size("base") < size("nothing").min(size("xor")), "{level}: {report}");
    }
    assert!(results.iter().any(|r| r["codec"] == "zstd" && r["given"] == "prefix"), "{report}");
}

#[test]
fn wrong_arguments() {
    for (args, why) in [
        (&["--peers", "zip", "x"][..], "cannot read x"),
        (&["--peers", "zip", "../../testdata/minilm-f32.safetensors"], "unknown peer \"zip\""),
        (&["--peers", "zstd-patch", "../../testdata/minilm-f32.safetensors"], "unknown peer \"zstd-patch\""),
    ] {
        let done = Command::new(env!("CARGO_BIN_EXE_lmc-bench")).args(args).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && said.contains(why), "{said}");
    }
}
