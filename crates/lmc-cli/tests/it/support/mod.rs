//! Code that the tests of the command share: running it, directories to run it in, and data.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use lmc_testing::data::noise;
use serde_json::Value;

/// Moments to kill a command at, from its start to a little after its end: as many as `LMC_KILLS` says.
pub(crate) struct Moments(Vec<Duration>);

impl Moments {
    /// Lets `whole` run the command once, to know how long it takes.
    pub(crate) fn of(default: usize, seed: u64, whole: impl FnOnce()) -> Self {
        let start = Instant::now();
        whole();
        let whole = start.elapsed();
        let kills = std::env::var("LMC_KILLS").map_or(default, |n| n.parse().unwrap());
        let share = |moment: &[u8]| u64::from_le_bytes(moment.try_into().unwrap()) as f64 / u64::MAX as f64;
        Self(noise(8 * kills, seed).chunks(8).map(|moment| whole.mul_f64(1.2 * share(moment))).collect())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.0.iter().copied()
    }
}

/// Kills a command some time after its start; it may have ended before.
pub(crate) fn kill_after(child: &mut Child, time: Duration) {
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The store of a test: a new prefix on the server that `LMC_STORE_TEST_LOCATION` names, if it is set, or the directory `s`. `./test store`
/// finds such tests by the end of their names, `_on_each_backend`.
pub(crate) fn new_store() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let unique = |location| format!("{location}/{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::var("LMC_STORE_TEST_LOCATION").map_or_else(|_| "s".to_owned(), unique)
}

/// Whether a test may mount file systems, in a namespace of its own. If not, and `LMC_REQUIRE_MOUNT` is set, the test fails.
pub(crate) fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/tmp"]).output();
    let may = tried.as_ref().is_ok_and(|run| run.status.success());
    assert!(may || std::env::var_os("LMC_REQUIRE_MOUNT").is_none(), "cannot mount: {tried:?}");
    if !may {
        println!("skipped: cannot mount: {tried:?}");
    }
    may
}

/// Chooses the way in which files are temporary.
pub(crate) const LMC_TEMPORARY: &str = "LMC_TEMPORARY";

/// Whether temporary files have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Unnamed,
    Named,
}

impl Way {
    pub(crate) const BOTH: [Way; 2] = [Way::Unnamed, Way::Named];

    /// The value of [`LMC_TEMPORARY`] that asks for it.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Way::Unnamed => "",
            Way::Named => "named",
        }
    }
}

