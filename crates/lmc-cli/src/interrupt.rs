//! Leaves nothing behind: unfinished output is removed on a signal, on a panic and on an error alike.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::platform::ignored_signals;

/// Signals whose default is to end the process, but for those that tell of a bug in it.
const ENDING: [i32; 10] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF];

/// Temporary files that exist now. Whoever creates one holds the lock while doing so, so that none escapes the clean-up.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_all(files: &mut Vec<PathBuf>) {
    for path in files.drain(..) {
        // It may have been renamed to its final name a moment ago: then it is finished, and not there.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether signals are handled: only where the command runs. Elsewhere nothing is remembered, and no lock can be held while a process is forked.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Runs `create`, which makes a temporary file, and remembers its path until [`forget`].
pub(crate) fn register<T>(create: impl FnOnce() -> std::io::Result<(T, PathBuf)>) -> std::io::Result<T> {
    if !INSTALLED.load(Ordering::Relaxed) {
        return create().map(|(file, _)| file);
    }
    let mut files = unfinished();
    let (file, path) = create()?;
    files.push(path);
    Ok(file)
}

/// The temporary file is gone or has its final name.
pub(crate) fn forget(path: &Path) {
    if INSTALLED.load(Ordering::Relaxed) {
        unfinished().retain(|p| p != path);
    }
}

/// Installs the handlers of signals and panics.
///
/// # Errors
/// When there is no memory for the thread that waits for signals.
pub(crate) fn install() -> std::io::Result<()> {
    INSTALLED.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let what = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
        let _ = writeln!(
            std::io::stderr(),
            "lmc: internal error: {} ({place}): this is a bug in lmc, please report it",
            crate::format::Name::text(what)
        );
        remove_all(&mut unfinished());
        std::process::exit(1);
    }));
    // With any handler in place, a write beyond the file size limit is an error like a full disk, and not the end.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let ignored = ignored_signals();
    let ours = ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(ours)?;
    let handler = std::thread::Builder::new().name("signals".to_owned());
    handler.spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let mut files = unfinished();
            remove_all(&mut files);
            // Dies of the signal, as the shell expects, still holding the lock: no new file can appear.
            let _ = emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Ends as a program does that writes to a pipe nobody reads: of SIGPIPE, without a word.
pub(crate) fn die_of_broken_pipe() -> ! {
    remove_all(&mut unfinished());
    let _ = emulate_default_handler(SIGPIPE);
    std::process::exit(1)
}
