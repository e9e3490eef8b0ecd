//! A study, for the command and for the Python package.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lmc::CompressOptions;
use lmc_inspect::{Analysis, AnalyzeOptions, Checkpoints};

use super::engines;
use super::input::Input;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;

/// The input and the options of `lmc analyze`.
pub struct Study {
    /// Checkpoints in order, or one store.
    pub paths: Vec<PathBuf>,
    /// Of a store, every how many snapshots count.
    pub every: u32,
    /// Distances in steps whose deltas are measured; `None` for those that the command chooses.
    pub distances: Option<Vec<u64>>,
    /// Names of other compressors that are measured, too, on a sample.
    pub engines: Vec<String>,
    /// Whether all blocks are compressed, however many there are.
    pub exact: bool,
    /// How the checkpoints are compressed.
    pub codec: CompressOptions,
    /// Another thread sets it to end the study, which then fails.
    pub stop: Arc<AtomicBool>,
}

impl Study {
    /// The output of `lmc analyze --json`, and its warnings.
    ///
    /// # Errors
    /// Those of the command.
    pub fn json(&self) -> Result<(String, Vec<String>), Failure> {
        let ui = Ui::keeping();
        self.check()?;
        let input = self.open(&ui)?;
        let text = serde_json::to_string(&self.of(&input, &ui)?);
        let text = text.map_err(|e| Failure::Failed(format!("the study is no JSON: {e}")))?;
        Ok((text, ui.kept()))
    }

    /// Reports wrong arguments before any work.
    pub(super) fn check(&self) -> Result {
        engines::levels(&self.engines).map(drop)
    }

    /// Opens the input.
    pub(super) fn open(&self, ui: &Ui) -> Result<Input> {
        Input::open(&self.paths, self.every, self.codec.threads, &self.stop, ui)
    }

    /// Studies it, and returns the findings.
    pub(super) fn of(&self, input: &Input, ui: &Ui) -> Result<Analysis> {
        let mut options = AnalyzeOptions::default();
        (options.distances, options.stop) = (self.distances.clone(), self.stop.clone());
        options.sample = self.exact.then_some(1);
        for distance in self.distances.iter().flatten().filter(|d| !occurs(input, **d)) {
            ui.warn(format_args!(
                "--distances {distance}: no pair of checkpoints to be compared is so many {}s apart",
                input.steps_from().unit()
            ));
        }
        let mut shown = None;
        let mut progress = |p: lmc_inspect::Progress| {
            let (pass, bar) = shown.get_or_insert_with(|| (usize::MAX, ui.progress("", None)));
            if *pass != p.pass {
                let name = Name::text(&input.name(p.checkpoint)).to_string();
                *bar = ui.progress(&format!("{name} ({} of {})", p.pass + 1, p.passes), Some(p.size));
                *pass = p.pass;
            }
            bar.at(p.done);
        };
        let analysis = lmc_inspect::analyze(&self.codec, input, &options, &mut progress);
        let mut analysis = analysis.map_err(|e| input.failure(&e))?;
        drop(shown);
        if !self.engines.is_empty() {
            let zstd = engines::levels(&self.engines)?;
            analysis.engines = engines::measure(input, &analysis, &zstd, self.codec.level, ui)?;
        }
        input.check_unchanged()?;
        Ok(analysis)
    }
}

/// Whether any checkpoints are `distance` steps apart. The distance 0 requests none.
fn occurs(input: &Input, distance: u64) -> bool {
    let steps: Vec<u64> = (0..input.count()).map(|i| input.step(i)).collect();
    let is_there = |step: &u64| step.checked_add(distance).is_some_and(|to| steps.binary_search(&to).is_ok());
    distance == 0 || steps.iter().any(is_there)
}
