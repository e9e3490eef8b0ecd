//! Shows how [`lmc`] works: how the blocks of a file are coded, and how a file changed since earlier ones.
//!
//! ```
//! use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Reader};
//! let old: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
//! let mut new = old.clone();
//! new[1000] ^= 1;
//!
//! let file = lmc::compress(&new, &CompressOptions::default())?;
//! let block = lmc_inspect::describe_block(&Reader::open(&file[..], &DecompressOptions::default())?, 0)?;
//! assert_eq!(block.columns.iter().map(|p| p.raw_len).sum::<u64>(), 400_000);
//!
//! let mut compressor = Compressor::new(&CompressOptions::default())?;
//! let diff = lmc_inspect::diff(&mut compressor, &Base::new(&new[..])?, &[Base::new(&old[..])?], &mut |_| ())?;
//! assert!(diff.delta.compressed_size < diff.alone.compressed_size);
//! assert_eq!(diff.segments[0].changes.changed, 1);
//! # Ok::<(), lmc::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "lab"), allow(dead_code, reason = "some of it is for the lab alone"))]

#[cfg(feature = "lab")]
mod analyze;
mod declared;
mod describe;
#[cfg(feature = "lab")]
mod diff;
#[cfg(feature = "lab")]
mod element;
#[cfg(feature = "lab")]
mod kind;
mod not_a_model;
#[cfg(feature = "lab")]
mod page;
mod shares;
pub mod text;
mod truncated;

#[cfg(feature = "lab")]
pub use analyze::{
    AdamStep, Analysis, AnalyzeOptions, Change, Checkpoint, Checkpoints, Course, Delta, Distance, Engine,
    EngineDistance, Engines, Failed, Figures, FloatDelta, Group, GroupChange, GroupCourse, GroupDelta, GroupMagnitudes,
    Metric, PAIRS, Pair, Progress, Sample, StepsFrom, Tensor, TensorChange, analyze, page, sample,
};
pub use declared::declared;
pub use describe::{
    BlockDescription, ClusterDescription, ColumnDescription, ExtentDescription, GridDescription, PredictionDescription,
    describe_block,
};
#[cfg(feature = "lab")]
pub use diff::changes::Changes;
#[cfg(feature = "lab")]
pub use diff::compared::{Compared, DiffSums};
#[cfg(feature = "lab")]
pub use diff::counterparts::Relation;
#[cfg(feature = "lab")]
pub use diff::entropy::DifferenceEntropy;
#[cfg(feature = "lab")]
pub use diff::{Coded, Diff, SegmentDiff, diff};
#[cfg(feature = "lab")]
pub use kind::Kind;
pub use shares::Shares;
pub use truncated::truncated;
