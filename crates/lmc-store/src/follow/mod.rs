//! Following a run: what holds one version of a store's snapshots gets to the next one with what changed. `docs/sync.md` says what is
//! promised.

#[cfg(unix)]
mod directory;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod marker;
mod order;
mod patch;
mod state;
mod tensors;
#[cfg(unix)]
mod version;

#[cfg(unix)]
pub use directory::{FollowOptions, Follower, Staged, Version};
pub use patch::Patch;
pub use tensors::{StagedTensors, TensorFollowOptions, TensorFollower, TensorSpec};
