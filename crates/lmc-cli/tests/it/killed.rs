//! `lmc snapshot` killed at every change that it makes to a store on disk: nothing is lost, and the next command continues.

use std::collections::BTreeMap;
use std::process::Child;

use lmc_testing::thorough;

use crate::support::{Dir, noise, safetensors, weights};

/// The snapshots of a store, by step, each with the file that it was saved from.
type Snapshots = BTreeMap<u64, Vec<u8>>;

/// The model at a step.
fn model(n: u64) -> Vec<u8> {
    let mut data = weights(20_000, 1);
    for i in 0..n {
        data.iter_mut().step_by(2).zip(noise(20_000, i)).for_each(|(w, m)| *w ^= m & 3);
    }
    safetensors(&[("w", "BF16", &[20_000], &data), ("n", "I64", &[], &n.to_le_bytes())])
}

fn save(dir: &Dir, store: &str, n: u64) -> Vec<String> {
    dir.write("w", &model(n));
    ["snapshot", "save", store, "w", "--base", "previous", "--step", &n.to_string()].map(String::from).into()
}

fn restore_all(dir: &Dir, store: &str) -> Snapshots {
    let steps = dir.run(["snapshot", "list", store, "--json"]);
    let steps = steps.ok().json().into_iter().map(|s| s["step"].as_u64().unwrap());
    let restore = |n: u64| {
        dir.run(["snapshot", "restore", store, "--at", &n.to_string(), "-o", "out", "-f"]).silent();
        (n, dir.read("out/w"))
    };
    steps.map(restore).collect()
}

/// Lets `lmc` run until this many changes of file names in a store were observed, then kills it. Returns whether it was still running.
fn kill_after(dir: &Dir, store: &str, changes: usize, child: &mut Child) -> bool {
    let names = || dir.try_names(store);
    let (mut seen, mut last) = (0, names());
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let now = names();
        seen += usize::from(now != last);
        last = now;
        if seen >= changes {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
    }
}

/// Kills a command after its first change, its second, and so on; unless tests are thorough, at some 8 of these moments. Each time the store has the snapshots of `before` or `after`, or for each
/// step one of the two, and the next save works. A command that is not killed results in `after`.
fn kill_at_every_change(dir: &Dir, args: &[String], before: &Snapshots, after: &Snapshots) {
    let (mut changes, mut missed) = (0, 0);
    loop {
        dir.shell("rm -rf s && cp -a origin s").ok();
        let mut child = dir.command(args).spawn().unwrap();
        let killed = kill_after(dir, "s", changes, &mut child);
        let found = restore_all(dir, "s");
        for n in before.keys().chain(after.keys()) {
            let file = found.get(n);
            let expected = if killed { [before.get(n), after.get(n)] } else { [after.get(n); 2] };
            assert!(expected.contains(&file), "step {n} after {changes} changes");
        }
        assert!(found.keys().all(|n| before.contains_key(n) || after.contains_key(n)));
        assert!(dir.command(save(dir, "s", 1000)).status().unwrap().success());
        dir.run(["snapshot", "verify", "s", "--deep"]).ok();
        dir.run(["-q", "snapshot", "gc", "s"]).silent();
        assert_eq!(restore_all(dir, "s").len(), found.len() + 1);
        if killed {
            changes += if thorough() { 1 } else { 1 + changes / 3 };
        } else if changes < 3 && missed < 30 {
            // It was too fast: changes that follow each other closely are seen as one.
            missed += 1;
        } else {
            assert!(changes >= 3, "it was killed {changes} times");
            return;
        }
    }
}

/// A store of some snapshots, in `origin`.
fn stored() -> (Dir, Snapshots) {
    let dir = Dir::new();
    for n in 0..6 {
        assert!(dir.command(save(&dir, "origin", n)).status().unwrap().success());
    }
    (dir, (0..6).map(|n| (n, model(n))).collect())
}

