//! `lmc mount`: files and snapshots as a file system, against the bytes of the originals.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use lmc_testing::thorough;

use crate::hub::download;
use crate::support::*;

mod lacking;
mod service;
mod store;

/// Whether a test may mount file systems of FUSE. If not, and `LMC_REQUIRE_FUSE` is set, the test fails.
fn may_mount_fuse() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let may = device.is_ok() && Command::new("fusermount3").arg("--version").output().is_ok();
    assert!(may || std::env::var_os("LMC_REQUIRE_FUSE").is_none(), "no FUSE: {device:?}, or no fusermount3");
    if !may {
        println!("skipped: no FUSE: {device:?}, or no fusermount3");
    }
    may
}

/// A running `lmc mount`, whose messages are in the file `said`.
struct Mounted {
    lmc: Child,
    at: PathBuf,
    said: PathBuf,
}

impl Mounted {
    /// Mounts at `mnt`, which is the last of the arguments, and is created.
    fn new(dir: &Dir, args: &[&str]) -> Self {
        let (at, said) = (dir.path(args.last().unwrap()), dir.path("said"));
        fs::create_dir_all(&at).unwrap();
        let mut command = dir.mortal([&["mount"], args].concat());
        let mut lmc = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
        wait_until("it is mounted", || {
            assert!(lmc.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&said).unwrap());
            is_mounted(&at)
        });
        Self { lmc, at, said }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    #[track_caller]
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Messages, but for the line that says that it is mounted: it may come after others.
    fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.said).unwrap();
        said.lines().filter(|line| !line.contains(" : mounted; ")).map(str::to_owned).collect()
    }

    fn signal(&mut self, name: &str) -> std::process::ExitStatus {
        let sent = Command::new("kill").args(["-s", name, &self.lmc.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.lmc.wait().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = self.lmc.kill();
        self.lmc.wait().unwrap();
        unmount(&self.at);
    }
}

fn is_mounted(at: &Path) -> bool {
    let at = at.parent().unwrap().canonicalize().unwrap().join(at.file_name().unwrap());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

fn unmount(at: &Path) {
    if is_mounted(at) {
        Command::new("fusermount3").args(["-u", "-z"]).arg(at).output().unwrap();
    }
}

/// The number of an error.
fn error<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&result.unwrap_err()).unwrap()
}

/// A model of several blocks.
fn large(seed: u64) -> Vec<u8> {
    safetensors(&[("w", "BF16", &[1_500_000], &weights(1_500_000, seed)), ("b", "F32", &[96], &noise(384, 2))])
}

