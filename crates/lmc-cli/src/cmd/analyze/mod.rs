//! `lmc analyze`.

mod directories;
mod engines;
mod files;
mod input;
mod kept;
mod study;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lmc::{CompressOptions, Level};

pub use self::study::Study;
use crate::cmd::page::PageArgs;
use crate::ui::failure::{Result, both};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, level, max_work};

/// Study how checkpoints compress, and what changes from one to the next.
///
/// One checkpoint, several in order, or the snapshots of a store. Each is read whole, beside the one before it. Tensors that share
/// bytes, such as tied ones, count once, under one of their names. By tensor, by dtype, and by
/// the purpose of tensors, as their names show it (weights, embedding, norm, master, exp_avg, exp_avg_sq): sizes as they are, as lmc makes them, and as a
/// delta; the entropy of signs, exponents and mantissas; zeros; tensors with the same bytes; tensors that a narrower dtype holds. From
/// checkpoint to checkpoint: how many elements changed, which of their bits, how far; norms of weights and of their updates, and the
/// cosine of successive updates; and what deltas over longer distances take. Metrics such as the loss are those of snapshots'
/// metadata, or of the trainer_state.json that Transformers' Trainer writes beside a checkpoint. Sizes
/// of checkpoints and deltas are those of the files that lmc would write; those of kinds,
/// dtypes and tensors are their shares of the blocks that they lie in, which are estimates: small tensors that share a part of one
/// divide it by length, in a delta by the bits that their elements moved by. Snapshots of a store are restored to nameless files in the directory for temporary files
/// (TMPDIR), four at a time. Nothing else is written but --html.
#[derive(Args)]
pub(crate) struct AnalyzeArgs {
    /// Checkpoints in order, of any format that lmc knows, compressed or not: files, model.safetensors.index.json of several files,
    /// directories, of which the files with tensors count, in them and eight levels below; names that begin with a dot and links to
    /// directories do not. Of a directory with a .metadata, as torch.distributed.checkpoint writes it, the data files that
    /// it names count. A directory with several steps, in directories or files whose names have them, is as many checkpoints. Or one store:
    /// a directory or a bucket; an archive of one is to be copied into a store first.
    #[arg(value_name = "CHECKPOINT", required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    page: PageArgs,

    /// Of a store, take every Nth snapshot, and the last one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,

    /// Distances in steps that deltas are measured for, besides those from each checkpoint to the next; by default one, two, four and so
    /// on times the distance that most neighbours have. `0` for none. Steps are those of the store, or in names: numbers behind words such
    /// as step, iter and checkpoint, or in which alone the names differ. Of other names, such as dates, they are unknown, and a distance
    /// counts checkpoints.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    distances: Vec<u64>,

    /// Also measure zstd on a sample of the last checkpoint: all, or some of zstd-1, zstd-3, zstd-19. zstd-1, or the first of them, on the
    /// XOR of such samples over each distance, too, in at most four pairs. The sample has 4 MB of elements of the most common dtype,
    /// evenly spread.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    engines: Vec<String>,

    /// Compression level of the sizes.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Print one JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

impl AnalyzeArgs {
    fn study(&self) -> Result<Study> {
        let codec = CompressOptions::default().with_level(self.level).with_threads(self.threads.count());
        Ok(Study {
            paths: self.paths.clone(),
            every: self.every,
            distances: (!self.distances.is_empty()).then(|| self.distances.clone()),
            engines: self.engines.clone(),
            codec: codec.with_max_work(max_work()?),
            stop: Arc::default(),
        })
    }
}

/// Studies checkpoints.
pub(crate) fn run(args: &AnalyzeArgs, ui: &Ui) -> Result {
    args.page.check(args.json, ui)?;
    let study = args.study()?;
    study.check()?;
    let input = study.open(ui)?;
    let guard = input.guard();
    let page = args.page.create(&guard)?;
    let analysis = study.of(&input, ui)?;
    // The work may have taken hours: no output is left out because another one failed.
    let page = page.finish(|| lmc_inspect::page(&analysis), &guard);
    let printed = match args.json {
        true => ui.write(|out| {
            serde_json::to_writer(&mut *out, &analysis)?;
            out.write_all(b"\n")
        }),
        false if args.page.is_shown() => Ok(()),
        false => ui.write(|out| text::write(&analysis, out)),
    };
    both(page, printed)
}
