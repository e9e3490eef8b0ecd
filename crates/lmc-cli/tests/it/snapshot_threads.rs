//! `-T` bounds the threads of `lmc snapshot` that work, and all others are few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::{Dir, noise, safetensors};

/// What `/proc` says of each thread that a command had: its name, and how long it ran, in ticks.
fn threads(dir: &Dir, args: &[&str]) -> BTreeMap<u32, (String, u64)> {
    let mut child = dir.command(args).spawn().unwrap();
    let mut seen = BTreeMap::new();
    while child.try_wait().unwrap().is_none() {
        for task in fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten() {
            // It may be gone by now.
            let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
            let (Some(start), Some(end)) = (stat.find('('), stat.rfind(')')) else { continue };
            // Fields are counted from that after the name, which is the third.
            let field = |n: usize| stat[end + 2..].split(' ').nth(n - 3).unwrap().parse::<u64>().unwrap();
            let name = stat[start + 1..end].to_owned();
            let id = task.file_name().to_str().unwrap().parse().unwrap();
            seen.insert(id, (name, field(14) + field(15)));
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

fn check(threads: &BTreeMap<u32, (String, u64)>, n: usize, args: &[&str]) {
    let named = |name: &str| threads.values().filter(|(of, _)| of == name).count();
    let names: BTreeSet<&str> = threads.values().map(|(name, _)| &name[..]).collect();
    // Commands have one thread, which waits for the others; requests have two, and four to wait for the disk.
    assert!(names.iter().all(|of| ["lmc", "lmc-worker", "lmc-store"].contains(of)), "{args:?}: {threads:?}");
    assert!(named("lmc-worker") <= n && named("lmc-store") <= 6 && named("lmc") <= 2, "{args:?}: {threads:?}");
    let worked: u64 = threads.values().filter(|(of, _)| of == "lmc-worker").map(|(_, ticks)| ticks).sum();
    assert!(worked > 0, "nothing was seen of {args:?}: {threads:?}");
}
