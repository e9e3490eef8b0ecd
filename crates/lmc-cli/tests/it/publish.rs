//! `lmc publish`: versions in the order of their steps, and only finished ones.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Dir, Moments, Run, kill_after, may_mount, new_store, noise, safetensors, wait_until, weights};

/// The weights of a step.
fn model(n: u64) -> Vec<u8> {
    let mut data = weights(40_000, 1);
    data.iter_mut().step_by(2).zip(noise(40_000, n)).for_each(|(w, m)| *w ^= m & 3);
    safetensors(&[("t", "BF16", &[40_000], &data), ("n", "I64", &[], &n.to_le_bytes())])
}

/// Writes a version, which appears under its name when it is complete.
fn write(dir: &Dir, name: &str, n: u64) {
    std::fs::create_dir_all(dir.path("v/.new/sub")).unwrap();
    dir.write("v/.new/model.safetensors", &model(n));
    dir.write("v/.new/sub/config.json", b"{}");
    std::fs::rename(dir.path("v/.new"), dir.path(format!("v/{name}"))).unwrap();
}

/// The steps in a store.
fn steps(dir: &Dir) -> Vec<u64> {
    // Its marker is written after its directory.
    if !dir.has("s/lmc-store.json") {
        return vec![];
    }
    steps_in(dir, "s")
}

fn steps_in(dir: &Dir, store: &str) -> Vec<u64> {
    let listed = dir.run(["snapshot", "list", store, "--json"]);
    listed.ok().json().iter().map(|s| s["step"].as_u64().unwrap()).collect()
}

/// Checks the weights of a step.
fn check(dir: &Dir, n: u64) {
    check_in(dir, "s", n);
}

fn check_in(dir: &Dir, store: &str, n: u64) {
    dir.run(["-q", "snapshot", "restore", store, "-f", "-o", "out", "--at", &n.to_string()]).silent();
    assert!(dir.read("out/model.safetensors") == model(n), "step {n}");
}

const ONCE: [&str; 6] = ["publish", "s", "v", "--once", "--settle", "0"];

#[test]
fn snapshots_that_were_pruned_are_not_missed() {
    let dir = Dir::new();
    write(&dir, "checkpoint-9", 9);
    write(&dir, "checkpoint-20", 20);
    dir.run(ONCE).ok();
    dir.run(["-q", "snapshot", "prune", "s", "--keep-last", "1", "--yes"]).ok();
    assert_eq!(steps(&dir), [20]);
    dir.run(ONCE).silent();
}

