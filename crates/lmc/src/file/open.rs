//! Opens a file from its end: trailer, index, offsets of blocks.

use std::ops::Range;

use crate::block::head::BlockHead;
use crate::format::bases::Sources;
use crate::format::digests::{self, RawDigest};
use crate::format::header::{self, Features, ends_early};
use crate::format::index::Index;
use crate::format::record::{self, HEADER_LEN, RecordHeader};
use crate::format::trailer::{self, Trailer};
use crate::settings::limits::DecodeLimits;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, read_at, scratch};

/// A file's index, and the offsets of its blocks.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) size: u64,
    pub(crate) index: Index,
    pub(crate) sources: Sources,
    places: Vec<Place>,
    /// The range of skippable records.
    skippable: Range<u64>,
    /// Digests of raw bytes, if they were read.
    pub(crate) digests: Vec<RawDigest>,
}

/// The place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Offset of the block's record in the compressed file, in bytes.
    pub record_offset: u64,
    /// Length of the record in bytes.
    pub record_len: u64,
    /// Offset of the block's contents in the raw file, in bytes.
    pub raw_offset: u64,
    /// Length of the contents in bytes.
    pub raw_len: u64,
}

/// The start of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    record_offset: u64,
    raw_offset: u64,
}

/// Least bytes of a skippable record.
const MIN_SKIPPABLE: u64 = HEADER_LEN as u64;
const MAX_SKIPPABLE: u64 = record::MAX_SKIPPABLE * record::MAX_SKIPPABLE_RECORD;

pub(crate) fn read(src: &dyn ReadAt, buf: &mut [u8], offset: u64) -> Result<()> {
    read_at(src, "the file", buf, offset)
}

/// A block's record: in memory, or read to `buf`.
pub(crate) fn read_record<'r>(src: &'r dyn ReadAt, b: &BlockInfo, buf: &'r mut Vec<u8>) -> Result<&'r [u8]> {
    let (offset, len) = (b.record_offset, b.record_len as usize);
    match src.slice_at(offset, len) {
        Some(record) => Ok(record),
        None => {
            let record = scratch(buf, len);
            read(src, record, offset).map(|()| &*record)
        }
    }
}

impl Opened {
    /// [`Self::open`] for a caller that decodes the whole file: also checks skippable records, and has the digests.
    pub(crate) fn open_whole(src: &dyn ReadAt, limits: &DecodeLimits) -> Result<Self> {
        let opened = Self::open(src, limits)?;
        let digests = opened.digests(src)?;
        Ok(Self { digests, ..opened })
    }

    /// Checks the skippable records, and returns the digests in one of them.
    pub(crate) fn digests(&self, src: &dyn ReadAt) -> Result<Vec<RawDigest>> {
        self.check_known()?;
        read_skippable(src, self.skippable.clone(), self.sources.bases.len())
    }

    /// Reads header, trailer and index, and checks that they agree with each other. Skippable records are not read.
    ///
    /// Features that nobody knows yet change nothing of these, but perhaps all that is between them.
    pub(crate) fn open(src: &dyn ReadAt, limits: &DecodeLimits) -> Result<Self> {
        let size = src.size().map_err(|e| Error::io("cannot get the size of the file", e))?;
        let mut start = [0; header::LEN];
        let start = &mut start[..size.min(header::LEN as u64) as usize];
        read(src, start, 0)?;
        let header = header::check(start)?;
        let features = header.features;
        if size < (header::LEN + HEADER_LEN + trailer::LEN) as u64 {
            return Err(ends_early(size));
        }
        let mut end = [0; trailer::LEN];
        read(src, &mut end, size - trailer::LEN as u64)?;
        let Trailer { index_offset, index_len } = Trailer::parse(&end, size)?;
        let index = read_index(src, index_offset, index_len, limits).map_err(|e| e.at_offset(index_offset))?;
        index.check_features(features).map_err(|e| e.at_offset(index_offset))?;
        let is_known = index.features.unknown == 0;
        if is_known {
            header.check_hash()?;
        }
        let (mut sources, begin) = match read_bases(src, features, index_offset, limits) {
            Err(_) if !is_known => (Sources::default(), header::LEN as u64),
            read => read?,
        };
        sources.features = index.features;
        let (places, end) = add_up(&index, begin);
        match index_offset.checked_sub(end) {
            Some(0 | MIN_SKIPPABLE..=MAX_SKIPPABLE) => {}
            _ if !is_known => {}
            _ => {
                let e = Error::damaged("the blocks of the index do not add up to its offset; fetch the file again");
                return Err(e.at_offset(index_offset));
            }
        }
        Ok(Self { size, index, sources, places, skippable: end..index_offset, digests: vec![] })
    }

    /// Fails if the blocks need features that this version does not know.
    pub(crate) fn check_known(&self) -> Result<()> {
        self.index.features.check_known(Some(&self.index.writer))
    }

