//! Mounting in the background, by itself or as a service of systemd: the unit has a command that `lmc` takes.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;

use super::*;

const UNIT: &str = include_str!("../../../../../packaging/lmc-mount@.service");

/// The value of a setting.
fn setting(name: &str) -> &'static str {
    let mut found = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found.next().unwrap_or_else(|| panic!("{name} is missing"));
    assert!(found.next().is_none(), "{name} is there twice");
    value
}

/// The words of a command, with variables as systemd replaces them: `$NAME` is as many words as its value has,
/// `${NAME}` is one.
fn words(command: &str, variables: &HashMap<&str, String>) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix('$') {
        None => vec![word.to_owned()],
        Some(name) => match name.strip_prefix('{') {
            Some(name) => vec![variables[name.trim_end_matches('}')].clone()],
            None => variables[name].split(' ').map(str::to_owned).collect(),
        },
    };
    command.split(' ').flat_map(word).collect()
}

/// The example of a configuration in the first lines, with the path that they give it.
fn example() -> (String, HashMap<&'static str, String>) {
    let comments = || UNIT.lines().map_while(|line| line.strip_prefix('#'));
    let path = comments().flat_map(|line| line.split([' ', ','])).find(|word| word.ends_with(".conf")).unwrap();
    let lines = comments().filter_map(|line| line.trim().split_once('='));
    (path.to_owned(), lines.map(|(name, value)| (name, value.to_owned())).collect())
}

#[test]
fn the_unit_mounts_says_when_it_is_ready_and_cleans_up() {
    let (path, mut variables) = example();
    assert_eq!(setting("EnvironmentFile").replace("%i", "models"), path);
    assert_eq!(setting("Type"), "notify");
    assert_eq!(setting("Documentation"), "man:lmc-mount(1)");
    let mut names: Vec<_> = variables.keys().copied().collect();
    names.sort_unstable();
    assert_eq!(names, ["MOUNTPOINT", "OPTIONS", "SOURCE"]);
    // Only root mounts for others without further ado, and unmounts with umount.
    if !may_mount_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, files) = directory();
    fs::create_dir(dir.path("mnt")).unwrap();
    for (name, at) in [("SOURCE", "d"), ("MOUNTPOINT", "mnt")] {
        variables.insert(name, dir.path(at).to_str().unwrap().to_owned());
    }
    let command = words(setting("ExecStart"), &variables);
    assert_eq!(command[..2], ["lmc", "mount"]);
    let socket = UnixDatagram::bind(dir.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut lmc = dir.command(&command[1..]).env("NOTIFY_SOCKET", dir.path("notify")).spawn().unwrap();
    let mut said = [0; 64];
    let len = socket.recv(&mut said).unwrap();
    assert_eq!(&said[..len], b"READY=1");
    assert!(dir.read("mnt/large.safetensors") == files[2].1);
    // After a crash.
    lmc.kill().unwrap();
    lmc.wait().unwrap();
    assert_eq!(error(fs::read_dir(dir.path("mnt"))), rustix::io::Errno::NOTCONN);
    let stop = words(setting("ExecStopPost").strip_prefix('-').unwrap(), &variables);
    assert!(Command::new(&stop[0]).args(&stop[1..]).status().unwrap().success());
    assert!(!is_mounted(&dir.path("mnt")));
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let dir = Dir::new();
    // Commands are looked for where they are installed.
    let unit = UNIT.replace("ExecStart=lmc ", &format!("ExecStart={} ", env!("CARGO_BIN_EXE_lmc")));
    assert!(unit != UNIT);
    let path = dir.write("lmc-mount@models.service", unit.as_bytes());
    let Ok(run) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output() else {
        println!("skipped: no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!said.lines().any(|line| line.contains("lmc-mount@models.service")), "{said}");
}

#[test]
fn a_daemon_is_ready_when_the_command_returns() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    fs::create_dir(dir.path("mnt")).unwrap();
    let mut bytes = fs::read(dir.path("d/large.safetensors.lmc")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    dir.write("d/large.safetensors.lmc", &bytes);
    // Its streams end with the command, not with the daemon.
    dir.run(["mount", "--daemon", "--log", "log", "d", "mnt"]).silent();
    assert!(dir.read("mnt/sub/noise") == files[4].1);
    assert_eq!(error(fs::read(dir.path("mnt/large.safetensors"))), rustix::io::Errno::IO);
    assert!(String::from_utf8(dir.read("log")).unwrap().starts_with("lmc: d/large.safetensors.lmc: bytes "));
    assert!(Command::new("fusermount3").arg("-u").arg(dir.path("mnt")).status().unwrap().success());
    assert!(!is_mounted(&dir.path("mnt")));
    dir.run(["mount", "--daemon", "none", "mnt"]).fails(&["none: cannot read: no such file or directory"]);
}
