//! `lmc snapshot` with a store that lost something: what the commands say, and that they do not make it worse.

use crate::support::{Dir, noise};
use serde_json::json;

/// Three snapshots of a file that changes completely; and the shard and the data object of each one.
fn three() -> (Dir, Vec<[String; 2]>) {
    let (dir, mut objects) = (Dir::new(), vec![]);
    for n in 1..=3 {
        let before = dir.names();
        dir.write("w", &noise(100_000, n));
        dir.run(["-q", "snapshot", "save", "s", "w", "--anchor-every", "1", "--step", &n.to_string()]).silent();
        let of = |kind: &str| {
            let new = |name: &String| name.starts_with(kind) && dir.path(name).is_file() && !before.contains(name);
            dir.names().into_iter().find(new).unwrap()["s/".len()..].to_owned()
        };
        objects.push([of("s/shards/"), of("s/data/")]);
    }
    (dir, objects)
}

#[test]
fn lost_data_are_named_with_a_remedy_and_passed_over() {
    let (dir, objects) = three();
    let lost = &objects[1][1];
    dir.shell(&format!("rm s/{lost}")).ok();
    let remedy = "put the object back from a copy of the store, or, if there is none, end the snapshot: lmc snapshot prune --damaged 2";
    dir.run(["snapshot", "verify", "s"]).fails(&[&format!(
        "s: step 2: {lost}: is missing: cannot be restored: bytes between the tensors of w; {remedy}"
    )]);
    let found = dir.run(["snapshot", "verify", "s", "--json"]);
    assert_eq!(found.json()[0]["problems"][0]["remedy"], json!(remedy));
    dir.run(["snapshot", "restore", "s", "--at", "2", "-o", "none"])
        .fails(&[lost, "lmc snapshot verify shows what is lost"]);
    // The others are copied and exported.
    for (command, line) in [("copy s t", "t : 2 snapshots copied"), ("export s s.tar", "s.tar : 2 snapshots")] {
        let run = dir.shell(&format!("exec $LMC snapshot {command}"));
        assert_eq!(run.0.status.code(), Some(1), "{run:?}");
        let said: Vec<&str> = run.stderr().lines().collect();
        assert_eq!(said.len(), 2, "{run:?}");
        assert!(
            said[0].contains("s: step 2 is skipped: ") && said[0].contains(lost) && said[1].starts_with(line),
            "{run:?}"
        );
    }
    for made in ["t", "s.tar"] {
        assert!(dir.run(["snapshot", "verify", made, "--deep"]).ok().stdout().contains("2 snapshots"));
    }
    let none = dir.run(["snapshot", "export", "s", "one.tar", "--at", "2"]);
    assert_eq!(none.0.status.code(), Some(1), "{none:?}");
    assert!(
        none.stderr().contains("step 2 is skipped") && none.stderr().contains("no snapshot is left to export"),
        "{none:?}"
    );
    assert!(!dir.has("one.tar"));
    // Nothing is pruned as long as it would stay.
    let before = dir.names();
    dir.run(["snapshot", "prune", "s", "--keep-step", "2"])
        .fails(&[&format!("s: step 2: would stay, but cannot be restored: {lost}: is missing")]);
    dir.run(["snapshot", "prune", "s", "--keep-step", "2", "--yes"]).fails(&[
        "step 2: would stay",
        "nothing was pruned",
        "--damaged 2",
    ]);
    assert_eq!(dir.names(), before);
    // Its file is stored again, in whole.
    dir.write("w", &noise(100_000, 2));
    let saved = dir.run(["snapshot", "save", "s", "w", "--json"]);
    assert!(saved.ok().json()[0]["new_size"].as_u64().unwrap() > 90_000);
    dir.run(["snapshot", "restore", "s", "-o", "out"]).ok();
    assert!(dir.read("out/w") == noise(100_000, 2));
    dir.run(["snapshot", "prune", "s", "--damaged", "2", "--yes"]).ok();
    assert!(dir.run(["snapshot", "verify", "s", "--deep"]).ok().stdout().contains("3 snapshots"));
    dir.run(["snapshot", "restore", "s", "--at", "2"])
        .fails(&["s: the store has no snapshot of step 2: it was pruned"]);
}

#[test]
fn a_lost_shard_does_not_end_a_store() {
    let (dir, objects) = three();
    let key = &objects[2][0];
    dir.shell(&format!("rm s/{key}")).ok();
    let saved = dir.run(["snapshot", "save", "s", "w"]);
    assert!(saved.ok().stderr().contains("lmc: s: step 3: cannot be the base: "), "{saved:?}");
    assert!(saved.stderr().contains(key) && saved.stderr().contains("prune --damaged 3"), "{saved:?}");
    let listed = dir.run(["snapshot", "list", "s"]);
    assert!(listed.ok().stdout().starts_with("s : 4 snapshots, 390.6 KiB => "), "{listed:?}");
    dir.run(["snapshot", "gc", "s"]).fails(&[key, "nothing was deleted", "lmc snapshot verify names them"]);
    dir.run(["snapshot", "prune", "s", "--damaged", "4"]).is_misused(&["step 4 is not damaged"]);
    dir.run(["snapshot", "prune", "s", "--damaged", "3", "--yes"]).ok();
    assert!(dir.run(["snapshot", "verify", "s"]).ok().stdout().contains("3 snapshots"));
}

