//! Object stores for tests: one with its own clock, and one that injects faults.

mod faulty;
mod memory;

pub use faulty::{Faults, Faulty};
pub use lmc_testing::input::Random;
pub use memory::Memory;
