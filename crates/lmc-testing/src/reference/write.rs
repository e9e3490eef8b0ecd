//! A writer of arbitrary files, for tests: every field of the format can be given any value, right or wrong, and the
//! checks are computed over the result.
//!
//! [`Block::encode`](block::Block::encode) builds valid blocks from a description. The types of this module are the
//! file as its fields: change one and write it out.

pub mod block;
pub mod derived;
pub mod entropy;
pub mod grid;
pub mod numbers;
pub mod predicted;
mod range;
pub mod stream;
pub mod terms;

use super::block::Head;
use super::bytes::Bytes;
use super::digests::{content_hash, digest};
use super::ranges::Sources;
use super::{END_MAGIC, HASH, MAGIC, VERSION};
use std::cell::RefCell;
use xxhash_rust::xxh3::xxh3_64;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

/// A file, field by field.
#[derive(Clone, Debug)]
pub struct File {
    pub magic: [u8; 8],
    pub version: u16,
    pub hash: u8,
    pub reserved: u8,
    pub features: u32,
    /// Bases, blocks and skippable records, without the index.
    pub records: Vec<Record>,
    pub index: Index,
    /// Tag, head and body of the index record; made from `index` when `None`.
    pub index_record: Option<Record>,
    /// Added to the offset of the index in the trailer.
    pub offset_error: u64,
    /// Added to the length of the index in the trailer.
    pub length_error: u64,
    pub end_magic: [u8; 8],
    pub after: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub tag: [u8; 4],
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    /// Digests of the leaves of a block (§2.5), as far as they are known, for the content hash.
    pub leaves: Vec<[u8; 16]>,
    /// The bits of the features that a block needs, as far as they are known, for the exact features.
    pub needs: u32,
}

/// The head of a bases record, field by field (§2.6).
#[derive(Clone, Debug)]
pub struct Bases {
    pub count: u64,
    pub bases: Vec<NamedBase>,
    /// Bytes after the last base.
    pub after: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct NamedBase {
    pub content_hash: [u8; 16],
    pub raw_length: u64,
    pub name: Vec<u8>,
}

/// The index, field by field (§2.3).
#[derive(Clone, Debug)]
pub struct Index {
    pub raw_size: u64,
    pub content_hash: [u8; 16],
    pub exact_features: u32,
    pub block_count: u64,
    /// Record length and raw length of each block.
    pub blocks: Vec<(u64, u64)>,
    pub layout: Vec<u8>,
    pub writer: Vec<u8>,
    pub segment_count: u64,
    pub segments: Vec<Segment>,
    /// Bytes after the last segment.
    pub after: Vec<u8>,
    /// Added to the length of the table.
    pub table_length_error: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub dtype: u8,
    /// Name and bits of a dtype without a code, which is 127.
    pub named: Option<(Vec<u8>, u64)>,
    /// Of an opaque segment; a tensor's follows from its shape.
    pub length: u64,
    /// Bytes of the prefix shared with the name of the tensor before.
    pub shared: u64,
    pub name: Vec<u8>,
    /// Whether the shape is that of the tensor before, not `shape`.
    pub same_shape: bool,
    pub shape: Vec<u64>,
}

impl Segment {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.dtype | u8::from(self.same_shape) << 7);
        if self.dtype == 0 {
            varint(out, self.length);
            return;
        }
        if let Some((name, bits)) = &self.named {
            string(out, name);
            varint(out, *bits);
        }
        varint(out, self.shared);
        string(out, &self.name);
        if !self.same_shape {
            varint(out, self.shape.len() as u64);
            self.shape.iter().for_each(|&dimension| varint(out, dimension));
        }
    }
}

