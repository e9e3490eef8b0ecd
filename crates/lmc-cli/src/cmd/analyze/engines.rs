//! Other compressors on a sample of the last checkpoint.

use lmc::{Error, ErrorKind, Level};
use lmc_inspect::{Analysis, Checkpoints, Delta, EngineDistance, Engines, Failed, PAIRS, sample};

use super::input::Input;
use crate::cmd::bench::{chosen, delta_sizes, engines, of_distances};
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// About how many bytes of a checkpoint other compressors get.
const SAMPLE: u64 = 4_000_000;

/// Fails if there are no such compressors: reported before a study.
pub(super) fn check(names: &[String]) -> Result {
    chosen(names).map(|_| ()).map_err(|e| failure(&e))
}

/// Measures compressors beside `lmc` at `level`; `None` if the last checkpoint has no elements of a known type.
pub(super) fn measure(input: &Input, a: &Analysis, names: &[String], level: Level, ui: &Ui) -> Result<Option<Engines>> {
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
    let measured = engines(&taken, names, level, &mut |_| bar.at(0)).map_err(|e| failure(&e))?;
    drop(bar);
    let (xor, xor_by) = of_distances(names).map_err(|e| failure(&e))?;
    let distances = distances(input, a, level, xor, ui)?;
    Ok(Some(Engines {
        of: format!("{} elements of {}", taken.dtype, input.name(last)),
        sample_size: taken.new.len() as u64,
        pieces: taken.pieces,
        engines: measured,
        xor_by,
        distances,
    }))
}

/// Measures deltas of samples over each distance of a study.
fn distances(input: &Input, a: &Analysis, level: Level, xor: &str, ui: &Ui) -> Result<Vec<EngineDistance>> {
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

/// At most [`PAIRS`] deltas over a distance, spread over the run.
fn spread(deltas: &[Delta], steps: u64) -> impl Iterator<Item = &Delta> {
    let of: Vec<&Delta> = deltas.iter().filter(|d| d.steps == steps).collect();
    let n = of.len().min(PAIRS);
    (0..n).map(move |i| of[(2 * i + 1) * of.len() / (2 * n)])
}

fn failure(e: &Error) -> Failure {
    match e.kind() {
        ErrorKind::Usage => Failure::Usage(e.to_string()),
        _ => Failure::Failed(e.to_string()),
    }
}
