//! Compression levels.

use crate::parse_error::with_names;

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

with_names!(Level, "level");
