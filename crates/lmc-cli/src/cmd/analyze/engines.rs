//! zstd on a sample of the last checkpoint, beside `lmc`.

mod codecs;

use lmc::{Error, Level};
use lmc_inspect::{
    Analysis, Checkpoints, Delta, DifferenceEntropy, Engine, EngineDistance, Engines, Failed, PAIRS, Sample, sample,
};

use self::codecs::{Codec, Lmc, Zstd, measured, room_for};
use super::input::Input;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// About how many bytes of a checkpoint other compressors get.
const SAMPLE: u64 = 4_000_000;

/// What other compressors are called, and their levels of zstd.
const ENGINES: [(&str, i32); 3] = [("zstd-1", 1), ("zstd-3", 3), ("zstd-19", 19)];

/// The levels of zstd that these names stand for; `all` for every one.
pub(super) fn levels(names: &[String]) -> Result<Vec<i32>> {
    if names.iter().any(|n| n == "all") {
        return Ok(ENGINES.map(|e| e.1).to_vec());
    }
    let level = |name: &String| match ENGINES.iter().find(|e| e.0 == name) {
        Some(e) => Ok(e.1),
        None => Err(Failure::Usage(format!("unknown engine {name:?}: use all, or some of zstd-1, zstd-3, zstd-19"))),
    };
    names.iter().map(level).collect()
}

/// Measures compressors beside `lmc` at `level`; `None` if the last checkpoint has no elements of a known type.
pub(super) fn measure(input: &Input, a: &Analysis, zstd: &[i32], level: Level, ui: &Ui) -> Result<Option<Engines>> {
    let last = input.count() - 1;
    let new = input.open(last).map_err(|f| input.failure(&f))?;
    let old = if last > 0 { input.open(last - 1).map_err(|f| input.failure(&f))? } else { vec![] };
    let unreadable = |e| input.failure(&Failed::new(last, None, e));
    let taken = match sample(&new, &old, SAMPLE).map_err(unreadable)? {
        // The checkpoint before has none of the tensors.
        None => sample(&new, &[], SAMPLE).map_err(unreadable)?,
        some => some,
    };
    let Some(taken) = taken.filter(|s| !s.new.is_empty()) else {
        ui.warn("--engines: the last checkpoint has no elements of a known type: there is nothing to measure");
        return Ok(None);
    };
    let bar = ui.progress("engines", None);
    let engines = engines(&taken, zstd, level, &|| bar.at(0)).map_err(|e| failure(&e))?;
    drop(bar);
    // zstd 1, or the first one.
    let xor = zstd.iter().copied().find(|level| *level == 1 || !zstd.contains(&1)).unwrap_or(1);
    let distances = distances(input, a, level, xor, ui)?;
    Ok(Some(Engines {
        of: format!("{} elements of {}", taken.dtype, input.name(last)),
        sample_size: taken.new.len() as u64,
        pieces: taken.pieces,
        engines,
        xor_by: format!("zstd {xor}"),
        distances,
    }))
}

/// Measures deltas of samples over each distance of a study.
fn distances(input: &Input, a: &Analysis, level: Level, xor: i32, ui: &Ui) -> Result<Vec<EngineDistance>> {
    let bar = ui.progress("deltas of samples", None);
    let mut all = Vec::new();
    for steps in a.distances.iter().map(|d| d.steps) {
        let mut sum = EngineDistance { steps, ..EngineDistance::default() };
        let mut entropy = Some(0);
        let mut grouped = Some(0);
        for d in spread(&a.deltas, steps) {
            let open = |checkpoint| input.open(checkpoint).map_err(|f| input.failure(&f));
            let taken = sample(&open(d.to)?, &open(d.from)?, SAMPLE);
            let Some(taken) = taken.map_err(|e| input.failure(&Failed::new(d.to, None, e)))? else { continue };
            let Some(one) = delta_sizes(&taken, xor, level).map_err(|e| failure(&e))? else { continue };
            sum.deltas += 1;
            sum.raw_size += one.raw_size;
            sum.lmc_size += one.lmc_size;
            sum.xor_size += one.xor_size;
            entropy = entropy.zip(one.entropy_size).map(|(n, m)| n + m);
            grouped = grouped.zip(one.xor_grouped_size).map(|(n, m)| n + m);
            bar.at(0);
        }
        if sum.deltas > 0 {
            (sum.entropy_size, sum.xor_grouped_size) = (entropy, grouped);
            all.push(sum);
        }
    }
    Ok(all)
}

