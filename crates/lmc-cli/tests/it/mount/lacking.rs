//! Machines on which nothing can be mounted: each gets one line, and what to do.

use super::*;

/// Runs a script as root in a mount namespace of its own, in a directory that all users can enter, with `$lmc`. None
/// where root may not make devices, and for other users.
fn as_root(script: &str) -> Option<Run> {
    use std::os::unix::fs::PermissionsExt;
    let in_namespace = |script: &str, dir: &Path| {
        Command::new("unshare").args(["-m", "bash", "-c", script]).current_dir(dir).output().unwrap()
    };
    let probe = in_namespace(&format!("set -e; {} echo > /dev/null", device("666")), Path::new("/"));
    if !rustix::process::geteuid().is_root() || !probe.status.success() {
        println!("skipped: it needs root, and devices: {probe:?}");
        return None;
    }
    let dir = Dir::new();
    fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    ["d", "mnt", "empty"].iter().for_each(|name| fs::create_dir(dir.path(name)).unwrap());
    dir.write("d/w", b"w");
    fs::set_permissions(dir.path("mnt"), fs::Permissions::from_mode(0o777)).unwrap();
    dir.write("lmc", b"");
    // The program may be where others cannot go.
    let script = format!("set -e; mount --bind {} lmc; lmc=$PWD/lmc; {script}", env!("CARGO_BIN_EXE_lmc"));
    Some(Run(in_namespace(&script, &dir.path(""))))
}

/// A `/dev` with nothing but the device of FUSE, with a mode.
fn device(mode: &str) -> String {
    format!(
        "mount -t tmpfs none /dev; mknod /dev/null c 1 3; chmod 666 /dev/null; \
         mknod /dev/fuse c 10 229; chmod {mode} /dev/fuse;"
    )
}

/// As a user without rights.
const USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn without_the_device_it_is_said_how_to_get_it() {
    let Some(run) = as_root("mount -t tmpfs none /dev; $lmc mount d mnt") else { return };
    run.fails(&[
        "mnt: cannot be mounted at: there is no /dev/fuse: load it (modprobe fuse), or start the container with",
    ]);
}

#[test]
fn without_permission_for_the_device_it_is_said_who_can_give_it() {
    let Some(run) = as_root(&format!("{} {USER} $lmc mount d mnt", device("600"))) else { return };
    run.fails(&["mnt: cannot be mounted at: no permission for /dev/fuse", "chmod a+rw /dev/fuse"]);
}

#[test]
fn users_without_fusermount3_are_told_what_to_install() {
    let hide = "for p in $(type -aP fusermount3 fusermount); do mount --bind d/w $p; done;";
    let path = "export PATH=$PWD/empty:$PATH; user=$(type -P setpriv);";
    let user = USER.replace("setpriv", "$user");
    let script = format!("{path} {hide} {} PATH=$PWD/empty {user} $lmc mount d mnt", device("666"));
    let Some(run) = as_root(&script) else { return };
    run.fails(&["mnt: cannot be mounted at: fusermount3 is missing", "apt-get install fuse3"]);
}

#[test]
fn where_mounting_is_not_permitted_it_is_said_what_permits_it() {
    // As root in a container that lacks the capability.
    let script = format!("{} setpriv --bounding-set -sys_admin --inh-caps -sys_admin $lmc mount d mnt", device("666"));
    let Some(run) = as_root(&script) else { return };
    run.fails(&[
        "mnt: cannot be mounted at: mount failed: Operation not permitted",
        "--cap-add SYS_ADMIN",
        "setuid root",
    ]);
}