/// The check of records and trailers (§2.2).
pub fn check64(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// One zstd frame of these bytes.
pub fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    // Kept, because making one costs more than all the rest of a small file.
    thread_local!(static ZSTD: RefCell<CCtx<'static>> = RefCell::new(CCtx::create()));
    ZSTD.with_borrow_mut(|zstd| {
        let mut frame = Vec::with_capacity(compress_bound(bytes.len()));
        let log = bytes.len().next_power_of_two().trailing_zeros().clamp(10, 28);
        zstd.set_parameter(CParameter::WindowLog(log)).expect("zstd takes windows of 256 MiB");
        zstd.compress2(&mut frame, bytes).expect("zstd compresses anything");
        frame
    })
}

impl File {
    /// A file of these records, with the features and an index that fit them, and one opaque segment.
    pub fn new(records: Vec<Record>) -> Self {
        let index = Index::of(&records);
        Self {
            magic: MAGIC,
            version: VERSION,
            hash: HASH,
            reserved: 0,
            features: index.exact_features,
            records,
            index,
            index_record: None,
            offset_error: 0,
            length_error: 0,
            end_magic: END_MAGIC,
            after: Vec::new(),
        }
    }

    /// A file whose blocks may name ranges of bases and of the file itself: bits 0 and 1 of the features are set besides
    /// those that the blocks are known to need.
    /// The bases are named only if there are any.
    pub fn delta(bases: &[&[u8]], mut blocks: Vec<Record>) -> Self {
        if !bases.is_empty() {
            blocks.insert(0, Bases::of(bases).record());
        }
        let file = Self::new(blocks);
        Self { features: 3 | file.features, ..file }
    }

    /// Parses a valid file. Its index becomes the one that [`File::new`] makes, with the content hash and the exact features
    /// of the file's.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut rest = Bytes::new(file);
        rest.take(12)?;
        let features = rest.u32()?;
        let mut records = Vec::new();
        loop {
            let record = super::record(&mut rest)?;
            if record.tag == *b"INDX" {
                let mut file = Self { features, ..Self::new(records) };
                let mut index = Bytes::new(record.head);
                index.take(8)?;
                (file.index.content_hash, file.index.exact_features) = (index.array()?, index.u32()?);
                return Ok(file);
            }
            records.push(Record::new(record.tag, record.head.to_vec(), record.body.to_vec()));
        }
    }

    /// Sets digests and checks of all blocks, as [`Record::redigest`] does, up to the first that cannot be decoded; then makes the index as [`File::new`] does.
    pub fn redigest(&mut self, bases: &[&[u8]], limit: usize) {
        let mut sources = Sources::new(self.features, bases.to_vec());
        for record in self.records.iter_mut().filter(|record| record.tag == *b"BLCK") {
            if !record.redigest_after(&mut sources, limit) {
                break;
            }
        }
        self.index = Index::of(&self.records);
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend([self.hash, self.reserved]);
        out.extend(self.features.to_le_bytes());
        for record in &self.records {
            record.write(&mut out);
        }
        let index_offset = out.len() as u64;
        match &self.index_record {
            Some(record) => record.write(&mut out),
            None => self.index.record().write(&mut out),
        }
        let index_length = out.len() as u64 - index_offset;
        let mut trailer = index_offset.wrapping_add(self.offset_error).to_le_bytes().to_vec();
        trailer.extend(index_length.wrapping_add(self.length_error).to_le_bytes());
        let check = check64(&trailer);
        out.extend(trailer);
        out.extend(check.to_le_bytes());
        out.extend(self.end_magic);
        out.extend(&self.after);
        out
    }
}

impl Record {
    pub fn new(tag: [u8; 4], head: Vec<u8>, body: Vec<u8>) -> Self {
        Self { tag, head, body, leaves: Vec::new(), needs: 0 }
    }

    pub fn block(head: Vec<u8>, body: Vec<u8>) -> Self {
        Self::new(*b"BLCK", head, body)
    }

    /// Bytes that the record takes in a file.
    pub fn size(&self) -> u64 {
        (24 + self.head.len() + self.body.len()) as u64
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(self.tag);
        out.extend((self.head.len() as u32).to_le_bytes());
        out.extend((self.body.len() as u64).to_le_bytes());
        let check = check64(&[&out[start..], &self.head[..]].concat());
        out.extend(check.to_le_bytes());
        out.extend(&self.head);
        out.extend(&self.body);
    }

    /// The raw length that the head of a block states, if it can be read.
    pub fn raw_length(&self) -> Option<u64> {
        Bytes::new(&self.head).varint().ok()
    }

    /// Sets the digest of a changed block without ranges to that of its decoded bytes, if it can be decoded, perhaps with
    /// faults.
    pub fn redigest(&mut self, limit: usize) {
        self.redigest_after(&mut Sources::new(0, Vec::new()), limit);
    }

    /// [`Self::redigest`] for the block after those in `sources`, to which it is added; whether it could be decoded. The
    /// check of the body is set even if only the head can be read.
    fn redigest_after(&mut self, sources: &mut Sources<'_>, limit: usize) -> bool {
        let Ok(head) = Head::parse(&self.head, sources, limit) else { return false };
        self.needs = head.needs;
        let mut digest_end = self.head.len();
        if head.body_check.is_some() {
            digest_end -= 8;
            self.head[digest_end..].copy_from_slice(&check64(&self.body).to_le_bytes());
        }
        let Ok(block) = head.decode(&self.body) else { return false };
        self.head[digest_end - 16..digest_end].copy_from_slice(&digest(&block.leaves.concat()));
        let (depth, cost) = (head.depth, head.cost);
        sources.add(block.raw, depth, cost);
        self.leaves = block.leaves;
        true
    }
}

