//! `lmc snapshot restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use lmc_store::files::check_targets;
use lmc_store::{At, ErrorKind, FileInfo, SnapshotReader};

use super::place::{Place, Which};
use crate::cmd::cat::{Rows, parse_rows, selection};
use crate::fs::guard::Guard;
use crate::fs::names::is_dash;
use crate::fs::output::{Origin, Output, Target, allow_open, create_directories, finish_all};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes};
use crate::ui::messages::Ui;
use crate::work::args::Threads;

/// Restore the files of a snapshot, or the bytes of one of its tensors.
///
/// Files are restored bit for bit, into the current directory or the one given with -o. Each appears under its name only when it is
/// complete and on disk; with -f, which replaces existing files, once all of them are, so that there must be space for both. No symbolic
/// link in that directory is followed. With --tensor, only the data of that tensor is read, and -o names the file for its bytes.
#[derive(Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    place: Place,

    /// Files to restore, or directories of them; by default the whole snapshot.
    #[arg(value_name = "FILE", conflicts_with = "tensor")]
    files: Vec<String>,

    #[command(flatten)]
    which: Which,

    /// Destination: a directory for files, a file for a tensor.
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Write the bytes of this tensor, as in its file; to standard output without -o.
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,

    /// Only rows A to B of the tensor, excluding B, counted from 0 along the first dimension; A.. and ..B are open ranges.
    #[arg(long, value_name = "A..B", value_parser = parse_rows, requires = "tensor")]
    rows: Option<Rows>,

    /// Overwrite existing files, write binary data to a terminal.
    #[arg(short, long)]
    force: bool,

    #[command(flatten)]
    threads: Threads,
}

/// Restores a snapshot, or a tensor of it.
pub(super) fn run(args: &RestoreArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let store = args.place.open()?;
    let snapshot = args.which.find(&args.place, &store, ui)?;
    let reader = store.open_snapshot(&snapshot).map_err(failure)?.with_threads(args.threads.count());
    if let Some(name) = &args.tensor {
        return restore_tensor(args, &reader, name, ui);
    }
    let is_spilt = args.output.is_none() && args.files.is_empty() && !args.force;
    if is_spilt && std::fs::read_dir(".").is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::Usage(
            "this directory is not empty: name the one to restore the snapshot into with -o (-o . is this one)"
                .to_owned(),
        ));
    }
    let dir = args.output.clone().unwrap_or_default();
    if is_dash(&dir) {
        return Err(Failure::Usage("files are restored into a directory: name one with -o".to_owned()));
    }
    // If anything requested is missing, nothing is written.
    let files = match &args.files[..] {
        [] => reader.files().iter().collect(),
        asked => reader.files_of(asked).map_err(|e| lacking(failure(e), asked))?,
    };
    let guard = args.place.guard();
    files.iter().try_for_each(|file| guard.check_replace(&dir.join(&file.name)))?;
    check_targets(&dir, files.iter().copied()).map_err(in_the_way)?;
    if !dir.as_os_str().is_empty() {
        create_directories(&dir)?;
    }
    let say = |FileInfo { name, len, .. }: &FileInfo| {
        ui.result(format_args!("{} : step {}, {}", Name::path(&dir.join(name)), snapshot.step, bytes(*len)));
    };
    if !args.force {
        for file in files {
            restore_file(args, &reader, file, (&dir, &guard), ui)?.finish(&guard)?;
            say(file);
        }
        return Ok(());
    }
    // Files of two snapshots beside each other would be loaded together: those that are there stay until all new ones are on disk.
    allow_open(files.len(), "replaced", "restore into an empty directory without -f")?;
    let restored =
        files.iter().map(|file| restore_file(args, &reader, file, (&dir, &guard), ui)).collect::<Result<_>>()?;
    check_targets(&dir, files.iter().copied()).map_err(in_the_way)?;
    finish_all(restored, &guard)?;
    files.into_iter().for_each(say);
    Ok(())
}

/// The failure of files that the snapshot lacks, perhaps as a step was named as one.
fn lacking(failure: Failure, asked: &[String]) -> Failure {
    let Failure::Store(kind @ ErrorKind::NotFound, text) = failure else { return failure };
    let advice = match asked.iter().find(|name| matches!(name.parse(), Ok(At::Step(_)))) {
        Some(step) => format!("the snapshot of a step is named with --at {step}"),
        None => "lmc snapshot show lists those that it has".to_owned(),
    };
    Failure::Store(kind, format!("{text}; {advice}"))
}

/// Restores a file that does not have its name yet.
fn restore_file(
    args: &RestoreArgs,
    reader: &SnapshotReader,
    file: &FileInfo,
    (dir, guard): (&Path, &Guard),
    ui: &Ui,
) -> Result<Output> {
    let FileInfo { name, len, .. } = file;
    let path = dir.join(name);
    // Checked again: restoring the previous files took time.
    check_targets(dir, [file]).map_err(in_the_way)?;
    create_directories(path.parent().unwrap_or(dir))?;
    let mut output = Output::create(&Target::File(path.clone()), args.force, Origin::Stdin(None), guard)?;
    if !output.is_file() {
        return Err(Failure::at(&path, "is not a regular file: move it away, or restore elsewhere"));
    }
    let progress = ui.progress(&Name::text(name).to_string(), Some(*len));
    if !output.set_size(*len)? {
        let read = |at, buf: &mut [u8]| reader.read_range(name, at, buf).map_err(|e| args.place.failure(&e));
        output.copy(0..*len, |at| (*len).min(at.saturating_add(PIECE)), read, &progress)?;
        return Ok(output);
    }
    reader
        .restore_file(name, &output, &mut progress.of_store())
        .map_err(|e| output.take_failure().unwrap_or_else(|| args.place.failure(&e)))?;
    Ok(output)
}

/// Something is in the way of a file; the message says so, and where.
fn in_the_way(e: lmc_store::Error) -> Failure {
    Failure::Failed(Name::text(&e.to_string()).to_string())
}

/// The most bytes of a tensor in memory: several block sets, which are fetched and decoded side by side.
const PIECE: u64 = 64 << 20;

fn restore_tensor(args: &RestoreArgs, reader: &SnapshotReader, name: &str, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let (file, tensor) = reader.tensor(name).map_err(failure)?;
    let (range, _) = selection(tensor, args.rows)
        .map_err(|why| Failure::Failed(format!("{}: tensor {name:?} {why}", Name::text(&args.place.store))))?;
    let target = match &args.output {
        Some(path) if !is_dash(path) => Target::File(path.clone()),
        _ => Target::Stdout,
    };
    let guard = args.place.guard();
    let mut output = Output::create(&target, args.force, Origin::Stdin(None), &guard)?;
    let progress = ui.progress(&Name::text(name).to_string(), Some(range.end - range.start));
    let read = |at, buf: &mut [u8]| reader.read_range(&file.name, at, buf).map_err(failure);
    output.copy(range.clone(), |at| range.end.min(at.saturating_add(PIECE)), read, &progress)?;
    drop(progress);
    output.finish(&guard)
}