/// A directory `d` with compressed files and others, and the files that are to be seen.
fn directory() -> (Dir, Vec<(&'static str, Vec<u8>)>) {
    let dir = Dir::new();
    let files = vec![
        ("config.json", b"{}\n".to_vec()),
        ("empty", Vec::new()),
        ("large.safetensors", large(1)),
        ("sub/deep/model.safetensors", model()),
        ("sub/noise", noise(3_000_000, 7)),
    ];
    for (name, data) in &files {
        let path = dir.write(&format!("d/{name}"), data);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    dir.run(["-q", "compress", "--rm", "d/large.safetensors", "d/empty", "d/sub/deep/model.safetensors"]).silent();
    dir.run(["-q", "compress", "--rm", "d/sub/noise"]).silent();
    (dir, files)
}

#[test]
fn a_directory_is_shown_with_the_originals_and_cannot_be_written() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    assert_eq!(mounted.names(""), ["config.json", "empty", "large.safetensors", "sub"]);
    assert_eq!(mounted.names("sub"), ["deep", "noise"]);
    for (name, data) in &files {
        assert!(mounted.read(name) == *data, "{name}");
        let m = fs::metadata(mounted.path(name)).unwrap();
        assert_eq!((m.len(), m.mtime()), (data.len() as u64, 1_600_000_000), "{name}");
    }
    assert_eq!(error(fs::read(mounted.path("large.safetensors.lmc"))), rustix::io::Errno::NOENT);
    let refused = [
        error(fs::write(mounted.path("new"), "x")),
        error(fs::write(mounted.path("config.json"), "x")),
        error(fs::remove_file(mounted.path("large.safetensors"))),
        error(fs::create_dir(mounted.path("sub/new"))),
        error(fs::rename(mounted.path("empty"), mounted.path("other"))),
        error(symlink("config.json", mounted.path("link"))),
    ];
    assert_eq!(refused, [rustix::io::Errno::ROFS; 6]);
    // What comes and goes, and is written meanwhile.
    let mut log = File::options().append(true).open(dir.path("d/config.json")).unwrap();
    let open = File::open(mounted.path("config.json")).unwrap();
    std::io::Write::write_all(&mut log, b"more").unwrap();
    wait_until("more is there", || mounted.read("config.json") == b"{}\nmore");
    let mut more = [0; 4];
    open.read_exact_at(&mut more, 3).unwrap();
    assert_eq!((&more, open.metadata().unwrap().len()), (b"more", 7));
    dir.write("d/later", b"later");
    dir.run(["-q", "compress", "--rm", "d/later"]).silent();
    assert_eq!(mounted.read("later"), b"later");
    fs::remove_file(dir.path("d/later.lmc")).unwrap();
    wait_until("it is gone", || !mounted.path("later").exists());
    assert!(mounted.said().is_empty(), "{:?}", mounted.said());
}

#[test]
fn a_file_that_is_replaced_has_its_new_bytes_and_an_open_one_keeps_its_own() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    let before = File::open(mounted.path("large.safetensors")).unwrap();
    let (old, new) = (&files[2].1, large(2));
    let mut piece = [0; 4096];
    before.read_exact_at(&mut piece, 0).unwrap();
    let path = dir.write("large.safetensors", &new);
    dir.run(["-q", "compress", "large.safetensors", "-f", "-o", "d/large.safetensors.lmc"]).silent();
    wait_until("the new bytes are there", || mounted.read("large.safetensors") == new);
    before.read_exact_at(&mut piece, 2_000_000).unwrap();
    assert!(piece == old[2_000_000..][..4096]);
    fs::remove_file(path).unwrap();
}

#[test]
fn links_and_what_cannot_be_read_are_shown_as_they_are() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    // The cache of a hub, whose blob was compressed.
    dir.write("d/blobs/abc", &files[3].1);
    dir.run(["-q", "compress", "--rm", "d/blobs/abc"]).silent();
    fs::create_dir(dir.path("d/snapshot")).unwrap();
    for (to, link) in [
        ("../blobs/abc", "snapshot/model.safetensors"),
        ("../config.json", "snapshot/config.json"),
        ("sub", "to-sub"),
        ("nothing", "dangling"),
        ("../../mnt/circle", "circle"),
    ] {
        symlink(to, dir.path("d").join(link)).unwrap();
    }
    symlink(dir.path("mnt/circle"), dir.path("d/absolute")).unwrap();
    // Both forms of a file; damaged ones, of which the last names no original.
    dir.write("d/both", b"raw");
    dir.write("d/both.lmc", &fs::read(dir.path("d/empty.lmc")).unwrap());
    let whole = fs::read(dir.path("d/large.safetensors.lmc")).unwrap();
    dir.write("d/cut.lmc", &whole[..whole.len() - 1]);
    dir.write("d/magic.lmc", &whole[..4]);
    dir.write("d/.lmc", b"");
    Command::new("mkfifo").arg(dir.path("d/pipe")).status().unwrap();

    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    let expected = [
        ".lmc",
        "absolute",
        "blobs",
        "both",
        "both.lmc",
        "circle",
        "config.json",
        "cut.lmc",
        "dangling",
        "empty",
        "large.safetensors",
        "magic.lmc",
        "snapshot",
        "sub",
        "to-sub",
    ];
    assert_eq!(mounted.names(""), expected);
    assert_eq!(
        (mounted.names("blobs"), mounted.names("snapshot")),
        (vec!["abc".to_owned()], vec!["config.json".to_owned(), "model.safetensors".to_owned()])
    );
    assert!(mounted.read("snapshot/model.safetensors") == files[3].1 && mounted.read("blobs/abc") == files[3].1);
    assert_eq!((mounted.read("snapshot/config.json"), mounted.read("both")), (b"{}\n".to_vec(), b"raw".to_vec()));
    assert!(!fs::symlink_metadata(mounted.path("snapshot/model.safetensors")).unwrap().is_symlink());
    assert!(mounted.read("cut.lmc") == whole[..whole.len() - 1]);
    assert_eq!(fs::read_link(mounted.path("to-sub")).unwrap(), Path::new("sub"));
    assert!(mounted.read("to-sub/noise") == files[4].1);
    // Through the mount point to itself: an error, and no answer that waits for itself.
    for name in ["circle", "absolute", "dangling"] {
        assert!(fs::read(mounted.path(name)).is_err(), "{name}");
    }
    let said = mounted.said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("lmc: d/cut.lmc: ") && said[1].starts_with("lmc: d/magic.lmc: "), "{said:?}");
    assert!(said.iter().all(|line| line.ends_with("; it is shown as it is")), "{said:?}");
}

