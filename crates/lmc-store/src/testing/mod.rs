//! Object stores for tests: one that has a clock of its own, and one that fails on purpose.

mod faulty;
mod memory;

pub use faulty::{Faults, Faulty};
pub use lmc_testing::input::Random;
pub use memory::Memory;
