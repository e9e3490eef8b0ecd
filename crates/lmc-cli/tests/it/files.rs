//! The files that are read, names and attributes of outputs, and the removal of inputs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime};

use crate::support::{Dir, Run, model, noise, weights};

#[test]
fn there_and_back() {
    let dir = Dir::new();
    let data = model();
    dir.write("m.safetensors", &data);
    dir.run(["compress", "m.safetensors"]).silent();
    assert_eq!(dir.names(), ["m.safetensors", "m.safetensors.lmc"]);
    assert!(dir.read("m.safetensors.lmc").len() < data.len() * 3 / 4);
    fs::remove_file(dir.path("m.safetensors")).unwrap();
    dir.run(["decompress", "m.safetensors.lmc"]).silent();
    assert_eq!(dir.names(), ["m.safetensors", "m.safetensors.lmc"]);
    assert_eq!(dir.read("m.safetensors"), data);
}

#[test]
fn an_empty_file() {
    let dir = Dir::new();
    dir.write("empty", b"");
    dir.run(["compress", "empty"]).silent();
    dir.run(["test", "empty.lmc"]).ok();
    dir.run(["decompress", "empty.lmc", "-o", "back"]).silent();
    assert_eq!(dir.read("back"), b"");
}

#[test]
fn levels_and_threads_and_dtype() {
    let dir = Dir::new();
    let data = weights(400_000, 3);
    dir.write("w", &data);
    for level in ["fast", "default", "max"] {
        let mut outputs = vec![];
        for threads in ["-T1", "-T2", "-T0", "--threads=5"] {
            dir.run(["compress", "-f", "--level", level, threads, "--dtype", "bf16", "w"]).silent();
            outputs.push(dir.read("w.lmc"));
            dir.run(["decompress", "-f", threads, "w.lmc", "-o", "back"]).silent();
            assert_eq!(dir.read("back"), data);
        }
        outputs.dedup();
        assert_eq!(outputs.len(), 1, "the output depends on the number of threads");
        let listed = dir.run(["list", "--json", "w.lmc"]).json();
        assert_eq!(listed[0]["segments"][0]["dtype"], "BF16");
    }
    let fast = dir.run(["compress", "w", "-o", "fast", "--level", "fast", "--json"]).json();
    let default = dir.run(["compress", "w", "-o", "default", "--json"]).json();
    let max = dir.run(["compress", "w", "-o", "max", "--level", "max", "--json"]).json();
    assert!(default[0]["compressed_size"].as_u64() < fast[0]["compressed_size"].as_u64());
    assert!(max[0]["compressed_size"].as_u64() < default[0]["compressed_size"].as_u64());
}