#[test]
fn deltas_find_their_bases() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    let versions: Vec<Vec<u8>> = (0..4)
        .scan(large(3), |model, n| {
            model.iter_mut().skip(500).step_by(2_000 + n).for_each(|byte| *byte ^= 1);
            Some(model.clone())
        })
        .collect();
    for (n, version) in versions.iter().enumerate() {
        dir.write(&format!("d/{n}"), version);
        let base = format!("d/{}", n.max(1) - 1);
        let args = ["-q", "compress", &format!("d/{n}"), "--base", &base];
        dir.run(if n == 0 { ["-q", "compress", "d/0", "-o", "elsewhere.lmc"] } else { args }).silent();
    }
    // The first one stays as it is, and the others are a chain.
    (1..4).for_each(|n| fs::remove_file(dir.path(format!("d/{n}"))).unwrap());
    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    for (n, version) in versions.iter().enumerate().rev() {
        assert!(mounted.read(&n.to_string()) == *version, "{n}");
    }
    drop(mounted);
    // Without it, all others are there and cannot be read, until it is given.
    fs::remove_file(dir.path("d/0")).unwrap();
    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    assert_eq!(fs::metadata(mounted.path("3")).unwrap().len(), versions[3].len() as u64);
    assert_eq!([error(fs::read(mounted.path("3"))), error(fs::read(mounted.path("3")))], [rustix::io::Errno::IO; 2]);
    let said = mounted.said();
    assert!(said.len() == 1 && said[0].starts_with("lmc: d/3.lmc: is a delta of a delta"), "{said:?}");
    drop(mounted);
    let mounted = Mounted::new(&dir, &["--base", "elsewhere.lmc", "d", "mnt"]);
    assert!((1..4).all(|n| mounted.read(&n.to_string()) == versions[n]));
}

