//! `lmc snapshot`: a store on disk.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use crate::support::{Dir, Run, model, noise, safetensors, tensors, weights};
use serde_json::json;

/// A directory with two snapshots of a model and their store.
pub(crate) fn saved() -> Dir {
    let dir = Dir::new();
    dir.write("m.safetensors", &model());
    dir.write("notes.txt", b"first");
    dir.run(["-q", "snapshot", "save", "runs/7", "m.safetensors", "notes.txt", "--step", "100", "--meta", "loss=2.5"])
        .silent();
    dir.write("notes.txt", b"second");
    dir.run(["-q", "snapshot", "save", "runs/7", "m.safetensors", "notes.txt"]).silent();
    dir
}

#[test]
fn what_was_saved_is_restored() {
    let dir = saved();
    dir.run(["snapshot", "restore", "runs/7", "-o", "latest"]).silent();
    dir.run(["snapshot", "restore", "runs/7", "-o", "old/one", "--at", "100", "-T", "1"]).silent();
    assert!(dir.read("latest/m.safetensors") == model() && dir.read("old/one/m.safetensors") == model());
    assert_eq!(
        (&dir.read("latest/notes.txt")[..], &dir.read("old/one/notes.txt")[..]),
        (&b"second"[..], &b"first"[..])
    );
    // Nothing is overwritten without -f.
    dir.run(["snapshot", "restore", "runs/7"])
        .is_misused(&["this directory is not empty: name the one", "-o . is this one"]);
    dir.run(["snapshot", "restore", "runs/7", "notes.txt"]).fails(&["notes.txt: exists"]);
    dir.run(["snapshot", "restore", "runs/7", "notes.txt", "--at", "100", "-f"]).silent();
    assert_eq!(dir.read("notes.txt"), b"first");
    dir.run(["snapshot", "restore", "runs/7", "m.safetensors", "other", "-o", "no"]).fails(&["runs/7", "\"other\""]);
    assert!(!dir.has("no"));
}

#[test]
fn save_says_what_it_saved() {
    let dir = Dir::new();
    let mut data = noise(400_000, 1);
    let mut change = |n: usize| {
        data[n] ^= 1;
        dir.write("w", &safetensors(&[("w", "BF16", &[200_000], &data)]));
    };
    // Everything but the bytes stored and the seconds is known.
    let line = |run: &Run, from: &str| {
        run.ok();
        assert_eq!(run.stdout(), "");
        let line = run.stderr().strip_suffix(" s\n").unwrap();
        let (rest, seconds) = line.rsplit_once(", ").unwrap();
        assert!(seconds.parse::<f64>().unwrap() >= 0.0, "{line}");
        let sizes = rest.strip_suffix(&format!(", {from}")).unwrap_or_else(|| panic!("{line}: not {from}"));
        sizes.to_owned()
    };
    let save =
        |args: &[&str]| Run(dir.command([&["snapshot", "save", "runs/7", "w"], args].concat()).output().unwrap());
    change(0);
    let first = line(&save(&["--step", "100"]), "without a base, new store");
    assert!(first.starts_with("runs/7 : step 100, 390.7 KiB => 391.") && first.contains(" KiB (100."), "{first}");
    change(1);
    let second = line(&save(&[]), "from step 100");
    assert!(second.starts_with("runs/7 : step 101, 390.7 KiB => ") && !second.contains("(100."), "{second}");
    // Of a file that did not change nothing is stored.
    let same = line(&save(&[]), "from step 101");
    assert_eq!(same, "runs/7 : step 102, 390.7 KiB => 0 B (0.00 %)");
    change(2);
    line(&save(&["--anchor-every", "1"]), "without a base");
    change(3);
    save(&[]).ok();
    change(4);
    save(&["-q"]).silent();
    change(5);
    let run = save(&["--json"]);
    assert_eq!(run.stderr(), "");
    let json = &run.json()[0];
    assert_eq!(
        (&json["step"], &json["base"], &json["raw_size"]),
        (&json!(106), &json!(105), &json!(dir.read("w").len()))
    );
    assert!(json["seconds"].as_f64().unwrap() >= 0.0 && json["new_size"].as_u64().unwrap() < 200_000);
    change(6);
    assert_eq!(save(&["--json", "--anchor-every", "1"]).json()[0]["base"], json!(null));
}

