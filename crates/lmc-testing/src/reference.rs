//! A second decoder, written from `docs/format.md` alone: slow, obvious, and sharing no code with the fast one. It is
//! the oracle of the tests and of fuzzing.
//!
//! It checks every *must* of the format. A violation that leaves no way to go on is an error at once; one that does not
//! (a wrong pad symbol, say) is noted as a *fault*, and decoding continues. [`decode`] refuses a file with any fault,
//! while [`Record::redigest`](write::Record::redigest) sets the digest of a block to that of the decoded bytes all the
//! same: a decoder without a check must not be saved by a digest that fails as well.

mod block;
mod bytes;
mod conversion;
mod derived;
pub mod describe;
mod digests;
mod dtypes;
mod entropy;
mod faults;
mod float32;
mod frames;
mod grid;
mod index;
mod llama;
mod numbers;
mod optimizer;
mod predicted;
mod ranges;
mod stream;
mod tensors;
mod terms;
#[allow(missing_docs, reason = "fields have the names and meanings of `docs/format.md`")]
pub mod write;

use bytes::Bytes;
pub use digests::content_hash;
use digests::{LEAF, digest};
use faults::must;
use ranges::Sources;
use xxhash_rust::xxh3::xxh3_64;

/// The version of the format (§2.1).
const VERSION: u16 = 1;

/// XXH3-128, the only hash (§2.1).
pub const HASH: u8 = 1;

const MAGIC: [u8; 8] = *b"\x89LMC\r\n\x1a\n";
const END_MAGIC: [u8; 8] = *b"LMCend\r\n";

/// Decodes a whole file without bases, of at most `limit` raw bytes.
///
/// # Errors
/// The first condition of the format that the file breaks, in words.
pub fn decode(file: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    decode_with_bases(file, &[], limit)
}

/// Decodes a whole file of at most `limit` raw bytes with the bases that it names, in their order.
///
/// # Errors
/// The first condition of the format that the file breaks, in words; also when the bases are not those that it names.
pub fn decode_with_bases(file: &[u8], bases: &[&[u8]], limit: usize) -> Result<Vec<u8>, String> {
    let mut rest = Bytes::new(file);

    must(rest.take(8)? == MAGIC, "the magic of the header is wrong")?;
    must(rest.u16()? == VERSION, "the version is another one")?;
    must(rest.u8()? == HASH, "the file has an unknown hash")?;
    must(rest.u8()? == 0, "the reserved field of the header is not 0")?;
    let features = rest.u32()?;
    must(features <= 31, "the file needs a feature that does not exist")?;
    must(features & 3 != 2, "bit 1 of the features needs bit 0")?;

    let mut bases_named = 0;
    let mut sources = Sources::new(features, Vec::new());
    let mut block_lengths = Vec::new();
    let mut needs = 0;
    let mut skippable_records = 0;
    let mut digests = None;
    let (index, index_offset, index_length) = loop {
        let offset = rest.position();
        let record = record(&mut rest)?;
        let length = rest.position() - offset;
        match &record.tag {
            b"BASE" => {
                must(offset == 16, "the bases do not follow the header directly")?;
                must(features & 1 != 0, "bases need bit 0 of the features")?;
                must(record.head.len() <= 1 << 24, "the head of the bases exceeds 2^24 bytes")?;
                must(record.body.is_empty(), "the bases have a body")?;
                let named = ranges::parse_bases(record.head)?;
                must(named.len() == bases.len(), "the file names another number of bases")?;
                for (named, base) in named.iter().zip(bases) {
                    must(named.raw_length == base.len() as u64, "a base does not have its length")?;
                    must(named.content_hash == content_hash(base), "a base does not have its content hash")?;
                }
                bases_named = named.len();
                sources = Sources::new(features, bases.to_vec());
            }
            b"BLCK" => {
                must(skippable_records == 0, "a block follows a skippable record")?;
                must(record.head.len() <= 1 << 24, "the head of a block exceeds 2^24 bytes")?;
                must(record.body.len() <= 1 << 25, "the body of a block exceeds 2^25 bytes")?;
                let whole = sources.raw().len().is_multiple_of(LEAF);
                must(whole, "a block that is not the last one is no multiple of 2^18 bytes")?;
                let head = block::Head::parse(record.head, &sources, limit)?;
                let block = head.decode(record.body)?;
                if let Some(fault) = block.fault {
                    return Err(fault);
                }
                must(digest(&block.leaves.concat()) == head.digest, "a block does not have its digest")?;
                block_lengths.push((length, block.raw.len() as u64));
                needs |= head.needs;
                let (depth, cost) = (head.depth, head.cost);
                sources.add(block.raw, depth, cost);
            }
            b"INDX" => {
                must(record.head.len() <= 1 << 28, "the head of the index exceeds 2^28 bytes")?;
                must(record.body.is_empty(), "the index has a body")?;
                break (record.head, offset, length);
            }
            [b'a'..=b'z', others @ ..] => {
                must(others.iter().all(|byte| (0x21..0x7f).contains(byte)), "a record has an impossible tag")?;
                must(length <= 1 << 24, "a skippable record exceeds 2^24 bytes")?;
                must(record.body.is_empty(), "a skippable record has a body")?;
                skippable_records += 1;
                must(skippable_records <= 64, "there are more than 64 skippable records")?;
                if record.tag == *b"dIGS" {
                    must(digests.is_none(), "there are two records of digests")?;
                    digests = Some(record.head);
                }
            }
            _ => return Err("a record has an unknown tag".into()),
        }
    };

    must(bases_named == bases.len(), "the file names no bases")?;

    let index = index::parse(index)?;
    let raw = sources.into_raw();
    must(index.raw_size == raw.len() as u64, "the raw size in the index is wrong")?;
    must(index.content_hash == content_hash(&raw), "the content hash is wrong")?;
    if let Some(head) = digests {
        digests::compare(head, &raw, bases)?;
    }
    must(index.exact_features & !features == 0, "an exact feature is not among those of the header")?;
    must(index.exact_features == needs, "the exact features are not those that the blocks need")?;
    must(index.blocks == block_lengths, "the index disagrees with the blocks")?;

    let checked = rest.peek(16)?;
    must(rest.u64()? == index_offset, "the trailer has the wrong offset of the index")?;
    must(rest.u64()? == index_length, "the trailer has the wrong length of the index")?;
    must(rest.u64()? == xxh3_64(checked), "the check of the trailer is wrong")?;
    must(rest.take(8)? == END_MAGIC, "the magic of the trailer is wrong")?;
    rest.end("something follows the trailer")?;
    Ok(raw)
}

struct Record<'a> {
    tag: [u8; 4],
    head: &'a [u8],
    body: &'a [u8],
}

fn record<'a>(rest: &mut Bytes<'a>) -> Result<Record<'a>, String> {
    let prefix = rest.peek(16)?;
    let tag = rest.array()?;
    let head_length = u64::from(rest.u32()?);
    let body_length = rest.u64()?;
    let check = rest.u64()?;
    let head = rest.take(head_length)?;
    let body = rest.take(body_length)?;
    must(check == xxh3_64(&[prefix, head].concat()), "the check of a record is wrong")?;
    Ok(Record { tag, head, body })
}