#[test]
fn a_damaged_block_is_an_error_where_it_is_read() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let mut bytes = fs::read(dir.path("d/large.safetensors.lmc")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    dir.write("d/large.safetensors.lmc", &bytes);
    let mounted = Mounted::new(&dir, &["--log", "log", "d", "mnt"]);
    let file = File::open(mounted.path("large.safetensors")).unwrap();
    let (mut failed, mut page) = (0, [0; 4096]);
    for _ in 0..2 {
        for (i, expected) in files[2].1.chunks_exact(4096).enumerate() {
            match file.read_exact_at(&mut page, 4096 * i as u64) {
                Ok(()) => assert!(page == expected, "{i}"),
                Err(e) => failed += u64::from(error::<()>(Err(e)) == rustix::io::Errno::IO),
            }
        }
    }
    assert!((2..=4096).contains(&failed), "{failed}");
    assert!(mounted.said().is_empty());
    let log = String::from_utf8(dir.read("log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.starts_with("lmc: d/large.safetensors.lmc: bytes ") && log.contains("block ") && log.contains(", byte "),
        "{log}"
    );
    assert!(mounted.read("sub/noise") == files[4].1);
}

/// Reads pages of a mapped file in many threads at once: hashing lets the others run while a page is fetched.
const FAULTS: &str = r"
import hashlib, mmap, random, sys, threading
shown, original, count = sys.argv[1], open(sys.argv[2], 'rb').read(), int(sys.argv[3])
f = open(shown, 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
if len(sys.argv) > 4:
    m.madvise(mmap.MADV_RANDOM)
wrong, start = [], threading.Barrier(64)
def run(seed):
    rng, view = random.Random(seed), memoryview(m)
    start.wait()
    for _ in range(count // 64):
        at = rng.randrange(len(original) // 4096) * 4096
        if hashlib.blake2b(view[at:at + 4096]).digest() != hashlib.blake2b(original[at:at + 4096]).digest():
            wrong.append(at)
threads = [threading.Thread(target=run, args=(i,)) for i in range(64)]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(f'{len(wrong)} wrong pages' if wrong else 0)
";

#[test]
fn many_threads_that_fault_at_once_are_all_served_within_little_memory() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    let data: Vec<u8> = (0..if thorough() { 30 } else { 10 }).flat_map(large).collect();
    dir.write("d/m", &data);
    dir.run(["-q", "compress", "d/m", "-o", "d/shown.lmc"]).silent();
    let count = if thorough() { "10000" } else { "2560" };
    // The cache has far fewer blocks than there are threads.
    let mounted = Mounted::new(&dir, &["--cache", "3Mi", "-T", "2", "d", "mnt"]);
    for random in [None, Some("random")] {
        let mut python = Command::new("python3");
        python.args(["-c", FAULTS]).args([mounted.path("shown"), dir.path("d/m")]).arg(count).args(random);
        let run = python.output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }
    // Two programs at once, each with 64 threads, and one that reads it all.
    let python = || {
        let mut python = Command::new("python3");
        python.args(["-c", FAULTS]).args([mounted.path("shown"), dir.path("d/m")]).arg(count).spawn().unwrap()
    };
    let running = [python(), python()];
    assert!(mounted.read("shown") == data);
    for mut running in running {
        assert!(running.wait().unwrap().success());
    }
    let status = fs::read_to_string(format!("/proc/{}/status", mounted.lmc.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // The cache, a reply of up to 1 MiB for each of the requests that are read ahead, a block for each thread, and the
    // program with its tables: not the file, nor a block for each of the programs' threads.
    assert!(peak < 80 << 10, "{peak} kB");
}

#[test]
fn random_reads_of_many_threads_are_the_bytes_of_the_original() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let mounted = Mounted::new(&dir, &["d", "mnt"]);
    let data = &files[2].1;
    let (threads, count) = (64, if thorough() { 10_000 } else { 1_280 });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let path = mounted.path("large.safetensors");
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                for place in noise(8 * (count / threads as usize), thread).chunks(8) {
                    let n = u64::from_le_bytes(place.try_into().unwrap());
                    let (at, len) = (n as usize % data.len(), (n >> 40) as usize % 3_000_000);
                    let len = len.min(data.len() - at);
                    let mut read = vec![0; len];
                    file.read_exact_at(&mut read, at as u64).unwrap();
                    assert!(read == data[at..at + len], "{at}, {len}");
                }
            });
        }
    });
}

#[test]
fn a_signal_unmounts_and_after_kill_9_the_mount_point_can_be_unmounted() {
    if !may_mount_fuse() {
        return;
    }
    use std::os::unix::process::ExitStatusExt;
    let (dir, files) = directory();
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        // Also when it is in use.
        for in_use in [false, true] {
            let mut mounted = Mounted::new(&dir, &["d", "mnt"]);
            let file = in_use.then(|| File::open(mounted.path("large.safetensors")).unwrap());
            assert!(mounted.read("large.safetensors") == files[2].1);
            assert_eq!(mounted.signal(name).signal(), Some(number));
            assert!(!is_mounted(&dir.path("mnt")) && dir.has("mnt"));
            drop(file);
        }
    }
    let mut mounted = Mounted::new(&dir, &["d", "mnt"]);
    assert_eq!(mounted.signal("KILL").signal(), Some(9));
    assert_eq!(error(fs::read_dir(dir.path("mnt"))), rustix::io::Errno::NOTCONN);
    dir.run(["mount", "d", "mnt"]).fails(&["mnt: is left of a process that was killed", "fusermount3 -u mnt"]);
    assert!(Command::new("fusermount3").arg("-u").arg(dir.path("mnt")).status().unwrap().success());
    assert!(!is_mounted(&dir.path("mnt")) && fs::read_dir(dir.path("mnt")).unwrap().next().is_none());
    // Unmounted by its user, it ends.
    let mut mounted = Mounted::new(&dir, &["d", "mnt"]);
    assert!(Command::new("fusermount3").arg("-u").arg(dir.path("mnt")).status().unwrap().success());
    assert_eq!(mounted.lmc.wait().unwrap().code(), Some(0));
}

