//! A run that is killed, dies of a signal or runs out of memory leaves nothing, or only what the next run removes.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin};
use std::time::{Duration, SystemTime};

use crate::support::{Dir, LMC_TEMPORARY, Run, Way, model, noise, wait_until, weights};
use rustix::process::{Pid, Signal, kill_process};

/// Signals that can be caught and end a process by default.
const ENDING: [Signal; 16] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::XCPU,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::ABORT,
    Signal::SYS,
    Signal::TRAP,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];

/// A file system on disk, and one in memory.
fn directories() -> [Dir; 2] {
    [Dir::new(), Dir::in_memory()]
}

/// A process that has created its output, and waits for the rest of its input.
fn halfway(dir: &Dir, way: Way, command: &str, input: &[u8]) -> (Child, ChildStdin) {
    let mut child = dir.spawn_mortal(way, [command, "-f", "-o", "out"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&input[..input.len() / 2]).unwrap();
    wait_until("it has begun", || dir.has_begun(&child, "out"));
    (child, stdin)
}

fn kill(child: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
}

#[test]
fn signals_leave_nothing() {
    let raw = weights(500_000, 1);
    let compressed = Dir::new().feed(["compress"], &raw).0.stdout;
    for dir in directories() {
        for way in Way::BOTH {
            for signal in ENDING {
                for (command, input) in [("compress", &raw), ("decompress", &compressed)] {
                    let (mut child, stdin) = halfway(&dir, way, command, input);
                    kill(&mut child, signal);
                    assert_eq!(dir.names(), Vec::<String>::new(), "{command}, {signal:?}, {way:?}");
                    drop(stdin);
                }
            }
        }
    }
}

#[test]
fn kills_leave_nothing_where_files_need_no_name() {
    let raw = weights(500_000, 1);
    for dir in directories() {
        for _ in 0..20 {
            let (mut child, stdin) = halfway(&dir, Way::Unnamed, "compress", &raw);
            assert_eq!(dir.names(), Vec::<String>::new());
            kill(&mut child, Signal::KILL);
            assert_eq!(dir.names(), Vec::<String>::new());
            drop(stdin);
        }
    }
}

/// Sets the time of a file back by some minutes.
fn age(dir: &Dir, name: &str, minutes: u64) {
    let file = File::options().write(true).open(dir.path(name)).unwrap();
    let then = SystemTime::now() - Duration::from_secs(60 * minutes);
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

#[test]
fn the_next_run_removes_what_a_kill_left() {
    let raw = weights(500_000, 1);
    for dir in directories() {
        dir.write("other", b"data");
        let (mut child, stdin) = halfway(&dir, Way::Named, "compress", &raw);
        let left = dir.names().into_iter().find(|n| n.starts_with("out.lmc-tmp-")).unwrap();
        age(&dir, &left, 90);
        // It is being written.
        dir.run(["compress", "-f", "other"]).silent();
        assert_eq!(dir.names(), ["other", "other.lmc", &left]);
        kill(&mut child, Signal::KILL);
        drop(stdin);
        // It may be in use: not every lock is visible everywhere.
        age(&dir, &left, 50);
        dir.run(["compress", "-f", "other"]).silent();
        assert_eq!(dir.names(), ["other", "other.lmc", &left]);
        age(&dir, &left, 90);
        dir.run(["compress", "-f", "other"]).silent();
        assert_eq!(dir.names(), ["other", "other.lmc"]);
    }
}

#[test]
fn nothing_else_is_removed() {
    let dir = Dir::new();
    let stay = ["a.tmp-abcdefgh", "a.lmc-tmp-abcdefg", "a.lmc-tmp-abcdefg_", "a.lmc-tmp-abcdefgh.lmc", "target"];
    for name in stay {
        dir.write(name, b"mine");
        age(&dir, name, 9999);
    }
    symlink("target", dir.path("link.lmc-tmp-abcdefgh")).unwrap();
    dir.write("sub.lmc-tmp-abcdefgh/file", b"mine");
    dir.write("gone.lmc-tmp-abcdefgh", b"abandoned");
    age(&dir, "gone.lmc-tmp-abcdefgh", 9999);
    let mut expected: Vec<String> = dir.names().into_iter().filter(|n| !n.starts_with("gone")).collect();
    dir.run(["compress", "target"]).silent();
    expected.push("target.lmc".to_owned());
    expected.sort();
    assert_eq!(dir.names(), expected);
}

#[test]
fn the_ways_write_the_same() {
    for dir in directories() {
        for way in Way::BOTH {
            let run = |args: &[&str]| {
                let output = dir.command(args).env(LMC_TEMPORARY, way.variable()).output().unwrap();
                Run(output)
            };
            dir.write("m", &model());
            fs::set_permissions(dir.path("m"), PermissionsExt::from_mode(0o640)).unwrap();
            age(&dir, "m", 5);
            run(&["compress", "m"]).silent();
            let (raw, made) = (fs::metadata(dir.path("m")).unwrap(), fs::metadata(dir.path("m.lmc")).unwrap());
            assert_eq!(raw.modified().unwrap(), made.modified().unwrap());
            assert_eq!(made.permissions().mode() & 0o777, 0o640);
            run(&["compress", "m"]).fails(&["m.lmc: exists; -f overwrites it"]);
            run(&["compress", "-f", "m"]).silent();
            fs::remove_file(dir.path("m")).unwrap();
            run(&["decompress", "m.lmc"]).silent();
            assert_eq!(dir.read("m"), model());
            run(&["decompress", "-f", "m.lmc"]).silent();
            assert_eq!(dir.read("m"), model());
            // A link is replaced, and its target stays.
            dir.write("there", b"mine");
            symlink("there", dir.path("link")).unwrap();
            run(&["decompress", "-f", "m.lmc", "-o", "link"]).silent();
            assert!(fs::symlink_metadata(dir.path("link")).unwrap().is_file());
            assert_eq!((dir.read("link"), dir.read("there")), (model(), b"mine".to_vec()));
            let names = ["link", "m", "m.lmc", "there"];
            assert_eq!(dir.names(), names);
            names.iter().for_each(|n| fs::remove_file(dir.path(n)).unwrap());
        }
    }
}

#[test]
fn names_of_any_bytes() {
    use std::ffi::OsStr;
    let dir = Dir::new();
    for way in Way::BOTH {
        for (raw, compressed) in [
            (b"\xff\xfe name".to_vec(), b"\xff\xfe name.lmc".to_vec()),
            (vec![b'n'; 251], [vec![b'n'; 251], b".lmc".to_vec()].concat()),
        ] {
            let [raw, compressed] = [&raw, &compressed].map(|n| OsStr::from_bytes(n));
            fs::write(dir.path(raw), b"data").unwrap();
            let run = |args: [&OsStr; 3]| {
                Run(dir.command(args).env(LMC_TEMPORARY, way.variable()).output().unwrap()).silent();
            };
            run(["compress".as_ref(), "-f".as_ref(), raw]);
            fs::write(dir.path(raw), b"another").unwrap();
            run(["decompress".as_ref(), "-f".as_ref(), compressed]);
            assert_eq!(fs::read(dir.path(raw)).unwrap(), b"data");
            [raw, compressed].iter().for_each(|n| fs::remove_file(dir.path(n)).unwrap());
        }
    }
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn no_memory_leaves_nothing_and_is_no_bug() {
    let dir = Dir::new();
    // Text, which goes to zstd, and weights.
    let text: Vec<u8> = noise(6 << 20, 1).iter().flat_map(|b| format!("{} ", b % 7).into_bytes()).collect();
    dir.write("f", &[text, weights(2 << 20, 2)].concat());
    let mut failed = 0;
    for megabytes in (10..140).step_by(5) {
        for threads in [1, 4] {
            let run =
                dir.shell(&format!("ulimit -c 0; ulimit -v {}; exec $LMC compress -T {threads} f", megabytes << 10));
            assert!(!run.stderr().contains("internal error"), "{megabytes} MB, {threads} threads: {run:?}");
            if run.0.status.success() {
                fs::remove_file(dir.path("f.lmc")).unwrap();
            } else {
                failed += 1;
            }
            assert_eq!(dir.names(), ["f"], "{megabytes} MB, {threads} threads");
        }
    }
    assert!(failed > 0);
}
