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
#[command(after_long_help = JSON_HELP)]
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

    /// Compress all blocks. By default one of eight is, if the checkpoints have more than 1 GiB together: then sizes are estimates, but for
    /// those of the last checkpoint by itself.
    #[arg(long)]
    exact: bool,

    /// Compression level of the sizes.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Print one JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

/// The output that programs may rely on.
const JSON_HELP: &str = "\
--json prints one object; later versions may add fields. Entropies are in bits an element, sizes in bytes:
  version, program, level  1, the version of this form (not of files); the version of lmc; the level of compression
  sample                   of so many blocks one was compressed, 1 for all: else sizes are estimates
  steps_from               \"store\", \"names\", or \"places\": steps are unknown, and their fields count checkpoints
  checkpoints              name, step, metadata (of a snapshot: texts by name), files, formats, and figures: all, kinds
                           and dtypes (these two are lists with a name)
  pairs                    each checkpoint but the first, and the one before it: from, to (numbers of checkpoints), steps, all, and
                           groups by kind and dtype, with flips; missing_tensors and new_tensors (tensors of one of both without a
                           counterpart), missing_names and new_names (of the first eight); adam: null, or elements (that were
                           looked at, about a million at most), explained (the part of the step's squared length that lies along
                           m / √v of the later moments), gradient (the part that does not lie along that of the earlier ones, or
                           null where less than 0.9 are explained)
  metrics                  numbers that were recorded: name, points (pairs of a step and a value), spikes (numbers of points);
                           those of the metadata of snapshots, or of trainer_state.json beside the last checkpoint
  kinds, layers            how floats of 16 or more bits moved, by kind, and the weights by layer: name, and a course
  course                   norm and rms (root of the mean square): one for each checkpoint; of the updates update_norm, update_rms,
                           ratio (of the norms of update and weights), cosine (of the angle between the update and the one
                           before), changed (the part of the elements with other bits): one for each pair; null where there
                           is none; spikes: numbers of pairs whose ratio stands out
  changes                  the groups of all pairs together: a tensor counts once in each
  deltas                   from, to, steps, raw_size, delta_size, groups, floats
  distances                by steps: deltas (how many), raw_size and delta_size of all of them, groups, floats
  floats                   of floats with a counterpart in the base: raw_size, delta_size (of the delta), entropy_size (H:
                           the entropy of their differences given the exponents that they come from: of BF16 and F16
                           no code that treats floats of one exponent alike needs less; of F32 and F64, of the length
                           and the first eight bits of differences, with the others as they are)
  magnitudes               how large the floats of the last checkpoint are, by kind and dtype: lowest, counts (how many
                           have a magnitude from 2^e to below 2^(e+1), for e = lowest and on; without zeros and what is
                           not finite)
  tensors                  of the last checkpoint: file (number), name, kind, dtype, shape, figures, distinct_values
                           (of elements of 8 or 16 bits, or null), fits (a narrower dtype that has all values, or
                           null), quantised (the format that weights had before they were dequantised, or null),
                           quantised_part (the part of its bytes that had it, 0 to 1), duplicate_of (number of an
                           earlier tensor with the same dtype and bytes, or null), change: null, or pairs, compared, changed,
                           flips, distances, delta_size, raw_size, unchanged_pairs (in which all elements stayed); course,
                           empty where tensors have more than a million points; both since the tensor has its name, dtype
                           and shape
  tensors_left_out         how many of them are not listed: more than 65536
  engines                  null without --engines, else of, sample_size, pieces, and engines: name, order, given,
                           raw_size, size, compress_of_memcpy, decompress_of_memcpy (speeds over that of copying),
                           compress_spread, decompress_spread (how far a half of the rounds was from the median, as a
                           part of it, or null);
                           xor_by (the one that XORs over all distances were given to), and distances: by steps,
                           deltas (samples: at most four), raw_size, lmc_size, entropy_size (null of no floats),
                           xor_size, xor_grouped_size (null of bytes)
  advice                   sentences
  figures                  tensors, elements, raw_size, lmc_size, element_bits, lmc_bits, sign_entropy, exponent_entropy,
                           mantissa_entropy, zeros, not_finite, distinct_exponents
  changes of a group       tensors, unchanged_tensors (of the same name, dtype and shape), raw_size, delta_size, lmc_size,
                           compared (with a counterpart, if necessary after conversion to their dtype), changed, distances
                           (how many elements moved by 2^i to 2^(i+1) - 1 values), largest_distance
  flips                    for each bit from the lowest, how many elements have it changed";

impl AnalyzeArgs {
    fn study(&self) -> Result<Study> {
        let codec = CompressOptions::default().with_level(self.level).with_threads(self.threads.count());
        Ok(Study {
            paths: self.paths.clone(),
            every: self.every,
            distances: (!self.distances.is_empty()).then(|| self.distances.clone()),
            engines: self.engines.clone(),
            exact: self.exact,
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
