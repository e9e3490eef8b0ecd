//! The progress bar, on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows the progress of the work on one file, and clears itself when dropped.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn hidden() -> Self {
        Progress(None)
    }

    pub(crate) fn visible(name: &str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let template = match total {
            Some(_) => "{msg} {wide_bar} {percent:>3} %  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}",
            None => "{msg} {binary_bytes}  {binary_bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        Progress(Some(bar))
    }

    /// Sets the number of bytes done.
    pub(crate) fn at(&self, done: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(done);
        }
    }

    /// What work of stores calls with the number of bytes done.
    pub(crate) fn of_store(&self) -> impl FnMut(u64) -> lmc_store::Result<()> {
        |done| {
            self.at(done);
            Ok(())
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
