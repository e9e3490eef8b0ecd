//! What goes wrong when a command is given other paths, files or steps than were meant: it says so, and does no harm.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use serde_json::json;

use crate::snapshot::saved;
use crate::support::{Dir, Run, Way, model, noise, safetensors, wait_until, weights};

/// The beginning of a file whose tensors go on.
fn cut() -> Vec<u8> {
    let model = model();
    model[..model.len() / 2].to_vec()
}

/// A GGUF file of one tensor of 64 floats, without its last bytes.
fn cut_gguf() -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend([1_u64, 0].iter().flat_map(|n| n.to_le_bytes()));
    file.extend(1_u64.to_le_bytes());
    file.extend(b"t");
    file.extend(1_u32.to_le_bytes());
    file.extend(64_u64.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    file.extend(0_u64.to_le_bytes());
    file.resize(file.len().next_multiple_of(32) + 100, 7);
    file
}

#[test]
fn files_that_end_early_are_not_unpacked() {
    let dir = Dir::new();
    dir.write("a.safetensors", &cut());
    let len = cut().len();
    let why = format!("a.safetensors: it has {len} bytes, and its tensors would end at byte {}", model().len());
    dir.run(["unpack", "a.safetensors", "-o", "up"]).fails(&[&why, "it ends early"]);
    dir.write("a.gguf", &cut_gguf());
    dir.run(["unpack", "a.gguf", "-o", "up"]).fails(&["a.gguf: it has ", "and its tensors would end at byte "]);
    assert!(!dir.has("up"));
    // Compressed as they are, and said to be; the compressed file has no more of them.
    let compressed = dir.run(["compress", "a.safetensors"]);
    assert!(compressed.ok().stderr().contains(&format!("{why}: it ends early; it is compressed as it is")));
    dir.run(["-q", "compress", "a.gguf"]).silent();
    dir.run(["unpack", "a.safetensors.lmc", "-o", "up"]).fails(&["a.safetensors.lmc: it has ", "it ends early"]);
    // As are those that are saved.
    let stored = dir.run(["snapshot", "save", "s", "a.safetensors"]);
    assert!(stored.ok().stderr().contains(&format!("{why}: it ends early; it is stored as it is")));
    dir.run(["-q", "snapshot", "save", "s", "a.safetensors"]).silent();
    dir.run(["snapshot", "restore", "s", "-o", "back"]).ok();
    assert!(dir.read("back/a.safetensors") == cut());
}

#[test]
fn unfinished_files_are_not_published() {
    let dir = Dir::new();
    let once = ["publish", "s", "v", "--once", "--settle", "0"];
    let name = "v/checkpoint-1/model.safetensors";
    for (part, why) in [(0, "it has 0 bytes"), (40, "its header would end at byte "), (999, "its tensors would end at")]
    {
        dir.write(name, &model()[..part]);
        dir.run(once).fails(&["v/checkpoint-1: is not finished: ", name, why, "it ends early"]);
    }
    dir.write("v/checkpoint-1/model.safetensors", &model());
    dir.write("v/checkpoint-1/model.gguf", &cut_gguf());
    dir.run(once).fails(&["checkpoint-1/model.gguf: it has "]);
    assert!(!dir.has("s"));
    fs::remove_file(dir.path("v/checkpoint-1/model.gguf")).unwrap();
    assert!(dir.run(once).ok().stderr().contains("s : step 1, "));
    // Versions that are files.
    dir.write("w/m-1.safetensors", &cut());
    dir.run(["publish", "s2", "w", "--once", "--settle", "0"])
        .fails(&["w/m-1.safetensors: is not finished: ", "early"]);
}

