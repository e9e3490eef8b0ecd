//! Versions for receivers without lmc, beside the store.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use lmc_store::interchange::{Exported, Interchange, InterchangeOptions};
use lmc_store::{At, ErrorKind, SaveId, Step, Store};
use serde_json::json;

use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes};
use crate::ui::messages::Ui;

/// Options of versions for receivers without lmc.
#[derive(Args)]
#[command(next_help_heading = "Receivers without lmc")]
pub(super) struct InterchangeArgs {
    /// Also write each version to OUTDIR, as slime, miles, SGLang's branch and ModelExpress exchange them: OUTDIR/weight_v000123 has what
    /// changed since the version before it in OUTDIR, and the first one the whole model. They are made from the store; what is missing
    /// after a crash is written by the next run. What cannot be such a version, as without safetensors files, is reported and left out.
    #[arg(long, value_name = "OUTDIR")]
    interchange: Option<PathBuf>,
}

/// Writes the snapshots that the store has and the directory lacks.
#[derive(Default)]
pub(super) struct Exporter {
    open: Option<Interchange>,
    /// Where an empty directory begins: the newest snapshot when the command did.
    first: Option<Step>,
    /// Snapshots that cannot be versions, and were reported.
    skipped: HashSet<(Step, SaveId)>,
    /// Steps whose records cannot be read, and were reported. They may be put back.
    unreadable: HashSet<Step>,
    warned: bool,
}

impl Exporter {
    /// Notes the newest snapshot of the store when the command begins.
    pub(super) fn begin(&mut self, store: &Store) -> lmc_store::Result<()> {
        self.first = match store.find(At::Latest) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            found => Some(found?.step),
        };
        Ok(())
    }

    pub(super) fn look(
        &mut self,
        args: &InterchangeArgs,
        store: &Store,
        dir: &Path,
        threads: usize,
        json: bool,
        ui: &Ui,
    ) -> Result {
        let Some(out) = &args.interchange else { return Ok(()) };
        if self.open.is_none() {
            let opened = open(out, dir, threads)?;
            opened.check(store).map_err(|e| failure(&e))?;
            self.open = Some(opened);
        }
        let last = self.open.as_ref().and_then(Interchange::last);
        let is_next = |step| last.map_or_else(|| self.first.is_none_or(|first| step >= first), |last| step > last);
        let first = last.or(self.first).map_or(Step::new(0), Ok).map_err(|e| failure(&e))?;
        let mut steps = store.steps(first).map_err(|e| failure(&e))?;
        steps.retain(|&step| is_next(step));
        for step in steps {
            let snapshot = match store.find(At::Step(step)) {
                Ok(snapshot) if self.skipped.contains(&(step, snapshot.id)) => continue,
                Ok(snapshot) => snapshot,
                Err(e) if matches!(e.kind(), ErrorKind::Store | ErrorKind::Io) => return Err(failure(&e)),
                // It was pruned.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => {
                    if self.unreadable.insert(step) {
                        let (why, out) = (Name::text(&e.to_string()).to_string(), Name::path(out));
                        ui.warn(format_args!("{out}: step {step} is passed over: {why}"));
                    }
                    continue;
                }
            };
            let start = Instant::now();
            let progress = ui.progress(&format!("version {step}"), None);
            let versions = self.open.as_mut().expect("it was opened");
            let written = versions.write(store, &snapshot, &mut progress.of_store());
            drop(progress);
            let written = match written {
                Ok(written) => written,
                // It will not be another one later; those that come after it may be versions.
                Err(e) if is_no_version(e.kind()) => {
                    self.skipped.insert((step, snapshot.id));
                    let (why, out) = (Name::text(&e.to_string()).to_string(), Name::path(out));
                    ui.warn(format_args!("{out}: step {step} is no version: {why}"));
                    continue;
                }
                Err(e) => {
                    // It may be there although something failed after it.
                    self.open = None;
                    return Err(failure(&e));
                }
            };
            if !self.warned && written.base.is_some_and(|base| base.get() + 1 != written.step.get()) {
                self.warned = true;
                ui.warn(format_args!(
                    "{}: versions are numbered by their steps, which are not one apart: SGLang's branch for slime and miles looks for every \
                     number between; ModelExpress does not",
                    Name::path(out)
                ));
            }
            report(&written, start, json, ui)?;
        }
        Ok(())
    }
}

fn is_no_version(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Usage | ErrorKind::Damaged | ErrorKind::NotFound | ErrorKind::Unsupported)
}

fn open(out: &Path, dir: &Path, threads: usize) -> Result<Interchange> {
    if out.canonicalize().is_ok_and(|out| dir.canonicalize().is_ok_and(|dir| dir == out)) {
        return Err(Failure::Usage(format!("{}: is where the run writes: name another directory", Name::path(out))));
    }
    let mut options = InterchangeOptions::default();
    options.threads = threads;
    Interchange::open(out, options).map_err(|e| failure(&e))
}

impl InterchangeArgs {
    pub(super) fn directory(&self) -> Option<&Path> {
        self.interchange.as_deref()
    }
}

fn report(written: &Exported, start: Instant, json: bool, ui: &Ui) -> Result {
    let Exported { step, base, path, tensors, total_size, changed_size, written_size, .. } = written;
    let seconds = start.elapsed().as_secs_f64();
    if json {
        return ui.json(&json!({
            "interchange": path.to_string_lossy(),
            "version": step.get(),
            "base": base.map(Step::get),
            "tensors": tensors,
            "total_size": total_size,
            "changed_size": changed_size,
            "written_size": written_size,
            "seconds": seconds,
        }));
    }
    let what = match base {
        Some(base) => {
            let density = 100.0 * *changed_size as f64 / (*total_size).max(1) as f64;
            format!("from version {base}, {density:.2} % of the bytes changed")
        }
        None => "the whole model".to_owned(),
    };
    ui.done(format_args!("{} : {what}, {}, {seconds:.2} s", Name::path(path), bytes(*written_size)));
    Ok(())
}

/// An error; the message says where.
fn failure(e: &lmc_store::Error) -> Failure {
    let text = Name::text(&e.to_string()).to_string();
    match e.kind() {
        ErrorKind::Usage => Failure::Usage(text),
        _ => Failure::Failed(text),
    }
}
