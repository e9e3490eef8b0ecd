//! Object stores for tests: one that has a clock of its own, and one that fails on purpose.

mod faulty;
mod memory;

pub use faulty::{Faults, Faulty};
pub use memory::Memory;

/// SplitMix64 (Steele et al. 2014): all that is left to chance follows from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }
}
