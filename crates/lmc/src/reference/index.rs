//! The index (§2.3) and the dtypes that its segments name (§4).

use super::bytes::Bytes;
use super::{must, zstd_frame};

/// The largest table that is unpacked, so that a lie about its length costs no memory.
const LARGEST_TABLE: u64 = 1 << 28;

pub(super) struct Index {
    pub(super) raw_size: u64,
    pub(super) content_hash: [u8; 16],
    /// Record length and raw length of each block.
    pub(super) blocks: Vec<(u64, u64)>,
    pub(super) offset_gap: u64,
}

pub(super) fn parse(head: &[u8]) -> Result<Index, String> {
    let mut head = Bytes::new(head);
    let raw_size = head.u64()?;
    let content_hash = head.array()?;
    let block_count = head.varint()?;
    let table_length = head.varint()?;
    must(table_length <= LARGEST_TABLE, "the table of the index exceeds the limit")?;
    let table = zstd_frame(head.rest(), table_length as usize)?;
    must(window(head.rest(), table_length) <= 1 << 23, "the window of the index's zstd frame exceeds 2^23 bytes")?;
    let mut table = Bytes::new(&table);

    let mut blocks = Vec::new();
    for _ in 0..block_count {
        blocks.push((table.varint()?, table.varint()?));
    }
    let offset_gap = table.varint()?;
    table.string()?;

    let mut covered = 0u128;
    let mut name = String::new();
    let mut last_shape = None;
    for _ in 0..table.varint()? {
        let kind = table.u8()?;
        let dtype = kind & 0x7f;
        if dtype == 0 {
            must(kind == 0, "an opaque segment refers to a shape")?;
            covered += u128::from(table.varint()?);
            continue;
        }
        let shared = table.varint()?;
        must(name.is_char_boundary(shared as usize), "the name of a segment shares what is not there")?;
        name.truncate(shared as usize);
        name.push_str(table.string()?);
        if kind < 0x80 {
            let rank = table.varint()?;
            must(rank <= 64, "the rank of a segment exceeds 64")?;
            last_shape = Some((0..rank).map(|_| table.varint()).collect::<Result<Vec<u64>, String>>()?);
        }
        let shape = last_shape.as_ref().ok_or("the first tensor refers to the shape of one before")?;
        let bits = bits_of_shape(shape, bits_of_dtype(dtype)?).filter(|bits| bits % 8 == 0);
        covered += bits.ok_or("the shape of a segment gives no length")? / 8;
    }
    must(covered == u128::from(raw_size), "the segments do not add up to the raw size")?;
    table.end("something follows the last segment of the index")?;
    Ok(Index { raw_size, content_hash, blocks, offset_gap })
}

/// The window of a valid zstd frame of so many bytes (RFC 8878, 3.1.1.1).
fn window(frame: &[u8], raw_length: u64) -> u64 {
    let single_segment = frame[4] & 0x20 != 0;
    if single_segment {
        return raw_length;
    }
    let (exponent, mantissa) = (u64::from(frame[5] >> 3), u64::from(frame[5] & 7));
    let base = 1 << (10 + exponent);
    base + base / 8 * mantissa
}

/// Product of the dimensions and the bits of an element; `None` when a partial product exceeds 2^64 − 1.
fn bits_of_shape(shape: &[u64], bits: u128) -> Option<u128> {
    let elements = shape.iter().try_fold(1u64, |product, &dimension| product.checked_mul(dimension))?;
    elements.checked_mul(u64::try_from(bits).ok()?).map(u128::from)
}

fn bits_of_dtype(code: u8) -> Result<u128, String> {
    Ok(match code {
        1..=3 => 8,    // BOOL, U8, I8
        4 | 5 => 16,   // U16, I16
        6 | 7 => 32,   // U32, I32
        8 | 9 => 16,   // F16, BF16
        10 => 32,      // F32
        11 | 12 => 64, // U64, I64
        13..=17 => 8,  // F8 of every kind
        18 => 4,       // F4
        19 | 20 => 6,  // F6 of both kinds
        21 | 22 => 64, // F64, C64
        _ => return Err("a segment has an unknown dtype".into()),
    })
}
