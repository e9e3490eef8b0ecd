//! The input and the options of a study, its progress and its failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lmc::{Base, Error};
use serde::Serialize;

use super::spikes::spikes;

/// The checkpoints to study.
pub trait Checkpoints {
    /// How many there are.
    fn count(&self) -> usize;
    /// The name of one, for people.
    fn name(&self, checkpoint: usize) -> String;
    /// Its step: they increase from one checkpoint to the next.
    fn step(&self, checkpoint: usize) -> u64;
    /// Where the steps come from.
    fn steps_from(&self) -> StepsFrom;
    /// What was recorded with one, by name. Numbers become metrics.
    fn metadata(&self, _checkpoint: usize) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Metrics that a log beside the last one has.
    fn log(&self) -> Vec<Metric> {
        vec![]
    }
    /// Its files. It may be opened several times.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed>;
}

/// A number that was recorded during training.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, such as `loss`.
    pub name: String,
    /// Steps, and its values there.
    pub points: Vec<(u64, f64)>,
    /// Points that stand out from those around them, by number.
    pub spikes: Vec<usize>,
}

impl Metric {
    /// A metric of finite values in the order of their steps.
    pub fn new(name: String, mut points: Vec<(u64, f64)>) -> Self {
        points.retain(|p| (p.1 as f32).is_finite());
        points.sort_by_key(|p| p.0);
        let spikes = spikes(&points.iter().map(|p| Some(p.1 as f32)).collect::<Vec<_>>());
        Self { name, points, spikes }
    }
}

/// Where the steps of checkpoints come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StepsFrom {
    /// The store that they are in.
    Store,
    /// Their names.
    Names,
    /// They are unknown: the places of checkpoints in the sequence stand for them.
    Places,
}

impl StepsFrom {
    /// What they count: `step`, or `checkpoint`.
    pub fn unit(self) -> &'static str {
        if self == StepsFrom::Places { "checkpoint" } else { "step" }
    }
}

/// Why a study failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// Which checkpoint could not be studied.
    pub checkpoint: usize,
    /// The name of the file that failed, if it is known.
    pub file: Option<String>,
    /// Why.
    pub error: Error,
}

impl Failed {
    /// The failure of a checkpoint.
    pub fn new(checkpoint: usize, file: Option<String>, error: Error) -> Self {
        Self { checkpoint, file, error }
    }
}

/// The most pairs of checkpoints that are compared for each distance, besides those of neighbours; they are spread over the run.
pub const PAIRS: usize = 4;

/// Bytes of all checkpoints together, up to which all blocks are compressed, and of how many blocks one is otherwise.
pub(super) const WHOLE: u64 = 1 << 30;
pub(super) const EVERY: u64 = 8;

/// Options of a study.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AnalyzeOptions {
    /// Distances in steps whose deltas are measured, of at most [`PAIRS`] pairs each, besides those from each checkpoint to the next; `None`
    /// for one, two, four and so on times the distance that most neighbours have.
    pub distances: Option<Vec<u64>>,
    /// Of so many blocks one is compressed, and sizes are scaled; `None` for one, or eight if the checkpoints have more
    /// than 1 GiB together.
    pub sample: Option<u64>,
    /// Another thread sets it to end the study, which then fails.
    pub stop: Arc<AtomicBool>,
}

/// The progress of a study.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Number of the current pass over a checkpoint, from 0.
    pub pass: usize,
    /// How many there are.
    pub passes: usize,
    /// Which checkpoint is read.
    pub checkpoint: usize,
    /// Its bytes.
    pub size: u64,
    /// Bytes of it done.
    pub done: u64,
}
