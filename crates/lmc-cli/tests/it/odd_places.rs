//! Surroundings that lack something: threads, streams, a working directory, names in UTF-8.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Dir, Run, model};

/// A directory with a model, its compressed form and a store, which every user may read and write.
fn prepared() -> Dir {
    let dir = Dir::new();
    dir.write("m.safetensors", &model());
    dir.run(["compress", "m.safetensors"]).silent();
    dir.run(["-q", "snapshot", "save", "s", "m.safetensors"]).silent();
    dir.shell("cp $LMC lmc; chmod -R a+rwX .").silent();
    dir
}

/// One command of each kind.
const COMMANDS: [&str; 9] = [
    "compress -f m.safetensors -o a.lmc",
    "decompress -f m.safetensors.lmc -o b",
    "test m.safetensors.lmc",
    "list m.safetensors.lmc",
    "cat -f m.safetensors.lmc embed.weight -o c",
    "diff m.safetensors m.safetensors.lmc",
    "unpack -f m.safetensors.lmc -o up",
    "snapshot list s",
    "snapshot restore s -f -o out",
];

/// Whether the test may become another user.
fn is_root() -> bool {
    let may = Command::new("setpriv").args(["--reuid", "65533", "--clear-groups", "true"]).status();
    may.is_ok_and(|status| status.success())
}

/// Whether a run said nothing of bugs, and ended by itself.
#[track_caller]
fn is_sound(run: &Run, what: &str) {
    let said = String::from_utf8_lossy(&run.0.stderr);
    assert!(run.0.status.code().is_some(), "{what}: {run:?}");
    assert!(!said.contains("bug in lmc") && !said.contains("panicked"), "{what}: {run:?}");
}

#[test]
fn without_threads_there_is_a_reason_or_a_result() {
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let dir = prepared();
    let mut failed = 0;
    for command in COMMANDS {
        for limit in 1..7 {
            let limited = format!("exec setpriv --reuid 65533 --clear-groups prlimit --nproc={limit} ./lmc {command}");
            let run = dir.shell(&limited);
            is_sound(&run, &limited);
            if !run.0.status.success() {
                failed += 1;
                assert!(run.stderr().contains("cannot start ") && run.stderr().contains("ulimit -u"), "{run:?}");
            }
        }
    }
    assert!(failed > 0);
    // The caller of the codec does the work of threads that are not there.
    dir.shell("exec setpriv --reuid 65533 --clear-groups prlimit --nproc=2 ./lmc test -T 16 m.safetensors.lmc").ok();
}

#[test]
fn streams_may_be_closed() {
    let dir = prepared();
    for command in COMMANDS {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            is_sound(&dir.shell(&format!("exec $LMC {command} {closed}")), &format!("{command} {closed}"));
        }
    }
    // No file of another purpose is taken for a stream.
    dir.shell("exec $LMC compress -f m.safetensors -o d.lmc <&- >&- 2>&-").ok();
    dir.run(["test", "d.lmc"]).ok();
}

#[test]
fn empty_variables_are_as_good_as_none() {
    let dir = prepared();
    for command in COMMANDS {
        dir.shell(&format!("LMC_ISA= LMC_TEMPORARY= HOME= TMPDIR= exec $LMC {command}")).ok();
        dir.shell(&format!("exec env -i LC_ALL=C $LMC {command}")).ok();
    }
}

#[test]
fn a_working_directory_need_not_be_searchable() {
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let dir = prepared();
    let here = dir.path(".").canonicalize().unwrap();
    let here = here.display();
    std::fs::create_dir(dir.path("closed")).unwrap();
    std::fs::set_permissions(dir.path("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let run = |command: &str| {
        let other = "exec setpriv --reuid 65533 --clear-groups";
        dir.shell(&format!("chmod 777 .; cd closed; {other} {here}/lmc {command}"))
    };
    for command in COMMANDS {
        let run = run(command);
        is_sound(&run, command);
        assert_eq!(run.0.status.code(), Some(1), "{command}: {run:?}");
    }
    for command in ["compress x -o y", "compress -r . -o out", "publish s . --once"] {
        is_sound(&run(command), command);
    }
    run(&format!("compress -f {here}/m.safetensors -o {here}/e.lmc")).silent();
    run(&format!("test {here}/e.lmc")).ok();
    run(&format!("compress {here}/m.safetensors -o out/m.lmc")).fails(&["out/m.lmc: cannot write"]);
    std::fs::set_permissions(dir.path("closed"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn few_files_may_be_open() {
    let dir = prepared();
    for command in COMMANDS {
        for limit in [3, 4, 6, 10, 20] {
            is_sound(&dir.shell(&format!("ulimit -n {limit}; exec $LMC {command}")), &format!("{limit}: {command}"));
        }
    }
}

#[test]
fn names_need_not_be_utf_8() {
    let dir = Dir::new();
    let name = OsStr::from_bytes(b"m\xff.safetensors");
    std::fs::write(dir.path(name), model()).unwrap();
    let compressed = OsStr::from_bytes(b"m\xff.safetensors.lmc");
    let run = |args: &[&OsStr]| Run(dir.command(args).output().unwrap());
    run(&[OsStr::new("compress"), name]).silent();
    for command in ["test", "list"] {
        assert!(run(&[OsStr::new(command), compressed]).0.status.success());
    }
    run(&[OsStr::new("decompress"), OsStr::new("-f"), compressed]).silent();
    assert!(std::fs::read(dir.path(name)).unwrap() == model());
    assert!(run(&[OsStr::new("unpack"), compressed, OsStr::new("-o"), OsStr::new("up")]).0.status.success());
    run(&[OsStr::new("snapshot"), OsStr::new("save"), OsStr::new("s"), name]).fails(&["names in a store are UTF-8"]);
    run(&[OsStr::new("compress"), OsStr::from_bytes(b"n\xff")]).fails(&["n\u{fffd}: cannot read"]);
}
