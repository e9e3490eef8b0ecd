//! Compression levels.

use crate::parse_error::ParseNameError;

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

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Level {
    type Err = ParseNameError;

    fn from_str(s: &str) -> Result<Self, ParseNameError> {
        let found = Level::ALL.iter().copied().find(|l| l.name() == s);
        found.ok_or_else(|| ParseNameError::new("level", s, Level::ALL.iter().map(|l| l.name())))
    }
}
