//! `lmc diff`.

mod json;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use lmc::{CompressOptions, Compressor, Level};
use lmc_inspect::{Compared, declared};

use crate::fs::names::is_dash;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::args::{Threads, level, max_work};
use crate::work::bases::BaseArgs;
use crate::work::missing;

/// Show how a file differs from an earlier one, tensor by tensor, and what storing only the differences takes.
///
/// Tensors are matched as `lmc compress --base` matches them: by name, by name without wrappers such as `module.`, else by
/// content. For each: how many of its elements changed; how far, as powers of two of the distance that half, 90 % and 99 % of the changed ones do not exceed, and of
/// the largest; bits an element in the delta, and without the base. Distances are counted in representable
/// numbers (units in the last place), those of integers as they are; the two zeros are neighbours, and what is not a number
/// comes after the infinities; those of different dtypes are not added up. Both sizes are those that compressing gives. Tensors that
/// share a block are given shares of it: without the base as `lmc list` divides it; in the delta, small tensors that are predicted
/// together by the bits that their elements moved by, so that what did not change takes nothing. -v draws the distribution of the distances. Long names are cut; --json has all of
/// them.
///
/// States: same (matched by name, shape and dtype, with the same bytes), changed (so matched, with others), reshaped, resized, re-typed, renamed (matched by name without wrappers like
/// model. or module., or by content), derived (codes, scales or blocks of a quantised copy, compared with what the elements of OLD give), new, missing.
#[derive(Args)]
pub(crate) struct DiffArgs {
    /// The earlier file: as it is, or as .lmc file, or the model.safetensors.index.json of a checkpoint in several files.
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The later file, in any of these forms.
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Level of compression of the sizes.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Print one JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,

    /// Fail, with exit code 1, unless every tensor of NEW is in OLD or follows from it: with the same elements, converted, or
    /// quantised by a recipe that lmc knows. Scales that are stored with codes are taken as they are: whoever chose them may have
    /// lost weights, or all of a group.
    #[arg(long)]
    attest: bool,
}

/// Names of tensors in a message.
const NAMED: usize = 3;

/// Compares files.
pub(crate) fn run(args: &DiffArgs, ui: &Ui) -> Result {
    if let Some(path) = [&args.old, &args.new].into_iter().find(|p| is_dash(p)) {
        let name = if path == &args.old { "OLD" } else { "NEW" };
        return Err(Failure::Usage(format!(
            "diff reads here and there in its files, not standard input: name a file as {name}"
        )));
    }
    let threads = args.threads.count();
    let files = args.bases.open_behind(vec![args.old.clone(), args.new.clone()], true, threads)?;
    let options = CompressOptions::default().with_level(args.level).with_threads(threads).with_max_work(max_work()?);
    let mut compressor = Compressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let old = files.of(0);
    let mut new = Vec::new();
    for file in files.of(1) {
        let path = shard_path(&args.new, file.name());
        let progress = ui.progress(&Name::path(&path).to_string(), Some(file.raw_size()));
        let diff = lmc_inspect::diff(&mut compressor, &file, &old, &mut |done| progress.at(done));
        let diff = diff.map_err(|e| files.check_unchanged().err().unwrap_or_else(|| Failure::codec(&path, &e)))?;
        new.push((file, diff));
    }
    files.check_unchanged()?;
    for (file, given) in old.iter().map(|f| (f, &args.old)).chain(new.iter().map(|(f, _)| (f, &args.new))) {
        missing::note(&shard_path(given, file.name()), &declared(file), ui);
    }
    let compared = Compared::new(old, new);
    let paths = [args.old.as_path(), args.new.as_path()];
    match args.json {
        true => ui.write(|out| json::write(&compared, paths, out))?,
        false => ui.write(|out| text::write(&compared, paths, ui.verbose(), out))?,
    }
    if args.attest { attest(&compared, paths) } else { Ok(()) }
}

/// Fails unless every tensor of the later files follows from the earlier ones.
fn attest(compared: &Compared<'_>, [old, new]: [&Path; 2]) -> Result {
    let others: Vec<_> = compared.unattested().collect();
    if others.is_empty() {
        return Ok(());
    }
    let named = others.iter().take(NAMED).filter_map(|s| s.segment.name.as_deref()).map(|n| Name::text(n).to_string());
    let more = if others.len() > NAMED { ", and others" } else { "" };
    let all = compared.tensors().count();
    Err(Failure::at(
        new,
        format_args!(
            "{} of {all} tensors do not follow from {}: {}{more}",
            others.len(),
            Name::path(old),
            named.collect::<Vec<_>>().join(", ")
        ),
    ))
}

/// The path of a file that the given path names or lists.
fn shard_path(given: &Path, name: &str) -> PathBuf {
    given.with_file_name(name)
}
