//! Every snapshot of a training run in one store: a directory, or a bucket.
//!
//! A snapshot costs the space of its changes since an earlier one. Any snapshot is restored byte for byte, whole or in
//! part. A crash or a concurrent writer never loses committed data. `docs/store.md` specifies the layout and the
//! protocol.
//!
//! ```
//! use lmc_store::{At, Input, Location, SaveOptions, Step, Store};
//! let store = Store::create(&Location::Memory, Default::default())?;
//! let weights = |scale: f32| -> Vec<u8> { (0..50_000).flat_map(|i| (i as f32 * scale).to_le_bytes()).collect() };
//! for (step, scale) in [(100, 1.0), (200, 1.0001)] {
//!     store.save(&[Input::new("w", &weights(scale))], Some(Step::new(step)?), Default::default(), &SaveOptions::default())?;
//! }
//! let mut restored = Vec::new();
//! store.open_snapshot(&store.find(At::Step(Step::new(100)?))?)?.read_file("w", &mut restored)?;
//! assert_eq!(restored, weights(1.0));
//! # Ok::<(), lmc_store::Error>(())
//! ```
//!
//! The API is synchronous and must not be called from asynchronous code. Requests to the store run on threads of its own.

#![deny(unsafe_code)]

mod alternatives;
mod archive;
mod backend;
mod before;
#[cfg(feature = "buckets")]
mod bucket;
mod buffer;
mod cache;
mod catalog;
mod chain;
mod chunks;
mod clock;
mod copy;
mod cost;
mod directory;
mod disk;
mod error;
#[doc(hidden)]
pub mod files;
mod find;
mod floors;
mod follow;
mod gather;
mod gc;
mod held;
mod history;
mod identity;
mod ids;
pub mod interchange;
mod irregular;
mod layout;
mod leftovers;
mod manifest;
mod merge;
mod newest;
mod ordered;
mod overwrite;
mod presence;
#[cfg(feature = "buckets")]
mod profile;
mod prune;
mod publish;
mod reach;
mod rebase;
mod records;
mod remote;
mod restore;
mod save;
mod segments;
mod snapshot;
mod staged;
mod states;
mod store;
mod tags;
mod target;
mod tensors;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "buckets")]
mod uploads;
mod verify;
mod walk;
mod whole;

pub use backend::Location;
#[cfg(feature = "buckets")]
pub use bucket::Bucket;
pub use cache::Cache;
pub use copy::{Copied, CopyOptions};
pub use cost::Cost;
pub use error::{Error, ErrorKind, Result};
pub use follow::{FollowOptions, Follower, Repaired, Staged, Version};
pub use follow::{Patch, StagedTensors, TensorFollower, TensorSpec};
pub use gc::{Garbage, GcOptions};
pub use history::{DamagedRecord, Listing};
pub use ids::{RunId, SaveId, ShardId, Step, TagName};
pub use leftovers::Orphan;
pub use manifest::metadata::{MetaValue, Metadata};
pub use prune::{Best, Keep, PrunePlan, Pruned};
pub use rebase::{RebaseOptions, Rebased};
pub use restore::{FileInfo, SnapshotReader, TensorBuffer};
pub use save::{BasePolicy, Input, SaveOptions, Saved};
pub use snapshot::{At, Snapshot};
pub use states::DropStates;
pub use store::{Store, StoreOptions};
pub use tags::{DamagedTag, Tag, Tags};
pub use tensors::{Tensor, TensorSource, Tensors};
pub use verify::{Problem, Verified, VerifyOptions};
