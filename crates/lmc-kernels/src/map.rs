//! The map stage: maps an element to an unsigned integer of the same width, so that likely values share their high bits.

use lmc_layout::dtype::{Dtype, Number};

/// The map of a stream (`docs/format.md` §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Unchanged.
    Identity = 0,
    /// The sign moves from the top to the bottom: `exponent | mantissa | sign`.
    Rotate = 1,
    /// Small magnitudes of either sign become small numbers.
    Zigzag = 2,
}

impl Map {
    /// The map that the elements of a dtype start from.
    pub fn of(dtype: Dtype) -> Self {
        match dtype.number() {
            Number::Float => Map::Rotate,
            Number::Signed => Map::Zigzag,
            Number::Other => Map::Identity,
        }
    }

    /// The map of a code of the format.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Map::Identity),
            1 => Some(Map::Rotate),
            2 => Some(Map::Zigzag),
            _ => None,
        }
    }
}
