//! `lmc snapshot` with obstacles: damaged records, foreign files, links, FIFOs.

use std::fs;

use crate::snapshot::saved;
use crate::support::{Dir, noise, safetensors};
use serde_json::json;

#[test]
fn a_file_is_told_from_a_store() {
    let dir = saved();
    for file in ["m.safetensors", "notes.txt"] {
        for command in ["list", "log", "verify"] {
            dir.run(["snapshot", command, file]).fails(&[&format!("{file}: is a file, not a store: use lmc list")]);
        }
    }
}

#[test]
fn a_damaged_record_is_shown_and_passed_over() {
    let dir = saved();
    dir.run(["-q", "snapshot", "save", "runs/7", "notes.txt"]).silent();
    let record = "runs/7/snapshots/9007/199/254/740/891-0000000000.json";
    let whole = dir.read(record);
    dir.write(record, b"");
    let verify = dir.run(["snapshot", "verify", "runs/7"]);
    verify.fails(&["step 101", "0000000000.json", "nothing of the snapshot can be restored"]);
    let list = dir.run(["snapshot", "list", "runs/7"]);
    list.silent();
    assert!(list.stdout().contains("step 101 is damaged: snapshots/"), "{list:?}");
    assert!(dir.run(["snapshot", "log", "runs/7"]).ok().stdout().contains("damaged"));
    for command in ["list", "log"] {
        let listed = dir.run(["snapshot", command, "runs/7", "--json"]).json();
        assert_eq!(
            (&listed[0]["step"], &listed[1]["step"], &listed[2]["step"]),
            (&json!(100), &json!(101), &json!(102))
        );
        assert!(listed[1]["damaged"].as_str().unwrap().contains("not a valid lmc-snapshot"));
    }
    for command in ["prune runs/7 --keep-last 9 --yes -q", "export runs/7 run.tar -q", "copy runs/7 other -q"] {
        dir.shell(&format!("exec $LMC snapshot {command}")).fails(&["runs/7: step 101 is skipped: snapshots/"]);
    }
    for made in ["run.tar", "other"] {
        assert!(dir.run(["snapshot", "verify", made]).ok().stdout().contains("2 snapshots"));
    }
    dir.run(["snapshot", "gc", "runs/7"]).fails(&["step 101", "nothing was deleted", "prune --damaged 101"]);
    dir.run(["snapshot", "restore", "runs/7", "--at", "101"]).fails(&["step 101", "prune --damaged 101"]);
    dir.run(["snapshot", "restore", "runs/7", "-o", "latest"]).silent();
    // The newest record, after which a run continues, is bad, too.
    let newest = record.replace("891", "890");
    dir.write(&newest, b"");
    let strict = dir.run(["snapshot", "restore", "runs/7", "-o", "none", "--strict"]);
    strict.fails(&["step 102", "restore another one (--at STEP)"]);
    assert!(!dir.has("none"));
    let instead = dir.run(["snapshot", "restore", "runs/7", "-o", "instead"]);
    let said: Vec<&str> = instead.ok().stderr().lines().collect();
    assert!(said.iter().any(|line| line.contains("runs/7: step 102 is damaged, and step ")), "{instead:?}");
    assert!(dir.has("instead/m.safetensors"));
    dir.run(["-q", "snapshot", "save", "runs/7", "notes.txt"]).silent();
    assert_eq!(dir.run(["snapshot", "show", "runs/7", "--json"]).json()[0]["step"], json!(103));
    // One record is put back, the other one is given up.
    dir.write(record, &whole);
    let plan = dir.run(["snapshot", "prune", "runs/7", "--damaged", "102"]);
    assert!(plan.stderr().contains("is given up") && plan.ok().stdout().contains("end     102"), "{plan:?}");
    assert!(
        dir.run(["snapshot", "prune", "runs/7", "--damaged", "102", "--yes"]).ok().stderr().contains("is given up")
    );
    assert!(dir.run(["snapshot", "verify", "runs/7", "--expect", "101"]).ok().stdout().contains("3 snapshots"));
    dir.run(["snapshot", "verify", "runs/7", "-q", "--expect", "100", "--expect", "102"])
        .fails(&["step 102: is expected, but was pruned"]);
    dir.write("runs/7/snapshots/.DS_Store", b"");
    let noted = dir.run(["snapshot", "verify", "runs/7"]);
    assert!(noted.ok().stderr().contains(".DS_Store: is not a record of a snapshot"), "{noted:?}");
}

