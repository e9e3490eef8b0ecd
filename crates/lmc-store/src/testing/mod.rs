//! Object stores for tests: one with its own clock, and one that injects faults. Directories of arbitrary versions.

mod faulty;
mod memory;
mod random;
mod versions;

pub use faulty::{Faults, Faulty};
pub use memory::Memory;
pub use random::Random;
pub use versions::{follow_versions, pack_versions};

#[cfg(feature = "s3")]
pub use crate::uploads::Uploads;
