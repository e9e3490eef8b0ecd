//! Pages that commands write besides their printed output.

use std::path::PathBuf;

use clap::Args;

use crate::fs::guard::Guard;
use crate::fs::output::{Origin, Output, Target, is_stdout};
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// Asks for a page.
#[derive(Args)]
pub(super) struct PageArgs {
    /// Write all of it as a page: one HTML file that needs nothing else. `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Overwrite files that are there.
    #[arg(short, long)]
    force: bool,
}

/// A page that was asked for: its file, which has no content yet.
pub(super) struct Page(Option<Output>);

impl PageArgs {
    /// Whether the page goes to standard output, in place of the printed output.
    pub(super) fn is_shown(&self) -> bool {
        self.html.as_deref().is_some_and(is_stdout)
    }

    /// Reports wrong arguments before any work.
    pub(super) fn check(&self, json: bool, ui: &Ui) -> Result {
        if json && self.is_shown() {
            return Err(Failure::Usage(
                "both the page and --json would go to standard output: name a file for the page".to_owned(),
            ));
        }
        if self.is_shown() && ui.stdout_is_terminal() && !self.force {
            let why = "--html: standard output is a terminal: name a file for the page, or redirect it; -f shows it all the same";
            return Err(Failure::Usage(why.to_owned()));
        }
        Ok(())
    }

    /// Opens the page's file before the work, so that failures are reported at once.
    pub(super) fn create(&self, guard: &Guard) -> Result<Page> {
        let page = self.html.as_ref().map(|path| {
            let target = if self.is_shown() { Target::Stdout } else { Target::File(path.clone()) };
            Output::create(&target, self.force, Origin::Stdin(None), guard)
        });
        page.transpose().map(Page)
    }
}

impl Page {
    /// Writes the page, if one was asked for.
    pub(super) fn finish(self, page: impl FnOnce() -> String, guard: &Guard) -> Result {
        let Some(mut output) = self.0 else { return Ok(()) };
        output.put(page().as_bytes())?;
        output.finish(guard)
    }
}