#[test]
fn indexes_in_directories_are_checked() {
    let dir = Dir::new();
    dir.write(
        "m/deep/model.safetensors.index.json",
        br#"{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}"#,
    );
    dir.write("m/deep/a.safetensors", &model());
    dir.run(["snapshot", "save", "s", "m"])
        .fails(&["m/deep/model.safetensors.index.json: names b.safetensors, which is not beside it"]);
    dir.write("m/deep/other.index.json", b"{\"weight_map\"");
    dir.write("m/deep/b.safetensors", &model());
    dir.run(["snapshot", "save", "s", "m"]).fails(&["m/deep/other.index.json: is not JSON"]);
    assert!(!dir.has("s"));
    dir.write("m/deep/other.index.json", b"{}");
    fs::remove_file(dir.path("m/deep/b.safetensors")).unwrap();
    dir.write("m/deep/b.safetensors.lmc", b"its compressed form");
    dir.run(["-q", "snapshot", "save", "s", "m"]).silent();
    // What is too large to be one, and what cannot be read to its end.
    fs::File::create(dir.path("m/deep/a.index.json")).unwrap().set_len(100_000_001).unwrap();
    dir.write("m/deep/other.index.json", b"{\"weight_map\"");
    dir.run(["snapshot", "save", "s", "m"]).fails(&["m/deep/other.index.json: is not JSON"]);
    dir.shell("mkfifo fifo.index.json").silent();
    dir.run(["snapshot", "save", "s", "fifo.index.json"]).fails(&["fifo.index.json: is a named pipe"]);
    // Downloads of one format have the index of another, too.
    dir.write("hub/pytorch_model.bin.index.json", br#"{"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}"#);
    dir.write("hub/training_args.bin", b"no model");
    dir.run(["snapshot", "save", "s", "hub"])
        .fails(&["names pytorch_model-00001-of-00002.bin, which is not beside it"]);
    dir.write("hub/model.safetensors", &model());
    dir.run(["-q", "snapshot", "save", "s", "hub"]).silent();
}

#[test]
fn a_store_is_created_in_a_directory_of_its_own() {
    let dir = Dir::new();
    dir.write("ck/model.safetensors", &model());
    fs::create_dir_all(dir.path("run/7")).unwrap();
    dir.write("file", b"file");
    dir.write("v/1/file", b"file");
    let before = dir.names();
    // The arguments the other way round.
    dir.run(["snapshot", "save", "ck", "file"])
        .is_misused(&["ck: has model.safetensors in it, is no store, and a new one needs a directory of its own"]);
    dir.run(["publish", "ck", "v", "--once", "--settle", "0"]).is_misused(&["ck: has model.safetensors in it"]);
    assert_eq!(dir.names(), before);
    // Nothing to save, no store.
    dir.run(["publish", "run/7", "ck", "--once"]).fails(&["ck: has no version: "]);
    // Nor with a step that cannot be.
    dir.run(["snapshot", "save", "new", "ck", "--step", "9007199254740993"]).is_misused(&["step 9007199254740993"]);
    assert_eq!(dir.names(), before);
    // What file systems have, and what a creation left that was interrupted.
    fs::create_dir_all(dir.path("run/7/lost+found")).unwrap();
    fs::create_dir_all(dir.path("run/7/probes")).unwrap();
    dir.write("run/7/.snapshot", b"");
    let first = dir.run(["snapshot", "save", "run/7", "ck"]);
    assert!(first.ok().stderr().contains(", without a base, new store, "), "{first:?}");
    let second = dir.run(["snapshot", "save", "run/7", "ck", "--json"]).json();
    assert_eq!((&second[0]["new_store"], &second[0]["shares"]), (&json!(false), &json!(0)));
    // Nor is one saved into another.
    dir.run(["snapshot", "save", "other", "run"])
        .fails(&["run/7: is a store itself (lmc-store.json): lmc snapshot copy"]);
    assert!(!dir.has("other"));
    let copied = dir.run(["snapshot", "copy", "run/7", "copy"]);
    assert!(copied.ok().stderr().contains("copy : 2 snapshots copied, ") && copied.stderr().contains("; new store\n"));
    let again = dir.run(["snapshot", "copy", "run/7", "copy"]);
    assert!(again.ok().stderr().ends_with(" 0 snapshots copied, 0 B; 2 already there\n"), "{again:?}");
    assert_eq!(dir.run(["snapshot", "copy", "run/7", "third", "--json"]).json()[0]["new_store"], json!(true));
}

#[test]
fn a_mistaken_step_is_taken_back() {
    let dir = Dir::new();
    dir.write("w", &noise(10_000, 1));
    for step in ["1000", "2000", "30000"] {
        dir.run(["-q", "snapshot", "save", "s", "w", "--step", step]).silent();
    }
    let names = ["--keep-last N", "--keep-every K", "--keep-step STEP", "--drop STEP"];
    dir.run(["snapshot", "prune", "s"]).is_misused(&names);
    dir.run(["snapshot", "prune", "s", "--drop", "3000"]).fails(&["s: the store has no snapshot of step 3000 to drop"]);
    dir.run(["snapshot", "prune", "s", "--drop", "2000", "--keep-step", "2000"]).is_misused(&["step 2000"]);
    let plan = dir.run(["snapshot", "prune", "s", "--drop", "30000", "--json"]).json();
    assert_eq!((&plan[0]["keep"], &plan[0]["prune"]), (&json!([1000, 2000]), &json!([30000])));
    let done = dir.run(["snapshot", "prune", "s", "--drop", "30000", "--drop", "1000", "--yes"]);
    assert_eq!(done.ok().stderr(), "s : 2 pruned, 0 re-based\n");
    // What comes after the last snapshot is saved again, but not what was pruned.
    fs::create_dir_all(dir.path("v")).unwrap();
    dir.write("v/w-30000.bin", b"pruned");
    dir.write("v/w-3000.bin", b"meant\0");
    let published = dir.run(["publish", "s", "v", "--once", "--settle", "0"]);
    assert!(published.ok().stderr().starts_with("s : step 3000, ") && published.stderr().lines().count() == 1);
    let next = dir.run(["snapshot", "save", "s", "w", "--json"]).json();
    assert_eq!(next[0]["step"], json!(3001));
}

#[test]
fn what_is_deleted_or_copied_is_always_said() {
    let dir = saved();
    let said = |args: &[&str], parts: &[&str]| {
        let run = Run(dir.command(args).output().unwrap());
        assert_eq!(run.ok().stderr().lines().count(), 1, "{run:?}");
        assert!(parts.iter().all(|part| run.stderr().contains(part)), "{run:?}");
    };
    said(&["snapshot", "gc", "runs/7"], &["runs/7 : deleted 0 objects", "grace period, 24 h since"]);
    said(&["snapshot", "copy", "runs/7", "copy"], &["copy : 2 snapshots copied"]);
    said(&["snapshot", "export", "runs/7", "run.tar"], &["run.tar : 2 snapshots\n"]);
    said(&["snapshot", "copy", "run.tar", "imported"], &["imported : 2 snapshots copied"]);
    said(&["snapshot", "prune", "runs/7", "--keep-last", "1", "--yes"], &["runs/7 : 1 pruned"]);
    dir.run(["snapshot", "gc", "runs/7", "-q"]).silent();
}

#[test]
fn data_that_were_there_are_no_base() {
    let dir = Dir::new();
    let shared = weights(200_000, 1);
    let file =
        |seed| safetensors(&[("a", "BF16", &[200_000], &shared), ("b", "U8", &[300_000], &noise(300_000, seed))]);
    dir.write("w", &file(1));
    dir.run(["-q", "snapshot", "save", "s", "w", "--step", "3000"]).silent();
    dir.write("w", &file(2));
    let line = dir.run(["snapshot", "save", "s", "w", "--anchor-every", "1"]);
    assert!(line.ok().stderr().contains("), shares data with step 3000, "), "{line:?}");
    dir.write("w", &noise(300_000, 3));
    let line = dir.run(["snapshot", "save", "s", "w", "--anchor-every", "1"]);
    assert!(line.ok().stderr().contains("), without a base, "), "{line:?}");
}

#[test]
fn another_base_is_noted() {
    let dir = Dir::new();
    dir.write("new", &model());
    dir.write("other", &noise(400_000, 2));
    let compressed = dir.run(["compress", "new", "--base", "other"]);
    let note = "lmc: new: shares nothing with the base, and was compressed without: it is restored without --base\n";
    assert_eq!(compressed.ok().stderr(), note);
    let note = "lmc: new.lmc: is no delta, and needs no base\n";
    let restored = dir.run(["decompress", "new.lmc", "--base", "other", "-o", "back"]);
    assert_eq!(restored.ok().stderr(), note);
    assert!(dir.read("back") == model());
    assert_eq!(dir.run(["test", "new.lmc", "--base", "other"]).ok().stderr(), note);
    // A base that is used is not noted, nor is a directory one.
    dir.run(["compress", "new", "--base", "back", "-o", "delta.lmc"]).silent();
    fs::create_dir(dir.path("ck1")).unwrap();
    dir.run(["compress", "-r", ".", "--base", "ck1"])
        .fails(&["ck1: is a directory, and a base is a file, or the *.index.json of a checkpoint"]);
    // What was compressed is looked for in one.
    fs::rename(dir.path("back"), dir.path("ck1/base")).unwrap();
    fs::remove_file(dir.path("new")).unwrap();
    fs::remove_file(dir.path("new.lmc")).unwrap();
    dir.run(["decompress", "delta.lmc"]).fails(&["delta.lmc: is a delta of back", "no file beside it has these bytes"]);
    dir.run(["-q", "decompress", "delta.lmc", "--base", "ck1"]).silent();
    assert!(dir.read("delta") == model());
}

#[test]
fn steps_are_named_with_an_option() {
    let dir = saved();
    dir.run(["snapshot", "restore", "runs/7", "100", "-o", "x"]).fails(&["has no file \"100\"", "with --at 100"]);
    assert!(!dir.has("x"));
    dir.run(["snapshot", "restore", "runs/7", "--step", "100", "-o", "x"]).ok();
    assert_eq!(dir.read("x/notes.txt"), b"first");
    let negative = dir.run(["snapshot", "save", "runs/7", "notes.txt", "--step", "-1"]);
    assert!(negative.stderr().starts_with("error: invalid value '-1' for '--step <N>'"), "{negative:?}");
    // There is none after the largest.
    dir.write("other.txt", b"other");
    dir.run(["-q", "snapshot", "save", "s", "other.txt", "--step", "9007199254740992"]).silent();
    dir.run(["snapshot", "save", "s", "other.txt"]).is_misused(&["step 9007199254740993", ": say which to save"]);
}

#[test]
fn saves_at_once_get_steps_of_their_own() {
    let dir = Dir::new();
    dir.write("w", &noise(100_000, 1));
    let saves: Vec<_> = (0..6).map(|_| dir.spawn(["snapshot", "save", "s", "w"])).collect();
    for save in saves {
        let done = save.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let steps = dir.run(["snapshot", "list", "s", "--json"]).json();
    assert_eq!(steps.iter().map(|s| s["step"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn steps_before_all_others_share_data() {
    let dir = Dir::new();
    dir.write("w", &noise(300_000, 1));
    dir.run(["-q", "snapshot", "save", "s", "w", "--step", "3"]).silent();
    dir.run(["-q", "snapshot", "save", "s", "w", "--step", "9"]).silent();
    let first = dir.run(["snapshot", "save", "s", "w", "--step", "1", "--json"]).json();
    assert_eq!((&first[0]["new_size"], &first[0]["base"]), (&json!(0), &json!(3)));
    dir.run(["-q", "snapshot", "prune", "s", "--drop", "3", "--yes"]).silent();
    dir.run(["snapshot", "restore", "s", "--at", "1", "-o", "back"]).ok();
    assert!(dir.read("back/w") == noise(300_000, 1));
}

#[test]
fn nothing_found_is_no_success() {
    let dir = Dir::new();
    dir.write("d/notes.txt", b"no checkpoint");
    dir.run(["compress", "-r", "d"]).fails(&["d: has no regular file with the suffix of a checkpoint"]);
    dir.run(["compress", "-r", "d", "-o", "mirror"]).fails(&["d: has no regular file with the suffix of a checkpoint"]);
    dir.run(["-q", "decompress", "-r", "d"]).fails(&["d: has no regular file whose name ends in .lmc"]);
    dir.write("d/m.safetensors", &model());
    dir.run(["compress", "-r", "--rm", "d"]).silent();
    // All of it is done.
    dir.run(["compress", "-r", "d"]).silent();
    // Output onto the input, with -f or without.
    for force in ["-v", "-f"] {
        dir.run(["compress", force, "d/notes.txt", "-o", "d/notes.txt"]).is_misused(&["is the input file"]);
    }
    // A tensor or rows that are not there.
    dir.run(["cat", "d/m.safetensors.lmc", "none"]).fails(&["has no tensor"]);
    dir.run(["cat", "d/m.safetensors.lmc", "embed.weight", "--rows", "0..1001"]).fails(&["has 1000 rows"]);
    let help = dir.run(["snapshot", "save", "--help"]);
    assert!(help.ok().stdout().contains("Exit status: 0 done; 1 something failed"), "{help:?}");
}

#[test]
fn an_interrupted_save_leaves_no_data() {
    let data: Vec<u8> = (0..24).flat_map(|seed| noise(4 << 20, seed)).collect();
    for signal in ["INT", "TERM"] {
        let dir = Dir::in_memory();
        dir.write("w", &data);
        dir.write("small", b"small");
        dir.run(["-q", "snapshot", "save", "s", "small"]).silent();
        let files = || dir.try_names("s/data").into_iter().filter(|n| dir.path(n).is_file()).count();
        assert_eq!(files(), 1);
        let child = dir.spawn_mortal(Way::Unnamed, ["snapshot", "save", "s", "w", "-T", "1"]);
        wait_until("the save writes data", || files() > 1);
        dir.shell(&format!("kill -{signal} {}", child.id())).ok();
        let ended = child.wait_with_output().unwrap();
        // It may have been faster, and then says what it saved.
        if ended.status.signal().is_some() && !String::from_utf8_lossy(&ended.stderr).contains("s : step 1, ") {
            assert_eq!(files(), 1, "{ended:?}");
            assert_eq!(dir.run(["snapshot", "list", "s", "--json"]).json().len(), 1);
        } else {
            assert!(ended.status.success() || ended.status.signal().is_some(), "{ended:?}");
            assert_eq!(dir.run(["snapshot", "list", "s", "--json"]).json().len(), 2);
        }
    }
}

#[test]
fn a_new_store_gets_its_grace_period_and_keeps_it() {
    let dir = Dir::new();
    dir.write("v/step1/w", b"weights");
    let [save, publish] = ["snapshot save s v/step1/w", "publish t v --once --settle 0"];
    for wrong in ["7", "1.5d", "-1d", "59s", "37038d", "99999999999999999999d", "d", "7y", ""] {
        let run = dir.shell(&format!("exec $LMC {save} --grace '{wrong}'"));
        assert!(run.0.status.code() == Some(2) && !dir.has("s"), "{wrong}: {run:?}");
    }
    for (store, create) in [("s", save), ("t", publish)] {
        // The second time it exists.
        for grace in ["--grace 7d", "--grace 168h", ""] {
            dir.shell(&format!("exec $LMC -q {create} {grace}")).silent();
        }
        let before = dir.names();
        let other = dir.shell(&format!("exec $LMC {create} --grace 36h"));
        other.is_misused(&[&format!("{store}: has a grace period of 168 h, not of the 36 h"), "use a new store"]);
        assert_eq!(dir.names(), before);
        let found = dir.run(["snapshot", "gc", store, "--json"]).json();
        assert_eq!(found[0]["grace_seconds"], json!(604_800));
    }
    dir.run(["-q", "snapshot", "copy", "s", "u", "--grace", "2d"]).silent();
    assert_eq!(dir.run(["snapshot", "gc", "u", "--json"]).json()[0]["grace_seconds"], json!(172_800));
    dir.run(["snapshot", "copy", "s", "u", "--grace", "7d"]).is_misused(&["u: has a grace period of 48 h"]);
}

#[test]
fn habits_of_other_compressors_are_answered() {
    let dir = Dir::new();
    dir.write("m/x", &noise(1000, 1));
    // As tar calls a compressor, which gets -d to restore.
    let compress = "tar -I \"$LMC compress\" -cf m.tar.lmc m";
    let restore = "tar -I \"$LMC decompress\" -xOf m.tar.lmc m/x | cmp - m/x";
    dir.shell(&format!("{compress} && {restore} && rm m.tar.lmc")).silent();
    dir.run([]).is_misused(&["no command: compress or decompress (tar -I 'lmc compress'"]);
    for (option, command) in [("-t", "test"), ("-l", "list"), ("-c", "compress"), ("-19", "compress")] {
        dir.run([option, "m/x"]).is_misused(&[&format!("{option} needs a command before it: lmc {command} ")]);
    }
    for (word, advice) in [("verify", "lmc snapshot verify a store"), ("extract", "lmc unpack"), ("rm", "prune")] {
        dir.run([word, "m/x"]).is_misused(&[&format!("{word} is no command: "), advice]);
    }
    let unpacked = "tar -I \"$LMC\" -xOf m.tar.lmc m/x | cmp - m/x";
    dir.shell(&format!("tar -cf m.tar m && $LMC compress m.tar && {unpacked} && rm m.tar m.tar.lmc")).silent();
    let others = "for word in d x -d; do $LMC $word -c x.lmc | cmp - m/x; done && $LMC info x.lmc > list";
    dir.shell(&format!("$LMC compress -c m/x > x.lmc && {others} && rm x.lmc list")).silent();
    dir.run(["compress", "-9", "m/x"]).is_misused(&["-9 is no level of lmc: use -l fast, -l default or -l max"]);
    let twice = dir.run(["compress", "m/x", "m/x"]);
    twice.is_misused(&["m/x: is given twice"]);
    dir.run(["compress", "m/x", "m/x", "-o", "."]).is_misused(&["-o names one file, but there are 2 inputs"]);
    let unknown = dir.run(["compress", "--nonsense"]);
    assert!(unknown.stderr().contains("unexpected argument '--nonsense'"), "{unknown:?}");
    assert_eq!(dir.names(), ["m", "m/x"]);
}

#[test]
fn errors_say_what_to_do() {
    let dir = saved();
    dir.write("m", &model());
    dir.run(["compress", "m", "-o", "no/m.lmc"]).fails(&["no/m.lmc: cannot write", "; make the directory no first"]);
    dir.run(["snapshot", "save", "m", "runs/7"]).is_misused(&["m: is a file, and has to be a directory"]);
    dir.run(["snapshot", "restore", "m", "-o", "x"]).fails(&["m: is a file, not a store"]);
    dir.run(["snapshot", "restore", "runs/7", "none", "-o", "x"]).fails(&["no file \"none\"; lmc snapshot show lists"]);
    dir.run(["snapshot", "restore", "runs/7", "--at", "7", "-o", "x"])
        .fails(&["no snapshot of step 7; lmc snapshot list"]);
    dir.run(["decompress", "m"]).fails(&["m: has no name ending in .lmc: name the output with -o, if lmc made it"]);
    dir.run(["hub", "list", "--cache-dir", "none"]).fails(&["none: is no cache", "name another with --cache-dir"]);
    // It would be there for another input, too.
    dir.shell("$LMC compress --skip-existing - -o m.lmc <m")
        .is_misused(&["--skip-existing goes by the names of files"]);
    assert!(!dir.has("m.lmc") && !dir.has("x"));
}

#[test]
fn servers_have_addresses() {
    let dir = Dir::new();
    let listed = |name: &str, address: &str, store: &str| {
        let mut command = dir.command(["snapshot", "list", store]);
        command.env(name, address).env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "secret");
        Run(command.output().unwrap())
    };
    for (name, store) in [
        ("AWS_ENDPOINT_URL_S3", "s3://bucket/run"),
        ("GOOGLE_BASE_URL", "gs://bucket/run"),
        ("AZURE_STORAGE_ENDPOINT", "az://bucket/run"),
    ] {
        listed(name, "127.0.0.1:1", store).is_misused(&[&format!("{name}=127.0.0.1:1"), "begin it with http://"]);
    }
    let refused = listed("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1", "s3://bucket/run");
    refused.fails(&["s3://bucket/run: ", "Connection refused", "; check that the server runs, and its address"]);
}
