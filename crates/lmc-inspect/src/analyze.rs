//! How checkpoints compress, and how training changes them: a study of one checkpoint, or of several in order.

mod advice;
mod bound;
mod charts;
mod duplicates;
mod fields;
mod flips;
mod gradients;
mod grids;
mod input;
mod names;
mod page;
mod plan;
mod result;
mod sample;
mod series;
mod spikes;
mod sums;
mod survey;
mod training;

use lmc::{Base, CompressOptions, Compressor, Error, ErrorKind};

pub use self::input::{AnalyzeOptions, Checkpoints, Failed, Metric, PAIRS, Progress, StepsFrom};
pub use self::page::page;
pub use self::result::{
    AdamStep, Analysis, Change, Checkpoint, Course, Delta, Distance, Engine, EngineDistance, Engines, Figures,
    FloatDelta, Group, GroupChange, GroupCourse, GroupDelta, GroupMagnitudes, Pair, Tensor, TensorChange,
};

pub use self::sample::{Sample, sample};

use self::input::{EVERY, WHOLE};
use self::plan::Plan;
use self::series::Series;
use self::survey::{Passes, Survey};

/// Studies checkpoints: each is read as a whole, beside the two before it, once more by itself, and once more for each
/// further distance that it is a part of. Memory does not depend on their sizes. `progress` is called with the number
/// of the current pass, the number of passes, and the bytes done of the current one.
///
/// A checkpoint is compressed, by itself and as a delta, as `codec` says. If that is done with all blocks
/// ([`AnalyzeOptions::sample`]), and always of the last one by itself, sizes of checkpoints and deltas are those of the files
/// that such a codec writes. Sizes of kinds, dtypes and tensors are their shares of the blocks that they lie in, which are
/// estimates. Figures that do not exist (fields of types that are no floats, distances of bytes)
/// are left out.
///
/// # Errors
/// [`Failed`] with the file that cannot be read or is damaged; `Usage` when a checkpoint has no tensors, or when there is none; `Io` when
/// [`AnalyzeOptions::stop`] was set.
pub fn analyze(
    codec: &CompressOptions,
    checkpoints: &dyn Checkpoints,
    options: &AnalyzeOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Analysis, Failed> {
    if checkpoints.count() == 0 {
        let error = Error::new(ErrorKind::Usage, "there are no checkpoints to study");
        return Err(Failed { checkpoint: 0, file: None, error });
    }
    let compressor = &Compressor::new(codec).map_err(|error| Failed { checkpoint: 0, file: None, error })?;
    let steps: Vec<u64> = (0..checkpoints.count()).map(|i| checkpoints.step(i)).collect();
    let steps_from = checkpoints.steps_from();
    let plan = Plan::new(&steps, options.distances.clone());
    let mut passes = Passes { compressor, stop: &options.stop, every: options.sample.unwrap_or(1).max(1) };
    let mut series = Series::new();
    let mut pass = 0;
    for i in 0..steps.len() {
        let older = if i > 1 { checkpoints.open(i - 2)? } else { vec![] };
        let old = if i > 0 { checkpoints.open(i - 1)? } else { vec![] };
        let new = checkpoints.open(i)?;
        let size: u64 = new.iter().map(Base::raw_size).sum();
        // The others are about as large as the first.
        let all = size.saturating_mul(steps.len() as u64);
        if i == 0 && options.sample.is_none() && steps.len() > 1 && all > WHOLE {
            passes.every = EVERY;
        }
        let mut at = |done| progress(Progress { pass, passes: plan.passes(), checkpoint: i, size, done });
        let mut survey = Survey::full(passes, i, &new, &old, &older, &mut at)?;
        if i > 0 {
            let failed = |error| Failed { checkpoint: i, file: None, error };
            survey.adam = gradients::step(&old, &new, &options.stop).map_err(failed)?;
        }
        drop((old, older));
        pass += 1;
        if i > 0 {
            let mut at = |done| progress(Progress { pass, passes: plan.passes(), checkpoint: i, size, done });
            let every = if i + 1 == steps.len() { 1 } else { passes.every };
            survey.add_alone(Passes { every, ..passes }, i, &new, &mut at)?;
            pass += 1;
        }
        series.add(i, (checkpoints.name(i), checkpoints.metadata(i)), &steps, survey);
        for &(from, to) in plan.pairs.iter().filter(|(_, to)| *to == i) {
            // Of those that are kept open for a while, these are needed next.
            checkpoints.open(i - 1)?;
            checkpoints.open(i)?;
            let old = checkpoints.open(from)?;
            let mut at = |done| progress(Progress { pass, passes: plan.passes(), checkpoint: i, size, done });
            let survey = Survey::delta(passes, to, &new, &old, &mut at)?;
            series.add_delta(from, to, &steps, &survey);
            pass += 1;
        }
    }
    let last = steps.len().checked_sub(1).map(|i| checkpoints.open(i)).transpose()?;
    series.finish(
        (codec, passes.every),
        steps_from,
        last.as_deref().unwrap_or_default(),
        checkpoints.log(),
        &options.stop,
    )
}
