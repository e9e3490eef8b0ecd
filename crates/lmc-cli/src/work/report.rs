//! The loop of a command over its inputs, and what it reports of each.

use std::path::Path;

use lmc::Summary;
use serde_json::{Value, json};

use crate::fs::input::{STDIN, Source};
use crate::fs::output::Output;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count, hex, percent, ratio};
use crate::ui::messages::Ui;
use crate::work::bases::Bases;

/// The outcome for a file, if it did not fail.
pub(crate) enum Outcome {
    /// Done: a line of text, a field for JSON beside those of the summary, and the sizes.
    Done {
        line: String,
        field: (&'static str, Value),
        /// Whether the line is the command's result, for standard output, and not just progress information.
        is_verdict: bool,
        summary: Summary,
    },
    /// The command has printed everything.
    Told,
    /// Nothing to do.
    Left(Left),
}

/// Why there is nothing to do for a file.
pub(crate) enum Left {
    Skipped(&'static str),
    /// Its format is uncertain: reported even with -q.
    Doubtful(String),
}

/// The loop of every command over its inputs: works on each of them, and goes on after failures.
///
/// # Errors
/// Only when the reader of the output is gone; failures of files are reported to `ui`.
pub(crate) fn each<'a, T>(
    items: &'a [T],
    path: impl Fn(&'a T) -> &'a Path,
    json: bool,
    ui: &Ui,
    mut work: impl FnMut(&'a T) -> Result<Outcome>,
) -> Result {
    let mut total = (0_u64, 0_u64, 0_u64);
    for item in items {
        let path = path(item);
        let record = match work(item) {
            Ok(Outcome::Done { line, field, is_verdict, summary }) => {
                total.0 += 1;
                total.1 = total.1.saturating_add(summary.raw_size);
                total.2 = total.2.saturating_add(summary.compressed_size);
                let line = format!("{} : {line}", Name::path(path));
                match is_verdict {
                    _ if json => {}
                    true => ui.verdict(&line)?,
                    false => ui.result(line),
                }
                summary_json(path, &summary, field)
            }
            Ok(Outcome::Told) => continue,
            Ok(Outcome::Left(why)) => left(path, &why, ui),
            Err(failure) => failed(path, &failure, ui),
        };
        if json {
            ui.json(&record)?;
        }
    }
    if total.0 > 1 && !json {
        let (files, raw, compressed) = total;
        ui.result(format_args!("{files} files : {}", sizes(raw, compressed)));
    }
    Ok(())
}

/// Says why nothing is done for a file, and gives its record.
pub(crate) fn left(path: &Path, left: &Left, ui: &Ui) -> Value {
    let why = match left {
        Left::Skipped(why) => why,
        Left::Doubtful(why) => why.as_str(),
    };
    let text = format!("{}: skipped, {why}", Name::path(path));
    match left {
        Left::Skipped(_) => ui.warn(text),
        Left::Doubtful(_) => ui.always(format_args!("lmc: {text}")),
    }
    json!({ "file": path.to_string_lossy(), "skipped": why })
}

/// Says that the work on a file failed, and gives its record.
pub(crate) fn failed(path: &Path, failure: &Failure, ui: &Ui) -> Value {
    ui.fail(failure);
    json!({ "file": path.to_string_lossy(), "error": failure.to_string() })
}

/// Raw and compressed size as text: `66.31 %  (86.7 MiB => 57.5 MiB)`, without the closing parenthesis.
fn open_sizes(raw: u64, compressed: u64) -> String {
    format!("{}  ({} => {}", percent(compressed, raw), bytes(raw), bytes(compressed))
}

fn sizes(raw: u64, compressed: u64) -> String {
    open_sizes(raw, compressed) + ")"
}

/// The line about a compressed file.
pub(crate) fn compressed(summary: &Summary, output: &Path) -> String {
    format!("{}, {})", open_sizes(summary.raw_size, summary.compressed_size), Name::path(output))
}

/// Warns of tensors that the index of a compressed file cannot have.
pub(crate) fn warn_of_unlisted(path: &Path, summary: &Summary, ui: &Ui) {
    if summary.unlisted_tensors > 0 {
        let tensors = count(summary.unlisted_tensors, "tensor");
        ui.warn(format_args!(
            "{}: {tensors} not in the index, where their names or shapes have no room: they are restored with the file, and cannot be read alone",
            Name::path(path)
        ));
    }
}

fn summary_json(path: &Path, summary: &Summary, (field, value): (&'static str, Value)) -> Value {
    let mut record = json!({
        "file": path.to_string_lossy(),
        "raw_size": summary.raw_size,
        "compressed_size": summary.compressed_size,
        "ratio": ratio(summary.compressed_size, summary.raw_size),
        "content_hash": hex(&summary.content_hash),
        "blocks": summary.blocks,
    });
    if summary.unlisted_tensors > 0 {
        record["unlisted_tensors"] = summary.unlisted_tensors.into();
    }
    record[field] = value;
    record
}

/// Attributes a codec failure to its cause, in this order: the output could not be written; a file was modified while it was read; the data
/// is bad.
pub(crate) fn explain(source: &Source, bases: &Bases, output: &Output, error: &lmc::Error) -> Failure {
    output.take_failure().unwrap_or_else(|| explain_read(source, bases, error))
}

/// [`explain`] where only reading can have failed.
pub(crate) fn explain_read(source: &Source, bases: &Bases, error: &lmc::Error) -> Failure {
    let changed = source.check_unchanged().and_then(|()| bases.check_unchanged());
    changed.err().unwrap_or_else(|| Failure::codec(source.path(), error))
}

/// [`explain`] for standard input.
pub(crate) fn explain_stdin(bases: &Bases, output: &Output, error: &lmc::Error) -> Failure {
    output
        .take_failure()
        .or_else(|| bases.check_unchanged().err())
        .unwrap_or_else(|| Failure::codec(Path::new(STDIN), error))
}
