//! The run of `compress`, `decompress` and `test` over their inputs: opens each input and its output, explains failures, verifies the output
//! and removes the input. A command only says what a file needs, and hands it to the codec.

use std::path::Path;

use lmc::{Base, ReadAt, Sink, Summary};
use serde_json::json;

use crate::fs::guard::Guard;
use crate::fs::input::{STDIN, Source, Stdin};
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::args::Files;
use crate::work::bases::Bases;
use crate::work::plan::{Input, Job, Link, guard};
use crate::work::report::{self, Left, Outcome};
use crate::work::restorable;

/// The work of a command on one input.
pub(crate) trait Work {
    /// Looks at a file before its output is created.
    fn look(&mut self, source: &Source, run: &Run<'_>) -> Result<Look>;

    /// Compresses or restores it.
    fn code(&mut self, from: lmc::Source<'_>, bases: &[Base<'static>], to: Sink<'_>) -> lmc::Result<Summary>;

    /// Changes the output when all of it is written.
    fn complete(&self, _summary: &Summary, _output: &Output) -> Result {
        Ok(())
    }

    /// Fails if what was read is not what it was, besides the file itself.
    fn check(&self, _source: &Source) -> Result {
        Ok(())
    }

    /// Called when the output is complete, if it is a regular file.
    fn written(&self, _input: &Path, _output: &Path, _bases: &[Base<'static>], _ui: &Ui) {}

    /// What is said of the result.
    fn line(&self, summary: &Summary, output: &Target) -> String;
}

/// What a look at a file found.
pub(crate) enum Look {
    /// Nothing is to be done, and why.
    Leave(Left),
    /// The bases for the file, and the size of what is restored from it, if it is compressed.
    Take { bases: Vec<Base<'static>>, restored_size: Option<u64> },
}

/// The inputs and options of a run.
pub(crate) struct Run<'a> {
    pub(crate) jobs: Vec<Job>,
    pub(crate) bases: Bases,
    pub(crate) guard: Guard,
    /// Overwrite existing files.
    pub(crate) force: bool,
    /// Leave inputs alone whose outputs are there.
    pub(crate) skip_existing: bool,
    /// Remove the inputs.
    pub(crate) remove: bool,
    pub(crate) json: bool,
    pub(crate) threads: usize,
    pub(crate) ui: &'a Ui,
}

impl<'a> Run<'a> {
    /// The run of a command that writes files.
    pub(crate) fn new(
        args: &Files,
        (jobs, links): (Vec<Job>, Vec<Link>),
        bases: Bases,
        threads: usize,
        ui: &'a Ui,
    ) -> Result<Self> {
        let guard = guard(&jobs, links, &bases, args)?;
        let Files { force, skip_existing, rm: remove, json, .. } = *args;
        if skip_existing && jobs.iter().any(|job| matches!(job.input, Input::Stdin)) {
            let why = "--skip-existing goes by the names of files, and standard input has none: leave it out";
            return Err(Failure::Usage(why.to_owned()));
        }
        Ok(Self { jobs, bases, guard, force, skip_existing, remove, json, threads, ui })
    }

    /// Works on every input, and goes on after those that fail.
    ///
    /// # Errors
    /// Those of [`report::each`].
    pub(crate) fn each(&self, work: &mut dyn Work) -> Result {
        report::each(&self.jobs, Job::path, self.json, self.ui, |job| {
            let summary = match &job.input {
                Input::Stdin => self.stdin(job, work)?,
                Input::File(path) => match self.file(path, job, work)? {
                    Ok(summary) => summary,
                    Err(left) => return Ok(Outcome::Left(left)),
                },
            };
            report::warn_of_unlisted(job.path(), &summary, self.ui);
            let line = work.line(&summary, &job.output);
            let (field, is_verdict) = match &job.output {
                Target::Nowhere => (("ok", true.into()), true),
                output => (("output", json!(output.path().to_string_lossy())), false),
            };
            Ok(Outcome::Done { line, field, is_verdict, summary })
        })
    }

    fn stdin(&self, job: &Job, work: &mut dyn Work) -> Result<Summary> {
        let mut source = Stdin::open()?;
        let mut output = job.create_output(self.force, Origin::Stdin(source.metadata().as_ref()), &self.guard)?;
        let progress = self.ui.progress(STDIN, None);
        let mut at = |done| progress.at(done);
        let from = lmc::Source::from(&mut source).with_progress(&mut at);
        let summary = work.code(from, self.bases.all(), Sink::writer(&mut output));
        let summary = summary.map_err(|e| report::explain_stdin(&self.bases, &output, &e))?;
        work.complete(&summary, &output)?;
        drop(progress);
        self.bases.check_unchanged()?;
        output.finish(&self.guard)?;
        Ok(summary)
    }

    /// Why a job is left alone before its input is opened, if it is.
    pub(crate) fn left(&self, job: &Job) -> Option<Left> {
        let is_there = matches!(&job.output, Target::File(path) if path.metadata().is_ok_and(|m| m.is_file()));
        (self.skip_existing && is_there).then_some(Left::Skipped("its output is there"))
    }

    fn file(&self, path: &Path, job: &Job, work: &mut dyn Work) -> Result<Result<Summary, Left>> {
        if let Some(left) = self.left(job) {
            return Ok(Err(left));
        }
        let source = Source::open(path)?;
        let (bases, restored_size) = match work.look(&source, self)? {
            Look::Take { bases, restored_size } => (bases, restored_size),
            Look::Leave(left) => return Ok(Err(left)),
        };
        let mut output = job.create_output(self.force, Origin::File(source.metadata()), &self.guard)?;
        output.check_stays(self.remove)?;
        let raw_size = restored_size.unwrap_or(source.metadata().len());
        let progress = || self.ui.progress(&Name::path(path).to_string(), Some(raw_size));
        let coding = progress();
        let mut at = |done| coding.at(done);
        let summary = match restored_size.map(|size| output.set_size(size)).transpose()? {
            Some(true) => work.code(lmc::Source::from(&source).with_progress(&mut at), &bases, Sink::from(&output)),
            _ => work.code(lmc::Source::from(&source).with_progress(&mut at), &bases, Sink::writer(&mut output)),
        };
        let summary = summary.map_err(|e| report::explain(&source, &self.bases, &output, &e))?;
        work.complete(&summary, &output)?;
        drop(coding);
        source.check_unchanged()?;
        work.check(&source)?;
        self.bases.check_unchanged()?;
        if self.remove
            && let Some(written) = output.written()?
        {
            let (compressed, raw): (&dyn ReadAt, &dyn ReadAt) = match restored_size {
                Some(_) => (&source, written),
                None => (written, &source),
            };
            restorable::check(compressed, raw, &bases, self.threads, path, &progress())?;
        }
        let is_file = output.is_file();
        output.finish(&self.guard)?;
        if is_file {
            work.written(path, job.output.path(), &bases, self.ui);
        }
        if self.remove {
            source.remove(&self.guard, self.ui)?;
        }
        Ok(Ok(summary))
    }
}