#[test]
fn files_that_change_while_they_are_saved_leave_nothing() {
    let dir = Dir::new();
    dir.write("d/w", &noise(100_000, 1));
    // The cache is written into the directory while that is saved.
    let save = ["snapshot", "save", "s", "d", "--cache", "d"];
    dir.run(save).fails(&["d: got or lost files while it was read"]);
    let files = |below: &str| dir.try_names(below).into_iter().filter(|n| dir.path(n).is_file()).collect::<Vec<_>>();
    assert_eq!(files("s"), ["s/lmc-store.json"]);
    assert!(dir.run(["snapshot", "list", "s", "--json"]).json().is_empty());
    fs::remove_dir_all(dir.path("d/lmc-cache")).unwrap();
    dir.run(["-q", "snapshot", "save", "s", "d"]).silent();
    assert!(files("s").iter().any(|n| n.starts_with("s/data/")));
}

#[test]
fn files_are_replaced_together_or_not_at_all() {
    let dir = Dir::new();
    let files = |n: u64| [("a", noise(1000, n)), ("b", noise(4 << 20, n))];
    for n in [100, 200] {
        files(n).iter().for_each(|(name, data)| _ = dir.write(&format!("d/{name}"), data));
        dir.run(["-q", "snapshot", "save", "st", "d", "--step", &n.to_string()]).silent();
    }
    let check = |n| {
        assert_eq!(dir.try_names("out"), ["out/a", "out/b"]);
        assert!(files(n).iter().all(|(name, data)| dir.read(&format!("out/{name}")) == *data), "step {n}");
    };
    dir.run(["snapshot", "restore", "st", "-o", "out", "--at", "100"]).silent();
    for way in ["", "named"] {
        // The limit is in blocks of 512 or 1024 bytes: the first file fits.
        let restore = "ulimit -f 100; exec $LMC snapshot restore st -f -o out --at 200";
        dir.shell(&format!("export LMC_TEMPORARY={way}; {restore}")).fails(&["out/b: cannot write"]);
        check(100);
    }
    dir.run(["snapshot", "restore", "st", "-f", "-o", "out", "--at", "200"]).silent();
    check(200);
}

#[test]
fn restoring_follows_no_link_and_opens_no_fifo() {
    let dir = Dir::new();
    fs::create_dir_all(dir.path("from/sub")).unwrap();
    dir.write("from/const.bin", b"saved");
    dir.write("from/sub/config.json", b"saved");
    dir.run(["-q", "snapshot", "save", "st", "from"]).silent();
    fs::create_dir(dir.path("victim")).unwrap();
    dir.write("victim/config.json", b"mine");
    fs::create_dir(dir.path("tgt")).unwrap();
    std::os::unix::fs::symlink("../victim", dir.path("tgt/sub")).unwrap();
    for options in ["", "-f"] {
        dir.shell(&format!("exec $LMC snapshot restore st -o tgt {options}")).fails(&["tgt/sub: is a symbolic link"]);
        assert!(!dir.has("tgt/const.bin") && dir.read("victim/config.json") == b"mine");
    }
    dir.shell("rm tgt/sub && mkdir tgt/sub && ln -s ../../victim/config.json tgt/sub/config.json").ok();
    dir.run(["snapshot", "restore", "st", "-o", "tgt", "-f"]).fails(&["tgt/sub/config.json: is a symbolic link"]);
    dir.shell("rm -r tgt && mkdir tgt && mkfifo tgt/const.bin").ok();
    for options in ["", "-f"] {
        dir.shell(&format!("exec $LMC snapshot restore st -o tgt {options}"))
            .fails(&["tgt/const.bin: is not a regular file"]);
    }
    // Links in the path of the directory itself are followed.
    std::os::unix::fs::symlink("back", dir.path("to")).unwrap();
    fs::create_dir(dir.path("back")).unwrap();
    dir.run(["snapshot", "restore", "st", "-o", "to"]).silent();
    assert_eq!(dir.read("back/sub/config.json"), b"saved");
    // Nothing is created in the store in any case.
    for inside in ["st", "st/new", "st/new/deep", "st/data"] {
        dir.run(["snapshot", "restore", "st", "-o", inside]).is_misused(&["is in the store st"]);
        assert!(!dir.has("st/new"));
    }
    // In a store they are refused, too.
    dir.shell("rm st/lmc-store.json && mkfifo st/lmc-store.json").ok();
    for command in ["list", "verify", "gc", "restore"] {
        dir.run(["snapshot", command, "st"]).fails(&["st", "lmc-store.json: is a FIFO"]);
    }
}