#[test]
fn a_directory_is_shown_in_its_own_place() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let mut mounted = Mounted::new(&dir, &["d", "d"]);
    for (name, data) in &files {
        assert!(mounted.read(name) == *data, "{name}");
    }
    mounted.signal("TERM");
    assert!(dir.has("d/large.safetensors.lmc") && !dir.has("d/large.safetensors"));
}

#[test]
fn a_cache_of_the_hub_is_shown_in_its_own_place_as_it_was() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    let (whole, config) = (large(1), ("config.json", &b"{}"[..]));
    let mut derived = whole.clone();
    derived.iter_mut().skip(1000).step_by(50).for_each(|byte| *byte ^= 1);
    download(&dir, "models--org--a", "1111", &[config, ("model.safetensors", &whole)]);
    download(&dir, "models--b", "2222", &[config, ("unet/model.safetensors", &derived)]);
    let expected = crate::hub::contents(&dir);
    let names = |dir: &Dir| dir.names().into_iter().filter(|name| name.starts_with("hub/")).collect::<Vec<_>>();
    let before = names(&dir);
    dir.run(["-q", "hub", "compress", "--cache-dir", "hub"]).silent();
    let mounted = Mounted::new(&dir, &["hub", "hub"]);
    for (name, bytes) in &expected {
        assert!(dir.read(name) == *bytes, "{name}");
    }
    // What a model keeps of the other one is there, too, under the name that it has there.
    let shown = names(&dir);
    assert!(before.iter().all(|name| shown.contains(name)) && shown.len() == before.len() + 1, "{shown:?}");
    assert!(shown.iter().all(|name| !name.ends_with(".lmc")), "{shown:?}");
    for command in ["compress", "restore"] {
        dir.run(["hub", command, "--cache-dir", "hub"]).fails(&["hub: is on a read-only file system", "unmount it"]);
    }
    assert_eq!(mounted.said(), [""; 0]);
}

#[test]
fn files_are_shown_beside_each_other() {
    if !may_mount_fuse() {
        return;
    }
    let (dir, files) = directory();
    let sources = ["d/large.safetensors.lmc", "d/sub/noise.lmc", "d/config.json"];
    let mounted = Mounted::new(&dir, &[&sources[..], &["mnt"]].concat());
    assert_eq!(mounted.names(""), ["config.json", "large.safetensors", "noise"]);
    assert!(mounted.read("large.safetensors") == files[2].1 && mounted.read("noise") == files[4].1);
    assert_eq!(mounted.read("config.json"), b"{}\n");
    drop(mounted);
    let mounted = Mounted::new(&dir, &["d/large.safetensors.lmc", "mnt"]);
    assert_eq!(mounted.names(""), ["large.safetensors"]);
}

#[test]
fn what_cannot_be_mounted_is_refused_with_what_to_do() {
    let (dir, _) = directory();
    dir.run(["-q", "snapshot", "save", "s", "d/config.json", "--step", "1"]).silent();
    for name in ["mnt", "d/sub/mnt"] {
        fs::create_dir(dir.path(name)).unwrap();
    }
    dir.run(["mount", "d", "none"]).is_misused(&["none: is not there: create MOUNTPOINT"]);
    dir.run(["mount", "d", "d/config.json"]).is_misused(&["d/config.json: is no directory"]);
    dir.run(["mount", "d", "d/sub/mnt"]).is_misused(&["d/sub/mnt: is in d"]);
    dir.run(["mount", "s", "s"]).is_misused(&["is the store s"]);
    dir.run(["mount", "s", "s/data"]).is_misused(&["is in the store s"]);
    dir.run(["mount", "s", "d", "mnt"]).is_misused(&["s: is a store: mount each"]);
    dir.run(["mount", "d", "s", "mnt"]).is_misused(&["d: is a directory: mount each"]);
    dir.run(["mount", "d/empty.lmc", "d/empty.lmc", "mnt"]).is_misused(&["d/empty.lmc: would have the name of"]);
    dir.run(["mount", "d/empty.lmc", "d"]).is_misused(&["d/empty.lmc: is in MOUNTPOINT"]);
    dir.run(["mount", "d/config.json", "mnt"]).fails(&["d/config.json"]);
    dir.run(["mount", "none", "mnt"]).fails(&["none: cannot read: no such file or directory"]);
    let one = dir.command(["mount", "d"]).stdout(Stdio::null()).output().unwrap();
    assert_eq!(one.status.code(), Some(2));
}