/// A temporary directory in which `lmc` is run.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Dir(tempfile::tempdir().unwrap())
    }

    /// One on a file system in memory, where there is one.
    pub(crate) fn in_memory() -> Self {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Dir::new(), Dir)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, data: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, data).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Every path under the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.try_names("")
    }

    /// [`Self::names`] below one of the directories, while others change it: entries that vanish are skipped.
    pub(crate) fn try_names(&self, below: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut stack = vec![self.path(below)];
        while let Some(dir) = stack.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    stack.push(entry.path());
                }
                found.push(entry.path().strip_prefix(self.0.path()).unwrap().to_str().unwrap().to_owned());
            }
        }
        found.sort();
        found
    }

    /// `lmc`, to be run in this directory, without a terminal.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lmc"));
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `lmc`.
    pub(crate) fn run<const N: usize>(&self, args: [&str; N]) -> Run {
        Run(self.command(args).output().unwrap())
    }

    /// Runs `lmc` with data on standard input.
    pub(crate) fn feed<const N: usize>(&self, args: [&str; N], input: &[u8]) -> Run {
        let mut child = self.spawn(args);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The command may stop reading early.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run(output)
    }

    /// Starts `lmc`, whose standard error becomes the file `said`.
    pub(crate) fn in_background<const N: usize>(&self, args: [&str; N], said: &str) -> Background {
        let said = File::create(self.path(said)).unwrap();
        Background(self.command(args).stderr(said).spawn().unwrap())
    }

    /// Starts `lmc` with pipes on all sides.
    pub(crate) fn spawn<const N: usize>(&self, args: [&str; N]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// [`Self::command`] with default signal dispositions, as a test run in the background may inherit ignored signals.
    pub(crate) fn mortal<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(env!("CARGO_BIN_EXE_lmc")).args(args);
        command.current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// [`Self::spawn`] of [`Self::mortal`], with temporary files that have a name or not.
    pub(crate) fn spawn_mortal<const N: usize>(&self, way: Way, args: [&str; N]) -> Child {
        let mut command = self.mortal(args);
        command.env(LMC_TEMPORARY, way.variable());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Whether a process has an output of this name begun in the directory, with a temporary name or without one.
    pub(crate) fn has_begun(&self, child: &Child, name: &str) -> bool {
        let named = format!("{name}.lmc-tmp-");
        let here = self.0.path().canonicalize().unwrap();
        // The name of an unnamed file in /proc.
        let unnamed = |link: PathBuf| {
            link.parent() == Some(&here)
                && link.to_string_lossy().contains("/#")
                && link.to_string_lossy().ends_with(" (deleted)")
        };
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        self.names().iter().any(|n| n.starts_with(&named))
            || open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(unnamed)
    }

    /// Runs a shell command with `$LMC` as the program.
    pub(crate) fn shell(&self, script: &str) -> Run {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).env("LMC", env!("CARGO_BIN_EXE_lmc"));
        Run(command.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap())
    }

    /// Prepares a small file system in memory, `full`, and runs a command there with space for one page more each time, until it succeeds.
    /// Whenever it fails, that has to be for want of space, and `check` has to hold. What is there in the end is copied to `left`.
    #[track_caller]
    pub(crate) fn full_disk(&self, prepare: &str, command: &str, check: &str) -> Sweep {
        let script = format!(
            r#"set -e
            mkdir full && mount -t tmpfs -o size=2m none full
            {prepare}
            cd full
            for pages in $(seq 0 400); do
                rm -f filler && ! cat /dev/zero > filler 2> ../no-space
                truncate -s -$((pages * 4))K filler
                if {command} 2> ../said; then
                    cd .. && rm full/filler && cp -a full left && echo $pages && exit
                fi
                if ! grep -q 'No space left on device' ../said || ! {{ {check}; }} >&2; then
                    echo "with $pages pages:" >&2 && cat ../said >&2 && exit 1
                fi
            done
            exit 1"#
        );
        let mut shell = Command::new("unshare");
        shell.args(["-rm", "sh", "-c", &script]).env("LMC", env!("CARGO_BIN_EXE_lmc"));
        let run = Run(shell.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap());
        Sweep { failures: run.ok().stdout().trim().parse().unwrap() }
    }

    /// Runs `lmc` with some of its streams on a terminal; returns the terminal's output and the exit code.
    pub(crate) fn on_terminal(&self, args: &[&str], stdin: bool, stdout: bool) -> (String, i32) {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || OwnedFd::from(File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap());
        let mut command: Command = self.command(args);
        command.env("TERM", "xterm").stderr(open());
        if stdin {
            command.stdin(open());
        }
        command.stdout(if stdout { Stdio::from(open()) } else { Stdio::null() });
        let mut child = command.spawn().unwrap();
        drop(command); // the last handle on the terminal is the child's
        let shown = String::from_utf8(drain(File::from(master))).unwrap();
        (shown, child.wait().unwrap().code().unwrap())
    }
}

/// How often a command had too little space.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) failures: usize,
}

/// How a run of `lmc` ended.
#[derive(Debug)]
pub(crate) struct Run(pub(crate) Output);