    pub(crate) fn blocks(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn block(&self, i: usize) -> BlockInfo {
        let (p, len) = (self.places[i], self.index.blocks[i]);
        BlockInfo {
            record_offset: p.record_offset,
            record_len: len.record.into(),
            raw_offset: p.raw_offset,
            raw_len: len.raw.into(),
        }
    }

    /// The block that holds a raw byte, which must be in the file.
    pub(crate) fn block_at(&self, raw_offset: u64) -> usize {
        self.places.partition_point(|p| p.raw_offset <= raw_offset) - 1
    }

    /// Adds the place to an error: block, offset, and the first tensor with bytes in the block.
    pub(crate) fn locate(&self, e: Error, block: usize) -> Error {
        let b = self.block(block);
        let segments = self.index.segments.unpack();
        let from = segments.partition_point(|s| s.end() <= b.raw_offset);
        let mut here = segments[from..].iter().take_while(|s| s.offset < b.raw_offset + b.raw_len);
        let e = e.in_block(block as u64).at_offset(b.record_offset);
        match here.find(|s| s.len > 0 && s.name.is_some()).and_then(|s| s.name.as_ref()).filter(|n| !n.is_empty()) {
            Some(name) => e.in_tensor(&**name),
            None => e,
        }
    }
}

/// The header of the record at `at`: its bytes, and what they say.
fn read_header(src: &dyn ReadAt, at: u64) -> Result<([u8; HEADER_LEN], RecordHeader)> {
    let mut bytes = [0; HEADER_LEN];
    read(src, &mut bytes, at)?;
    Ok((bytes, RecordHeader::parse(&bytes)?))
}

/// The head of the record at `at`, whose header was read, and its length checked.
fn read_head(src: &dyn ReadAt, at: u64, bytes: &[u8; HEADER_LEN], header: &RecordHeader) -> Result<Vec<u8>> {
    let mut head = vec![0; header.head_len as usize];
    read(src, &mut head, at + HEADER_LEN as u64)?;
    header.verify(bytes, &head)?;
    Ok(head)
}

/// The sources of ranges, and the offset of the records after them. `end`: offset of the index.
fn read_bases(src: &dyn ReadAt, features: Features, end: u64, limits: &DecodeLimits) -> Result<(Sources, u64)> {
    let at = header::LEN as u64;
    let none = Sources { features, bases: vec![] };
    if !features.ranges || at == end {
        return Ok((none, at));
    }
    let located = |e: Error| e.at_offset(at);
    let (bytes, h) = read_header(src, at).map_err(located)?;
    if h.tag != record::BASES {
        return Ok((none, at));
    }
    if h.len() > end - at {
        return Err(located(Error::damaged("the record of the bases reaches into the index; fetch the file again")));
    }
    Sources::check_head_len(h.head_len, limits).map_err(located)?;
    let head = read_head(src, at, &bytes, &h).map_err(located)?;
    Ok((Sources::parse(features, &head).map_err(located)?, at + h.len()))
}

fn read_index(src: &dyn ReadAt, offset: u64, len: u64, limits: &DecodeLimits) -> Result<Index> {
    let (bytes, h) = read_header(src, offset)?;
    if h.tag != record::INDEX || h.len() != len {
        return Err(Error::damaged("the trailer does not point at an index; fetch the file again"));
    }
    Index::check_head_len(h.head_len, limits)?;
    Index::parse(&read_head(src, offset, &bytes, &h)?, limits)
}

/// The starts of all blocks, and the end of the last one.
fn add_up(index: &Index, begin: u64) -> (Vec<Place>, u64) {
    let mut next = Place { record_offset: begin, raw_offset: 0 };
    let mut places = Vec::with_capacity(index.blocks.len());
    for b in &index.blocks {
        places.push(next);
        next.record_offset += u64::from(b.record);
        next.raw_offset += u64::from(b.raw);
    }
    (places, next.record_offset)
}

/// Checks the records between the last block and the index of a file with so many bases; returns the digests in one of them.
fn read_skippable(src: &dyn ReadAt, Range { mut start, end }: Range<u64>, bases: usize) -> Result<Vec<RawDigest>> {
    let mut found = Vec::new();
    let mut left = record::MAX_SKIPPABLE;
    while start < end {
        let located = |e: Error| e.at_offset(start);
        left = left.checked_sub(1).ok_or_else(|| located(too_many_skippable()))?;
        let (bytes, h) = read_header(src, start).map_err(located)?;
        if !h.is_skippable() || h.len() > end - start {
            let e = "the records between the last block and the index are not skippable; fetch the file again";
            return Err(located(Error::damaged(e)));
        }
        let head = read_head(src, start, &bytes, &h).map_err(located)?;
        digests::collect(&mut found, h.tag, &head, bases).map_err(located)?;
        start += h.len();
    }
    Ok(found)
}

pub(crate) fn too_many_skippable() -> Error {
    Error::damaged(format!("the file has more than {} skippable records", record::MAX_SKIPPABLE))
}

fn check_block_header(h: &RecordHeader, record_len: u64) -> Result<()> {
    if h.tag == record::BLOCK && h.len() == record_len {
        return Ok(());
    }
    Err(Error::damaged("a block's record does not have the lengths that the index gives it; fetch the file again"))
}

/// Splits a block's record into its head, checked, and its body.
pub(crate) fn block_record(record: &[u8]) -> Result<(BlockHead, &[u8])> {
    let (bytes, rest) = record.split_first_chunk::<HEADER_LEN>().expect("a record has a header");
    let h = RecordHeader::parse(bytes)?;
    check_block_header(&h, record.len() as u64)?;
    let (head, body) = rest.split_at(h.head_len as usize);
    h.verify(bytes, head)?;
    Ok((BlockHead::parse(head)?, body))
}

/// Reads and checks the head of a block.
pub(crate) fn read_block_head(src: &dyn ReadAt, sources: &Sources, b: &BlockInfo) -> Result<BlockHead> {
    let (bytes, h) = read_header(src, b.record_offset)?;
    check_block_header(&h, b.record_len)?;
    let head = BlockHead::parse(&read_head(src, b.record_offset, &bytes, &h)?)?;
    if head.raw_len as u64 != b.raw_len {
        return Err(wrong_raw_len());
    }
    sources.check(&head.ranges, head.features(), b.raw_offset)?;
    Ok(head)
}

pub(crate) fn wrong_raw_len() -> Error {
    Error::damaged("a block does not have the raw length that the index gives it; fetch the file again")
}
