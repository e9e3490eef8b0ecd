//! Files built by hand, block by block, for tests of bases, of ranges, and of columns that name them.

use crate::decoders::{LIMIT, agree_with_bases};
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Operand, Predicted, Range, Stream, ZEROS};
use crate::reference::write::{File, Record, varint, zstd_frame};

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

/// [`judged`], of a file of one block.
///
/// # Errors
/// What the reference says, when all refuse the block.
#[track_caller]
pub fn judged_block(fields: &BlockFields) -> Result<Vec<u8>, String> {
    judged(File::new(vec![fields.record()]), &[])
}

/// The fields of a block, to be changed.
///
/// # Panics
/// When it cannot be coded as it is described.
pub fn encoded(block: &Block) -> BlockFields {
    block.encode().expect("the block can be coded")
}

/// Ranges: source, offset and bytes.
fn ranges(ranges: &[(u64, u64, &[u8])]) -> Vec<Range> {
    ranges.iter().map(|&(source, offset, bytes)| Range { source, offset, bytes: bytes.to_vec() }).collect()
}

/// A column of differences to the bytes of these ranges: source, offset and bytes. All of them are 0.
pub fn copy(of: &[(u64, u64, &[u8])]) -> BlockFields {
    let column = Predicted {
        raw: of.iter().flat_map(|(.., bytes)| bytes.to_vec()).collect(),
        width_code: 0,
        operand: Operand::of(ranges(of)),
        row_terms: None,
        boundaries: vec![],
        streams: vec![Stream::of(0, Cluster { z: 8, ..Cluster::default() })],
    };
    encoded(&Block::of(Column::Predicted(column), 0))
}

/// Bytes as they are.
pub fn stored(bytes: &[u8]) -> BlockFields {
    encoded(&Block::of(Column::Stored(bytes.to_vec()), 0))
}

/// A block of zeros without body.
pub fn zeros(length: usize) -> BlockFields {
    let mut fields = stored(&vec![0; length]);
    fields.bulk.clear();
    fields.columns = vec![ZEROS.to_vec()];
    fields
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

/// A block that names these ranges (source, offset and length), and has as many zeros, which are right if the ranges have zeros. Of ranges
/// that are longer than a block can be it has fewer.
pub fn naming(ranges: &[[u64; 3]]) -> BlockFields {
    naming_in_columns(&[ranges])
}

/// [`naming`] with ranges for each of several columns.
pub fn naming_in_columns(of: &[&[[u64; 3]]]) -> BlockFields {
    let length = |ranges: &[[u64; 3]]| ranges.iter().map(|range| range[2]).sum::<u64>().clamp(1, 1 << 21) as usize;
    let columns: Vec<_> = of.iter().map(|ranges| Column::Stored(vec![0; length(ranges)])).collect();
    let extents = (0..).zip(&columns).map(|(column, of)| (column, of.raw().len() as u64)).collect();
    let mut fields = encoded(&Block { lane_sets: 0, columns, extents, states_repeats: false, final_state: 1 << 16 });
    fields.bulk.iter_mut().for_each(Vec::clear);
    for (column, ranges) in fields.columns.iter_mut().zip(of) {
        // Method, width code, not converted; then the ranges, no boundaries, and residuals that are all 0.
        *column = vec![3, 0, 0];
        varint(column, ranges.len() as u64);
        ranges.iter().flatten().for_each(|&number| varint(column, number));
        column.push(0);
        varint(column, length(ranges) as u64);
        column.extend([0, 0, 1, 0, 0, 8, 0, 0, 0]);
        let needs = ranges.iter().fold(0, |needs, range| needs | if range[0] == 0 { 3 } else { 1 });
        fields.has_body_check |= needs != 0;
        fields.needs |= needs;
    }
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

/// A frame that states its length and has this window, which may be larger.
///
/// # Panics
/// When the window is below 2^10 bytes.
pub fn frame_with_window(bytes: &[u8], window_log: u32) -> Vec<u8> {
    let frame = zstd_frame(bytes);
    let (size_flag, is_single) = (frame[4] >> 6, frame[4] >> 5 & 1 == 1);
    let size_length = [usize::from(is_single), 2, 4, 8][usize::from(size_flag)];
    let blocks = &frame[5 + usize::from(!is_single) + size_length..];
    // A length of four bytes, no single segment, no checksum.
    let header = [0x80, ((window_log - 10) << 3) as u8];
    [&frame[..4], &header, &(bytes.len() as u32).to_le_bytes(), blocks].concat()
}

/// A block of a frame (RFC 8878, section 3.1.1.2).
#[derive(Clone, Debug)]
pub enum FrameBlock {
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// One byte so many times.
    Rle(u8, usize),
    /// Compressed: literals, which are one byte so many times, and no sequences.
    Literals(u8, usize),
    /// Compressed: one sequence, a match of the bytes that are so far back (1 to 4), and so long (65,539 to 131,074).
    Match(u32, u32),
}

/// A frame of a single segment that states so many bytes, with these blocks.
pub fn frame_of_blocks(length: usize, blocks: &[FrameBlock]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend((length as u32).to_le_bytes());
    for (i, block) in blocks.iter().enumerate() {
        let (kind, size, content) = match *block {
            FrameBlock::Raw(ref bytes) => (0, bytes.len(), bytes.clone()),
            FrameBlock::Rle(byte, count) => (1, count, vec![byte]),
            FrameBlock::Literals(byte, count) => {
                let header = (1 | 3 << 2 | (count as u32) << 4).to_le_bytes();
                (2, 5, [&header[..3], &[byte, 0]].concat())
            }
            FrameBlock::Match(back, length) => {
                // No literals; one sequence, each of whose codes has a table of one symbol: no literals, an offset and
                // a match length with 2 and 16 more bits, which are read from the end.
                let bits = (length - 65_539) | (back - 1) << 16 | 1 << 18;
                (2, 9, [&[0, 1, 0x54, 0, 2, 52], &bits.to_le_bytes()[..3]].concat())
            }
        };
        let header = u32::from(i + 1 == blocks.len()) | kind << 1 | (size as u32) << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(content);
    }
    frame
}
