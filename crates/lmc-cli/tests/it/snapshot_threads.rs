//! `-T` bounds the working threads of `lmc snapshot`, and all others are few.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Dir, noise, safetensors};

/// The names of the threads observed in a command.
fn threads(dir: &Dir, args: &[&str]) -> BTreeMap<u32, String> {
    let mut child = dir.command(args).spawn().unwrap();
    let mut seen = BTreeMap::new();
    while child.try_wait().unwrap().is_none() {
        for task in fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten() {
            // The thread may be gone, and has the command's name until it is given its own.
            let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
            let id = task.file_name().to_str().unwrap().parse().unwrap();
            seen.insert(id, name.trim_end().to_owned());
        }
        std::thread::yield_now();
    }
    assert!(child.wait().unwrap().success(), "{args:?}");
    seen
}

#[test]
fn no_more_threads_work_than_are_asked_for() {
    let dir = Dir::new();
    // Two snapshots, so that there are chains to decode: 24 tensors of 1 MiB each.
    let mut data = noise(1 << 20, 1);
    for step in 0..2 {
        data[step] ^= 1;
        let names: Vec<String> = (0..24).map(|i| format!("t{i:02}")).collect();
        let tensors: Vec<Vec<u8>> = (0..24).map(|i| [&data[i..], &data[..i]].concat()).collect();
        let all: Vec<(&str, &str, &[u64], &[u8])> =
            names.iter().zip(&tensors).map(|(n, t)| (&n[..], "BF16", &[1u64 << 19][..], &t[..])).collect();
        dir.write("w", &safetensors(&all));
        let saved = ["snapshot", "save", "s", "w", "-T", "1"];
        check(&threads(&dir, &saved), 1, &saved);
    }
    for (command, n) in [
        (&["snapshot", "restore", "s", "-o", "one", "-T", "1"][..], 1),
        (&["snapshot", "verify", "s", "--deep", "-q", "-T", "1"], 1),
        (&["snapshot", "restore", "s", "-o", "two", "-T", "2"], 2),
    ] {
        check(&threads(&dir, command), n, command);
    }
    assert!(dir.read("one/w") == dir.read("w") && dir.read("two/w") == dir.read("w"));
}

fn check(threads: &BTreeMap<u32, String>, n: usize, args: &[&str]) {
    let named = |name: &str| threads.values().filter(|of| *of == name).count();
    // The command has one thread that waits for the others, and one for signals; requests have two, and four for disk access.
    // Before that a trial, whose threads end at once, shows whether as many can be had.
    let known = ["lmc", "signals", "lmc-worker", "lmc-store", "lmc-trial"];
    let trial = named("lmc-trial") + named("lmc").saturating_sub(1);
    assert!(!threads.is_empty() && threads.values().all(|of| known.contains(&&of[..])), "{args:?}: {threads:?}");
    assert!(named("lmc-worker") <= n && threads.len() <= n + 8 + trial, "{args:?}: {threads:?}");
}