#[test]
fn what_the_command_line_refuses() {
    let dir = Dir::new();
    dir.write("a", b"a");
    dir.write("b", b"b");
    for args in [
        &["compress", "a", "--dtype", "BF15"][..],
        &["compress", "a", "--level", "best"],
        &["compress", "a", "-T", "x"],
        &["compress", "a", "-T", "5000"],
        &["compress", "a", "--nonsense"],
        &["compress", "a", "-c", "-o", "b"],
        &["compress", "a", "-c", "--json"],
        &["compress", "a", "-q", "-v"],
        &["compress", "a", "--all"],
        &["completions", "csh"],
        &["cat", "a"],
        &["list"],
        &["frobnicate"],
        &[],
    ] {
        let output = dir.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
    dir.run(["compress", "a", "b", "-o", "out"]).is_misused(&["-o names one file", "2 inputs", "-r and the directory"]);
    fs::create_dir(dir.path("none")).unwrap();
    dir.run(["-q", "compress", "-r", "none", "a", "-o", "out"]).is_misused(&["-o names one file", "2 inputs"]);
    fs::remove_dir(dir.path("none")).unwrap();
    dir.run(["compress", "a", "b", "-c"]).is_misused(&["cannot be separated"]);
    dir.run(["compress", "-", "-", "-c"]).is_misused(&["only once"]);
    dir.run(["compress", "a", "a"]).is_misused(&["a: is given twice"]);
    dir.run(["compress", "a", "-o", "-", "--rm"]).is_misused(&["--rm"]);
    dir.run(["compress", "a", "-o", "/dev/null", "--rm"]).is_misused(&["--rm"]);
    assert_eq!(dir.names(), ["a", "b"]);
}

#[test]
fn several_files_and_one_that_is_not_there() {
    let dir = Dir::new();
    dir.write("a", b"first");
    dir.write("c", b"third");
    dir.run(["compress", "a", "b", "c"]).fails(&["b: cannot read: no such file or directory"]);
    assert_eq!(dir.names(), ["a", "a.lmc", "c", "c.lmc"]);
    let run = dir.run(["decompress", "-c", "a.lmc", "c.lmc"]);
    assert_eq!(run.ok().stdout(), "firstthird");
}

#[test]
fn names_that_look_like_options() {
    let dir = Dir::new();
    dir.write("-v", b"data");
    dir.run(["compress", "--", "-v"]).silent();
    assert_eq!(dir.names(), ["-v", "-v.lmc"]);
    dir.run(["decompress", "-f", "--", "-v.lmc"]).silent();
    dir.run(["compress", "-f", "./-v"]).silent();
}

#[test]
fn an_existing_target_stays() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.write("a.lmc", b"precious");
    dir.run(["compress", "a"]).fails(&["a.lmc: exists", "-f"]);
    assert_eq!(dir.read("a.lmc"), b"precious");
    dir.run(["compress", "-f", "a"]).silent();
    dir.run(["decompress", "a.lmc"]).fails(&["a: exists", "-f"]);
    dir.write("a", b"changed");
    dir.run(["decompress", "--force", "a.lmc"]).silent();
    assert_eq!(dir.read("a"), b"data");
    dir.write("d/x", b"");
    dir.run(["compress", "a", "-o", "d"]).fails(&["d: is a directory: name a file in it"]);
    dir.run(["compress", "-f", "a", "-o", "d/"]).fails(&["is a directory"]);
    symlink("nowhere", dir.path("dangling")).unwrap();
    dir.run(["compress", "a", "-o", "dangling"]).fails(&["dangling: exists"]);
    assert_eq!(dir.names(), ["a", "a.lmc", "d", "d/x", "dangling"]);
}

#[test]
fn a_file_is_not_written_onto_itself() {
    let dir = Dir::new();
    dir.write("a", b"data");
    fs::hard_link(dir.path("a"), dir.path("b")).unwrap();
    symlink("a", dir.path("c")).unwrap();
    for target in ["a", "./a", "b", "c"] {
        dir.run(["compress", "-f", "a", "-o", target]).is_misused(&[&format!("{target}: is the input file a")]);
    }
    dir.shell("$LMC compress -c a >>a").is_misused(&["is the input file"]);
    dir.shell("$LMC compress <a >>a").is_misused(&["is the input file"]);
    assert_eq!(dir.read("a"), b"data");
}

#[test]
fn mode_and_times_are_kept() {
    let dir = Dir::new();
    let path = dir.write("a", b"data");
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).unwrap();
    dir.run(["compress", "a"]).silent();
    let made = dir.path("a.lmc").metadata().unwrap();
    assert_eq!((made.mode() & 0o7777, made.modified().unwrap()), (0o640, then));
    fs::remove_file(&path).unwrap();
    dir.run(["decompress", "a.lmc"]).silent();
    let made = path.metadata().unwrap();
    assert_eq!((made.mode() & 0o7777, made.modified().unwrap()), (0o640, then));
}

/// Runs `lmc` as a user who is not root and is in these groups, who may not have access to the build directory.
fn as_nobody(dir: &Dir, groups: &str, args: &str) -> Run {
    dir.shell(&format!(
        "chmod a+rwx . && cp -u $LMC lmc || exit 9
        if [ $(id -u) = 0 ]; then set -- setpriv --reuid=65534 --regid=65534 --groups={groups}; fi
        exec \"$@\" ./lmc {args}"
    ))
}