impl Bases {
    /// Bases of these raw bytes, without names.
    pub fn of(bases: &[&[u8]]) -> Self {
        let named =
            |raw: &&[u8]| NamedBase { content_hash: content_hash(raw), raw_length: raw.len() as u64, name: Vec::new() };
        Self { count: bases.len() as u64, bases: bases.iter().map(named).collect(), after: Vec::new() }
    }

    pub fn record(&self) -> Record {
        let mut head = Vec::new();
        varint(&mut head, self.count);
        for base in &self.bases {
            head.extend(base.content_hash);
            varint(&mut head, base.raw_length);
            string(&mut head, &base.name);
        }
        head.extend(&self.after);
        Record::new(*b"BASE", head, Vec::new())
    }
}

impl Index {
    fn of(records: &[Record]) -> Self {
        let blocks: Vec<_> = records.iter().filter(|record| record.tag == *b"BLCK").collect();
        let lengths: Vec<(u64, u64)> =
            blocks.iter().map(|block| (block.size(), block.raw_length().unwrap_or(0))).collect();
        let raw_size = lengths.iter().fold(0u64, |sum, &(_, raw)| sum.wrapping_add(raw));
        let leaves: Vec<[u8; 16]> = blocks.iter().flat_map(|block| block.leaves.clone()).collect();
        Self {
            raw_size,
            content_hash: digest(&leaves.concat()),
            exact_features: blocks.iter().fold(0, |features, block| features | block.needs),
            block_count: lengths.len() as u64,
            blocks: lengths,
            layout: b"raw".to_vec(),
            writer: b"the reference writer".to_vec(),
            segment_count: u64::from(raw_size > 0),
            segments: if raw_size > 0 { vec![Segment { length: raw_size, ..Segment::default() }] } else { vec![] },
            after: Vec::new(),
            table_length_error: 0,
        }
    }

    pub fn table(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for &(record, raw) in &self.blocks {
            varint(&mut out, record);
            varint(&mut out, raw);
        }
        string(&mut out, &self.layout);
        string(&mut out, &self.writer);
        varint(&mut out, self.segment_count);
        for segment in &self.segments {
            segment.write(&mut out);
        }
        out.extend(&self.after);
        out
    }

    pub fn record(&self) -> Record {
        let table = self.table();
        let frame = zstd_frame(&table);
        self.record_of_frame(table.len() as u64, &frame)
    }

    /// The record with another table: `frame`, with `length` as its raw length.
    pub fn record_of_frame(&self, length: u64, frame: &[u8]) -> Record {
        let mut head = self.raw_size.to_le_bytes().to_vec();
        head.extend(self.content_hash);
        head.extend(self.exact_features.to_le_bytes());
        varint(&mut head, self.block_count);
        varint(&mut head, length.wrapping_add(self.table_length_error));
        head.extend(frame);
        Record::new(*b"INDX", head, Vec::new())
    }
}

/// Recomputes the checks of a file, as far as its records can be parsed: those of records and of the trailer, and if
/// `digests` also the content hash, the exact features, and digests and checks of the blocks, as far as these can be decoded
/// without bases.
pub fn seal(file: &mut [u8], digests: bool, limit: usize) {
    let features = file.get(12..16).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let mut sources = Sources::new(features, Vec::new());
    let (mut all_digests, mut needs) = (Vec::new(), 0);
    let mut start = 16;
    while let Some(prefix) = file.get(start..start + 24) {
        let head_length = u32::from_le_bytes(prefix[4..8].try_into().expect("four bytes")) as usize;
        let body_length = u64::from_le_bytes(prefix[8..16].try_into().expect("eight bytes"));
        let left = file.len() - start - 24;
        if head_length > left || body_length > (left - head_length) as u64 {
            return;
        }
        let (head, body) = (start + 24, start + 24 + head_length);
        let end = body + body_length as usize;
        let tag: [u8; 4] = file[start..start + 4].try_into().expect("four bytes");
        if digests && tag == *b"BLCK" {
            let mut record = Record::block(file[head..body].to_vec(), file[body..end].to_vec());
            record.redigest_after(&mut sources, limit);
            file[head..body].copy_from_slice(&record.head);
            all_digests.extend(record.leaves.concat());
            needs |= record.needs;
        }
        if digests && tag == *b"INDX" && head_length >= 28 {
            file[head + 8..head + 24].copy_from_slice(&digest(&all_digests));
            file[head + 24..head + 28].copy_from_slice(&u32::to_le_bytes(needs));
        }
        let check = check64(&[&file[start..start + 16], &file[head..body]].concat());
        file[start + 16..head].copy_from_slice(&check.to_le_bytes());
        start = end;
        if tag == *b"INDX" {
            if let Some(trailer) = file.get_mut(start..start + 24) {
                let check = check64(&trailer[..16]);
                trailer[16..].copy_from_slice(&check.to_le_bytes());
            }
            return;
        }
    }
}
