//! Messages: which are printed, where, and when.

use std::cell::{Cell, RefCell};
use std::io::{BufWriter, IsTerminal, Write};

use clap::Args;

use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::interrupt;
use crate::ui::progress::Progress;
use crate::ui::time;

/// Options of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// Print nothing but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    pub(crate) quiet: bool,

    /// Print more messages.
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub(crate) verbose: bool,

    /// Show no progress bar. None is shown unless standard error is a terminal.
    #[arg(long, global = true, help_heading = "Messages")]
    pub(crate) no_progress: bool,
}

/// Standard error and standard output as the options configure them, and whether anything has failed.
pub(crate) struct Ui {
    quiet: bool,
    verbose: bool,
    progress: bool,
    stderr_is_terminal: bool,
    worst: Cell<u8>,
    /// Whether messages begin with the time.
    times: Cell<bool>,
    /// Messages, kept for callers that do not read standard error.
    kept: Option<RefCell<Vec<String>>>,
}

impl Ui {
    pub(crate) fn new(global: &Global) -> Self {
        let stderr_is_terminal = std::io::stderr().is_terminal();
        Ui {
            quiet: global.quiet,
            verbose: global.verbose,
            progress: stderr_is_terminal && !global.quiet && !global.no_progress,
            stderr_is_terminal,
            worst: Cell::new(0),
            times: Cell::new(false),
            kept: None,
        }
    }

    /// For callers that are programs: warnings and failures are kept for [`Self::kept`].
    pub(crate) fn keeping() -> Self {
        let (progress, stderr_is_terminal) = (false, false);
        Ui {
            quiet: false,
            verbose: false,
            progress,
            stderr_is_terminal,
            worst: Cell::new(0),
            times: Cell::new(false),
            kept: Some(RefCell::default()),
        }
    }

    /// The kept messages, in order.
    pub(crate) fn kept(self) -> Vec<String> {
        self.kept.map_or_else(Vec::new, RefCell::into_inner)
    }

    /// Lets messages begin with the time from now on, for a command that runs for days.
    pub(crate) fn with_times(&self) {
        self.times.set(true);
    }

    pub(crate) fn verbose(&self) -> bool {
        self.verbose
    }

    /// Whether standard output is a terminal.
    pub(crate) fn stdout_is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// The exit code for everything reported so far.
    pub(crate) fn exit_code(&self) -> u8 {
        self.worst.get()
    }

    /// Reports a failure and remembers it for the exit code.
    pub(crate) fn fail(&self, failure: &Failure) {
        let (code, text) = match failure {
            Failure::BrokenPipe => interrupt::die_of_broken_pipe(),
            Failure::Failed(text) | Failure::Codec(_, text) | Failure::Store(_, text) => (1, text),
            Failure::Usage(text) => (2, text),
        };
        self.worst.set(self.worst.get().max(code));
        self.line(format_args!("lmc: {text}"));
    }

    /// A warning: not an error, but something the user should know.
    pub(crate) fn warn(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            self.line(format_args!("lmc: {text}"));
        }
    }

    /// Warns of promises that a file system could not keep.
    pub(crate) fn weaker(&self) {
        lmc_store::files::notes().iter().for_each(|note| self.warn(Name::text(note)));
    }

    /// Output requested by an option of its own, and messages that even -q must not hide.
    pub(crate) fn always(&self, text: impl std::fmt::Display) {
        self.line(format_args!("{text}"));
    }

    /// The result for a file: shown on a terminal, or with -v.
    pub(crate) fn result(&self, text: impl std::fmt::Display) {
        if self.verbose || (self.stderr_is_terminal && !self.quiet) {
            self.line(format_args!("{text}"));
        }
    }

    /// The result of a command whose output is not a file.
    pub(crate) fn done(&self, text: impl std::fmt::Display) {
        self.weaker();
        if !self.quiet {
            self.line(format_args!("{text}"));
        }
    }

    /// The answer of a query command, on standard output.
    pub(crate) fn verdict(&self, text: &str) -> Result {
        if self.quiet { Ok(()) } else { self.print(&format!("{text}\n")) }
    }

    /// A detail, shown with -v.
    pub(crate) fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose {
            self.line(format_args!("lmc: {text}"));
        }
    }

    /// Prints text on standard output.
    pub(crate) fn print(&self, text: &str) -> Result {
        self.write(|out| out.write_all(text.as_bytes()))
    }

    /// Calls `write` with standard output, for text too long to be held in memory.
    pub(crate) fn write(&self, f: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result {
        let mut out = BufWriter::new(std::io::stdout().lock());
        f(&mut out).and_then(|()| out.flush()).map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Failed(format!("(stdout): cannot write: {}", crate::ui::format::io_error(&e))),
        })
    }

    /// Prints a JSON object as one line on standard output.
    pub(crate) fn json(&self, object: &serde_json::Value) -> Result {
        self.print(&format!("{object}\n"))
    }

    /// A progress bar for the work on one file.
    pub(crate) fn progress(&self, name: &str, total: Option<u64>) -> Progress {
        if self.progress { Progress::visible(name, total) } else { Progress::hidden() }
    }

    fn line(&self, text: std::fmt::Arguments<'_>) {
        if let Some(kept) = &self.kept {
            let text = text.to_string();
            kept.borrow_mut().push(text.strip_prefix("lmc: ").unwrap_or(&text).to_owned());
            return;
        }
        // When standard error is closed, nothing can be reported.
        let time = self.times.get().then(|| format!("{}Z ", time::time(time::now())));
        let _ = writeln!(std::io::stderr(), "{}{text}", time.unwrap_or_default());
    }
}
