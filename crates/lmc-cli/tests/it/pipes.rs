//! Standard input and output: pipes both ways, terminals, readers that leave.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::support::{Dir, model, noise, weights};

#[test]
fn from_pipe_to_pipe() {
    let dir = Dir::new();
    for data in [vec![], b"a".to_vec(), model(), weights(3_000_000, 5)] {
        let packed = dir.feed(["compress"], &data);
        packed.silent();
        let back = dir.feed(["decompress"], &packed.0.stdout);
        back.silent();
        assert!(back.0.stdout == data, "{} bytes do not come back", data.len());
        dir.feed(["test", "-q"], &packed.0.stdout).silent();
    }
    assert_eq!(dir.names(), Vec::<String>::new());
}

#[test]
fn a_pipe_gives_the_bytes_that_a_file_gives() {
    let dir = Dir::new();
    let data = model();
    dir.write("m", &data);
    dir.run(["compress", "m"]).silent();
    let file = dir.read("m.lmc");
    // But for the features in the header, which are known too late.
    let same = |stdout: &[u8]| stdout[..12] == file[..12] && stdout[16..] == file[16..];
    assert!(same(&dir.feed(["compress", "-"], &data).ok().0.stdout));
    assert!(same(&dir.feed(["compress", "-c"], &data).ok().0.stdout));
    assert!(same(&dir.feed(["compress", "-", "-o", "-"], &data).ok().0.stdout));
    assert!(same(&dir.run(["compress", "-c", "m"]).ok().0.stdout));
    dir.feed(["compress", "-", "-o", "n.lmc"], &data).silent();
    assert!(dir.read("n.lmc") == file);
    for args in
        [["decompress", "-c", "m.lmc"], ["decompress", "m.lmc", "-o-"], ["decompress", "m.lmc", "-o/dev/stdout"]]
    {
        assert!(dir.run(args).ok().0.stdout == data, "{args:?}");
    }
}

#[test]
fn json_is_not_mixed_with_the_output() {
    let dir = Dir::new();
    dir.write("m", &model());
    dir.run(["compress", "m"]).silent();
    let names = dir.names();
    for (command, input) in [("compress", "m"), ("decompress", "m.lmc")] {
        for output in [format!("<{input}"), format!("{input} -o -"), format!("{input} -o /dev/stdout")] {
            let run = dir.shell(&format!("$LMC {command} --json {output}"));
            run.is_misused(&["both the output and --json would go to standard output", "-o"]);
            assert_eq!(run.stdout(), "");
        }
    }
    assert_eq!(dir.names(), names);
    let json = dir.feed(["compress", "--json", "-o", "n.lmc"], &model()).json();
    assert_eq!((json.len(), dir.read("n.lmc")), (1, dir.read("m.lmc")));
}

#[test]
fn a_pipeline() {
    let dir = Dir::new();
    dir.write("m", &model());
    dir.shell("$LMC compress <m | cat | $LMC decompress >n").silent();
    assert_eq!(dir.read("n"), model());
    dir.shell("mkfifo f; $LMC compress m -o f & cat f | $LMC test -q; wait $!").silent();
}

#[test]
fn a_reader_that_leaves() {
    let dir = Dir::new();
    dir.write("m", &noise(4 << 20, 1));
    dir.run(["compress", "m"]).silent();
    for args in [&["compress", "-c", "m"][..], &["decompress", "-c", "m.lmc"], &["list", "--json", "m.lmc"]] {
        let mut child = dir.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
        // `list` may have printed its line before the reader left.
        assert!(output.status.signal() == Some(13) || args[0] == "list", "{args:?}: {:?}", output.status);
    }
}

#[test]
fn closed_descriptors_do_not_panic() {
    let dir = Dir::new();
    dir.write("m", b"data");
    assert_eq!(dir.shell("$LMC compress missing 2>&-").0.status.code(), Some(1));
    assert_eq!(dir.shell("$LMC compress -v m 2>&-").0.status.code(), Some(0));
    dir.shell("$LMC list m.lmc >/dev/full").fails(&["(stdout)", "no space left on device"]);
    dir.shell("$LMC compress -c m >/dev/full").fails(&["(stdout)", "no space left on device"]);
    dir.shell("$LMC compress m -o /dev/full").fails(&["/dev/full", "no space left on device"]);
    // A file that takes numbers, and cannot be synced.
    dir.write("n", b"1000");
    dir.shell("$LMC compress n && $LMC decompress -c n.lmc >/proc/self/oom_score_adj").silent();
}

