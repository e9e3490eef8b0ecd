//! Following a run: a directory or tensors that hold one version move to the next one by fetching only the changes.
//! `docs/sync.md` states the promises.

#[cfg(unix)]
mod budget;
mod directory;
#[cfg(unix)]
mod interchange;
mod lists;
#[cfg(unix)]
mod marker;
mod order;
mod patch;
#[cfg(unix)]
mod repair;
mod spec;
#[cfg(unix)]
mod staged;
mod state;
mod tensors;
#[cfg(unix)]
mod version;

#[cfg(unix)]
pub use directory::Follower;
pub use patch::Patch;
pub use spec::TensorSpec;
#[cfg(unix)]
pub use staged::{FollowOptions, Repaired, Staged, Version};
pub use tensors::{StagedTensors, TensorFollowOptions, TensorFollower};