#[test]
fn a_save_is_killed() {
    let (dir, before) = stored();
    let mut after = before.clone();
    after.insert(6, model(6));
    // Another file for the next save.
    let mut args = save(&dir, "s", 6);
    std::fs::create_dir(dir.path("six")).unwrap();
    std::fs::copy(dir.path("w"), dir.path("six/w")).unwrap();
    args[3] = "six/w".to_owned();
    kill_at_every_change(&dir, &args, &before, &after);
}

#[test]
fn a_prune_is_killed() {
    let (dir, before) = stored();
    let after: Snapshots = before.iter().filter(|(n, _)| **n == 5).map(|(n, f)| (*n, f.clone())).collect();
    let args = ["snapshot", "prune", "s", "--keep-last", "1", "--yes"].map(String::from);
    kill_at_every_change(&dir, &args, &before, &after);
}

#[test]
fn a_collector_is_killed() {
    let (dir, mut before) = stored();
    dir.run(["-q", "snapshot", "prune", "origin", "--keep-last", "1", "--yes"]).silent();
    // Large enough that it does not end between two observations.
    let lost = "0123456789abcdef".repeat(2);
    (0..2000).for_each(|i| _ = dir.write(&format!("origin/data/{lost}/{i:06}"), b""));
    dir.shell("find origin -exec touch -d '3 days ago' {} +").ok();
    before.retain(|n, _| *n == 5);
    let garbage = &dir.run(["snapshot", "gc", "origin", "--dry-run", "--json"]).json()[0];
    assert_eq!(garbage["orphans"].as_array().unwrap().len(), 2018);
    kill_at_every_change(&dir, &["snapshot", "gc", "s"].map(String::from), &before, &before);
}

/// Writes the records of snapshots that were pruned.
fn pruned(dir: &Dir, store: &str, steps: std::ops::RangeInclusive<u64>) {
    for n in steps {
        let number = format!("{:016}", (1u64 << 53) - n);
        let [a, b, c, d, e] = [0..4, 4..7, 7..10, 10..13, 13..16].map(|digits| &number[digits]);
        let text = format!(
            r#"{{"format":"lmc-snapshot","version":1,"step":{n},"id":"{n:032x}","time":1,"state":"pruned","metadata":{{}},"shards":[],"#
        ) + r#""raw_size":0,"new_size":0,"seen":[]"#;
        let check = blake3::hash(format!("{text}}}").as_bytes());
        let key = format!("{store}/snapshots/{a}/{b}/{c}/{d}/{e}-0000000000.json");
        dir.write(&key, format!("{text},\"check\":\"{check}\"}}").as_bytes());
    }
}

#[test]
fn a_collector_that_writes_a_floor_and_deletes_what_an_earlier_one_allows_is_killed() {
    let dir = Dir::new();
    for n in [0, 2000] {
        assert!(dir.command(save(&dir, "origin", n)).status().unwrap().success());
    }
    let long_ago = || _ = dir.shell("find origin -exec touch -d '3 days ago' {} +").ok();
    // The 1,024 highest steps stay.
    pruned(&dir, "origin", 1..=1123);
    long_ago();
    dir.run(["-q", "snapshot", "gc", "origin"]).silent();
    assert_eq!(dir.try_names("origin/floors").len(), 1);
    pruned(&dir, "origin", 1124..=1150);
    long_ago();
    let garbage = &dir.run(["snapshot", "gc", "origin", "--dry-run", "--json"]).json()[0];
    assert_eq!(garbage["orphans"].as_array().unwrap().len(), 100);
    let before: Snapshots = [0, 2000].map(|n| (n, model(n))).into();
    kill_at_every_change(&dir, &["snapshot", "gc", "s"].map(String::from), &before, &before);
    // The collector that was not killed wrote a second floor: above it, steps are saved.
    assert_eq!(dir.try_names("s/floors").len(), 2);
    assert!(!dir.command(save(&dir, "s", 100)).status().unwrap().success());
    assert!(dir.command(save(&dir, "s", 1023)).status().unwrap().success());
}
