//! Object stores for tests: one with its own clock, and one that injects faults.

mod faulty;
mod memory;
mod random;

pub use faulty::{Faults, Faulty};
pub use memory::Memory;
pub use random::Random;

#[cfg(feature = "buckets")]
pub use crate::objects::uploads::Uploads;
