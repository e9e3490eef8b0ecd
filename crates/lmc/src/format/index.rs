//! The index: what the blocks say about themselves, once more, and the segments (`docs/format.md` §2.3).

use std::io::Read;

use super::checksum::{Digest, LEAF};
use super::limits::MAX_RAW;
use super::record::{self, HEADER_LEN, RecordHeader};
use super::segments::{self, Budget, Packed};
use super::varint::{Cursor, put, put_string, string};

use crate::error::{Error, Result};
use crate::frames;
use crate::options::DecodeLimits;
use crate::segment::Segment;

/// log2 of the largest window that a table may ask of its decoder.
const WINDOW_LOG_MAX: u32 = 23;
/// Bytes before the table: raw size, content hash, two varints of one byte at least.
const MIN_HEAD: usize = 8 + 16 + 2;

/// The lengths of one block: of its record in the file, and raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLen {
    pub(crate) record: u32,
    pub(crate) raw: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) raw_size: u64,
    pub(crate) content_hash: Digest,
    pub(crate) blocks: Vec<BlockLen>,
    pub(crate) layout: String,
    pub(crate) segments: Packed,
}

impl Index {
    /// The index record. `blocks` is put as it is known to the writer: already as `2 × n` varints.
    pub(crate) fn encode(
        raw_size: u64,
        content_hash: &Digest,
        (n, lengths): (u64, Vec<u8>),
        layout: &str,
        segments: &[Segment],
    ) -> Result<Vec<u8>> {
        let mut table = lengths;
        put_string(&mut table, layout);
        segments::encode(segments, &mut table);
        let mut out = vec![0; HEADER_LEN];
        out.extend_from_slice(&raw_size.to_le_bytes());
        out.extend_from_slice(content_hash);
        put(&mut out, n);
        put(&mut out, table.len() as u64);
        let mut frame = Vec::new();
        frames::encode(&mut frames::near()?, &table, &mut frame)?;
        out.extend_from_slice(&frame);
        if out.len() - HEADER_LEN > record::MAX_INDEX_HEAD as usize {
            return Err(Error::limit("the file has so many blocks that its index would be too large"));
        }
        let header = RecordHeader::encode(record::INDEX, &out[HEADER_LEN..], 0);
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }

    /// Memory that an opened file takes for one block: its lengths here, and where it starts.
    pub(crate) const BLOCK_COST: usize = size_of::<BlockLen>() + 16;

    /// Refuses an index before it is read if it cannot be within the limits.
    pub(crate) fn check_head_len(len: u32, limits: &DecodeLimits) -> Result<()> {
        let max = limits.max_index_size;
        if len as usize <= max {
            return Ok(());
        }
        Err(Error::limit(format!("the index takes more memory than the limit of {max} bytes")))
    }

    /// Parses an index record's head, and checks all that can be checked without the rest of the file.
    pub(crate) fn parse(head: &[u8], limits: &DecodeLimits) -> Result<Self> {
        if head.len() < MIN_HEAD {
            return Err(Error::damaged("the index is too short"));
        }
        let mut c = Cursor::new(head);
        let raw_size = u64::from_le_bytes(c.array()?);
        let content_hash = c.array()?;
        let n_blocks = c.varint()?;
        let table_len = c.varint()?;
        if raw_size > limits.max_raw_size {
            let max = limits.max_raw_size;
            return Err(Error::limit(format!("the file restores to {raw_size} bytes, more than the limit of {max}")));
        }
        let mut budget = Budget { left: limits.max_index_size, max: limits.max_index_size };
        budget.take(head.len() as u64)?;
        budget.take(table_len)?;
        let table = unpack(c.bytes(c.remaining())?, table_len as usize)?;
        budget.take(n_blocks.saturating_mul(Self::BLOCK_COST as u64))?;
        let mut c = Cursor::new(&table);
        // A block takes two bytes of the table at least: it bounds the allocation.
        if n_blocks > table.len() as u64 / 2 {
            return Err(Error::damaged("the index is too short for its number of blocks"));
        }
        let mut blocks = Vec::with_capacity(n_blocks as usize);
        let mut sum = 0u64;
        for _ in 0..n_blocks {
            let record = c.size(record::MAX_BLOCK_RECORD as usize, "a block's length in the index")? as u32;
            let raw = c.size(MAX_RAW, "a block's raw length in the index")? as u32;
            if (record as usize) < HEADER_LEN || raw == 0 {
                return Err(Error::damaged("a block's length in the index is out of range"));
            }
            whole_leaves_before(sum)?;
            sum += u64::from(raw);
            blocks.push(BlockLen { record, raw });
        }
        if sum != raw_size {
            return Err(Error::damaged("the blocks of the index do not add up to the file's raw size"));
        }
        let layout = string(&mut c)?.to_owned();
        let start = table.len() - c.remaining();
        let segments = Packed::check(table, start, raw_size, &mut budget)?;
        Ok(Self { raw_size, content_hash, blocks, layout, segments })
    }
}

/// Checks where a block starts: all blocks before it are whole leaves.
pub(crate) fn whole_leaves_before(start: u64) -> Result<()> {
    if start.is_multiple_of(LEAF as u64) {
        return Ok(());
    }
    Err(Error::damaged(format!("a block starts at raw byte {start}, which is no multiple of {LEAF}")))
}

/// Unpacks the table, which must be one zstd frame of exactly `len` bytes. Memory grows with what really comes out.
fn unpack(frame: &[u8], len: usize) -> Result<Vec<u8>> {
    let bad = |_| Error::damaged("the index cannot be unpacked");
    let mut d = zstd::stream::read::Decoder::with_buffer(frame).map_err(bad)?.single_frame();
    d.window_log_max(WINDOW_LOG_MAX).map_err(bad)?;
    let mut table = Vec::new();
    d.by_ref().take((len as u64).saturating_add(1)).read_to_end(&mut table).map_err(bad)?;
    if table.len() != len {
        return Err(Error::damaged("the index does not have the length that it claims"));
    }
    // The end of the frame is seen by reading on: nothing more may come out, and nothing may be left.
    if d.read(&mut [0]).map_err(bad)? != 0 || !d.finish().is_empty() {
        return Err(Error::damaged("the index has bytes left over"));
    }
    Ok(table)
}