impl Run {
    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.0.stdout).unwrap()
    }

    pub(crate) fn stderr(&self) -> &str {
        std::str::from_utf8(&self.0.stderr).unwrap()
    }

    /// It succeeded without a word.
    #[track_caller]
    pub(crate) fn silent(&self) {
        self.ok();
        assert_eq!(self.stderr(), "");
    }

    /// It succeeded.
    #[track_caller]
    pub(crate) fn ok(&self) -> &Self {
        assert_eq!(self.0.status.code(), Some(0), "{self:?}");
        self
    }

    /// It failed with exit code 1 and one line that has all of `parts` in it.
    #[track_caller]
    pub(crate) fn fails(&self, parts: &[&str]) {
        self.exits(1, parts);
    }

    /// The command line was refused with exit code 2 and one line that has all of `parts` in it.
    #[track_caller]
    pub(crate) fn is_misused(&self, parts: &[&str]) {
        self.exits(2, parts);
    }

    #[track_caller]
    fn exits(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.0.status.code(), Some(code), "{self:?}");
        let stderr = self.stderr();
        assert!(stderr.starts_with("lmc: ") && stderr.ends_with('\n'), "{stderr:?}");
        assert_eq!(stderr.lines().count(), 1, "{stderr:?}");
        for part in parts {
            assert!(stderr.contains(part), "{part:?} is not in {stderr:?}");
        }
    }

    /// The JSON objects on standard output, one a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout().lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l:?}: {e}"))).collect()
    }
}

/// Weights as a model has them: bf16, bell-shaped around zero.
pub(crate) fn weights(count: usize, seed: u64) -> Vec<u8> {
    let noise = noise(8 * count, seed);
    let bell = |n: &[u8]| {
        let sum: u32 = n.chunks(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))).sum();
        (sum as f32 / 65536.0 - 2.0) * 0.05
    };
    noise.chunks(8).flat_map(|n| ((bell(n).to_bits() >> 16) as u16).to_le_bytes()).collect()
}

/// A safetensors file of tensors given by name, dtype, shape and data.
pub(crate) fn safetensors(tensors: &[(&str, &str, &[u64], &[u8])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, dtype, shape, data) in tensors {
        let range = [at, at + data.len()];
        header.insert((*name).to_owned(), serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": range }));
        at += data.len();
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    tensors.iter().for_each(|(.., data)| file.extend_from_slice(data));
    file
}

/// Dtype, shape and bytes of each tensor.
pub(crate) type Tensors = BTreeMap<String, (String, Value, Vec<u8>)>;

/// The tensors of a safetensors file.
pub(crate) fn tensors(file: &[u8]) -> Tensors {
    let (len, rest) = file.split_at(8);
    let (json, data) = rest.split_at(u64::from_le_bytes(len.try_into().unwrap()) as usize);
    let header: Value = serde_json::from_slice(json).unwrap();
    let infos = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let tensors = infos.map(|(name, info)| {
        let place = |i: usize| info["data_offsets"][i].as_u64().unwrap() as usize;
        let dtype = info["dtype"].as_str().unwrap().to_owned();
        (name.clone(), (dtype, info["shape"].clone(), data[place(0)..place(1)].to_vec()))
    });
    tensors.collect()
}

/// A small model: an embedding, a bias, and a counter.
pub(crate) fn model() -> Vec<u8> {
    safetensors(&[
        ("embed.weight", "BF16", &[1000, 96], &weights(96_000, 1)),
        ("layer.0.bias", "F32", &[96], &noise(384, 2)),
        ("steps", "I64", &[], &300_u64.to_le_bytes()),
    ])
}

/// A process that ends with the test, also with one that fails.
pub(crate) struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// Waits until a condition holds. The patience is for machines that are busy; nothing depends on the time it takes.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("waited in vain: {what}");
}

/// Reads to the end, which for a terminal whose other side is gone is an error.
fn drain(mut from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = [0; 4096];
    while let Ok(n) = from.read(&mut buf) {
        if n == 0 {
            break;
        }
        all.extend_from_slice(&buf[..n]);
    }
    all
}
