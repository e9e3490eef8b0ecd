//! Following a run: a directory or tensors that hold one version move to the next one by fetching only the changes.
//! `docs/sync.md` states the promises.

mod directory;
mod lists;
mod marker;
mod order;
mod patch;
mod repair;
mod spec;
mod staged;
mod state;
mod tensors;
mod tied;
mod version;

pub use directory::Follower;
pub use patch::Patch;
pub use spec::TensorSpec;
pub use staged::{FollowOptions, Repaired, Staged, Version};
pub use tensors::{StagedTensors, TensorFollower};