#[test]
fn another_group_gets_no_rights() {
    let dir = Dir::new();
    // Of root, whose group nobody else can give.
    as_nobody(&dir, "65534", "compress /etc/passwd -o a.lmc").silent();
    let (from, made) = (fs::metadata("/etc/passwd").unwrap(), dir.path("a.lmc").metadata().unwrap());
    assert_eq!((from.mode() & 0o777, from.gid()), (0o644, 0));
    assert_ne!(made.gid(), 0);
    assert_eq!(made.mode() & 0o777, 0o604);
    // A group of the user is kept, although the owner cannot be.
    if rustix::process::getuid().is_root() {
        dir.write("b", b"data");
        dir.shell("chgrp 1 b && chmod 640 b").silent();
        as_nobody(&dir, "1,65534", "compress b").silent();
        let made = dir.path("b.lmc").metadata().unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (65534, 1, 0o640));
    }
}

#[test]
fn directories_may_be_written_but_not_read() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.shell("mkdir box && chmod 333 box").silent();
    as_nobody(&dir, "65534", "compress a -o box/a.lmc").silent();
    dir.shell("chmod 755 box").silent();
    assert_eq!(dir.run(["decompress", "-c", "box/a.lmc"]).stdout(), "data");
}

#[test]
fn output_of_a_pipe_has_the_mode_of_any_new_file() {
    let dir = Dir::new();
    let run = dir.shell("umask 027; echo data | $LMC compress -o a.lmc");
    run.silent();
    assert_eq!(dir.path("a.lmc").metadata().unwrap().mode() & 0o777, 0o640);
}

#[test]
fn inputs_are_kept_or_removed() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.run(["compress", "--rm", "a"]).silent();
    assert_eq!(dir.names(), ["a.lmc"]);
    dir.run(["decompress", "--rm", "a.lmc"]).silent();
    assert_eq!(dir.names(), ["a"]);
    dir.run(["compress", "a"]).silent();
    assert_eq!(dir.names(), ["a", "a.lmc"]);
    // After a failure the input stays.
    dir.run(["compress", "--rm", "a"]).fails(&["exists"]);
    assert_eq!(dir.names(), ["a", "a.lmc"]);
    let mut damaged = dir.read("a.lmc");
    *damaged.last_mut().unwrap() ^= 1;
    dir.write("b.lmc", &damaged);
    dir.run(["decompress", "--rm", "b.lmc"]).fails(&["b.lmc"]);
    assert_eq!(dir.names(), ["a", "a.lmc", "b.lmc"]);
}

#[test]
fn only_regular_files_are_read() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.write("d/b", b"data");
    let fifo = dir.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _listener = UnixListener::bind(dir.path("socket")).unwrap();
    let before = dir.names();
    for command in ["compress", "decompress", "test", "list"] {
        dir.run([command, "fifo"]).fails(&["fifo: is a named pipe", "- < PIPE"]);
        dir.run([command, "socket"]).fails(&["socket: is a socket"]);
    }
    for command in ["compress", "test"] {
        dir.run([command, "d"]).fails(&["d: is a directory", "-r"]);
        dir.run([command, "/dev/zero"]).fails(&["/dev/zero: is a device"]);
    }
    assert_eq!(dir.names(), before);
    dir.run(["compress", "-f", "fifo"]).fails(&["is a named pipe"]);
}

#[test]
fn what_is_compressed_already_is_skipped() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.run(["compress", "a"]).silent();
    fs::rename(dir.path("a.lmc"), dir.path("disguised")).unwrap();
    let run = dir.run(["compress", "disguised"]);
    assert_eq!(run.ok().stderr(), "lmc: disguised: skipped, it is already compressed; -f compresses it again\n");
    dir.run(["compress", "-q", "disguised"]).silent();
    assert_eq!(dir.names(), ["a", "disguised"]);
    let json = dir.run(["compress", "-q", "--json", "disguised"]).json();
    assert!(json[0]["skipped"].is_string());
    dir.run(["compress", "-f", "disguised"]).silent();
    dir.run(["decompress", "disguised.lmc", "-o", "same"]).silent();
    assert_eq!(dir.read("same"), dir.read("disguised"));
}

#[test]
fn a_name_without_the_suffix() {
    let dir = Dir::new();
    dir.write("a", b"data");
    dir.run(["compress", "a", "-o", "packed"]).silent();
    dir.run(["decompress", "packed"]).fails(&["packed: has no name ending in .lmc", "-o"]);
    dir.run(["decompress", "packed", "-o", "b"]).silent();
    assert_eq!(dir.run(["decompress", "-c", "packed"]).stdout(), "data");
    assert_eq!(dir.read("b"), b"data");
}

