//! Compression levels.

use std::fmt;
use std::str::FromStr;

use lmc_layout::error::Error;

/// Compression level: the work of the encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Huffman codes.
    Fast,
    /// rANS, more clusters.
    #[default]
    Default,
    /// rANS with finer tables and longer symbols.
    Max,
}

impl Level {
    /// Every level, fastest first.
    pub const ALL: &[Level] = &[Level::Fast, Level::Default, Level::Max];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Fast => "fast",
            Level::Default => "default",
            Level::Max => "max",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error is of kind `Usage`, and says which names there are.
impl FromStr for Level {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().copied().find(|level| level.name() == s);
        found.ok_or_else(|| Error::unknown_name("level", s, Self::ALL.iter().map(|level| level.name())))
    }
}
