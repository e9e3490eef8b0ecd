//! The bytes of chunks, and what their segments are called where others are predicted from them.

use lmc::Segment;

use super::all_tensors::unit_of;
use super::bases::rename;
use super::input::Input;
use super::plan::Job;
use crate::chunks::cut::{Chunk, Range};
use crate::error::{Error, Result};
use crate::format::ids::Hash;
use crate::objects::buffer::Buffer;

/// The segments of the first chunk of a group. Each part that a segment of another chunk is rounded from gets the name
/// of that segment. Several parts may be of one tensor.
pub(super) fn like(lead: &Chunk, job: &Job<'_>) -> Result<Vec<Segment>> {
    let end = |offset: u64, own: &Segment| {
        let of = &lead.segments[lead.segments.partition_point(|s| s.end() <= offset)];
        let (bits, elements) = unit_of(own);
        offset + own.len * 8 / bits * elements * unit_of(of).0 / 8
    };
    let rounded = job.rounded.iter().map(|(&offset, &own)| (offset, end(offset, &job.chunk.segments[own])));
    let mut rounded: Vec<(u64, u64)> = rounded.collect();
    rounded.sort_unstable();
    let mut rounded = rounded.into_iter().peekable();
    let mut segments = Vec::with_capacity(lead.segments.len());
    for s in &lead.segments {
        let mut cuts = vec![s.offset];
        while let Some((start, end)) = rounded.next_if(|r| r.1 <= s.end()) {
            cuts.extend([start, end]);
        }
        cuts.push(s.end());
        cuts.dedup();
        match cuts.len() {
            2 => {
                let n = s.shape[0];
                let row = job.row.filter(|row| lead.of.is_some() && *row > 0 && n.is_multiple_of(*row));
                let shape = row.map_or_else(|| s.shape.clone(), |row| [n / row, row].into());
                segments.push(Segment::new(s.name.clone(), s.dtype, shape, s.offset, s.len).map_err(Error::codec)?);
            }
            _ => {
                for cut in cuts.windows(2) {
                    let len = cut[1] - cut[0];
                    let shape = [len * 8 / s.dtype.map_or(8, |d| u64::from(d.bits()))].into();
                    segments.push(Segment::new(s.name.clone(), s.dtype, shape, cut[0], len).map_err(Error::codec)?);
                }
            }
        }
    }
    rename(&segments, &job.chunk.segments, |s| Some(&job.chunk.segments[*job.rounded.get(&s.offset)?]))
}

/// The bytes of a chunk: borrowed if they are contiguous in memory, otherwise read into `buf`; and their hash if they were read.
pub(super) fn read<'b>(job: &Job<'b>, buf: &'b mut Buffer) -> Result<(&'b [u8], Option<Hash>)> {
    let (raw, hash) = read_ranges(job.input, &job.chunk, buf)?;
    for (Range { offset, len }, hash) in &job.repeated {
        // Another file would be restored with bytes that it never had.
        if Hash::of(&raw[*offset as usize..][..*len as usize]) != *hash {
            return Err(Error::io(
                "changed while it was read",
                std::io::Error::other("save it again when nothing writes to it"),
            ));
        }
    }
    Ok((raw, hash))
}

fn read_ranges<'b>(input: &Input<'b>, chunk: &Chunk, buf: &'b mut Buffer) -> Result<(&'b [u8], Option<Hash>)> {
    if let [r] = chunk.ranges[..]
        && let Some(raw) = input.source.slice_at(r.offset, r.len as usize)
    {
        return Ok((raw, None));
    }
    let mut rest = buf.reset(usize::try_from(chunk.len()).expect("chunks are small"));
    let mut hasher = blake3::Hasher::new();
    for r in &chunk.ranges {
        let range = rest.split_off_mut(..r.len as usize).expect("ranges add up to the chunk");
        for (i, part) in range.chunks_mut(READ_AT_ONCE).enumerate() {
            input.read_exact_at(part, r.offset + (i * READ_AT_ONCE) as u64)?;
            hasher.update(part);
        }
    }
    Ok((buf, Some(Hash::finish(&hasher))))
}

/// Bytes that are hashed right after they were read, while they are in the second-level cache.
const READ_AT_ONCE: usize = 1 << 18;