#[test]
fn a_terminal_is_no_place_for_binary_data() {
    let dir = Dir::new();
    dir.write("m", b"data");
    dir.run(["compress", "m", "--dtype", "U8"]).silent();
    for args in [&["compress", "-c", "m"][..], &["decompress", "-c", "m.lmc"], &["cat", "m.lmc", ""]] {
        let (shown, code) = dir.on_terminal(args, false, true);
        assert_eq!(code, 2, "{shown}");
        assert!(shown.starts_with("lmc: ") && shown.contains("is a terminal") && shown.lines().count() == 1, "{shown}");
    }
    let (shown, code) = dir.on_terminal(&["decompress", "-f", "-c", "-q", "m.lmc"], false, true);
    assert_eq!((shown.as_str(), code), ("data", 0));
}

#[test]
fn a_terminal_is_no_input() {
    let dir = Dir::new();
    for command in ["compress", "decompress", "test"] {
        let (shown, code) = dir.on_terminal(&[command], true, false);
        assert_eq!(code, 2, "{shown}");
        assert!(shown.contains("name a file"), "{shown}");
    }
}

#[test]
fn a_terminal_sees_progress_and_results() {
    let dir = Dir::new();
    dir.write("model", &weights(2_000_000, 1));
    let (shown, code) = dir.on_terminal(&["compress", "model"], false, false);
    assert_eq!(code, 0, "{shown}");
    let last = shown.trim_end().rsplit(['\r', '\n', '\u{1b}']).next().unwrap();
    assert!(
        last.contains("model : ") && last.contains(" %  (3.81 MiB => ") && last.ends_with("model.lmc)"),
        "{shown:?}"
    );
    assert!(shown.contains("MiB/s") || shown.contains("B/s"), "{shown:?}");
    // No colours, so there is nothing for NO_COLOR to switch off.
    assert!(!shown.contains("\u{1b}[3") && !shown.contains("\u{1b}[9"), "{shown:?}");
    let (shown, code) = dir.on_terminal(&["compress", "-f", "--no-progress", "model"], false, false);
    assert_eq!(code, 0);
    assert!(shown.starts_with("model : ") && !shown.contains('\u{1b}') && !shown.contains("/s"), "{shown:?}");
    let (shown, code) = dir.on_terminal(&["compress", "-f", "-q", "model"], false, false);
    assert_eq!((shown.as_str(), code), ("", 0));
}

#[test]
fn nothing_is_shown_without_a_terminal_unless_asked_for() {
    let dir = Dir::new();
    dir.write("a", &weights(10_000, 1));
    dir.run(["compress", "a"]).silent();
    let run = dir.run(["compress", "-fv", "a"]);
    assert!(run.ok().stderr().starts_with("a : ") && run.stderr().ends_with("a.lmc)\n"), "{run:?}");
    let run = dir.run(["decompress", "-fv", "a.lmc"]);
    assert_eq!(run.ok().stderr(), "a.lmc : 19.5 KiB  (a)\n");
}

#[test]
fn standard_input_is_not_read_when_the_output_cannot_be_written() {
    let dir = Dir::new();
    dir.write("file", b"");
    for target in ["file", "file/x.lmc", "missing/x.lmc", "/proc/x.lmc", "."] {
        let mut child = dir.spawn(["compress", "-o", target]);
        // The pipe stays open: if it were read, this would not end.
        let stdin = child.stdin.take();
        let mut message = String::new();
        child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{message}");
        assert!(message.starts_with(&format!("lmc: {target}: ")) && message.lines().count() == 1, "{message}");
        drop(stdin);
    }
    assert_eq!(dir.names(), ["file"]);
}

#[test]
fn links_to_open_files_are_not_replaced() {
    let dir = Dir::new();
    dir.write("f", b"data");
    for (link, target) in [("a", "/dev/stdout"), ("b", "/proc/self/fd/1"), ("c", "/dev/fd/1"), ("d", "a")] {
        std::os::unix::fs::symlink(target, dir.path(link)).unwrap();
        dir.shell(&format!("$LMC compress -f f -o {link} >out")).silent();
        assert!(dir.path(link).symlink_metadata().unwrap().is_symlink(), "{link}");
        assert_eq!(dir.run(["decompress", "-c", "out"]).stdout(), "data", "{link}");
        dir.shell(&format!("$LMC compress f -o {link} | $LMC decompress")).silent();
        dir.shell(&format!("$LMC compress -f --rm f -o {link} >out")).is_misused(&["is not a regular file"]);
    }
    dir.shell("$LMC compress -f f -o /dev/stdout >out").silent();
    assert_eq!(dir.run(["decompress", "-c", "out"]).stdout(), "data");
    std::os::unix::fs::symlink("/dev/fd/5", dir.path("e")).unwrap();
    let part = "leads to a file that a process has open, not to a file by name: write to standard output";
    dir.shell("$LMC compress -f f -o e 5>other").fails(&["e: ", part]);
    dir.shell("$LMC compress -f f -o /dev/fd/5 5>other").fails(&["/dev/fd/5: ", part]);
    assert!(dir.path("e").symlink_metadata().unwrap().is_symlink());
    assert_eq!(dir.names(), ["a", "b", "c", "d", "e", "f", "other", "out"]);
}