#[test]
fn a_store_without_records_or_without_its_marker_is_left_alone() {
    let (dir, _) = three();
    dir.shell("cp -r s copy && rm -r s/snapshots/* && find s -exec touch -d '3 days ago' {} +").ok();
    let before = dir.names();
    dir.run(["snapshot", "verify", "s"]).fails(&["s: 6 objects of ", "belong to no snapshot"]);
    for options in ["", "-n"] {
        dir.shell(&format!("exec $LMC snapshot gc s {options}"))
            .fails(&["s: the store has 3 shards, and not one record", "--without-records"]);
    }
    assert_eq!(dir.names(), before);
    dir.run(["snapshot", "gc", "s", "--without-records"]).ok();
    assert_eq!(
        dir.try_names("s").into_iter().filter(|n| dir.path(n).is_file()).collect::<Vec<_>>(),
        ["s/lmc-store.json"]
    );
    dir.run(["snapshot", "verify", "s"]).ok();
    // A marker that is lost, or empty.
    for spoil in ["rm copy/lmc-store.json", "touch copy/lmc-store.json"] {
        dir.shell(spoil).ok();
        let before = dir.names();
        for command in ["list copy", "save copy w", "restore copy -o out", "gc copy", "copy copy new", "copy s copy"] {
            dir.shell(&format!("exec $LMC snapshot {command}")).fails(&["lmc-store.json: ", "put it back from a copy"]);
        }
        assert_eq!(dir.names(), before);
    }
    dir.write("copy/lmc-store.json", &dir.read("s/lmc-store.json"));
    assert!(dir.run(["snapshot", "verify", "copy", "--deep"]).ok().stdout().contains("3 snapshots"));
}

#[test]
fn the_first_line_of_a_list_has_what_is_needed() {
    let dir = Dir::new();
    dir.write("w", &noise(100_000, 1));
    for _ in 0..3 {
        dir.run(["-q", "snapshot", "save", "s", "w"]).silent();
    }
    let line = |command| dir.run(["snapshot", command, "s"]).ok().stdout().lines().next().unwrap().to_owned();
    for command in ["list", "log"] {
        let line = line(command);
        assert!(line.starts_with("s : 3 snapshots, 293.0 KiB => 97.") && line.contains(" KiB (33."), "{line}");
    }
    // All of it is the pruned snapshot's. Its document says so, and a list reads none.
    dir.run(["snapshot", "prune", "s", "--keep-last", "1", "--yes"]).ok();
    let log = line("log");
    assert!(log.starts_with("s : 1 snapshot, 97.7 KiB => 97.") && log.contains(" KiB (100."), "{log}");
    assert_eq!(line("list"), "s : 1 snapshot, 97.7 KiB; lmc snapshot log says what is stored for them");
}

#[test]
fn a_store_is_made_only_for_something() {
    let (dir, objects) = three();
    dir.shell("sed -i 's/86400/604800/' s/lmc-store.json && exec $LMC snapshot export s s.tar -q").ok();
    for command in ["copy s t", "copy s.tar u"] {
        dir.shell(&format!("exec $LMC snapshot {command} -q")).silent();
    }
    for made in ["t", "u"] {
        let marker = String::from_utf8(dir.read(&format!("{made}/lmc-store.json"))).unwrap();
        assert!(marker.contains("\"grace_seconds\":604800"), "{marker}");
    }
    for [_, data] in &objects {
        dir.shell(&format!("rm s/{data}")).ok();
    }
    let none = dir.run(["snapshot", "copy", "s", "v"]);
    assert_eq!(none.0.status.code(), Some(1), "{none:?}");
    let said: Vec<&str> = none.stderr().lines().collect();
    assert!(said.len() == 4 && said[2].starts_with("lmc: s: step 3 is skipped: data/"), "{none:?}");
    assert_eq!(said[3], "lmc: s: no snapshot is left to copy");
    dir.shell("rm -r s/snapshots s/shards").ok();
    dir.run(["snapshot", "copy", "s", "v"]).fails(&["s: no snapshot is left to copy"]);
    assert!(!dir.has("v"));
}

#[test]
fn a_copy_says_what_is_wrong_there() {
    let (dir, objects) = three();
    dir.run(["-q", "snapshot", "copy", "s", "t", "--at", "1", "--at", "2"]).silent();
    dir.write("t/snapshots/9007/199/254/740/991-0000000000.json", b"");
    dir.shell("rm t/data/*/000000").ok();
    let copy = dir.run(["snapshot", "copy", "s", "t", "--json"]);
    assert_eq!(copy.0.status.code(), Some(1), "{copy:?}");
    assert!(copy.stderr().contains("lmc: t: step 1 is skipped: snapshots/"), "{copy:?}");
    let json: serde_json::Value = serde_json::from_slice(&copy.0.stdout).unwrap();
    assert_eq!((&json["left_out"], &json["copied"], &json["damaged"]), (&json!([1]), &json!([3]), &json!([])));
    // Nothing of it was of use.
    assert_eq!(json["notes"], json!([]));
    // The cost of what lacks its shard is unknown.
    dir.shell(&format!("rm s/{}", objects[1][0])).ok();
    let log = dir.run(["snapshot", "log", "s", "--json"]);
    assert_eq!(log.0.status.code(), Some(1), "{log:?}");
    assert!(
        log.stderr().contains(&format!("lmc: s: step 2: its cost is unknown: cannot read {}", objects[1][0])),
        "{log:?}"
    );
    let chains: Vec<serde_json::Value> = log.json().iter().map(|line| line["chain"].clone()).collect();
    assert_eq!(chains, [json!(1), json!(null), json!(1)]);
    let log = dir.run(["snapshot", "log", "s"]);
    assert!(log.stdout().lines().any(|l| l.trim_start().starts_with("2 ") && l.ends_with("damaged")), "{log:?}");
}
