//! `lmc follow`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;
use lmc_store::{ErrorKind, FollowOptions, Follower, Snapshot, Staged, Step};
use serde_json::json;

use super::poll::{Looks, check_no_file};
use super::snapshot::place::Place;
use crate::ui::failure::{Failure, Result, both};
use crate::ui::format::{Name, bytes};
use crate::ui::messages::Ui;
use crate::work::args::Threads;

/// Keep a directory at the newest snapshot of a store, as a run saves them.
///
/// DIR/current is a link to the directory of the newest version. A new version is written beside it, from the files of the current one and
/// what changed since; all that is written is verified. Then the link is replaced by a rename, so that DIR/current leads to one whole
/// version at every moment, also after a crash. A program that opens several files should resolve the link once. The version before stays
/// until the next one.
///
/// DIR is created if missing. It must be empty, or be one that lmc follow made. Files in it are not to be changed: unchanged files of several
/// versions are links to the same bytes.
#[derive(Args)]
pub(crate) struct FollowArgs {
    #[command(flatten)]
    place: Place,

    /// The directory that follows.
    dir: PathBuf,

    #[command(flatten)]
    looks: Looks,

    /// Run CMD in a shell after every new version, with LMC_STEP and LMC_PATH, the version's directory. Until it succeeds, it is run again at
    /// every look, also by the next process that follows into DIR. With --json its output goes to standard error.
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,

    /// Follow to an earlier step, too.
    #[arg(long)]
    rewind: bool,

    /// Read and verify the files of the current version at the beginning, and restore those that are not what was published. With a new
    /// version, read and verify the files that did not change, instead of linking them. At other looks nothing is read.
    #[arg(long)]
    verify: bool,

    /// Print a JSON object for every new version, and for a version in which files were restored.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

/// Follows a store.
pub(crate) fn run(args: &FollowArgs, ui: &Ui) -> Result {
    args.place.guard().check_replace(&args.dir.join("current"))?;
    check_no_file(&args.dir)?;
    if Path::new(&args.place.store).is_file() {
        // It is an archive, or will never be a store.
        args.place.open()?;
    }
    let (mut follower, mut verified) = (None, !args.verify);
    args.looks.run(ui, || {
        let follower = opened(args, &mut follower)?;
        look(args, follower, &mut verified, ui)
    })
}

/// Opens the store and the directory.
fn opened<'f>(args: &FollowArgs, follower: &'f mut Option<Follower>) -> Result<&'f mut Follower> {
    if follower.is_none() {
        let mut options = FollowOptions::default();
        options.threads = args.threads.count();
        options.rewind = args.rewind;
        options.verify = args.verify;
        let opened = Follower::open(args.place.open()?, &args.dir, options);
        *follower = Some(opened.map_err(|e| directory_failure(&e))?);
    }
    Ok(follower.as_mut().expect("it was opened"))
}

/// Gets to the newest snapshot, and tells about it. Everything in it has been `verified` once.
fn look(args: &FollowArgs, follower: &mut Follower, verified: &mut bool, ui: &Ui) -> Result {
    let newest = follower.newest().map_err(|e| failed(args, &e));
    let got = newest.and_then(|newest| match newest {
        Some(snapshot) => get(args, follower, &snapshot, ui),
        None if !*verified && follower.current().is_some() => repair(args, follower, ui),
        None if args.looks.once && follower.current().is_none() => {
            let place = Name::text(&args.place.store);
            Err(Failure::Store(ErrorKind::NotFound, format!("{place}: has no version yet: nothing was written")))
        }
        None => Ok(()),
    });
    *verified |= got.is_ok() && follower.current().is_some();
    // Also about the current version, if there is no getting to a newer one.
    both(got, tell(args, follower))
}

/// Runs the command, unless it succeeded for the current version.
fn tell(args: &FollowArgs, follower: &mut Follower) -> Result {
    let Some(command) = args.exec.as_ref().filter(|_| !follower.is_announced()) else { return Ok(()) };
    let version = follower.current().expect("what is not announced is there");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).env("LMC_STEP", version.step.to_string()).env("LMC_PATH", &version.path);
    if args.json {
        shell.stdout(std::io::stderr());
    }
    let failed = |what: &dyn std::fmt::Display| {
        Failure::Failed(format!("--exec {}, step {}: {what}", Name::text(command), version.step))
    };
    match shell.status() {
        Ok(status) if status.success() => follower.announce().map_err(|e| directory_failure(&e)),
        Ok(status) => Err(failed(&status)),
        Err(e) => Err(failed(&crate::ui::format::io_error(&e))),
    }
}

fn get(args: &FollowArgs, follower: &mut Follower, snapshot: &Snapshot, ui: &Ui) -> Result {
    let start = Instant::now();
    let progress = ui.progress(&format!("step {}", snapshot.step), Some(snapshot.raw_size));
    let staged = follower.stage(snapshot, &mut progress.of_store()).map_err(|e| failed(args, &e))?;
    drop(progress);
    let staged_after = start.elapsed().as_secs_f64();
    let Staged { from, linked_size, written_size, fetched_size, .. } = staged;
    let version = follower.commit(staged).map_err(|e| directory_failure(&e))?;
    let committed_after = start.elapsed().as_secs_f64() - staged_after;
    if args.json {
        return ui.json(&json!({
            "step": version.step.get(),
            "id": version.id.to_string(),
            "path": version.path.to_string_lossy(),
            "from": from.map(Step::get),
            "raw_size": snapshot.raw_size,
            "linked_size": linked_size,
            "written_size": written_size,
            "fetched_size": fetched_size,
            "stage_seconds": staged_after,
            "commit_seconds": committed_after,
        }));
    }
    let from = from.map_or_else(|| "the first one".to_owned(), |from| format!("from step {from}"));
    ui.done(format_args!(
        "{} : step {}, {from}, {} fetched, {} written, staged in {staged_after:.2} s, committed in {:.1} ms",
        Name::path(&args.dir.join("current")),
        version.step,
        bytes(fetched_size),
        bytes(written_size),
        committed_after * 1000.0
    ));
    Ok(())
}

/// Verifies the current version, and restores what is not as it was published.
fn repair(args: &FollowArgs, follower: &mut Follower, ui: &Ui) -> Result {
    let progress = ui.progress("verifying", None);
    let repaired = follower.repair(&mut progress.of_store()).map_err(|e| failed(args, &e))?;
    drop(progress);
    let version = follower.current().expect("it was verified");
    for name in &repaired.files {
        let path = args.dir.join("current").join(name);
        ui.warn(format_args!("{}: was not what was published, and was restored", Name::path(&path)));
    }
    if args.json && !repaired.files.is_empty() {
        return ui.json(&json!({
            "step": version.step.get(),
            "id": version.id.to_string(),
            "path": version.path.to_string_lossy(),
            "restored": repaired.files,
            "written_size": repaired.written_size,
            "fetched_size": repaired.fetched_size,
        }));
    }
    Ok(())
}

/// An error of the store, or of the directory.
fn failed(args: &FollowArgs, e: &lmc_store::Error) -> Failure {
    match e.kind() {
        // A version that is not the next one of the run: the message says what holds another one.
        ErrorKind::Io | ErrorKind::Usage => directory_failure(e),
        _ => args.place.failure(e),
    }
}

/// An error about the directory that follows; the message says where.
fn directory_failure(e: &lmc_store::Error) -> Failure {
    let text = Name::text(&e.to_string()).to_string();
    match e.kind() {
        ErrorKind::Usage => Failure::Usage(text),
        kind => Failure::Store(kind, text),
    }
}