#[test]
fn versions_are_saved_in_the_order_of_their_steps() {
    let dir = Dir::new();
    write(&dir, "checkpoint-20", 20);
    write(&dir, "checkpoint-9", 9);
    for other in ["latest", "tmp-checkpoint-30", ".checkpoint-40", "checkpoint-50.tmp", "checkpoint-60-old"] {
        std::fs::create_dir(dir.path(format!("v/{other}"))).unwrap();
        dir.write(&format!("v/{other}/file"), b"not a version");
    }
    dir.write("v/log.txt", b"not one either");
    std::os::unix::fs::symlink("checkpoint-20", dir.path("v/newest-70")).unwrap();
    let first = dir.run(ONCE);
    let said = first.ok().stderr();
    assert!(said.contains("s : step 9, ") && said.contains("s : step 20, ") && said.contains("from step 9"), "{said}");
    assert_eq!(said.lines().count(), 2);
    assert_eq!(steps(&dir), [9, 20]);
    dir.run(ONCE).silent();
    // One that comes before the last is not a later version.
    write(&dir, "checkpoint-10", 10);
    let passed = dir.run(ONCE);
    let text =
        "lmc: v/checkpoint-10: is not saved: the store does not have this step, but later ones; if the run was rewound";
    assert!(passed.ok().stderr().starts_with(text), "{passed:?}");
    // It may be one that was not wanted.
    dir.run(["publish", "s", "v", "--once", "--settle", "0", "--newest"]).silent();
    write(&dir, "checkpoint-11", 11);
    let passed = dir.run(ONCE);
    assert!(passed.ok().stderr().starts_with("lmc: v/checkpoint-10: and 1 more are not saved: "), "{passed:?}");
    std::fs::remove_dir_all(dir.path("v/checkpoint-11")).unwrap();
    write(&dir, "checkpoint-30", 30);
    let [a] = &dir.run(["publish", "s", "v", "--once", "--settle", "0", "--json"]).json()[..] else { panic!() };
    assert_eq!((&a["step"], &a["base"], &a["path"]), (&json!(30), &json!(20), &json!("v/checkpoint-30")));
    assert!(a["new_size"].as_u64().unwrap() < a["raw_size"].as_u64().unwrap() / 2, "{a}");
    assert!((1..4096).contains(&a["document_size"].as_u64().unwrap()), "{a}");
    // Some elements of the weights differ from step 20, and how many is known from the deltas, or not.
    let elements = a["elements"].as_u64().unwrap();
    match a["changed"].as_u64() {
        Some(n) => assert_eq!(a["density"].as_f64().unwrap(), n as f64 / elements as f64),
        None => assert!(a["changed"].is_null() && a["density"].is_null(), "{a}"),
    }
    let phases = ["read", "compress", "upload", "commit"].map(|phase| a["phases"][phase].as_f64().unwrap());
    assert!(phases.iter().all(|&s| s >= 0.0) && phases[3] > 0.0, "{a}");
    assert!(phases.iter().sum::<f64>() <= a["seconds"].as_f64().unwrap() * 1.5, "{a}");
    assert_eq!(steps(&dir), [9, 20, 30]);
    [9, 20, 30].into_iter().for_each(|n| check(&dir, n));
    // Of several, the last.
    [40, 41, 42].into_iter().for_each(|n| write(&dir, &format!("checkpoint-{n}"), n));
    dir.run(["-q", "publish", "s", "v", "--once", "--settle", "0", "--newest"]).silent();
    assert_eq!(steps(&dir), [9, 20, 30, 42]);
    // Files that are no versions, and one that is.
    for other in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "loss-7.png", "events.123"] {
        dir.write(&format!("v/{other}"), b"not a version");
    }
    dir.write("v/model-50.safetensors", &model(50));
    dir.run(["-q", "publish", "s", "v", "--once", "--settle", "0"]).silent();
    assert_eq!(steps(&dir), [9, 20, 30, 42, 50]);
    // Names of other directories.
    write(&dir, "checkpoint-60", 60);
    write(&dir, "backup_20241126", 1);
    dir.run(ONCE).fails(&["v/checkpoint-60: is not named as v/backup_20241126 is: say by --prefix"]);
    dir.run(["-q", "publish", "s", "v", "--once", "--settle", "0", "--prefix", "checkpoint-"]).silent();
    assert_eq!(steps(&dir), [9, 20, 30, 42, 50, 60]);
}

