//! Damaged blocks with a cluster map, for tests of hostile files.

use crate::decoders::agree;
use crate::reference::write::File;
use crate::reference::write::block::BlockFields;
use crate::samples::cluster_map_block;

/// Lengths that lie.
pub const HUGE: [u64; 8] =
    [(1 << 24) + 1, (1 << 25) + 1, (1 << 31) - 1, 1 << 31, u32::MAX as u64, 1 << 32, 1 << 63, u64::MAX];

/// The fields of the block, to be changed.
///
/// # Panics
/// When the block cannot be coded.
pub fn cluster_map() -> BlockFields {
    cluster_map_block().encode().expect("the block can be coded")
}

/// A file of one block.
pub fn file_of(fields: &BlockFields) -> File {
    File::new(vec![fields.record()])
}

/// Asserts that all decoders refuse a file, the reference for a reason with `reason` in it.
///
/// # Panics
/// When they do not.
#[track_caller]
pub fn refused(file: &[u8], reason: &str) {
    match agree(file) {
        Ok(_) => panic!("a file is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}
