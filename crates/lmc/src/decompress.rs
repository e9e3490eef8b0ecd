//! Decompression to slices, streams and files.

use std::io::{Read, Write};

use crate::Summary;
use crate::arch::Isa;
use crate::block::Nothing;
use crate::block::decode::BlockDecoder;
use crate::block::head::BlockHead;
use crate::checksum::{ContentHash, Digest};
use crate::container::open::{self, Opened, block_record, wrong_raw_len};
use crate::container::record::HEADER_LEN;
use crate::container::stream::{Next, Records};
use crate::error::{Error, Result};
use crate::io::{ReadAt, WriteAt};
use crate::options::DecompressOptions;
use crate::pool::Workers;

/// Restores a file in memory.
///
/// A small file can restore to terabytes: set [`DecodeLimits::max_raw_size`](crate::DecodeLimits::max_raw_size) for
/// files of unknown origin.
///
/// # Errors
/// `Damaged` or `Unsupported` for what is not a whole `.lmc` file that this version can read, `Limit` when it is
/// larger than the limits or than memory.
pub fn decompress(file: &[u8], o: &DecompressOptions) -> Result<Vec<u8>> {
    let mut d = Decompressor::new(o)?;
    let opened = Opened::open(&file, &o.limits)?;
    let mut out = zeroed(opened.index.raw_size)?;
    d.decompress_opened(file, &opened, &mut out)?;
    Ok(out)
}

/// Memory for `len` bytes, or an error where there is none. Pages are touched only when they are written.
pub(crate) fn zeroed(len: u64) -> Result<Vec<u8>> {
    let too_much = || Error::limit(format!("there is no memory for {len} bytes; restore to a file instead"));
    let len = usize::try_from(len).map_err(|_| too_much())?;
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| too_much())?;
    Ok(vec![0; len])
}

/// Restores files, one after the other, with one pool of threads and one set of buffers.
///
/// A file is restored only if every block, the index, the trailer and the hash of the whole are what they should be.
/// After an error, whatever was written is of no use.
pub struct Decompressor {
    o: DecompressOptions,
    workers: Workers<BlockDecoder>,
    jobs: Vec<Job>,
}

/// A block under way.
#[derive(Default)]
struct Job {
    block: usize,
    record: Vec<u8>,
    record_offset: u64,
    head: Option<BlockHead>,
    raw: Vec<u8>,
    /// Digests of the block's leaves, once it is decoded.
    done: Option<Result<Vec<Digest>>>,
}

/// A block under way between slices.
#[derive(Default)]
struct SliceJob<'a> {
    block: usize,
    record: &'a [u8],
    out: &'a mut [u8],
    done: Option<Result<Vec<Digest>>>,
}

/// Buffers that a block larger than ours has made larger than this are given back.
const KEEP: usize = 1 << 22;

impl Decompressor {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine, `Io` when it cannot start threads.
    pub fn new(o: &DecompressOptions) -> Result<Self> {
        let isa = o.isa.map_or_else(Isa::detect, Ok)?;
        let workers = Workers::new(o.threads, move || BlockDecoder::new(isa))?;
        Ok(Self { o: *o, workers, jobs: Vec::new() })
    }

    /// Raw size of a file in bytes, from its trailer and index.
    ///
    /// # Errors
    /// Those of [`decompress`], as far as they concern header, index and trailer.
    pub fn raw_size(file: &[u8]) -> Result<u64> {
        Ok(Opened::open(&file, &crate::DecodeLimits::default())?.index.raw_size)
    }

    /// Restores `file` into `out`, which must have exactly its raw size; blocks go straight there, in parallel.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Usage` when `out` has another length.
    pub fn decompress_into(&mut self, file: &[u8], out: &mut [u8]) -> Result<Summary> {
        let opened = Opened::open(&file, &self.o.limits)?;
        self.decompress_opened(file, &opened, out)
    }

    fn decompress_opened(&mut self, file: &[u8], opened: &Opened, out: &mut [u8]) -> Result<Summary> {
        let raw_size = opened.index.raw_size;
        if out.len() as u64 != raw_size {
            return Err(Error::usage(format!(
                "the file restores to {raw_size} bytes, and the output has room for {}",
                out.len()
            )));
        }
        let mut jobs = Vec::new();
        jobs.resize_with(self.workers.in_flight(), SliceJob::default);
        let mut hash = ContentHash::default();
        let (mut next, mut rest) = (0, out);
        self.workers.ordered(
            &mut jobs,
            |job| {
                if next == opened.blocks() {
                    return Ok(None);
                }
                let b = opened.block(next);
                job.block = next;
                job.record = &file[b.record_offset as usize..][..b.record_len as usize];
                job.out = rest.split_off_mut(..b.raw_len as usize).expect("raw lengths add up to the raw size");
                next += 1;
                Ok(Some(0))
            },
            |decoder, job| job.done = Some(decode(decoder, job.record, job.out)),
            |job| {
                let leaves = job.done.take().expect("the worker is done");
                leaves.map_err(|e| opened.locate(e, job.block))?.iter().for_each(|l| hash.push(l));
                Ok(())
            },
        )?;
        finish(opened, &hash)
    }

