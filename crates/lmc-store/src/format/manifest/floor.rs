//! Floors: at such a step, or below it, no snapshot is saved any more (`docs/store.md` §8).

use serde::{Deserialize, Serialize};

use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, Step};

/// What a floor says of the steps up to its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    format: String,
    version: u32,
    pub(crate) step: Step,
    /// Those that had a snapshot when it was written, ascending: these alone can be lost.
    pub(crate) kept: Vec<Step>,
    /// As in a record.
    #[serde(skip_serializing)]
    check: Option<Hash>,
}

impl Floor {
    pub(crate) fn new(step: Step, kept: Vec<Step>) -> Self {
        Self { format: Self::FORMAT.into(), version: VERSION, step, kept, check: None }
    }
}

impl Document for Floor {
    const FORMAT: &'static str = "lmc-floor";
    const MAX: usize = 1 << 24;

    const SEALED: bool = true;

    fn take_check(&mut self) -> Option<Hash> {
        self.check.take()
    }

    fn check(&self) -> Result<()> {
        match self.kept.is_sorted_by(|a, b| a < b) && self.kept.last().is_none_or(|&last| last <= self.step) {
            true => Ok(()),
            false => Err(Error::damaged("lists steps that do not ascend to its own")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_flipped_bit_of_a_floor_is_seen() {
        let steps = |all: &[u64]| all.iter().map(|&n| Step::new(n).unwrap()).collect::<Vec<_>>();
        let floor = |kept: &[u64]| Floor::new(Step::new(300).unwrap(), steps(kept));
        for good in [floor(&[]), floor(&[0, 7, 300])] {
            let bytes = good.to_bytes().unwrap();
            assert_eq!(Floor::parse(&bytes).unwrap(), good);
            for bit in 0..8 * bytes.len() {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                Floor::parse(&bad).expect_err(&String::from_utf8_lossy(&bad));
            }
        }
        let many = Floor::new(Step::MAX, (0..3_000_000).map(|n| Step::new(n).unwrap()).collect());
        assert_eq!(many.to_bytes().unwrap_err().kind(), ErrorKind::Limit);
    }
}
