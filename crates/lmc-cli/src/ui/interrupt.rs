//! Clean-up: unfinished output is removed on signals, panics and errors.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lmc_store::files::unfinished;
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGPROF, SIGQUIT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::platform::{ending_signals, ignored_signals};

/// Signals that end the process by default, except those after which a faulty instruction would be repeated; [`platform`] has more.
const ENDING: [i32; 13] = [
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGABRT, SIGSYS, SIGTRAP,
];

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

/// What is to be done before a signal ends the process.
static AT_END: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Calls `f` before a signal ends the process.
#[cfg_attr(not(all(feature = "mount", target_os = "linux")), allow(dead_code, reason = "for what is mounted"))]
pub(crate) fn at_end(f: impl FnOnce() + Send + 'static) {
    *AT_END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(f));
}

/// Ends the process by a signal, as the shell expects, after removing unfinished output.
fn end(signal: i32) -> ! {
    let _held = hold();
    let at_end = AT_END.lock().unwrap_or_else(PoisonError::into_inner).take();
    at_end.into_iter().for_each(|f| f());
    // It dies still holding this: no new file can be created.
    let _ended = unfinished::remove_all();
    let _ = emulate_default_handler(signal);
    // The library does not know how the process ends by this one. A program that takes its place has no handlers.
    let _ = Command::new("sh").args(["-c", &format!("kill -{signal} $$")]).exec();
    std::process::exit(128 + signal);
}

/// Installs the handlers of signals and panics.
///
/// # Errors
/// When the thread that waits for signals cannot be started.
pub(crate) fn install() -> std::io::Result<()> {
    unfinished::watch();
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let what = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
        let what = crate::ui::format::Name::text(what);
        // The standard library panics in a new thread that gets no stack for its signal handler.
        let message = if place.contains("stack_overflow") {
            format!("out of memory for a thread: {what}; use fewer threads (-T)")
        } else {
            format!("internal error: {what} ({place}): this is a bug in lmc, please report it")
        };
        let _ = writeln!(std::io::stderr(), "lmc: {message}");
        let _ended = unfinished::remove_all();
        std::process::exit(1);
    }));
    // With any handler installed, a write beyond the file size limit fails with an error instead of ending the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let ignored = ignored_signals();
    let is_ours = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    let mut signals = Signals::new(ENDING.iter().filter(|signal| is_ours(signal)))?;
    // An emulated system may lack some.
    ending_signals().filter(is_ours).for_each(|signal| _ = signals.add_signal(signal));
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
    let _ended = unfinished::remove_all();
    let _ = emulate_default_handler(SIGPIPE);
    std::process::exit(1)
}