#[test]
fn a_version_is_saved_when_it_is_finished() {
    let dir = Dir::new();
    write(&dir, "step1", 1);
    // By a marker.
    let by_marker = ["publish", "s", "v", "--once", "--marker", "STABLE"];
    let waits = dir.run(by_marker);
    waits.fails(&["v/step1: is not finished: it has no file STABLE"]);
    // A later one does not overtake it, and with --newest an unfinished one hides none.
    write(&dir, "step2", 2);
    dir.write("v/step2/STABLE", b"");
    dir.write("v/loss-7.safetensors", b"cannot have a marker");
    let waits = dir.run(by_marker);
    waits.fails(&["it has no file STABLE; v/step2 waits for it: finish it, move it away"]);
    std::fs::remove_file(dir.path("v/loss-7.safetensors")).unwrap();
    assert!(steps(&dir).is_empty());
    dir.write("v/step1/STABLE", b"");
    write(&dir, "step3", 3);
    let left = |run: &Run, parts: &[&str]| {
        assert!(run.0.status.code() == Some(1) && parts.iter().all(|part| run.stderr().contains(part)), "{run:?}");
    };
    // It is a failure also if another one is saved.
    let newest = dir.run(["-q", "publish", "s", "v", "--once", "--marker", "STABLE", "--newest"]);
    left(&newest, &["v/step3: is not finished: it has no file STABLE"]);
    assert_eq!(steps(&dir), [2]);
    // By its age. The first one, which was passed over, is reported, too.
    let by_age = ["publish", "s", "v", "--once"];
    let waits = dir.run(by_age);
    left(&waits, &["v/step3: is not finished: it changed ", "--settle 10"]);
    dir.shell("find v/step3 -exec touch -d '1 hour ago' {} +").ok();
    let before = dir.read("v/step3/sub/config.json");
    dir.write("v/step3/sub/config.json", &before);
    left(&dir.run(by_age), &["is not finished"]);
    dir.shell("find v/step3 -exec touch -d '1 hour ago' {} +").ok();
    dir.run(by_age).ok();
    assert_eq!(steps(&dir), [2, 3]);
    // Whatever its age, if files of its index are missing.
    write(&dir, "step4", 4);
    dir.write("v/step4/model.safetensors.index.json", br#"{"weight_map": {"a": "model.safetensors", "b": "other"}}"#);
    let waits = dir.run(ONCE);
    left(&waits, &["model.safetensors.index.json: names other, which is not beside it"]);
    dir.write("v/step4/other", b"other");
    dir.write("v/step4/sub/model.safetensors.index.json", br#"{"weight_map": {"a": "mod"#);
    left(&dir.run(ONCE), &["v/step4/sub/model.safetensors.index.json: is not JSON"]);
    dir.write("v/step4/sub/model.safetensors.index.json", br#"{"weight_map": {"a": "part"}}"#);
    left(&dir.run(ONCE), &["names part, which is not beside it"]);
    dir.write("v/step4/sub/part", b"part");
    dir.run(ONCE).ok();
    assert_eq!(steps(&dir), [2, 3, 4]);
    // Or if there is none yet.
    std::fs::create_dir_all(dir.path("v/step5/sub")).unwrap();
    write(&dir, "step6", 6);
    let waits = dir.run(ONCE);
    left(&waits, &["v/step5: is not finished: it has no files; v/step6 waits for it"]);
    assert_eq!(steps(&dir), [2, 3, 4]);
    dir.write("v/step5/sub/file", b"file");
    dir.run(ONCE).ok();
    assert_eq!(steps(&dir), [2, 3, 4, 5, 6]);
    // Compressed files stand for those that an index names.
    write(&dir, "step7", 7);
    dir.write("v/step7/model.safetensors.index.json", br#"{"weight_map": {"a": "model.safetensors"}}"#);
    dir.run(["-q", "compress", "--rm", "v/step7/model.safetensors.index.json"]).silent();
    assert!(!dir.has("v/step7/model.safetensors") && dir.has("v/step7/model.safetensors.lmc"));
    dir.run(ONCE).ok();
    assert_eq!(steps(&dir), [2, 3, 4, 5, 6, 7]);
}

/// Files by their names.
type Files<'a> = &'a [(&'a str, &'a [u8])];

/// A version with an index, as it is and with what other systems put beside it.
fn write_indexed(dir: &Dir, version: &str, index: &[u8], beside: Files<'_>) {
    for (file, n) in [("model-1.safetensors", 1), ("model-2.safetensors", 2)] {
        dir.write(&format!("{version}/{file}"), &model(n));
    }
    dir.write(&format!("{version}/model.safetensors.index.json"), index);
    beside.iter().for_each(|(name, bytes)| _ = dir.write(&format!("{version}/{name}"), bytes));
}

const INDEX: &[u8] =
    br#"{"metadata": {"total_size": 7}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;

#[test]
fn a_file_of_another_program_does_not_stop_a_version() {
    let (nan, dots) = (replaced(b": 7", b": NaN"), replaced(b"\"model-", b"\"./model-"));
    let bom = [b"\xef\xbb\xbf", INDEX].concat();
    let other = br#"{"weight_map": {"a": "elsewhere.safetensors"}}"#;
    let apple: &[u8] = &[&[0, 5, 22, 7, 0, 2, 0, 0][..], b"Mac OS X        ", &[0; 99]].concat();
    let lfs: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n";
    let name = "has a name that no file in a store can have: rename it; it is left out";
    let none = "model.safetensors.index.json: has the name of an index, and is none: ";
    #[rustfmt::skip]
    let cases: [(&str, &[u8], Files<'_>, &str); 11] = [
        ("nan", &nan, &[], ""),
        ("bom", &bom, &[], ""),
        ("dots", &dots, &[], ""),
        ("apple", INDEX, &[("._model.safetensors.index.json", apple), ("._model-1.safetensors", apple)], ""),
        ("copy", INDEX, &[(".ipynb_checkpoints/model.safetensors.index-checkpoint.index.json", other)], ""),
        ("other", INDEX, &[("search.index.json", b"not JSON"), ("b.index.json", b"[1]"), ("c.index.json", b"")], ""),
        ("lines", INDEX, &[("a\nb", b"x")], name),
        ("zone", INDEX, &[("model-1.safetensors:Zone.Identifier", b"x")], name),
        ("time", INDEX, &[("log_12:30:00.txt", b"x")], name),
        ("binary", b"\xff\xfe\x00", &[], none),
        ("pointer", lfs, &[], none),
    ];
    for (case, index, beside, note) in cases {
        let dir = Dir::new();
        write_indexed(&dir, "v/step1", index, beside);
        let saved = dir.run(["snapshot", "save", "t", "v/step1"]);
        let published = dir.run(ONCE);
        for (run, store) in [(&saved, "t"), (&published, "s")] {
            let said = run.ok().stderr();
            assert_eq!(said.lines().count(), 1 + usize::from(!note.is_empty()), "{case}: {said}");
            assert!(said.contains(note), "{case}: {said}");
            dir.run(["-q", "snapshot", "restore", store, "-f", "-o", "out"]).silent();
            assert!(dir.read("out/model-2.safetensors") == model(2), "{case}");
            assert!(dir.read("out/model.safetensors.index.json") == index, "{case}");
        }
        // The index stands for its files, or is refused: alone, it would be a model without weights.
        dir.run(["-q", "snapshot", "restore", "s", "-f", "-o", "out"]).silent();
        let compressed = dir.run(["-q", "compress", "--rm", "out/model.safetensors.index.json"]);
        match note == none {
            true => compressed.fails(&[none]),
            false => compressed.silent(),
        }
        assert_eq!(dir.has("out/model-2.safetensors.lmc"), note != none, "{case}");
        assert!(dir.read("out/model.safetensors.index.json") == index, "{case}");
    }
}

fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| str::from_utf8(text).unwrap());
    str::from_utf8(INDEX).unwrap().replace(from, to).into_bytes()
}

#[test]
fn a_version_without_files_that_an_index_names_is_not_saved() {
    let variant = "v/step1/model.safetensors.index.fp16.json";
    let refused = |dir: &Dir, why: &[&str]| {
        dir.run(["snapshot", "save", "t", "v/step1"]).fails(why);
        dir.run(ONCE).fails(why);
        assert!(!dir.has("s") && !dir.has("t"));
    };
    let dir = Dir::new();
    dir.write("v/step1/model-1.safetensors", &model(1));
    dir.write(variant, INDEX);
    refused(&dir, &["fp16.json: names model-2.safetensors, which is not beside it"]);
    // One that ends early, whatever its name is.
    dir.write("v/step1/model-2.safetensors", &model(2)[..40_000]);
    refused(&dir, &["fp16.json: names model-2.safetensors, which is not whole: it has 40000 bytes"]);
    dir.write("v/step1/model-2.safetensors", &model(2));
    dir.run(["snapshot", "save", "t", "v/step1"]).ok();
    dir.run(ONCE).ok();
    // Weights are never left out.
    write(&dir, "step2", 2);
    dir.write("v/step2/more:1.safetensors", &model(2));
    dir.run(ONCE).fails(&["more:1.safetensors: has a name that no file in a store can have: rename it"]);
    assert_eq!(steps(&dir), [1]);
}

#[test]
fn what_is_waited_for_is_said_once() {
    let dir = Dir::new();
    write_indexed(&dir, "v/step1", INDEX, &[]);
    let shard = dir.path("v/step1/model-2.safetensors");
    std::fs::rename(&shard, dir.path("shard")).unwrap();
    let publisher = dir.in_background(["publish", "s", "v", "--settle", "0", "--interval", "0.01"], "said");
    let said = || String::from_utf8(dir.read("said")).unwrap();
    let why = "names model-2.safetensors, which is not beside it; finish it";
    wait_until("it is said", || said().contains(why));
    // Another reason.
    dir.write("v/step1/model-2.safetensors", &model(2)[..40_000]);
    wait_until("it is said", || said().contains("which is not whole"));
    std::fs::rename(dir.path("shard"), &shard).unwrap();
    wait_until("step 1 is published", || steps(&dir) == [1]);
    // A name that cannot be saved is no mistake on the command line, and ends nothing.
    dir.write("v/step2/events:1", b"x");
    wait_until("it is said", || said().contains("v/step2: has no files to save"));
    std::fs::remove_dir_all(dir.path("v/step2")).unwrap();
    write(&dir, "step3", 3);
    wait_until("step 3 is published", || steps(&dir) == [1, 3]);
    drop(publisher);
    assert_eq!(said().matches("Z lmc: waiting for v/step1 to be complete: ").count(), 2, "{}", said());
}

#[test]
fn a_version_of_a_clock_that_is_ahead_is_published() {
    let dir = Dir::new();
    write(&dir, "step1", 1);
    dir.shell("find v/step1 -exec touch -d '+1 day' {} +").ok();
    dir.run(["publish", "s", "v", "--once", "--settle", "1"]).fails(&["s from now, as of a clock that is ahead"]);
    let _publisher = dir.in_background(["publish", "s", "v", "--settle", "0.1", "--interval", "0.01"], "said");
    wait_until("step 1 is published", || steps(&dir) == [1]);
    // One whose clock is behind is not finished because it seems to be old.
    dir.shell("mkdir v/.new && cp v/step1/model.safetensors v/.new && touch -d '1 day ago' v/.new/model.safetensors")
        .ok();
    std::fs::rename(dir.path("v/.new"), dir.path("v/step2")).unwrap();
    wait_until("step 2 is published", || steps(&dir) == [1, 2]);
}

#[test]
fn what_a_run_writes_is_published_and_followed() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("v")).unwrap();
    let _publisher = dir.in_background(["publish", "s", "v", "--settle", "0", "--interval", "0.01"], "said");
    let _follower = dir.in_background(["follow", "s", "m", "--interval", "0.01"], "calls");
    for n in 1..=4 {
        write(&dir, &format!("step-{n}"), n);
        let there = "m/current/model.safetensors";
        wait_until("the version is followed", || dir.has(there) && dir.read(there) == model(n));
    }
    // Errors that pass do not end it.
    std::fs::rename(dir.path("v"), dir.path("w")).unwrap();
    let missed = "v: cannot read the directory";
    wait_until("it is missed", || String::from_utf8_lossy(&dir.read("said")).contains(missed));
    std::fs::rename(dir.path("w"), dir.path("v")).unwrap();
    write(&dir, "step-5", 5);
    wait_until("step 5 is published", || steps(&dir) == [1, 2, 3, 4, 5]);
}

#[test]
fn every_version_costs_followers_what_changed() {
    let dir = Dir::new();
    let mut fetched = vec![];
    for n in 1..=5 {
        write(&dir, &format!("step{n}"), n);
        dir.run(["publish", "s", "v", "--once", "--settle", "0", "--anchor-every", "2"]).ok();
        let followed = dir.run(["follow", "s", "m", "--once", "--json"]);
        fetched.push(followed.ok().json()[0]["fetched_size"].as_u64().unwrap());
        assert!(dir.read("m/current/model.safetensors") == model(n));
    }
    assert!(fetched[1..].iter().all(|&n| n < fetched[0] / 2), "{fetched:?}");
}

#[test]
fn versions_of_a_run_that_was_rewound_are_reported() {
    let dir = Dir::new();
    write(&dir, "step10", 10);
    dir.run(ONCE).ok();
    write(&dir, "step5", 5);
    let publisher = dir.in_background(["publish", "s", "v", "--settle", "0", "--interval", "0.01"], "said");
    write(&dir, "step11", 11);
    wait_until("step 11 is published", || steps(&dir) == [10, 11]);
    write(&dir, "step7", 7);
    // Once a later one is published, it was examined.
    write(&dir, "step12", 12);
    wait_until("step 12 is published", || steps(&dir) == [10, 11, 12]);
    write(&dir, "step13", 13);
    wait_until("step 13 is published", || steps(&dir) == [10, 11, 12, 13]);
    // One that was saved, and is written again.
    std::fs::remove_dir_all(dir.path("v/step12")).unwrap();
    write(&dir, "step12", 99);
    for n in [14, 15] {
        write(&dir, &format!("step{n}"), n);
        wait_until("the next one is published", || steps(&dir).last() == Some(&n));
    }
    drop(publisher);
    let said = String::from_utf8(dir.read("said")).unwrap();
    let reported: Vec<&str> = said.lines().filter(|l| l.contains("is not saved")).collect();
    assert!(reported.len() == 2 && reported[0].contains("Z lmc: v/step7: is not saved: the store has"), "{said}");
    assert!(reported[1].contains("Z lmc: v/step12: is not saved"), "{said}");
}

#[test]
fn what_is_written_to_a_saved_version_is_reported() {
    let dir = Dir::new();
    write(&dir, "step1", 1);
    dir.run(ONCE).ok();
    write(&dir, "step2", 2);
    let publisher = dir.in_background(["publish", "s", "v", "--settle", "0", "--interval", "0.01"], "said");
    let said = || String::from_utf8(dir.read("said")).unwrap();
    wait_until("step 2 is published", || steps(&dir) == [1, 2]);
    // What is removed, or belongs to an earlier version, is not.
    std::fs::remove_file(dir.path("v/step2/sub/config.json")).unwrap();
    dir.write("v/step1/late", b"late");
    write(&dir, "step3", 3);
    wait_until("step 3 is published", || steps(&dir) == [1, 2, 3]);
    assert!(!said().contains("was written to"), "{}", said());
    // A file that comes late, or one that is written again.
    dir.write("v/step3/sub/late", b"late");
    wait_until("it is reported", || said().contains("v/step3/sub/late: was written to after the version was saved"));
    write(&dir, "step4", 4);
    wait_until("step 4 is published", || steps(&dir).last() == Some(&4));
    dir.write("v/step4/model.safetensors", &model(9));
    wait_until("it is reported", || said().contains("v/step4/model.safetensors: was written to after"));
    // One that is replaced is another version.
    write(&dir, "step5", 5);
    wait_until("step 5 is published", || steps(&dir).last() == Some(&5));
    std::fs::remove_dir_all(dir.path("v/step5")).unwrap();
    write(&dir, "step5", 9);
    wait_until("it is reported", || said().contains("v/step5: is not saved"));
    drop(publisher);
    assert_eq!(said().matches("was written to").count(), 2, "{}", said());
    check(&dir, 4);
}

#[test]
fn what_is_no_version_is_said() {
    let dir = Dir::new();
    dir.run(ONCE).fails(&["v: cannot read the directory"]);
    assert!(!dir.has("s"));
    write(&dir, "step1", 1);
    write(&dir, "epoch1", 1);
    dir.run(ONCE).fails(&["v/epoch1: is of step 1, and so is v/step1: move one away"]);
    dir.run(["-q", "snapshot", "save", "empty", "none"]).fails(&["none"]);
    assert!(!dir.has("empty"), "a store was made for a file that is not there");
    std::fs::remove_dir_all(dir.path("v/epoch1")).unwrap();
    std::os::unix::fs::symlink("..", dir.path("v/step1/link")).unwrap();
    dir.run(ONCE).fails(&["v/step1/link: is a symbolic link"]);
    std::fs::remove_file(dir.path("v/step1/link")).unwrap();
    dir.run(ONCE).ok();
    // The store itself may have the name of a version.
    dir.shell("mv s v/run7").ok();
    dir.run(["publish", "v/run7", "v", "--once", "--settle", "0"]).fails(&["run7: is the store itself"]);
    for bad in ["-1", "x", "1e9"] {
        let misused = dir.run(["publish", "s", "v", &format!("--settle={bad}")]);
        assert!(misused.stderr().contains("invalid value") && misused.stderr().contains("--settle"), "{misused:?}");
    }
    let both = dir.run(["publish", "s", "v", "--settle", "1", "--marker", "x"]);
    assert!(both.stderr().contains("cannot be used with"), "{both:?}");
}

/// Without `--once`: what does not pass ends it.
#[test]
fn a_file_in_the_place_of_a_directory_ends_it_at_once() {
    let dir = Dir::new();
    // Before there is a version: one may take hours.
    dir.shell("mkdir v && mkdir other && touch other/x").ok();
    dir.run(["publish", "other", "v"]).is_misused(&["other: has x in it, is no store"]);
    write(&dir, "step1", 1);
    dir.run(ONCE).ok();
    dir.run(["snapshot", "export", "s", "run.tar"]).ok();
    dir.write("file", b"not a store");
    let before = dir.names();
    let what = "is a file, and has to be a directory";
    for (store, from) in [("run.tar", "v"), ("run.tar/x", "v"), ("file", "v"), ("s", "run.tar"), ("s", "file/v")] {
        let file = if store == "s" { from } else { store };
        let file = file.split('/').next().unwrap();
        dir.run(["publish", store, from]).is_misused(&[&format!("{file}: {what}")]);
    }
    dir.run(["publish", "s", "v", "--interchange", "file/out"]).is_misused(&[&format!("file: {what}")]);
    dir.run(["follow", "s", "file"]).is_misused(&[&format!("file: {what}")]);
    dir.run(["follow", "file", "m"]).fails(&["file: is a file, not a store"]);
    // A store of another version of lmc stays one.
    dir.shell("cp -r s t && sed -i 's/\"version\":1/\"version\":9/' t/lmc-store.json").ok();
    for args in [["publish", "t", "v"], ["follow", "t", "m"]] {
        dir.run(args).fails(&["t: ", "version 9"]);
    }
    assert_eq!(dir.names().iter().filter(|n| !n.starts_with("t/") && *n != "t").count(), before.len());
    // An archive can be followed.
    dir.run(["-q", "follow", "run.tar", "m", "--once"]).silent();
    assert!(dir.read("m/current/model.safetensors") == model(1));
}

#[test]
fn a_full_disk_leaves_the_versions_before() {
    let dir = Dir::new();
    write(&dir, "step0", 0);
    dir.run(ONCE).ok();
    write(&dir, "step1", 1);
    for blocks in [0, 1, 20] {
        let script = format!("ulimit -f {blocks}; exec $LMC publish s v --once --settle 0");
        dir.shell(&script).fails(&["cannot write"]);
        assert_eq!(steps(&dir), [0], "{blocks}");
    }
    dir.run(ONCE).ok();
    assert_eq!(steps(&dir), [0, 1]);
    check(&dir, 1);
}

/// Space for one page more each time, until there is enough.
#[test]
fn a_file_system_without_space_leaves_the_versions_before() {
    if !may_mount() {
        return;
    }
    let dir = Dir::new();
    write(&dir, "step0", 0);
    dir.run(ONCE).ok();
    write(&dir, "step1", 1);
    let sweep = dir.full_disk(
        "cp -a s full/",
        r#""$LMC" -q publish s ../v --once --settle 0"#,
        r#"test "$("$LMC" snapshot list s --json | grep -c '"step":')" = 1 && rm -rf ../out &&
           "$LMC" -q snapshot restore s -o ../out --at 0 && cmp ../out/model.safetensors ../v/step0/model.safetensors"#,
    );
    dir.shell("rm -r s && cp -a left/s s").ok();
    assert_eq!(steps(&dir), [0, 1]);
    [0, 1].into_iter().for_each(|n| check(&dir, n));
    dir.run(["snapshot", "verify", "s", "--deep"]).ok();
    // Data, shard and record, a page each at least.
    assert!(sweep.failures >= 3, "{sweep:?}");
}

/// Kills at as many moments as `LMC_KILLS` says.
#[test]
fn after_a_kill_the_next_process_goes_on_on_each_backend() {
    let store = &new_store()[..];
    let once = ["publish", store, "v", "--once", "--settle", "0"];
    let dir = Dir::new();
    write(&dir, "step0", 0);
    let moments = Moments::of(40, 7, || _ = dir.run(once).ok());
    let (mut there, mut n, mut newest, kills) = (0, 0, 0, moments.count());
    for moment in moments.iter() {
        if newest == n {
            n += 1;
            std::fs::remove_dir_all(dir.path(format!("v/step{}", n - 1))).unwrap();
            write(&dir, &format!("step{n}"), n);
        }
        let mut child = dir.command(once).stderr(Stdio::null()).spawn().unwrap();
        kill_after(&mut child, moment);
        let found = steps_in(&dir, store);
        assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
        newest = found.len() as u64 - 1;
        assert!((n - 1..=n).contains(&newest), "{found:?}");
        there += u64::from(newest == n);
        check_in(&dir, store, newest);
    }
    println!("{store}: {there} of {kills} kills left the new version, the others that before");
    assert!(kills < 20 || (0 < there && there < kills), "{there} of {kills}");
    dir.run(once).ok();
    check_in(&dir, store, n);
    let verified = dir.run(["snapshot", "verify", store, "--deep"]);
    verified.ok();
}

const UNIT: &str = include_str!("../../../../packaging/lmc-publish@.service");

/// The value of a setting of the unit for systemd.
fn setting(name: &str) -> &'static str {
    let values: Vec<&str> = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect();
    let [value] = values[..] else { panic!("{name}: {values:?}") };
    value
}