fn tree() -> Dir {
    let dir = Dir::new();
    dir.write("run/config.json", b"{}");
    dir.write("run/model.safetensors", &model());
    dir.write("run/1/optimizer.pt", &noise(1000, 1));
    dir.write("run/1/rank.DISTCP", &noise(100, 2));
    dir.write("run/2/notes.txt", b"text");
    symlink("model.safetensors", dir.path("run/latest.safetensors")).unwrap();
    symlink("..", dir.path("run/2/loop")).unwrap();
    dir
}

const TREE: [&str; 10] = [
    "run",
    "run/1",
    "run/1/optimizer.pt",
    "run/1/rank.DISTCP",
    "run/2",
    "run/2/loop",
    "run/2/notes.txt",
    "run/config.json",
    "run/latest.safetensors",
    "run/model.safetensors",
];

#[test]
fn directories_in_place() {
    let dir = tree();
    let link = "run/latest.safetensors";
    dir.run(["compress", "-r", "--rm", "run"]).is_misused(&[link]);
    fs::remove_file(dir.path(link)).unwrap();
    dir.run(["compress", "-r", "--rm", "run"]).silent();
    let compressed = [
        "run",
        "run/1",
        "run/1/optimizer.pt.lmc",
        "run/1/rank.DISTCP.lmc",
        "run/2",
        "run/2/loop",
        "run/2/notes.txt",
        "run/config.json",
        "run/model.safetensors.lmc",
    ];
    assert_eq!(dir.names(), compressed);
    // A second run has nothing left to do.
    dir.run(["compress", "-r", "run"]).silent();
    assert_eq!(dir.names(), compressed);
    assert_eq!(dir.run(["test", "-r", "run", "--json"]).ok().json().len(), 3);
    dir.run(["decompress", "-r", "--rm", "run"]).silent();
    assert_eq!(dir.names(), TREE.into_iter().filter(|name| *name != link).collect::<Vec<_>>());
    assert_eq!(dir.read("run/model.safetensors"), model());
    assert_eq!(dir.read("run/1/optimizer.pt"), noise(1000, 1));
}

#[test]
fn directories_whole_and_in_order() {
    let dir = tree();
    let run = dir.run(["compress", "-r", "--all", "-v", "run"]);
    let compressed: Vec<_> = run.ok().stderr().lines().filter_map(|l| l.split_once(" : ")).map(|(f, _)| f).collect();
    let files = [
        "run/1/optimizer.pt",
        "run/1/rank.DISTCP",
        "run/2/notes.txt",
        "run/config.json",
        "run/model.safetensors",
        "5 files",
    ];
    assert_eq!(compressed, files);
    assert!(
        run.stderr().contains("run/latest.safetensors: left alone, a link to another file of these"),
        "{}",
        run.stderr()
    );
}

#[test]
fn directories_mirrored() {
    let dir = tree();
    dir.run(["compress", "-r", "run", "-o", "far/away"]).silent();
    dir.run(["decompress", "-r", "far/away", "-o", "back"]).silent();
    let made: Vec<_> = dir.names().into_iter().filter(|n| !n.starts_with("run")).collect();
    let expected = [
        "back",
        "back/1",
        "back/1/optimizer.pt",
        "back/1/rank.DISTCP",
        "back/model.safetensors",
        "far",
        "far/away",
        "far/away/1",
        "far/away/1/optimizer.pt.lmc",
        "far/away/1/rank.DISTCP.lmc",
        "far/away/model.safetensors.lmc",
    ];
    assert_eq!(made, expected);
    assert_eq!(dir.read("back/model.safetensors"), model());
}

#[test]
fn a_file_is_given_once() {
    let dir = tree();
    dir.run(["compress", "-r", "run", "run/1"]).is_misused(&["is given twice: give it once"]);
    assert!(!dir.names().iter().any(|name| name.ends_with(".lmc")));
}