/// Measures `lmc` and zstd at these levels on a sample; zstd on the bytes as they are and grouped, and if there is an
/// earlier checkpoint on the exclusive or with that, too.
fn engines(sample: &Sample, zstd: &[i32], level: Level, progress: &dyn Fn()) -> lmc::Result<Vec<Engine>> {
    let (old, width) = (sample.old.as_deref(), sample.dtype.coding_width());
    let mut found = Vec::new();
    let mut measure = |name: String, order: &str, given: &str, codec: &mut dyn Codec| {
        progress();
        let (size, [compress, decompress]) = measured(&sample.new, codec)?;
        let (compress_of_memcpy, compress_spread) = compress;
        let (decompress_of_memcpy, decompress_spread) = decompress;
        let (order, given) = (order.to_owned(), given.to_owned());
        let (raw_size, size) = (sample.new.len() as u64, size as u64);
        found.push(Engine {
            name,
            order,
            given,
            raw_size,
            size,
            compress_of_memcpy,
            decompress_of_memcpy,
            compress_spread,
            decompress_spread,
        });
        Ok::<_, Error>(())
    };
    let without_and_with = [None, old];
    let given = &without_and_with[..1 + usize::from(old.is_some())];
    for old in given {
        let given = if old.is_some() { "base" } else { "nothing" };
        measure(format!("lmc {level}"), "as is", given, &mut Lmc::new(level, sample.dtype, *old)?)?;
    }
    for level in zstd {
        for old in given {
            let given = if old.is_some() { "xor" } else { "nothing" };
            measure(format!("zstd {level}"), "as is", given, &mut Zstd::new(*level, *old, 1)?)?;
            if width > 1 {
                measure(format!("zstd {level}"), "grouped", given, &mut Zstd::new(*level, *old, width)?)?;
            }
        }
    }
    Ok(found)
}

/// The sizes that a delta of a sample has: by `lmc`, by zstd on the exclusive or, and as entropy. `None` if nothing came
/// before.
fn delta_sizes(sample: &Sample, zstd: i32, level: Level) -> lmc::Result<Option<EngineDistance>> {
    let (Some(old), new, width) = (&sample.old, &sample.new[..], sample.dtype.coding_width()) else { return Ok(None) };
    let mut packed = room_for(new.len());
    let mut size = |codec: &mut dyn Codec| codec.compress(new, &mut packed).map(|()| packed.len() as u64);
    Ok(Some(EngineDistance {
        deltas: 1,
        raw_size: new.len() as u64,
        lmc_size: size(&mut Lmc::new(level, sample.dtype, Some(old))?)?,
        entropy_size: DifferenceEntropy::new(sample.dtype).map(|mut e| {
            e.add(new, old);
            (e.bits() / 8.0).round() as u64
        }),
        xor_size: size(&mut Zstd::new(zstd, Some(old), 1)?)?,
        xor_grouped_size: match width {
            1 => None,
            _ => Some(size(&mut Zstd::new(zstd, Some(old), width)?)?),
        },
        ..EngineDistance::default()
    }))
}

/// At most [`PAIRS`] deltas over a distance, spread over the run.
fn spread(deltas: &[Delta], steps: u64) -> impl Iterator<Item = &Delta> {
    let of: Vec<&Delta> = deltas.iter().filter(|d| d.steps == steps).collect();
    let n = of.len().min(PAIRS);
    (0..n).map(move |i| of[(2 * i + 1) * of.len() / (2 * n)])
}

fn failure(e: &Error) -> Failure {
    Failure::Failed(e.to_string())
}
