//! What blocks depend on (§3.6).

/// A range of raw bytes on which a block depends (§3.6).
#[derive(Clone, Debug)]
pub struct Dependency {
    /// 0 for the file itself, or the number of a base.
    pub source: u64,
    pub offset: u64,
    /// What stands there, which the block is coded with; as many bytes as the range has.
    pub bytes: Vec<u8>,
}
