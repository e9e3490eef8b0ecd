//! The index: the lengths of the blocks, and the segments (`docs/format.md` §2.3).

use super::checksum::{Digest, LEAF};
use super::header::Features;
use super::limits::{MAX_BLOCKS, MAX_RAW, MAX_TABLE};
use super::names;
use super::record::{self, HEADER_LEN, RecordHeader};
use super::segments::{self, Budget, Packed};
use lmc_kernels::varint::{Cursor, put, put_string};

use crate::format::frames::{FrameDecoder, FrameEncoder};
use crate::settings::limits::DecodeLimits;
use lmc_layout::error::{Error, Result};
use lmc_layout::segment::Segment;

/// Bytes before the table: raw size, content hash, features, two varints of one byte at least.
const MIN_HEAD: usize = 8 + 16 + 4 + 2;

/// The lengths of one block in bytes: its record in the file, and raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLen {
    pub(crate) record: u32,
    pub(crate) raw: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) raw_size: u64,
    pub(crate) content_hash: Digest,
    /// The features that blocks need.
    pub(crate) features: Features,
    pub(crate) blocks: Vec<BlockLen>,
    pub(crate) layout: String,
    /// The program that made the file.
    pub(crate) writer: String,
    pub(crate) segments: Packed,
}

impl Index {
    /// The index record. The lengths of the `n` blocks are already `2 × n` varints; `segments` are within the limits.
    pub(crate) fn encode(
        raw_size: u64,
        content_hash: &Digest,
        features: Features,
        (n, lengths): (u64, &[u8]),
        [layout, writer]: [&str; 2],
        segments: &[Segment],
        frames: &mut FrameEncoder,
    ) -> Result<Vec<u8>> {
        if n > MAX_BLOCKS {
            return Err(Error::limit(format!("the file has {n} blocks; it can have at most {MAX_BLOCKS}")));
        }
        let mut table = lengths.to_vec();
        put_string(&mut table, &names::of_label(layout));
        put_string(&mut table, &names::of_label(writer));
        segments::encode(segments, &mut table);
        let mut out = vec![0; HEADER_LEN];
        if table.len() as u64 > MAX_TABLE {
            let len = table.len();
            return Err(Error::limit(format!(
                "the index of {n} blocks takes {len} bytes; it can have at most {MAX_TABLE}"
            )));
        }
        out.extend_from_slice(&raw_size.to_le_bytes());
        out.extend_from_slice(content_hash);
        out.extend_from_slice(&features.bits().to_le_bytes());
        put(&mut out, n);
        put(&mut out, table.len() as u64);
        out.extend_from_slice(frames.encode_near(&table)?);
        if out.len() - HEADER_LEN > record::MAX_INDEX_HEAD as usize {
            return Err(Error::limit(format!(
                "the index of {n} blocks takes {} bytes; it can have at most {}",
                out.len() - HEADER_LEN,
                record::MAX_INDEX_HEAD
            )));
        }
        let header = RecordHeader::encode(record::INDEX, &out[HEADER_LEN..], 0);
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }

    /// Bytes of memory that an opened file takes for one block: its lengths here, and its offsets.
    pub(crate) const BLOCK_COST: usize = size_of::<BlockLen>() + 16;

    /// Refuses an index whose head exceeds the limits, before it is read.
    pub(crate) fn check_head_len(len: u32, limits: &DecodeLimits) -> Result<()> {
        let max = limits.max_index_size;
        if len as usize <= max {
            return Ok(());
        }
        Err(Error::limit(format!("the index has {len} bytes, more than the memory limit of {max}")))
    }

    /// Checks that the header has the features of the index.
    pub(crate) fn check_features(&self, header: Features) -> Result<()> {
        let (exact, header) = (self.features, header);
        if exact | header == header {
            return Ok(());
        }
        Err(Error::damaged(format!(
            "the exact features of the index are {:#x}, those of the header {:#x}; fetch the file again",
            exact.bits(),
            header.bits()
        )))
    }