#[test]
fn directories_are_saved_and_restored() {
    let dir = Dir::new();
    let files: [(&str, Vec<u8>); 4] = [
        ("config.json", b"{}".to_vec()),
        ("model_0/__0_0.distcp", noise(70_000, 1)),
        ("model_0/deep/.hidden", vec![]),
        ("model.safetensors", model()),
    ];
    for (name, data) in &files {
        let path = dir.path(format!("checkpoint-5/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }
    fs::create_dir(dir.path("checkpoint-5/nothing")).unwrap();
    dir.write("notes.txt", b"notes");
    dir.run(["-q", "snapshot", "save", "store", "checkpoint-5", "notes.txt", "--step", "5"]).silent();
    let show = dir.run(["snapshot", "show", "store"]);
    assert!(show.ok().stdout().contains("model_0/deep/.hidden"), "{}", show.stdout());
    // The whole snapshot, a directory of it, or files by name: directories are created as needed.
    dir.run(["snapshot", "restore", "store", "-o", "back"]).silent();
    for (name, data) in &files {
        assert!(dir.read(&format!("back/{name}")) == *data, "{name}");
    }
    assert_eq!((dir.read("back/notes.txt"), dir.has("back/nothing")), (b"notes".to_vec(), false));
    let before = dir.names();
    dir.run(["snapshot", "restore", "store", "-o", "part", "model_0/", "model_0/deep/.hidden", "config.json"]).silent();
    let mut restored = dir.names();
    restored.retain(|n| !before.contains(n));
    restored.sort();
    restored.retain(|n| dir.path(n).is_file());
    assert_eq!(restored, ["part/config.json", "part/model_0/__0_0.distcp", "part/model_0/deep/.hidden"]);
    dir.run(["snapshot", "restore", "store", "-o", "none", "model", "config.json"])
        .fails(&["store", "no file \"model\""]);
    assert!(!dir.has("none"));
    // Contents are identified by name: saved again they cost nothing.
    dir.run(["-q", "snapshot", "save", "store", "back"]).silent();
    let costs = dir.run(["snapshot", "list", "store", "--json"]).json();
    assert_eq!((&costs[1]["new_size"], &costs[1]["raw_size"]), (&json!(0), &costs[0]["raw_size"]));

    // Files that could not be restored unchanged are refused.
    dir.run(["snapshot", "save", "store", "checkpoint-5", "back"]).is_misused(&["two files are named \"config.json\""]);
    dir.run(["snapshot", "save", "store", "checkpoint-5/nothing"]).fails(&["nothing: has no files to save"]);
    dir.write("model_0", b"a file");
    dir.run(["snapshot", "save", "store", "checkpoint-5", "model_0"])
        .is_misused(&["\"model_0\" is a file, and \"model_0/"]);
    std::os::unix::fs::symlink("..", dir.path("checkpoint-5/link")).unwrap();
    dir.run(["snapshot", "save", "store", "checkpoint-5"]).fails(&["checkpoint-5/link: is a symbolic link"]);
}

#[test]
fn tensors_and_rows_are_restored_alone() {
    let dir = saved();
    let embed = weights(96_000, 1);
    let run = dir.run(["snapshot", "restore", "runs/7", "--tensor", "embed.weight"]);
    assert!(run.ok().0.stdout == embed);
    dir.run(["snapshot", "restore", "runs/7", "--tensor", "embed.weight", "--rows", "10..12", "-o", "rows"]).silent();
    assert_eq!(dir.read("rows"), embed[10 * 192..12 * 192]);
    let run = dir.run(["snapshot", "restore", "runs/7", "--tensor", "embed.weight", "--rows", "999.."]);
    assert_eq!(run.ok().0.stdout, embed[999 * 192..]);
    dir.run(["snapshot", "restore", "runs/7", "--tensor", "none"]).fails(&["runs/7", "no tensor \"none\""]);
    let beyond = dir.run(["snapshot", "restore", "runs/7", "--tensor", "embed.weight", "--rows", "0..1001"]);
    beyond.fails(&["no rows 0..1001"]);
    dir.run(["snapshot", "restore", "runs/7", "--rows", "0..1"]).0.status.code().filter(|c| *c == 2).unwrap();
}

#[test]
fn snapshots_are_listed_and_shown() {
    let dir = saved();
    let list = dir.run(["snapshot", "list", "runs/7"]);
    list.silent();
    let rows: Vec<Vec<&str>> = list.stdout().lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(list.stdout().starts_with("runs/7 : 2 snapshots, "), "{list:?}");
    assert_eq!((rows[3][0], rows[4][0], rows[3].last().unwrap()), ("100", "101", &"loss=2.5"));
    let listed = dir.run(["snapshot", "list", "runs/7", "--json"]).json();
    assert_eq!(
        (&listed[0]["step"], &listed[0]["metadata"], &listed[1]["step"]),
        (&json!(100), &json!({"loss": 2.5}), &json!(101))
    );
    let shards = listed[0]["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 1);
    assert!(dir.path(format!("runs/7/shards/{}.json.zst", shards[0].as_str().unwrap())).is_file());
    // The model did not change.
    assert!(listed[1]["new_size"].as_u64().unwrap() < 1000 && listed[0]["new_size"].as_u64().unwrap() > 100_000);
    let id = listed[1]["id"].as_str().unwrap();
    let shown = dir.run(["snapshot", "show", "runs/7", "--at", id]);
    assert!(shown.ok().stdout().starts_with("step 101 : ") && shown.stdout().contains(id), "{shown:?}");
    let file = shown.stdout().lines().find(|l| l.starts_with("m.safetensors")).unwrap();
    assert_eq!(file.split_whitespace().nth(1), Some("safetensors"));
    assert!(!shown.stdout().contains("embed.weight"));
    assert!(dir.run(["snapshot", "show", "runs/7", "-v"]).ok().stdout().contains("embed.weight"));
    let json = &dir.run(["snapshot", "show", "runs/7", "--json"]).json()[0];
    assert_eq!(json["files"][0]["segments"][1]["shape"], json!([1000, 96]));
    assert_eq!(
        json["files"][1],
        json!({"name": "notes.txt", "size": 6, "layout": "raw", "segments": [{"name": null, "dtype": null, "shape": [], "offset": 0, "size": 6}]})
    );
}

#[test]
fn costs_are_told_and_plotted_for_those_who_look() {
    let dir = saved();
    let log = dir.run(["snapshot", "log", "runs/7"]);
    log.silent();
    let rows: Vec<Vec<&str>> = log.stdout().lines().skip(3).map(|l| l.split_whitespace().collect()).collect();
    assert!(log.stdout().starts_with("runs/7 : 2 snapshots, "), "{log:?}");
    assert_eq!((rows.len(), rows[0][0], rows[1][0]), (2, "100", "101"));
    let logged = dir.run(["snapshot", "log", "runs/7", "--json"]).json();
    assert_eq!(logged[0]["read_size"], logged[0]["new_size"]);
    assert!(logged[1]["read_size"].as_u64() > Some(100_000) && logged[1]["ratio"].as_f64() < Some(0.1));
    // The notes of the second snapshot are a delta of the first one's.
    assert_eq!((&logged[0]["chain"], &logged[1]["step"]), (&json!(1), &json!(101)));
    let last = dir.run(["snapshot", "log", "runs/7", "-n", "1", "--json"]).json();
    assert_eq!(last, logged[1..]);
    assert!(dir.run(["snapshot", "list", "runs/7", "--last", "1"]).ok().stdout().starts_with("runs/7 : 1 snapshot, "));
    let (shown, code) = dir.on_terminal(&["snapshot", "log", "runs/7"], false, true);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("stored, % of raw: steps 100 to 101") && shown.contains('╮'), "{shown}");
    assert!(!log.stdout().contains('╮') && !log.stdout().contains("% of raw:"));
    dir.run(["snapshot", "log", "runs/8"]).fails(&["runs/8: there is no such directory"]);
}

#[test]
fn damage_is_found_and_named() {
    let dir = saved();
    let verify = dir.run(["snapshot", "verify", "runs/7"]);
    verify.silent();
    assert!(verify.stdout().contains("are there"));
    assert!(dir.run(["snapshot", "verify", "runs/7", "--deep"]).ok().stdout().contains("decode to what was saved"));
    let listed = dir.run(["snapshot", "verify", "runs/7", "--deep", "--json"]).json();
    assert_eq!((&listed[0]["snapshots"], &listed[0]["problems"]), (&json!(2), &json!([])));
    let mut data: Vec<String> =
        dir.names().into_iter().filter(|n| n.contains("/data/") && n.ends_with("000000")).collect();
    data.sort_by_key(|n| fs::metadata(dir.path(n)).unwrap().len());
    let large = data.last().unwrap();
    let mut bytes = dir.read(large);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    dir.write(large, &bytes);
    // Lengths are unchanged: only reading reveals it.
    dir.run(["snapshot", "verify", "runs/7"]).silent();
    let deep = dir.run(["snapshot", "verify", "runs/7", "--deep"]);
    assert_eq!(deep.0.status.code(), Some(1));
    let lines: Vec<&str> = deep.stderr().lines().collect();
    assert_eq!(lines.len(), 2, "{deep:?}");
    for (line, step) in lines.iter().zip(["step 100", "step 101"]) {
        assert!(line.contains(step) && line.contains("embed.weight of m.safetensors"), "{line}");
        assert!(line.contains(&large["runs/7/".len()..]), "{line}");
    }
    dir.run(["snapshot", "restore", "runs/7", "m.safetensors", "-o", "out"]).fails(&[
        "runs/7",
        "m.safetensors",
        "data/",
    ]);
    assert_eq!(dir.names().iter().filter(|n| n.starts_with("out/")).count(), 0);
    dir.run(["snapshot", "restore", "runs/7", "notes.txt", "-o", "out"]).silent();
    fs::remove_file(dir.path(large)).unwrap();
    let gone = dir.run(["snapshot", "verify", "runs/7", "--at", "100"]);
    gone.fails(&["step 100", "is missing", "embed.weight"]);
}

#[test]
fn what_cannot_be_saved_is_refused() {
    let dir = saved();
    let before = dir.names();
    dir.run(["snapshot", "save", "runs/7", "notes.txt", "--step", "100"]).fails(&["runs/7: step 100 has a snapshot"]);
    dir.run(["snapshot", "save", "runs/7", "notes.txt", "./notes.txt"]).is_misused(&["two files are named"]);
    dir.run(["snapshot", "save", "runs/7", "runs"]).fails(&["runs/7: is the store itself"]);
    dir.run(["snapshot", "save", "runs/7", "."]).fails(&["./runs/7: is the store itself"]);
    dir.run(["snapshot", "save", "runs/7", "none"]).fails(&["none: cannot read"]);
    dir.run(["snapshot", "save", "runs/7", "notes.txt", "--meta", "a=1", "--meta", "a=2"]).is_misused(&["--meta a"]);
    dir.run(["snapshot", "save", "ftp://bucket", "notes.txt"]).is_misused(&["ftp://bucket", "gs://BUCKET/PREFIX"]);
    assert_eq!(dir.run(["snapshot", "save", "runs/7", "notes.txt", "--meta", "a"]).0.status.code(), Some(2));
    assert_eq!(dir.run(["snapshot", "list", "runs/7", "--at", "x"]).0.status.code(), Some(2));
    dir.run(["snapshot", "list", "runs/8"]).fails(&["runs/8: there is no such directory"]);
    dir.run(["snapshot", "list", "runs"]).fails(&["runs: there is no store here"]);
    dir.run(["snapshot", "show", "runs/7", "--at", "99"]).fails(&["runs/7: the store has no snapshot of step 99"]);
    assert_eq!(dir.names(), before);
}

#[test]
fn a_full_disk_leaves_the_store_as_it_was() {
    let dir = saved();
    let before = dir.names();
    dir.write("large", &noise(4 << 20, 1));
    // The limit is in blocks of 512 or 1024 bytes, depending on the shell.
    let save = "snapshot save runs/7 large --step 200";
    dir.shell(&format!("ulimit -f 100; exec $LMC {save}")).fails(&["runs/7: cannot write data/", "too large"]);
    fs::remove_file(dir.path("large")).unwrap();
    // An empty directory may stay: a collector removes it.
    let files = || -> Vec<String> { dir.names().into_iter().filter(|n| dir.path(n).is_file()).collect() };
    let before: Vec<String> = before.into_iter().filter(|n| dir.path(n).is_file()).collect();
    assert_eq!(files(), before);
    dir.run(["snapshot", "verify", "runs/7", "--deep"]).ok();
    dir.shell("ulimit -f 1; exec $LMC snapshot restore runs/7 m.safetensors -o out").fails(&["cannot write"]);
    assert_eq!(files(), before);
    dir.write("large", &noise(4 << 20, 1));
    dir.shell(&format!("exec $LMC -q {save}")).silent();
}

#[test]
fn a_directory_that_cannot_be_written_is_read_all_the_same() {
    let dir = saved();
    let before = dir.names();
    // Root may write anywhere, so this needs another user, who may not have access to the build directory.
    let as_nobody = "chmod a+rx . && cp $LMC lmc && chmod -R a+rX,a-w runs/7 || exit 9
        if [ $(id -u) = 0 ]; then set -- setpriv --reuid=65534 --regid=65534 --clear-groups; fi
        exec \"$@\" ./lmc snapshot ";
    let run = |args: &str| dir.shell(&format!("{as_nobody}{args}"));
    run("save runs/7 notes.txt --step 200").fails(&[
        "runs/7: cannot write",
        "ermission denied",
        "check the permissions",
    ]);
    run("gc runs/7").fails(&["runs/7: cannot write", "ermission denied"]);
    run("prune runs/7 --keep-last 1 --yes").fails(&["runs/7: cannot write", "ermission denied"]);
    assert_eq!(
        run("list runs/7").ok().stdout().lines().count(),
        dir.run(["snapshot", "list", "runs/7"]).stdout().lines().count()
    );
    run("verify runs/7 --deep").ok();
    dir.shell("chmod -R u+w runs/7 && rm lmc").ok();
    assert_eq!(dir.names(), before);
}

#[test]
fn policies_and_steps_are_obeyed() {
    let dir = Dir::new();
    let mut data = noise(400_000, 1);
    let size = |dir: &Dir, args: &[&str]| {
        let run = dir.command([&["snapshot", "save", "s", "w", "--json"], args].concat()).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap()["new_size"].as_u64().unwrap()
    };
    let mut step = |n: usize| {
        data[n] ^= 1;
        let t = safetensors(&[("w", "BF16", &[200_000], &data)]);
        dir.write("w", &t);
    };
    step(0);
    let full = size(&dir, &["--step", "0"]);
    step(1);
    assert!(size(&dir, &["--step", "10", "--base", "previous"]) * 2 < full);
    step(2);
    assert!(size(&dir, &["--step", "20", "--anchor-every", "1"]) * 2 > full);
    step(3);
    assert!(size(&dir, &["--step", "15", "-l", "fast"]) * 2 < full);
    assert!(dir.run(["snapshot", "verify", "s", "--deep"]).ok().stdout().contains("4 snapshots"));
}

#[test]
fn snapshots_are_copied_exported_and_imported() {
    let dir = saved();
    dir.run(["-q", "snapshot", "export", "runs/7", "run.tar"]).silent();
    dir.run(["snapshot", "export", "runs/7", "run.tar"]).fails(&["run.tar: exists"]);
    dir.run(["-q", "snapshot", "export", "runs/7", "one.tar", "--at", "100"]).silent();
    let twice =
        dir.run(["snapshot", "export", "-v", "runs/7", "twice.tar", "--at", "latest", "--at", "100", "--at", "101"]);
    assert!(twice.ok().stderr().contains("twice.tar : 2 snapshots"), "{twice:?}");
    // An archive is a read-only store.
    let list = |store| dir.run(["snapshot", "list", store, "--json"]).json();
    assert_eq!((list("run.tar"), list("twice.tar")), (list("runs/7"), list("runs/7")));
    assert!(dir.run(["snapshot", "verify", "run.tar", "--deep"]).ok().stdout().contains("2 snapshots"));
    dir.run(["snapshot", "restore", "one.tar", "-o", "restored"]).silent();
    assert!(dir.read("restored/m.safetensors") == model() && dir.read("restored/notes.txt") == b"first");
    dir.run(["snapshot", "save", "run.tar", "notes.txt"]).fails(&["run.tar"]);
    let copied = |run: &[&str]| {
        let run = dir.command(run).output().unwrap();
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
        serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap()
    };
    let first = copied(&["snapshot", "copy", "one.tar", "new", "--json"]);
    assert_eq!((&first["copied"], &first["skipped"]), (&json!([100]), &json!(0)));
    let rest = copied(&["snapshot", "copy", "run.tar", "new", "--json"]);
    assert_eq!((&rest["copied"], &rest["skipped"]), (&json!([101]), &json!(1)));
    assert!(rest["new_size"].as_u64() < Some(1000));
    let latest = copied(&["snapshot", "copy", "new", "a/b", "--at", "latest", "--json"]);
    assert_eq!(latest["copied"], json!([101]));
    for store in ["new", "a/b"] {
        assert!(dir.run(["snapshot", "verify", store, "--deep"]).ok().stdout().contains(store));
    }
    // Another snapshot of the same step is not overwritten.
    dir.run(["-q", "snapshot", "copy", "new", "same", "--at", "100"]).silent();
    dir.run(["-q", "snapshot", "save", "same", "notes.txt", "--step", "101"]).silent();
    dir.run(["snapshot", "copy", "new", "same", "--at", "101"])
        .fails(&["same: step 101 has a snapshot", "copy others (--at), or into another store"]);
    assert_eq!(list("same").len(), 2);
    // Nothing is copied into the store of another run.
    dir.run(["-q", "snapshot", "save", "other", "notes.txt", "--step", "101"]).silent();
    for run in [["snapshot", "copy", "new", "other"], ["snapshot", "copy", "one.tar", "other"]] {
        dir.run(run).is_misused(&["other: the store is of run", "to be copied are of run", "does not exist yet"]);
    }
    assert_eq!(list("other").len(), 1);
    // Damage of the source is the source's.
    let data = dir.names().into_iter().find(|n| n.starts_with("a/b/data/") && n.ends_with("000000")).unwrap();
    let mut bad = dir.read(&data);
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    dir.write(&data, &bad);
    let copy = dir.run(["snapshot", "copy", "a/b", "copy"]);
    // The second snapshot needs data of the first.
    assert_eq!(copy.0.status.code(), Some(1), "{copy:?}");
    let of_source = |l: &str| l.starts_with("lmc: a/b: step ") && l.contains(" is skipped: data/");
    let said: Vec<&str> = copy.stderr().lines().collect();
    let (last, skipped) = said.split_last().unwrap();
    assert!(!skipped.is_empty() && skipped.iter().all(|line| of_source(line)), "{copy:?}");
    assert!(last.starts_with("copy : 0 snapshots copied"), "{copy:?}");
    let mut cut = dir.read("run.tar");
    cut.truncate(cut.len() - 600);
    dir.write("cut.tar", &cut);
    dir.run(["snapshot", "copy", "cut.tar", "new"]).fails(&["cut.tar", "truncated"]);
    dir.run(["snapshot", "copy", "notes.txt", "new"]).fails(&["notes.txt", "is a file, not a store"]);
}

#[test]
fn a_cache_holds_what_the_next_save_takes() {
    let dir = Dir::new();
    let save = |data: &[u8]| {
        dir.write("w", data);
        dir.run(["-q", "snapshot", "save", "s", "w", "--cache", "cache"]).silent();
        let files = fs::read_dir(dir.path("cache/lmc-cache")).unwrap().map(|e| e.unwrap().path());
        let held = files.filter(|path| !path.ends_with("CACHEDIR.TAG"));
        held.map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(save(&[1; 200_000]), [vec![1; 200_000]]);
    assert_eq!(save(&[2; 200_000]), [vec![2; 200_000]]);
    dir.write("file", b"");
    dir.run(["snapshot", "save", "s", "w", "--cache", "file/x"]).fails(&["file/x/lmc-cache: cannot use the cache"]);
}

/// Makes all files below a directory two days older: the store's clock reads their times.
fn age(dir: &Dir, below: &str) {
    for name in dir.names().iter().filter(|n| n.starts_with(below)) {
        let file = File::open(dir.path(name)).unwrap();
        let time = file.metadata().unwrap().modified().unwrap_or(SystemTime::UNIX_EPOCH);
        file.set_modified(time - Duration::from_secs(2 * 86_400)).unwrap();
    }
}

/// Six steps of a tensor that changes a little each time.
fn trained() -> Dir {
    let dir = Dir::new();
    let mut data = weights(100_000, 1);
    for n in 0..6 {
        data.iter_mut().step_by(2).zip(noise(100_000, n)).for_each(|(w, m)| *w ^= m & 3);
        dir.write("w", &safetensors(&[("w", "BF16", &[100_000], &data)]));
        let step = (n * 10).to_string();
        dir.run(["-q", "snapshot", "save", "s", "w", "--step", &step, "--base", "previous"]).silent();
    }
    dir
}

fn steps(dir: &Dir) -> Vec<u64> {
    dir.run(["snapshot", "list", "s", "--json"]).json().iter().map(|s| s["step"].as_u64().unwrap()).collect()
}

#[test]
fn pruning_is_shown_first() {
    let dir = trained();
    let before = dir.names();
    let shown = dir.run(["snapshot", "prune", "s", "--keep-last", "1", "--keep-every", "40", "--keep-step", "10"]);
    shown.silent();
    let lines: Vec<&str> = shown.stdout().lines().map(str::trim).collect();
    assert_eq!(
        lines[..3],
        ["s : would keep 4 and prune 2", "keep    0 (every) 10 (step) 40 (every) 50 (last)", "prune   20 30"],
        "{shown:?}"
    );
    assert_eq!(lines.last(), Some(&"with --yes it is done"));
    assert_eq!((dir.names(), steps(&dir).len()), (before, 6));
    dir.run(["snapshot", "prune", "s"]).is_misused(&["s: nothing says which snapshots to keep"]);
    dir.run(["snapshot", "prune", "s", "--keep-every", "0"]).is_misused(&["one of every 0 steps"]);
    dir.run(["snapshot", "prune", "s", "--keep-step", "7"]).fails(&["s: the store has no snapshot of step 7"]);
    let json = &dir.run(["snapshot", "prune", "s", "--keep-last", "2", "--json"]).json()[0];
    assert_eq!((&json["keep"], &json["prune"]), (&json!([40, 50]), &json!([0, 10, 20, 30])));
    assert_eq!((&json["rebase"], &json["done"]), (&json!([40, 50]), &json!(null)));
    assert_eq!(json["why"], json!([["last"], ["last"]]));
    assert!(json["before"].as_u64() > json["after"].as_u64());
}

#[test]
fn what_is_kept_is_chosen_by_steps_times_and_numbers() {
    let dir = Dir::new();
    dir.write("w", b"weights");
    for (step, loss) in
        [("0", "900"), ("99", "8.5e2"), ("199", "700.5"), ("299", "none"), ("399", "500.0"), ("499", "600")]
    {
        let meta = format!("loss={loss}");
        dir.run(["-q", "snapshot", "save", "s", "w", "--step", step, "--meta", &meta]).silent();
    }
    let kept = |rules: &str| {
        let json = dir.shell(&format!("$LMC snapshot prune s --json {rules}")).json();
        json[0]["keep"].as_array().unwrap().iter().map(|step| step.as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(kept("--keep-every 100"), [0, 199, 299, 399, 499]);
    assert_eq!(kept("--keep-every 200"), [0, 299, 499]);
    assert_eq!(kept("--keep-best loss=min"), [399]);
    assert_eq!(kept("--keep-best loss=min:2 --keep-best loss=max"), [0, 399, 499]);
    assert_eq!(kept("--keep-within 1w").len(), 6);
    let plan = dir.run(["snapshot", "prune", "s", "--keep-last", "1", "--keep-best", "loss=max:2"]);
    assert!(plan.ok().stdout().contains("\n  keep    0 (best loss) 99 (best loss) 499 (last)\n"), "{plan:?}");
    dir.run(["snapshot", "prune", "s", "--keep-best", "lss=min"])
        .fails(&["no snapshot of the store has a number \"lss\""]);
    for (rule, wrong) in
        [("--keep-best", "loss"), ("--keep-best", "loss=min:0"), ("--keep-within", "2"), ("--keep-within", "d")]
    {
        let run = dir.run(["snapshot", "prune", "s", rule, wrong]);
        assert!(run.0.status.code() == Some(2) && run.stderr().contains(rule), "{run:?}");
    }
    let list = dir.run(["snapshot", "list", "s"]);
    assert!(
        ["loss=850.0", "loss=700.5", "loss=none", "loss=600"].iter().all(|text| list.stdout().contains(text)),
        "{list:?}"
    );
}

#[test]
fn weights_stay_where_states_go() {
    let dir = Dir::new();
    let (w, m) = (weights(180_000, 1), weights(180_000, 2));
    let both = [("exp_avg.w", "BF16", &[180_000][..], &m[..]), ("model.w", "BF16", &[180_000], &w)];
    dir.write("s.safetensors", &safetensors(&both));
    dir.write("optimizer.pt", b"no tensors");
    for n in ["1", "2", "3"] {
        dir.run(["snapshot", "save", "st", "s.safetensors", "optimizer.pt", "--step", n]).ok();
    }
    let prune = ["snapshot", "prune", "st", "--keep-last", "1", "--drop-state"];
    let plan = dir.run(prune);
    let shown = plan.ok().stdout();
    let kept =
        "  keep    1 (weights) 2 (weights) 3 (last)\n  weights 1 (351.6 KiB of states) 2 (351.6 KiB of states)\n";
    // The last one needs the same data.
    assert!(shown.contains(kept) && shown.contains("  data    464.9 KiB => 464.9 KiB "), "{shown}");
    let done = Run(dir.command([&prune[..], &["--json", "--yes"]].concat()).output().unwrap());
    let json = &done.json()[0];
    assert_eq!((&json["states"], &json["done"]["reduced"]), (&json!([1, 2]), &json!([1, 2])));
    dir.run(["snapshot", "restore", "st", "-o", "out", "--at", "1"]).silent();
    assert_eq!(std::fs::read_dir(dir.path("out")).unwrap().count(), 1);
    assert!(tensors(&dir.read("out/s.safetensors")) == tensors(&safetensors(&both[1..])));
    for command in ["list", "log"] {
        let shown = dir.run(["snapshot", command, "st"]);
        let lines = shown.stdout().lines().filter(|l| l.contains("weights only (351.7 KiB of states dropped)")).count();
        assert_eq!(lines, 2, "{shown:?}");
    }
    assert!(dir.run(["snapshot", "show", "st", "--at", "2"]).stdout().contains("weights only (351.7 KiB"));
    assert_eq!(dir.run(["snapshot", "list", "st", "--json"]).json()[2]["dropped"], json!(0));
    // Other formats cannot lose a part, which is said.
    let state = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/layouts/torch/state.pt");
    dir.write("state.pt", &fs::read(state).unwrap());
    dir.run(["snapshot", "save", "st", "state.pt", "optimizer.pt", "--step", "4"]).ok();
    let plan = dir.run(["snapshot", "prune", "st", "--drop", "4", "--drop-state"]);
    assert!(
        plan.stderr().contains("st: step 4: state.pt: has weights and the state of an optimizer, and stays"),
        "{plan:?}"
    );
}

#[test]
fn the_base_can_be_asked_for() {
    let dir = Dir::new();
    let (a, mut tuned) = (weights(100_000, 1), weights(100_000, 1));
    tuned.chunks_mut(2).for_each(|w| w[0] ^= 1);
    for (model, bytes) in [("a", &a), ("b", &weights(100_000, 2)), ("c", &tuned)] {
        fs::create_dir(dir.path(model)).unwrap();
        dir.write(&format!("{model}/m.safetensors"), &safetensors(&[("w", "BF16", &[100_000], bytes)]));
    }
    dir.run(["snapshot", "save", "st", "a", "--tag", "base"]).ok();
    dir.run(["snapshot", "save", "st", "b", "--tag", "other"]).ok();
    let base = |args: &[&str]| {
        let args = [&["snapshot", "save", "st", "c", "--json"], args].concat();
        Run(dir.command(args).output().unwrap()).json()[0]["base"].clone()
    };
    assert_eq!(base(&["--base", "base"]), json!(0));
    assert_eq!(base(&["--base", "previous"]), json!(2));
    dir.run(["snapshot", "prune", "st", "--drop", "2", "--drop", "3", "--yes"]).ok();
    // By content, too.
    assert_eq!(base(&[]), json!(0));
    let run = dir.run(["snapshot", "save", "st", "c", "--base", "none"]);
    assert!(run.0.status.code() == Some(1) && run.stderr().contains("none"), "{run:?}");
    dir.run(["snapshot", "save", "new", "c", "--base", "7"]).fails(&["new"]);
    assert!(!dir.has("new"));
}

#[test]
fn what_was_pruned_is_collected_after_the_grace_period() {
    let dir = trained();
    let last = dir.read("w");
    let json = &dir.run(["snapshot", "prune", "s", "--keep-last", "1", "--json", "--yes"]).json()[0];
    assert_eq!(json["done"], json!({ "pruned": [0, 10, 20, 30, 40], "rebased": [50], "reduced": [], "changed": [] }));
    assert_eq!(steps(&dir), [50]);
    let names = dir.names();
    let young = &dir.run(["snapshot", "gc", "s", "--json"]).json()[0];
    assert_eq!((&young["orphans"], &young["dry_run"]), (&json!([]), &json!(false)));
    let young = young["young"].as_array().unwrap();
    // The first record of each snapshot, and all old shards and data.
    assert_eq!(young.len(), 3 * 6);
    assert_eq!(dir.names(), names);
    age(&dir, "s/");
    let dry = dir.run(["snapshot", "gc", "s", "-n"]);
    dry.silent();
    assert!(dry.stdout().starts_with("s : would delete 18 objects, ") && dry.stdout().contains("; 0 more"), "{dry:?}");
    assert_eq!(dry.stdout().lines().count(), 19);
    assert_eq!(dir.names(), names);
    let gone = dir.run(["snapshot", "gc", "s", "-v"]);
    assert!(gone.ok().stderr().starts_with("s : deleted 18 objects, "), "{gone:?}");
    let data = |n: &&String| n.starts_with("s/data/") && n.ends_with("000000");
    assert_eq!(dir.names().iter().filter(data).count(), 1);
    dir.run(["snapshot", "restore", "s", "-o", "out"]).silent();
    assert!(dir.read("out/w") == last);
    assert!(dir.run(["snapshot", "verify", "s", "--deep"]).ok().stdout().contains("1 snapshot, 1 object, "));
    // Empty directories are removed once they are old, too.
    age(&dir, "s/");
    let json = &dir.run(["snapshot", "gc", "s", "--json"]).json()[0];
    assert_eq!(json["orphans"].as_array().unwrap().len(), 6);
    assert_eq!(dir.names().iter().filter(|n| n.starts_with("s/data/")).count(), 2);
    dir.run(["-q", "snapshot", "save", "s", "w"]).silent();
    assert_eq!(steps(&dir), [50, 51]);
}
