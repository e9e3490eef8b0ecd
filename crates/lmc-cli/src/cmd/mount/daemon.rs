//! Going on in the background.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::ui::failure::{Failure, Result};
use crate::ui::format::io_error;

/// Set for the process in the background.
const DAEMON: &str = "LMC_MOUNT_DAEMON";

/// What the process in the background writes when it is ready.
const READY: &[u8] = b"ready\n";

/// Whether this is the process in the background.
pub(super) fn is_one() -> bool {
    std::env::var_os(DAEMON).is_some()
}

/// Runs this command in the background, and waits until it is ready. If it fails, it says why; then this is its exit code.
pub(super) fn start() -> Result {
    let failure = |e: std::io::Error| Failure::Failed(format!("cannot go on in the background: {}", io_error(&e)));
    // A new process: a fork of one with threads could do nothing.
    let line = std::fs::read("/proc/self/cmdline").map_err(failure)?;
    let mut words = line.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect::<Vec<_>>();
    words.pop(); // what is after the last end
    let mut words = words.into_iter();
    let mut command = Command::new(std::env::current_exe().map_err(failure)?);
    // Python finds its packages by the name that it was called by.
    command.arg0(words.next().unwrap_or_default()).args(words);
    command.env(DAEMON, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failure)?;
    let mut said = Vec::new();
    child.stdout.take().expect("it is a pipe").read_to_end(&mut said).map_err(failure)?;
    if said == READY {
        return Ok(());
    }
    let code = child.wait().map_err(failure)?.code();
    std::process::exit(code.filter(|&code| code != 0).unwrap_or(1))
}

/// Leaves the terminal and those who started this process: its output is lost from now on.
pub(super) fn detach() -> std::io::Result<()> {
    rustix::process::setsid()?;
    let mut out = std::io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(rustix::stdio::dup2_stderr(&nowhere)?)
}

/// Tells the service manager that this service is ready, if one asks (sd_notify(3)).
pub(super) fn notify() {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = address.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&address),
    };
    // It waits in vain, and says so.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}
