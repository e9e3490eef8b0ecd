//! Nothing half-written stays behind after any failure.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Child;

use crate::support::{Dir, Run, model, noise, safetensors, wait_until, weights};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let dir = Dir::new();
    let script = "export LMC_TEMPORARY=named; trap '' HUP; mkfifo in; $LMC compress -o out <in & exec 3>in; \
                  until ls out.lmc-tmp-* >/dev/null 2>&1; do sleep 0.01; done; \
                  kill -HUP $!; echo data >&3; exec 3>&-; wait $!";
    dir.shell(script).silent();
    assert_eq!(dir.run(["decompress", "-c", "out"]).stdout(), "data\n");
}

#[test]
fn a_full_disk_leaves_nothing() {
    let dir = Dir::new();
    let data = noise(1 << 20, 1);
    dir.write("a", &data);
    dir.write("ok", b"data");
    // The limit is in blocks of 512 or 1024 bytes, depending on the shell.
    dir.shell("ulimit -f 100; exec $LMC compress a").fails(&["a.lmc: cannot write: file too large"]);
    dir.shell("ulimit -f 100; exec $LMC compress -o b <a").fails(&["b: cannot write: file too large"]);
    assert_eq!(dir.names(), ["a", "ok"]);
    dir.run(["compress", "a"]).silent();
    fs::remove_file(dir.path("a")).unwrap();
    dir.shell("ulimit -f 100; exec $LMC decompress a.lmc").fails(&["a: cannot write: file too large"]);
    dir.shell("ulimit -f 100; exec $LMC decompress -o b <a.lmc").fails(&["b: cannot write: file too large"]);
    assert_eq!(dir.names(), ["a.lmc", "ok"]);
    // Files that fit are still processed.
    dir.write("a", &data);
    dir.shell("ulimit -f 100; exec $LMC compress -f --rm a ok").fails(&["a.lmc: cannot write"]);
    assert_eq!(dir.names(), ["a", "a.lmc", "ok.lmc"]);
    dir.run(["test", "a.lmc", "ok.lmc"]).ok();
}

#[test]
fn damage_leaves_nothing() {
    let dir = Dir::new();
    dir.write("m", &model());
    dir.run(["compress", "m"]).silent();
    fs::remove_file(dir.path("m")).unwrap();
    let good = dir.read("m.lmc");
    let mut bad: Vec<(String, Vec<u8>)> = vec![];
    for at in [0, 9, 20, good.len() / 2, good.len() - 40, good.len() - 1] {
        let mut file = good.clone();
        file[at] ^= 0x40;
        bad.push((format!("flip{at}"), file));
    }
    for len in [0, 1, 15, 16, good.len() / 2, good.len() - 1] {
        bad.push((format!("cut{len}"), good[..len].to_vec()));
    }
    bad.push(("longer".into(), [&good[..], b"x"].concat()));
    bad.push(("text".into(), b"this is no compressed file, whatever its name says\n".to_vec()));
    for (name, file) in &bad {
        let lmc = format!("{name}.lmc");
        dir.write(&lmc, file);
        dir.run(["decompress", &lmc]).fails(&[&lmc]);
        dir.run(["test", &lmc]).fails(&[&lmc]);
        dir.feed(["decompress", "-o", "out"], file).fails(&["(stdin)"]);
        assert!(!dir.has(name) && !dir.has("out"), "{name}");
        fs::remove_file(dir.path(&lmc)).unwrap();
    }
    assert_eq!(dir.names(), ["m.lmc"]);
}

#[test]
fn damage_is_named() {
    for name in ["embed.weight", "fetch it again"] {
        damage_is_named_in(name);
    }
}

fn damage_is_named_in(name: &str) {
    let dir = Dir::new();
    let large = weights(1 << 20, 1);
    dir.write("m", &safetensors(&[(name, "BF16", &[1 << 20], &large), ("steps", "I64", &[1], &[7; 8])]));
    dir.run(["compress", "m"]).silent();
    let json = dir.run(["list", "-v", "--json", "m.lmc"]).json();
    let segments = json[0]["segments"].as_array().unwrap();
    let tensor = segments.iter().find(|s| s["name"] == name).unwrap()["offset"].as_u64().unwrap();
    let holds = |b: &&Value| {
        let start = b["raw_offset"].as_u64().unwrap();
        (start..start + b["raw_size"].as_u64().unwrap()).contains(&tensor)
    };
    let block = json[0]["block_list"].as_array().unwrap().iter().find(holds).unwrap();
    let offset = block["offset"].as_u64().unwrap();
    let end = offset + block["compressed_size"].as_u64().unwrap();
    let mut file = dir.read("m.lmc");
    file[end as usize - 1] ^= 1;
    dir.write("m.lmc", &file);
    let place = format!("byte {offset}");
    dir.run(["decompress", "-f", "m.lmc"]).fails(&["m.lmc: ", name, "block ", &place]);
    let advice = "): the file is damaged, fetch it again";
    dir.run(["cat", "m.lmc", name, "-o", "x"]).fails(&["m.lmc: ", name, "block ", advice]);
    dir.run(["cat", "m.lmc", "steps"]).ok();
    assert_eq!(dir.names(), ["m", "m.lmc"]);
}

/// The state of a process as Linux reports it: `T` is stopped, `Z` ended.
fn state(child: &Child) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit(") ").next().and_then(|s| s.chars().next()).unwrap()
}

/// Stops `lmc compress` in the middle of a file, runs `meddle`, and continues `lmc`.
fn while_it_reads(meddle: impl Fn(&File)) {
    let dir = Dir::new();
    // The input size that allows stopping in the middle depends on the machine; so try until it works.
    for size in (27..).map(|n| 1 << n) {
        File::create(dir.path("a")).unwrap().set_len(size).unwrap();
        let child = dir.spawn(["compress", "--rm", "a"]);
        wait_until("it has begun", || dir.has_begun(&child, "a.lmc") || state(&child) == 'Z');
        kill(&child, Signal::STOP);
        wait_until("it has stopped", || matches!(state(&child), 'T' | 'Z'));
        let in_the_middle = state(&child) == 'T' && dir.has_begun(&child, "a.lmc");
        if in_the_middle {
            meddle(&File::options().read(true).write(true).open(dir.path("a")).unwrap());
        }
        kill(&child, Signal::CONT);
        let run = Run(child.wait_with_output().unwrap());
        if in_the_middle {
            run.fails(&["a: changed while it was read"]);
            assert_eq!(dir.names(), ["a"]);
            return;
        }
        run.silent();
        fs::remove_file(dir.path("a.lmc")).unwrap();
    }
}

#[test]
fn a_file_that_grows_while_it_is_read() {
    while_it_reads(|file| {
        let size = file.metadata().unwrap().len();
        file.write_all_at(b"more", size).unwrap();
    });
}

#[test]
fn a_file_that_shrinks_while_it_is_read() {
    while_it_reads(|file| file.set_len(1000).unwrap());
}

#[test]
fn a_file_that_is_written_to_while_it_is_read() {
    while_it_reads(|file| file.write_all_at(b"x", 5).unwrap());
}

#[test]
fn temporary_names_of_long_names() {
    let dir = Dir::new();
    let name = "ä".repeat(125); // 250 bytes; with the suffix, 254
    dir.write(&name, b"data");
    dir.run(["compress", &name]).silent();
    assert!(dir.has(&format!("{name}.lmc")));
    let name = "n".repeat(254);
    dir.write(&name, b"data");
    dir.run(["compress", &name]).fails(&["file name too long"]);
}