    /// Restores a stream to a stream, front to back, in bounded memory, with nothing but its blocks; then checks
    /// index and trailer, and that nothing follows. `progress` is called with the number of raw bytes done so far.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Io` when reading or writing fails. Blocks before an error have been written.
    pub fn decompress_stream(
        &mut self,
        src: &mut dyn Read,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let mut records = Records::open(src, self.o.limits)?;
        let mut hash = ContentHash::default();
        let mut raw = 0;
        let mut end = None;
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        self.workers.ordered(
            &mut self.jobs,
            |job| {
                job.block = records.blocks();
                match records.next(&mut job.record)? {
                    Next::Block(head) => {
                        job.record_offset = records.offset() - job.record.len() as u64;
                        let weight = job.record.len() + head.raw_len;
                        job.head = Some(head);
                        Ok(Some(weight))
                    }
                    Next::End(index) => {
                        end = Some(index);
                        Ok(None)
                    }
                }
            },
            |decoder, job| {
                let head = job.head.take().expect("a block was read");
                job.raw.resize(head.raw_len, 0);
                let body = &job.record[job.record.len() - body_len(&job.record)..];
                job.done = Some(decoder.decode(&head, body, &Nothing, &mut job.raw).map(|()| head.leaves));
            },
            |job| {
                let leaves = job.done.take().expect("the worker is done");
                let leaves = leaves.map_err(|e| e.in_block(job.block as u64).at_offset(job.record_offset))?;
                leaves.iter().for_each(|l| hash.push(l));
                dst.write_all(&job.raw).map_err(cannot_write)?;
                raw += job.raw.len() as u64;
                job.trim();
                progress(raw);
                Ok(())
            },
        )?;
        let index = end.expect("the pipeline ends with the index");
        check_hash(&hash, &index.content_hash)?;
        dst.flush().map_err(cannot_write)?;
        Ok(Summary {
            raw_size: raw,
            compressed_size: records.offset(),
            content_hash: index.content_hash,
            blocks: records.blocks() as u64,
        })
    }

    /// Restores a file that is read at any offset to one that is written at any offset, by all threads at once, in
    /// bounded memory. `progress` is called with the number of raw bytes done so far.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Io` when reading or writing fails.
    pub fn decompress_to(
        &mut self,
        src: &dyn ReadAt,
        dst: &dyn WriteAt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let opened = Opened::open(src, &self.o.limits)?;
        let mut hash = ContentHash::default();
        let mut next = 0;
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        self.workers.ordered(
            &mut self.jobs,
            |job| {
                if next == opened.blocks() {
                    return Ok(None);
                }
                job.block = next;
                next += 1;
                let b = opened.block(job.block);
                Ok(Some((b.record_len + b.raw_len) as usize))
            },
            |decoder, job| {
                let b = opened.block(job.block);
                job.record.resize(b.record_len as usize, 0);
                job.raw.resize(b.raw_len as usize, 0);
                let done = open::read(src, &mut job.record, b.record_offset)
                    .and_then(|()| decode(decoder, &job.record, &mut job.raw))
                    .map_err(|e| opened.locate(e, job.block));
                job.done = Some(done.and_then(|leaves| {
                    dst.write_all_at(&job.raw, b.raw_offset).map_err(cannot_write)?;
                    Ok(leaves)
                }));
            },
            |job| {
                job.done.take().expect("the worker is done")?.iter().for_each(|l| hash.push(l));
                job.trim();
                let b = opened.block(job.block);
                progress(b.raw_offset + b.raw_len);
                Ok(())
            },
        )?;
        finish(&opened, &hash)
    }
}

impl Job {
    fn trim(&mut self) {
        for buf in [&mut self.record, &mut self.raw] {
            if buf.capacity() > KEEP {
                *buf = Vec::new();
            }
        }
    }
}

/// Decodes a block's record to `out`, which has the raw length that the index gives; the digests of its leaves.
pub(crate) fn decode(decoder: &mut BlockDecoder, record: &[u8], out: &mut [u8]) -> Result<Vec<Digest>> {
    let (head, body) = block_record(record)?;
    if head.raw_len != out.len() {
        return Err(wrong_raw_len());
    }
    decoder.decode(&head, body, &Nothing, out)?;
    Ok(head.leaves)
}

/// Length of the body of a block's record that is known to be well-formed.
fn body_len(record: &[u8]) -> usize {
    let head_len = u32::from_le_bytes(record[4..8].try_into().expect("4 bytes")) as usize;
    record.len() - HEADER_LEN - head_len
}

fn finish(opened: &Opened, hash: &ContentHash) -> Result<Summary> {
    check_hash(hash, &opened.index.content_hash)?;
    Ok(Summary {
        raw_size: opened.index.raw_size,
        compressed_size: opened.size,
        content_hash: opened.index.content_hash,
        blocks: opened.blocks() as u64,
    })
}

fn check_hash(hash: &ContentHash, want: &Digest) -> Result<()> {
    if hash.finish() == *want {
        Ok(())
    } else {
        Err(Error::damaged("the blocks are not those of this file: its content hash does not match; fetch it again"))
    }
}

fn cannot_write(e: std::io::Error) -> Error {
    Error::io("cannot write the output", e)
}
