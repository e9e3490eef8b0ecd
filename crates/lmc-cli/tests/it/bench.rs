//! `lmc bench`: what it measures and tells, not how fast anything is.

use crate::support::{Dir, Run, safetensors, weights};
use serde_json::{Value, json};

/// Runs `lmc bench` for one round.
fn bench(dir: &Dir, args: &[&str]) -> Run {
    let quick = ["bench", "--seconds", "0", "--threads", "1", "--levels", "fast", "--dtype", "BF16"];
    Run(dir.command(quick.iter().chain(args)).output().unwrap())
}

#[test]
fn a_file_that_cannot_be_measured_hides_no_other() {
    let dir = Dir::new();
    dir.write("a", &weights(5000, 1));
    dir.write("c", &weights(5000, 2));
    let shown = bench(&dir, &["--json", "--peers", "none", "a", "b", "c"]);
    assert_eq!(shown.0.status.code(), Some(1), "{shown:?}");
    assert!(shown.stderr().contains("cannot read b"), "{shown:?}");
    let report: Value = serde_json::from_str(shown.stdout()).unwrap();
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.iter().map(|f| f["file"].clone()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(files[1]["error"].as_str().unwrap().contains("cannot read b"), "{report}");
    assert!([0, 2].iter().all(|&i| files[i]["results"][0]["size"].as_u64() > Some(0)), "{report}");
    bench(&dir, &["--peers", "zip", "a", "c"]).is_misused(&["unknown peer \"zip\""]);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = Dir::new();
    dir.write("empty", &safetensors(&[("w", "F32", &[0], &[])]));
    bench(&dir, &["--peers", "none", "--size", "1000", "empty"]).is_misused(&["empty: --size needs elements"]);
    dir.shell("mkfifo fifo").silent();
    bench(&dir, &["--peers", "none", "fifo"]).fails(&["cannot read fifo: it is not a regular file"]);
    dir.write("a", &weights(5000, 1));
    bench(&dir, &["--peers", "all,lz4", "a"]).is_misused(&["\"all\" cannot be combined with others"]);
}

#[test]
fn a_small_sample_has_elements() {
    let dir = Dir::new();
    dir.write("a", &weights(5000, 1));
    for sample in ["1", "10", "300"] {
        let shown = bench(&dir, &["--json", "--peers", "xz", "--sample", sample, "a"]);
        let report: Value = serde_json::from_str(shown.ok().stdout()).unwrap();
        let results = report["files"][0]["results"].as_array().unwrap();
        let sampled: Vec<&Value> = results.iter().filter(|r| r["sampled"] == true).collect();
        assert_eq!(sampled.len(), 2, "{report}");
        assert!(sampled.iter().all(|r| r["raw_size"].as_u64() >= Some(16 * 16)), "{report}");
    }
    let all = bench(&dir, &["--json", "--peers", "xz", "--sample", "10000", "a"]);
    let report: Value = serde_json::from_str(all.ok().stdout()).unwrap();
    assert!(report["files"][0]["results"].as_array().unwrap().iter().all(|r| r["sampled"] == json!(false)));
}

#[test]
fn names_in_the_table_do_nothing() {
    let dir = Dir::new();
    dir.write("a\u{1b}[2J\u{202e}", &weights(5000, 1));
    let shown = bench(&dir, &["--peers", "lz4", "a\u{1b}[2J\u{202e}"]);
    let text = shown.ok().stdout();
    assert!(text.starts_with("a\\u{1b}[2J\\u{202e}: 10000 bytes") && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
    let heads = text.lines().find(|l| l.starts_with("codec")).unwrap_or_else(|| panic!("{text}"));
    assert!(heads.ends_with("±") && text.lines().any(|l| l.starts_with("memcpy ")), "{text}");
    bench(&dir, &["--peers", "none", "\u{1b}[2J"]).fails(&["cannot read \\u{1b}[2J"]);
}
