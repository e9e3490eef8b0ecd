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

#[cfg(not(unix))]
compile_error!(
    "stores, the command and the Python package need Linux or another Unix system (on Windows, use WSL): \
     elsewhere there is the library lmc-codec"
);

mod chunks;
mod disk;
mod error;
mod follow;
mod format;
pub mod interchange;
mod irregular;
mod objects;
mod ops;
mod records;
#[cfg(feature = "testing")]
pub mod testing;

pub use chunks::cache::Cache;
pub use chunks::tensors::{Tensor, TensorSource, Tensors};
pub use error::{Error, ErrorKind, Result};
pub use follow::{FollowOptions, Follower, Repaired, Staged, Version};
pub use follow::{Patch, StagedTensors, TensorFollower, TensorSpec};
pub use format::ids::{RunId, SaveId, ShardId, Step, TagName};
pub use format::manifest::metadata::{MetaValue, Metadata};
#[cfg(feature = "buckets")]
pub use objects::bucket::Bucket;
#[doc(hidden)]
pub use objects::files;
pub use objects::leftovers::Orphan;
pub use objects::location::Location;
pub use ops::cancel::Cancel;
pub use ops::copy::{Copied, CopyOptions};
pub use ops::cost::Cost;
pub use ops::gc::{Garbage, GcOptions};
pub use ops::prune::{Best, Keep, PrunePlan, Pruned};
pub use ops::rebase::{RebaseOptions, Rebased};
pub use ops::restore::{FileInfo, SnapshotReader, TensorBuffer};
pub use ops::save::{BasePolicy, Input, SaveOptions, Saved};
pub use ops::states::DropStates;
pub use ops::verify::{Problem, Verified, VerifyOptions};
pub use records::history::{DamagedRecord, Listing};
pub use records::snapshot::{At, Snapshot};
pub use records::store::{Store, StoreOptions};
pub use records::tags::{DamagedTag, Tag, Tags};
