//! Encodes every block of a file given bases and without them, for comparisons.

use crate::Summary;
use crate::api::compress::Compressor;
use crate::block::Extent;
use crate::block::encode::{BlockEncoder, RawBlock};
use crate::block::output::Output;
use crate::file::origin::Raw;
use crate::file::session::EncodeSession;
use crate::refs::base::Base;
use lmc_layout::Layout;
use lmc_layout::error::Result;
use lmc_layout::io::{ReadAt, read_at};

/// A block of a file, encoded in both ways.
pub struct EncodedBoth<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its raw bytes.
    pub raw: &'a [u8],
    /// The same, and the bytes behind it that belong to an element which the block's end cuts.
    pub with_rest: &'a [u8],
    /// Its record given the bases; empty if the block was only read.
    pub record: &'a [u8],
    /// The records that the same raw bytes have without bases, one after the other: where little changed, blocks of
    /// deltas are larger. Empty if that was not requested.
    pub alone: &'a [u8],
}

/// A block under way.
#[derive(Default)]
struct Job<J> {
    offset: u64,
    len: usize,
    /// Whether it is encoded.
    wanted: bool,
    /// Given the bases.
    extents: Vec<Extent>,
    /// The blocks of the same bytes without bases, each with its length.
    alone: Vec<(usize, Vec<Extent>)>,
    raw: Vec<u8>,
    record: Vec<u8>,
    alone_records: Vec<u8>,
    own: J,
}

/// Bytes of the widest element.
const MAX_ELEMENT: u64 = 8;

/// Bases for [`encode_both`]: they may be decoded as much as one call allows, and are not hashed, since no size depends
/// on their hashes.
pub fn for_call<'a>(compressor: &Compressor, bases: &[Base<'a>]) -> Vec<Base<'a>> {
    compressor.for_call(bases).into_iter().map(|b| b.with_hash([0; 16])).collect()
}

/// The blocks that [`encode_both`] encodes.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The first of so many blocks.
    pub every: u64,
    /// Whether the others are read and passed on.
    pub others: bool,
}

/// Encodes the blocks of `size` bytes given `bases`, which come from [`for_call`], and if `alone` without them too.
/// Returns the summaries that compression in both ways would return: those of the blocks that are encoded.
///
/// A worker passes each block to `work`, with reusable memory of its own. Then `take` gets that memory, block by block
/// in order, with the number of raw bytes so far.
///
/// # Errors
/// Those of `work` and `take`, and of [`Compressor::compress`].
pub fn encode_both<J: Default + Send>(
    compressor: &Compressor,
    (source, size, layout): (&dyn ReadAt, u64, Layout),
    bases: &[Base<'_>],
    (alone, sample): (bool, Sample),
    work: impl Fn(&EncodedBoth<'_>, &mut J) -> Result<()> + Sync,
    mut take: impl FnMut(&mut J, u64),
) -> Result<(Summary, Option<Summary>)> {
    let own = Raw::measured(source);
    let EncodeSession { mut cutter, layout: covered, mut writer, origin, .. } =
        compressor.begin(layout.clone(), Some(&own), bases)?;
    let alone = alone.then(|| compressor.begin(layout, Some(&own), &[])).transpose()?;
    let (mut plain, mut plain_writer, plain_origin) = match alone {
        Some(s) => (Some(s.cutter.uniform()), Some(s.writer), Some(s.origin)),
        None => (None, None, None),
    };
    let encode = |encoder: &mut BlockEncoder, job: &mut Job<J>| {
        if !job.wanted && !sample.others {
            return Ok((None, vec![]));
        }
        let rest = (size - job.offset - job.len as u64).min(MAX_ELEMENT - 1) as usize;
        job.raw.resize(job.len + rest, 0);
        read_at(source, "the input", &mut job.raw, job.offset)?;
        let raw = &job.raw[..job.len];
        let mut out = Output::new(&mut job.alone_records);
        let mut alone = Vec::with_capacity(job.alone.len());
        if let Some(origin) = &plain_origin {
            let mut rest = raw;
            for (len, extents) in &job.alone {
                let block = rest.split_off(..*len).expect("they add up to the block");
                alone.push(encoder.encode(&RawBlock::new(block, extents), origin, &mut out)?);
            }
        }
        out.finish();
        let mut out = Output::new(&mut job.record);
        let encode = || encoder.encode(&RawBlock::new(raw, &job.extents), &origin, &mut out);
        let delta = job.wanted.then(encode).transpose()?;
        out.finish();
        let (record, alone_records) = (&job.record[..], &job.alone_records[..]);
        let block = EncodedBoth { offset: job.offset, raw, with_rest: &job.raw, record, alone: alone_records };
        work(&block, &mut job.own)?;
        Ok((delta, alone))
    };
    let mut jobs = Vec::new();
    jobs.resize_with(compressor.workers().in_flight(), Job::default);
    let (mut next, mut number) = (0, 0);
    compressor.workers().ordered(
        &mut jobs,
        |job| {
            if next == size {
                return Ok(None);
            }
            (job.offset, job.wanted) = (next, number % sample.every == 0);
            number += 1;
            job.len = cutter.next_block(source, size - next, &mut job.extents)?;
            let end = next + job.len as u64;
            job.alone.clear();
            while let Some(plain) = plain.as_mut().filter(|_| next < end) {
                let mut extents = Vec::new();
                // Blocks of repeating data end at any leaf.
                let len = plain.next_block_within(source, size - next, end - next, &mut extents)?;
                job.alone.push((len, extents));
                next += len as u64;
            }
            next = end;
            Ok(Some(4 * job.len))
        },
        encode,
        |job, done| {
            let (delta, alone) = done?;
            delta.iter().for_each(|b| writer.block(b));
            plain_writer.iter_mut().for_each(|writer| alone.iter().for_each(|b| writer.block(b)));
            take(&mut job.own, job.offset + job.len as u64);
            Ok(())
        },
    )?;
    compressor.workers().with(|encoder| {
        let delta = writer.finish(&covered, encoder.frames())?.1;
        let alone = plain_writer.map(|writer| writer.finish(&covered, encoder.frames())).transpose()?;
        Ok((delta, alone.map(|(_, summary)| summary)))
    })
}
