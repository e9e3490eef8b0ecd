//! Kernels in plain Rust: correct everywhere, the measure of all others, and what those use for their last chunks.

use super::job::{DecodeJob, EncodeJob, set_of};
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::table::{DecodeTable, EncodeKind, EncodeTable};
use crate::entropy::{CHUNK, CHUNK_WORDS, LANES, refill_order};
use crate::error::{Error, Result};
use crate::group::RUN;
use crate::group::element::{Element, with_element};
use crate::group::split::{merge_run, split_run};

/// A table's columns side by side, so that a symbol costs one load.
pub(super) type PackedTable = [u32; 128];

pub(super) fn pack(t: &DecodeTable) -> PackedTable {
    std::array::from_fn(|i| u32::from(t.symbol[i]) | u32::from(t.freq[i]) << 8 | u32::from(t.offset[i]) << 16)
}

/// Decodes one chunk. Checks every read; the words and literals may run on into the rest of the body, which
/// [`LaneReader::finish`] notices.
#[inline(always)]
pub(super) fn decode_chunk(
    packed: &PackedTable,
    table: &DecodeTable,
    lane: &mut LaneReader<'_>,
    literals: &mut LiteralReader<'_>,
    out: &mut [u8; CHUNK],
) -> Result<()> {
    let step = |x: u32| {
        let e = packed[(x & 127) as usize];
        (e as u8, (e >> 8 & 255) * (x >> 7) + (e >> 16))
    };
    let rest = &lane.bytes[(2 * lane.pos).min(lane.bytes.len())..];
    let mut taken = 0usize;
    if let Some(words) = rest.first_chunk::<{ 2 * CHUNK_WORDS }>() {
        let words = words.as_chunks::<2>().0;
        for i in 0..LANES {
            let j = refill_order(i);
            let (s1, x) = step(lane.x[j]);
            let (s2, x) = step(x);
            (out[j], out[LANES + j]) = (s1, s2);
            // Without a branch: whether a lane is due is as good as random. `taken` is at most `i`.
            let refilled = x << 16 | u32::from(u16::from_le_bytes(words[taken & (CHUNK_WORDS - 1)]));
            let due = x < 1 << 16;
            lane.x[j] = if due { refilled } else { x };
            taken += usize::from(due);
        }
    } else {
        for i in 0..LANES {
            let j = refill_order(i);
            let (s1, x) = step(lane.x[j]);
            let (s2, mut x) = step(x);
            (out[j], out[LANES + j]) = (s1, s2);
            if x < 1 << 16 {
                let w = rest.get(2 * taken..2 * taken + 2).ok_or_else(|| Error::damaged("a block's words run out"))?;
                x = x << 16 | u32::from(u16::from_le_bytes([w[0], w[1]]));
                taken += 1;
            }
            lane.x[j] = x;
        }
    }
    lane.pos += taken;
    let mark = table.escape_mark;
    if out.contains(&mark) {
        for s in out.iter_mut().filter(|s| **s == mark) {
            *s = *literals.bytes.get(literals.pos).ok_or_else(|| Error::damaged("a block's literals run out"))?;
            literals.pos += 1;
        }
    }
    Ok(())
}

/// Encodes one chunk, which must be the one before the last that was encoded.
#[inline(always)]
pub(super) fn encode_chunk(
    table: &EncodeTable,
    lane: &mut LaneWriter,
    literals: &mut LiteralWriter,
    symbols: &[u8; CHUNK],
) {
    for &s in symbols.iter().rev() {
        if !table.kept[usize::from(s)] {
            literals.pos -= 1;
            literals.bytes[literals.pos] = s;
        }
    }
    let mut pos = lane.pos;
    let words = &mut lane.words[pos - CHUNK_WORDS..pos];
    let mut free = CHUNK_WORDS;
    match &table.kind {
        EncodeKind::Huffman { len, code } => {
            for i in (0..LANES).rev() {
                let j = refill_order(i);
                let (s1, s2) = (usize::from(symbols[j]), usize::from(symbols[LANES + j]));
                let l = len[s1] + len[s2];
                let code = u32::from(code[s1]) | u32::from(code[s2]) << len[s1];
                let x = lane.x[j];
                let due = x >> (32 - l) != 0;
                words[(free - 1) & (CHUNK_WORDS - 1)] = x as u16;
                free -= usize::from(due);
                lane.x[j] = (if due { x >> 16 } else { x }) << l | code;
            }
        }
        EncodeKind::Rans { freq, start } => {
            for i in (0..LANES).rev() {
                let j = refill_order(i);
                let (s1, s2) = (usize::from(symbols[j]), usize::from(symbols[LANES + j]));
                let (f1, f2) = (u32::from(freq[s1]), u32::from(freq[s2]));
                let x = lane.x[j];
                let due = x >= (f1 * f2) << 18;
                words[(free - 1) & (CHUNK_WORDS - 1)] = x as u16;
                free -= usize::from(due);
                let x = if due { x >> 16 } else { x };
                let x = (x / f2) * 128 + x % f2 + u32::from(start[s2]);
                lane.x[j] = (x / f1) * 128 + x % f1 + u32::from(start[s1]);
            }
        }
    }
    pos -= CHUNK_WORDS - free;
    // Words went to the window's end, in falling order.
    lane.pos = pos;
}

pub(super) fn decode_group(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    with_element!(job.width, E => decode_group_of::<E>(job))
}

#[inline(always)]
pub(super) fn decode_group_of<E: Element>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    let packed = job.table.map(pack);
    let raw_len = job.shape.raw_len(RUN);
    let sets = job.lanes.len();
    let mut symbols = [0; RUN];
    for (i, &run) in job.runs.iter().enumerate() {
        if let (Some(table), Some(packed)) = (job.table, &packed) {
            decode_chunk(packed, table, &mut job.lanes[set_of(i, sets)], job.literals, &mut symbols)?;
        }
        let out = &mut job.out[run as usize * RUN * E::BYTES..][..RUN * E::BYTES];
        merge_run::<E>(&job.shape, &symbols, &job.raw[i * raw_len..][..raw_len], out);
    }
    Ok(())
}

pub(super) fn encode_group(job: &mut EncodeJob<'_>) {
    with_element!(job.width, E => encode_group_of::<E>(job))
}

#[inline(always)]
pub(super) fn encode_group_of<E: Element>(job: &mut EncodeJob<'_>) {
    let raw_len = job.shape.raw_len(RUN);
    let sets = job.lanes.len();
    let mut symbols = [0; RUN];
    for (i, &run) in job.runs.iter().enumerate().rev() {
        let elements = &job.elements[run as usize * RUN * E::BYTES..][..RUN * E::BYTES];
        split_run::<E>(&job.shape, elements, &mut symbols, &mut job.raw[i * raw_len..][..raw_len]);
        if let Some(table) = job.table {
            encode_chunk(table, &mut job.lanes[set_of(i, sets)], job.literals, &symbols);
        }
    }
}
