//! Clean-up: unfinished output is removed on signals, panics and errors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::platform::ignored_signals;

/// Signals that end the process by default, except those that report a bug in it.
const ENDING: [i32; 10] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF];

/// Existing temporary files. Files are created under the lock, so that the clean-up misses none.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_all(files: &mut Vec<PathBuf>) {
    for path in files.drain(..) {
        // It may just have been renamed to its final name: then it is complete, and absent here.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether handlers are installed: only in the command. In other processes nothing is recorded, and the lock is never held across a fork.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Held while several finished files get their names.
static HELD: Mutex<()> = Mutex::new(());

/// Signals that end the process wait until the result is dropped: for moments in which a run is neither to be undone nor complete.
pub(crate) fn hold() -> MutexGuard<'static, ()> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether work is under way that ends by itself when it is asked to, and deletes what it wrote.
static STOPPABLE: AtomicBool = AtomicBool::new(false);
/// The signal that asked it to; 0 if none did.
static STOPPED: AtomicI32 = AtomicI32::new(0);

/// Work that a first signal asks to end; a second one ends the process. Once this is dropped, after the result is shown, the process dies of
/// the signal.
pub(crate) struct Stoppable(());

impl Stoppable {
    pub(crate) fn begin() -> Self {
        STOPPABLE.store(true, Ordering::SeqCst);
        Self(())
    }

    /// Fails once the work is to end.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        match STOPPED.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(std::io::Error::other("interrupted")),
        }
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        STOPPABLE.store(false, Ordering::SeqCst);
        let signal = STOPPED.load(Ordering::SeqCst);
        if signal != 0 {
            end(signal);
        }
    }
}

/// Ends the process by a signal, as the shell expects, after removing unfinished output.
fn end(signal: i32) -> ! {
    let _held = hold();
    let mut files = unfinished();
    remove_all(&mut files);
    // It dies still holding the lock: no new file can be created.
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal);
}

/// Runs `create`, which creates a temporary file, and records its path until [`forget`].
pub(crate) fn register<T>(create: impl FnOnce() -> std::io::Result<(T, PathBuf)>) -> std::io::Result<T> {
    if !INSTALLED.load(Ordering::Relaxed) {
        return create().map(|(file, _)| file);
    }
    let mut files = unfinished();
    let (file, path) = create()?;
    files.push(path);
    Ok(file)
}

/// Takes a path off the record: the file is gone or has its final name.
pub(crate) fn forget(path: &Path) {
    if INSTALLED.load(Ordering::Relaxed) {
        unfinished().retain(|p| p != path);
    }
}

/// Installs the handlers of signals and panics.
///
/// # Errors
/// When the thread that waits for signals cannot be started.
pub(crate) fn install() -> std::io::Result<()> {
    INSTALLED.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let what = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
        let what = crate::format::Name::text(what);
        // The standard library panics in a new thread that gets no stack for its signal handler.
        let message = if place.contains("stack_overflow") {
            format!("out of memory for a thread: {what}; use fewer threads (-T)")
        } else {
            format!("internal error: {what} ({place}): this is a bug in lmc, please report it")
        };
        let _ = writeln!(std::io::stderr(), "lmc: {message}");
        remove_all(&mut unfinished());
        std::process::exit(1);
    }));
    // With any handler installed, a write beyond the file size limit fails with an error instead of ending the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let ignored = ignored_signals();
    let ours = ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(ours)?;
    let handler = std::thread::Builder::new().name("signals".to_owned());
    handler.spawn(move || {
        for signal in signals.forever() {
            let is_first = STOPPED.swap(signal, Ordering::SeqCst) == 0;
            if !(is_first && STOPPABLE.load(Ordering::SeqCst)) {
                end(signal);
            }
            let _ =
                writeln!(std::io::stderr(), "lmc: interrupted: deleting what is unfinished; once more ends it at once");
        }
    })?;
    Ok(())
}

/// Ends the process like a writer to a closed pipe: by SIGPIPE, silently.
pub(crate) fn die_of_broken_pipe() -> ! {
    remove_all(&mut unfinished());
    let _ = emulate_default_handler(SIGPIPE);
    std::process::exit(1)
}