#[test]
fn the_unit_publishes_says_how_it_is_and_ends_cleanly() {
    for line in UNIT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let is_section = ["[Unit]", "[Service]", "[Install]"].contains(&line);
        assert!(
            is_section || line.split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty()),
            "{line}"
        );
    }
    assert_eq!(setting("EnvironmentFile"), "/etc/lmc/publish-%i.conf");
    let dir = Dir::new();
    write(&dir, "epoch=0-step=16", 16);
    let words: Vec<&str> = setting("ExecStart").split(' ').collect();
    assert_eq!(words[..2], ["lmc", "publish"]);
    let words = words[1..].iter().flat_map(|&word| match word {
        "$OPTIONS" => vec!["--settle", "0", "--interval", "0.01"],
        "${STORE}" => vec!["s"],
        "${DIRECTORY}" => vec!["v"],
        "/run/lmc-publish/%i.json" => vec!["health.json"],
        word => vec![word],
    });
    let words: [&str; 9] = words.collect::<Vec<_>>().try_into().unwrap();
    let mut publisher = dir.spawn(words);
    let health = || {
        let text = if dir.has("health.json") { dir.read("health.json") } else { b"null".to_vec() };
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    };
    wait_until("step 16 is saved", || health()["step"] == 16);
    wait_until("it waits", || health()["waiting"] == "waiting for a version in v");
    assert_eq!((&health()["error"], health()["time"].as_u64() > Some(1_700_000_000)), (&json!(null), true));
    std::fs::rename(dir.path("v"), dir.path("w")).unwrap();
    wait_until("it fails", || {
        health()["error"].as_str().is_some_and(|e| e.starts_with("v: cannot read the directory"))
    });
    std::fs::rename(dir.path("w"), dir.path("v")).unwrap();
    write(&dir, "epoch=1-step=32", 32);
    wait_until("step 32 is saved", || health()["step"] == 32 && health()["error"].is_null());
    // systemd takes this signal for a clean end.
    let kill = std::process::Command::new("kill").args(["-TERM", &publisher.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let ended = std::os::unix::process::ExitStatusExt::signal(&publisher.wait().unwrap());
    assert_eq!(ended, Some(15));
    assert_eq!(steps(&dir), [16, 32]);
    dir.run(["snapshot", "verify", "s", "--deep"]).ok();
    assert_eq!(dir.names().into_iter().filter(|name| name.ends_with(".tmp")).count(), 0);
    // A store is not the place for it.
    dir.run(["publish", "s", "v", "--once", "--health-file", "s/health.json"]).is_misused(&["is in the store s"]);
    dir.run(["publish", "s", "v", "--once", "--health-file", "v/health.json"]).is_misused(&["which has the versions"]);
}

#[test]
fn systemd_finds_no_fault_in_the_unit_of_publish() {
    let dir = Dir::new();
    let unit = UNIT.replace("ExecStart=lmc ", &format!("ExecStart={} ", env!("CARGO_BIN_EXE_lmc")));
    assert!(unit != UNIT);
    let path = dir.write("lmc-publish@run.service", unit.as_bytes());
    let verify = std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output();
    if let Ok(run) = verify {
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!said.lines().any(|line| line.contains("lmc-publish@run.service")), "{said}");
    }
}

#[test]
fn steps_of_other_names_are_found_by_a_pattern() {
    let dir = Dir::new();
    write(&dir, "s7-of-run", 7);
    dir.run(ONCE).fails(&["v: has no version: a directory or a file with weights whose name has a step"]);
    let wrong = dir.run(["publish", "s", "v", "--once", "--step-pattern", "("]);
    assert_eq!(wrong.0.status.code(), Some(2), "{wrong:?}");
    dir.run(["-q", "publish", "s", "v", "--once", "--settle", "0", "--step-pattern", r"^s(\d+)-"]).silent();
    assert_eq!(steps(&dir), [7]);
}
