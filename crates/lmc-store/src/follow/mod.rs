//! Following a run: what holds one version of a store's snapshots gets to the next one with what changed. `docs/sync.md` says what is
//! promised.

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