    /// Checks that blocks need the features of the index, and no more.
    pub(crate) fn check_exact(&self, needed: Features) -> Result<()> {
        if self.features == needed {
            return Ok(());
        }
        Err(Error::damaged(format!(
            "the exact features of the index are {:#x}, but the blocks need {:#x}; fetch the file again",
            self.features.bits(),
            needed.bits()
        )))
    }

    /// Parses an index record's head, and checks it as far as the rest of the file is not needed.
    pub(crate) fn parse(head: &[u8], limits: &DecodeLimits) -> Result<Self> {
        if head.len() < MIN_HEAD {
            return Err(Error::damaged(format!("the index has {} bytes; it needs at least {MIN_HEAD}", head.len())));
        }
        let mut c = Cursor::new(head);
        let raw_size = u64::from_le_bytes(c.array()?);
        let content_hash = c.array()?;
        let features = Features::of_bits(u32::from_le_bytes(c.array()?))?;
        let n_blocks = c.varint()?;
        let table_len = c.varint()?;
        if raw_size > limits.max_raw_size {
            let max = limits.max_raw_size;
            return Err(Error::limit(format!("the file restores to {raw_size} bytes, more than the limit of {max}")));
        }
        let mut budget = Budget { left: limits.max_index_size, max: limits.max_index_size };
        budget.take(head.len() as u64)?;
        budget.take(table_len)?;
        if table_len > MAX_TABLE {
            return Err(Error::damaged(format!(
                "the table of the index has {table_len} bytes; it can have at most {MAX_TABLE}"
            )));
        }
        let table = unpack(c.bytes(c.remaining())?, table_len as usize)?;
        budget.take(n_blocks.saturating_mul(Self::BLOCK_COST as u64))?;
        let mut c = Cursor::new(&table);
        // A block takes two bytes of the table at least: it bounds the allocation.
        if n_blocks > MAX_BLOCKS.min(table.len() as u64 / 2) {
            return Err(Error::damaged(format!(
                "the index has {n_blocks} blocks in a table of {} bytes; it can have at most {MAX_BLOCKS}",
                table.len()
            )));
        }
        let mut blocks = Vec::with_capacity(n_blocks as usize);
        let mut sum = 0u64;
        for _ in 0..n_blocks {
            let record =
                c.size(record::MAX_BLOCK_RECORD as usize, "the length of a block's record in the index")? as u32;
            let raw = c.size(MAX_RAW, "a block's raw length in the index")? as u32;
            if (record as usize) < HEADER_LEN || raw == 0 {
                return Err(Error::damaged(format!(
                    "a block in the index has a record of {record} bytes and {raw} raw bytes"
                )));
            }
            whole_leaves_before(sum)?;
            sum += u64::from(raw);
            blocks.push(BlockLen { record, raw });
        }
        if sum != raw_size {
            return Err(Error::damaged(format!("the blocks of the index have {sum} raw bytes, the file {raw_size}")));
        }
        let layout = names::label(&mut c, "the name of the layout")?;
        let writer = names::label(&mut c, "the name of the writer")?;
        let start = table.len() - c.remaining();
        let segments = Packed::check(table, start, raw_size, &mut budget)?;
        Ok(Self { raw_size, content_hash, features, blocks, layout, writer, segments })
    }
}

/// Checks that all blocks before `start` consist of whole leaves.
pub(crate) fn whole_leaves_before(start: u64) -> Result<()> {
    if start.is_multiple_of(LEAF as u64) {
        return Ok(());
    }
    Err(Error::damaged(format!("a block starts at raw byte {start}, which is no multiple of {LEAF}")))
}

/// Most bytes that zstd makes of one, as log2: a block of 2^17 equal bytes takes four.
const MOST_LOG: u32 = 15;

/// Unpacks the table, one zstd frame of exactly `len` raw bytes. It takes no memory for bytes that the frame cannot have.
fn unpack(frame: &[u8], len: usize) -> Result<Vec<u8>> {
    if len >> MOST_LOG <= frame.len() {
        let mut table = vec![0; len];
        if FrameDecoder::default().decode(frame, &mut table)? {
            return Ok(table);
        }
    }
    Err(Error::damaged(format!("the table of the index is not one zstd frame of {len} bytes; fetch the file again")))
}
