//! Commands that look for new versions at intervals, and go on when that fails.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use lmc_store::ErrorKind;

use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// The longest time between two looks while they fail, in seconds, unless the interval is longer.
const LONGEST_WAIT: f64 = 60.0;

/// After how many intervals it is said what is waited for.
const PATIENCE: f64 = 15.0;

/// How often to look.
#[derive(Args)]
#[command(next_help_heading = "When to look")]
pub(super) struct Looks {
    /// Look once, and stop.
    #[arg(long)]
    pub(super) once: bool,

    /// Look every S seconds, less often while that fails.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = parse_interval, conflicts_with = "once")]
    interval: f64,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    parse_seconds(text, 0.01, "an interval")
}

/// A number of seconds from `least` to a day. `what` names it in the message.
pub(super) fn parse_seconds(text: &str, least: f64, what: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if !(least..=86_400.0).contains(&seconds) {
        return Err(format!("{what} is {least} to 86400 seconds"));
    }
    Ok(seconds)
}

/// Fails if a directory cannot be at a path, because a file is there or in the place of one of its parents: that does not pass.
pub(super) fn check_no_file(path: &Path) -> Result {
    let there = path.ancestors().find_map(|at| Some((at, std::fs::metadata(at).ok()?)));
    match there {
        Some((at, m)) if !m.is_dir() => {
            Err(Failure::usage(at, "is a file, and has to be a directory: name another one"))
        }
        _ => Ok(()),
    }
}

impl Looks {
    /// Looks until the process is ended; each failure is said once. Those that cannot pass end it.
    pub(super) fn run(&self, ui: &Ui, mut look: impl FnMut() -> Result) -> Result {
        if !self.once {
            ui.with_times();
        }
        let (mut last, mut wait) = (String::new(), self.interval);
        loop {
            match look() {
                Err(failure) if self.once || is_final(&failure) => return Err(failure),
                // It may be over the next time: a server that cannot be reached, something that was deleted meanwhile.
                Err(failure) => {
                    let is_missing = matches!(failure, Failure::Store(ErrorKind::NotFound | ErrorKind::Store, _));
                    let failure = if is_missing { failure.and("; waiting for the store") } else { failure };
                    if std::mem::replace(&mut last, failure.to_string()) != last {
                        ui.fail(&failure);
                    }
                    wait = (2.0 * wait).min(LONGEST_WAIT.max(self.interval));
                }
                Ok(()) => {
                    last.clear();
                    wait = self.interval;
                }
            }
            if self.once {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs_f64(wait));
        }
    }

    /// How long nothing is said about what is waited for: it may come at any look.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs_f64(PATIENCE * self.interval)
    }
}

/// Whether a failure is the same at every look: what another version of lmc wrote is not read by this one later.
fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Usage(_) | Failure::BrokenPipe | Failure::Store(ErrorKind::Unsupported, _))
}
