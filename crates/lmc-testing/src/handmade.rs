//! Files built by hand, block by block, for tests of bases, dependencies and predicted columns.

use crate::decoders::{LIMIT, agree_with_bases};
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Dependency, Named, Predicted, Stream};
use crate::reference::write::{File, Record, varint};

/// Raw bytes of a leaf: each block begins at a multiple of them.
pub const LEAF: u64 = 1 << 18;

/// Decodes a file by all decoders, after its digests were set to those of its decoded bytes.
///
/// # Errors
/// What the reference says, when all refuse the file.
#[track_caller]
pub fn judged(mut file: File, bases: &[&[u8]]) -> Result<Vec<u8>, String> {
    file.redigest(bases, LIMIT);
    agree_with_bases(&file.to_bytes(), bases)
}

/// Asserts that all decoders refuse a file, the reference for a reason with `reason` in it.
///
/// # Panics
/// When they do not.
#[track_caller]
pub fn refused(file: File, bases: &[&[u8]], reason: &str) {
    match judged(file, bases) {
        Ok(_) => panic!("a file is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}

/// The fields of a block, to be changed.
///
/// # Panics
/// When it cannot be coded as it is described.
pub fn encoded(block: &Block) -> BlockFields {
    block.encode().expect("the block can be coded")
}

/// A column of differences to the bytes of all dependencies of a block.
pub fn copy(dependencies: &[(u64, u64, &[u8])]) -> BlockFields {
    let dependencies: Vec<Dependency> = dependencies
        .iter()
        .map(|&(source, offset, bytes)| Dependency { source, offset, bytes: bytes.to_vec() })
        .collect();
    let raw: Vec<u8> = dependencies.iter().flat_map(|dependency| dependency.bytes.clone()).collect();
    let column = Predicted {
        raw,
        width_code: 0,
        predictor: 2,
        conversion: 0,
        prediction: Named::of(0, dependencies.len() as u64),
        boundaries: vec![],
        unchanged: None,
        streams: vec![Stream::of(0, Cluster { z: 8, ..Cluster::default() })],
    };
    encoded(&Block { dependencies, ..Block::of(Column::Predicted(column), 0) })
}

/// Bytes as they are.
pub fn stored(bytes: &[u8]) -> BlockFields {
    encoded(&Block::of(Column::Stored(bytes.to_vec()), 0))
}

/// The records of blocks; all but the last are filled with zeros to [`LEAF`] bytes. Their digests are still to be set.
pub fn records(blocks: &[BlockFields]) -> Vec<Record> {
    let mut blocks = blocks.to_vec();
    if let Some((_, others)) = blocks.split_last_mut() {
        others.iter_mut().for_each(BlockFields::fill);
    }
    blocks.iter().map(BlockFields::record).collect()
}

/// The raw bytes of the blocks.
pub fn filled(blocks: &[&[u8]]) -> Vec<u8> {
    let mut raw = Vec::new();
    for block in blocks {
        raw.resize(raw.len().next_multiple_of(LEAF as usize), 0);
        raw.extend(*block);
    }
    raw
}

/// A block with these dependencies, none of them used by a column.
pub fn unnamed(dependencies: &[[u64; 3]]) -> BlockFields {
    let mut fields = stored(b"xyz");
    fields.dependency_count = dependencies.len() as u64;
    dependencies.iter().flatten().for_each(|&number| varint(&mut fields.dependencies, number));
    fields
}

/// A base.
pub const FIRST: &[u8] = b"the first base";
/// Another base of the same length.
pub const SECOND: &[u8] = b"the second one";
/// The bases of [`delta`].
pub const BASES: [&[u8]; 2] = [FIRST, SECOND];

/// Two blocks: the first depends on both bases, the second also on the first block.
pub fn delta() -> File {
    let first = copy(&[(1, 4, b"first"), (2, 3, b" second one")]);
    let second = copy(&[(0, 0, b"first second"), (1, 0, b"the"), (0, 15, b"e")]);
    let mut file = File::delta(&BASES, records(&[first, second]));
    file.redigest(&BASES, LIMIT);
    file
}

/// The raw bytes of [`delta`].
pub fn delta_raw() -> Vec<u8> {
    filled(&[b"first second one", b"first secondthee"])
}