#[test]
fn directories_without_such_files() {
    let dir = Dir::new();
    dir.write("blobs/1", b"weights");
    symlink("../blobs", dir.write("links/config.json", b"{}").with_file_name("model.safetensors")).unwrap();
    let compress = dir.run(["compress", "-r", "links", "blobs"]);
    assert_eq!(compress.0.status.code(), Some(1));
    for name in ["links", "blobs"] {
        assert!(
            compress.stderr().contains(&format!("lmc: {name}: has no regular file with the suffix of a checkpoint"))
        );
    }
    dir.run(["decompress", "-r", "links"]).fails(&["links: has no regular file whose name ends in .lmc"]);
    dir.run(["-q", "compress", "-r", "links"]).fails(&["links: has no regular file with the suffix of a checkpoint"]);
    // A check of nothing is no success.
    dir.run(["-q", "test", "-r", "links", "blobs"]).fails(&["nothing was checked"]);
    dir.run(["compress", "-r", "--all", "blobs"]).silent();
    let test = dir.run(["test", "-r", "links", "blobs"]);
    assert!(
        test.ok().stdout().contains("blobs/1.lmc : OK") && test.stderr().contains("links: has no regular file"),
        "{test:?}"
    );
    // Commands without -r do not offer it.
    for args in [["list", "blobs"], ["test", "blobs"]] {
        dir.run(args).fails(&[
            "blobs: is a directory, and not a file",
            "compress, decompress and test take directories with -r",
        ]);
    }
    dir.write("m.safetensors", &model());
    dir.run(["compress", "m.safetensors"]).silent();
    let cat = dir.run(["cat", "m.safetensors.lmc", "embed.weight", "-o", "links"]);
    cat.fails(&["links: is a directory: name a file in it"]);
}

#[test]
fn zeros_are_restored_as_holes() {
    let dir = Dir::new();
    let mut data = vec![0; 64 << 20];
    data[50 << 20] = 1;
    dir.write("a", &data);
    dir.run(["compress", "--rm", "a"]).silent();
    assert!(dir.path("a.lmc").metadata().unwrap().len() < 1 << 20);
    dir.run(["decompress", "a.lmc"]).silent();
    assert_eq!(dir.read("a"), data);
    assert!(dir.path("a").metadata().unwrap().blocks() * 512 < 32 << 20);
}

#[test]
fn what_only_begins_as_a_compressed_file_is_compressed() {
    let dir = Dir::new();
    dir.write("f", b"data");
    dir.run(["compress", "f"]).silent();
    let real = dir.read("f.lmc");
    for (name, data) in [("magic", &real[..8]), ("cut", &real[..real.len() - 1])] {
        dir.write(name, data);
        dir.run(["compress", name]).silent();
        assert_eq!(dir.feed(["decompress"], &dir.read(&format!("{name}.lmc"))).0.stdout, data, "{name}");
    }
    dir.write("text", &[&real[..8], b" is how it begins"].concat());
    dir.run(["compress", "text"]).silent();
    assert!(dir.has("text.lmc"));
    // A real one is left alone.
    dir.run(["compress", "f.lmc"]).ok();
    assert!(!dir.has("f.lmc.lmc"));
}

#[test]
fn outputs_that_are_there_are_skipped() {
    let dir = Dir::new();
    ["a.pt", "b.pt"].iter().for_each(|name| _ = dir.write(&format!("d/{name}"), &noise(5000, 1)));
    dir.run(["compress", "d/a.pt"]).silent();
    let before = dir.read("d/a.pt.lmc");
    dir.run(["compress", "-r", "d"]).fails(&["d/a.pt.lmc: exists"]);
    std::fs::remove_file(dir.path("d/b.pt.lmc")).unwrap();
    let planned = dir.run(["compress", "-r", "-n", "--skip-existing", "d"]);
    assert!(planned.ok().stderr().contains("d/a.pt: skipped, its output is there"), "{planned:?}");
    let run = dir.run(["compress", "-r", "--skip-existing", "d"]);
    assert!(run.ok().stderr().contains("d/a.pt: skipped, its output is there"), "{run:?}");
    assert!(dir.has("d/b.pt.lmc") && dir.read("d/a.pt.lmc") == before);
    dir.run(["-q", "decompress", "-r", "--skip-existing", "d"]).silent();
    assert_eq!(dir.run(["compress", "-f", "--skip-existing", "d/a.pt"]).0.status.code(), Some(2));
}