#[test]
fn an_index_is_saved_with_its_files() {
    let dir = Dir::new();
    let index = "m/model.safetensors.index.json";
    let [first, second] = [1, 2].map(|n| safetensors(&[("w", "U8", &[1], &[n])]));
    dir.write("m/a.safetensors", &first);
    dir.write("m/b.safetensors", &second);
    dir.write(index, br#"{"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}"#);
    dir.run(["-q", "snapshot", "save", "s", index]).silent();
    // Files that are given by themselves, too, are saved once.
    dir.run(["-q", "snapshot", "save", "s", index, "./m/b.safetensors", "m/a.safetensors"]).silent();
    let names = ["a.safetensors", "b.safetensors", "model.safetensors.index.json"];
    for step in ["0", "1"] {
        dir.run(["snapshot", "restore", "s", "--at", step, "-o", step]).silent();
        for name in names {
            assert_eq!(dir.read(&format!("{step}/{name}")), dir.read(&format!("m/{name}")));
        }
        assert_eq!(fs::read_dir(dir.path(step)).unwrap().count(), names.len());
    }
    // Another file of the same name is not the one that the index names.
    dir.write("b.safetensors", &first);
    dir.run(["snapshot", "save", "s", index, "b.safetensors"]).is_misused(&["two files are named \"b.safetensors\""]);
    // Keeping only the index would lose the model.
    fs::remove_file(dir.path("m/b.safetensors")).unwrap();
    dir.run(["snapshot", "save", "s", index])
        .fails(&["m/model.safetensors.index.json: names b.safetensors, which is not beside it"]);
    // Its compressed form is as good.
    dir.write("m/b.safetensors", &second);
    dir.run(["compress", "-q", "--rm", "m/b.safetensors"]).silent();
    let saved = dir.run(["snapshot", "save", "t", index]);
    let note = "lmc: m/b.safetensors.lmc: is compressed, and stored as it is: ";
    assert!(saved.ok().stderr().starts_with(note), "{saved:?}");
    assert_eq!(saved.stderr().lines().count(), 2, "{saved:?}");
    dir.run(["snapshot", "restore", "t", "-o", "of-t"]).silent();
    assert_eq!(dir.read("of-t/b.safetensors.lmc"), dir.read("m/b.safetensors.lmc"));
    assert_eq!(fs::read_dir(dir.path("of-t")).unwrap().count(), names.len());
    // One line for all, and none for a file that only has the name.
    dir.write("m/c.lmc", &dir.read("m/b.safetensors.lmc"));
    dir.write("m/d.lmc", b"");
    let saved = dir.run(["snapshot", "save", "t", "m"]);
    assert!(saved.ok().stderr().contains("b.safetensors.lmc: and 1 more are compressed"), "{saved:?}");
    dir.write("torn.index.json", br#"{"weight_map": {"x""#);
    dir.run(["snapshot", "save", "s", "torn.index.json"]).fails(&["torn.index.json: is not JSON"]);
    assert_eq!(dir.run(["snapshot", "list", "s", "--json"]).json().len(), 2);
}

#[test]
fn nothing_is_copied_into_a_store_that_is_read() {
    let dir = saved();
    let before = dir.names();
    for to in ["runs/7", "runs/7/copy", "runs/7/data/copy", "runs/../runs/7/copy"] {
        dir.run(["snapshot", "copy", "runs/7", to]).is_misused(&["the store runs/7: write elsewhere"]);
    }
    assert_eq!(dir.names(), before);
    dir.run(["-q", "snapshot", "copy", "runs/7", "runs/7b"]).silent();
}

#[test]
fn a_store_is_not_made_of_a_slip_of_the_pen() {
    let dir = saved();
    dir.run(["snapshot", "export", "runs/7", "run.tar"]).ok();
    let before = dir.names();
    dir.run(["snapshot", "save", "run.tar", "notes.txt"]).fails(&["run.tar: is a file", "lmc snapshot copy"]);
    dir.run(["snapshot", "save", "s3:/bucket/runs", "notes.txt"]).is_misused(&["s3:/bucket/runs: is a URL without"]);
    dir.run(["snapshot", "copy", "runs/7", "s3:bucket/runs"]).is_misused(&["s3:bucket/runs: is a URL without"]);
    assert_eq!(dir.names(), before);
    dir.run(["-q", "snapshot", "save", "./s3:", "notes.txt"]).silent();
    assert!(dir.has("s3:/lmc-store.json"));
}
