//! Dependencies of blocks (§3.6).

/// A range of raw bytes on which a block depends (§3.6).
#[derive(Clone, Debug)]
pub struct Dependency {
    /// 0 for the file itself, or the number of a base.
    pub source: u64,
    pub offset: u64,
    /// The bytes of the range.
    pub bytes: Vec<u8>,
}
