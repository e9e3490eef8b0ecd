//! Kernels in plain Rust: the reference of all others, which use them for their last chunks.

use super::job::{DecodeJob, EncodeJob};
use crate::cluster::RUN;
use crate::cluster::element::{Element, with_element};
use crate::cluster::split::{merge_run_by_table, split_run};
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::rans::{COARSE, COARSE_BITS, FINE, FINE_BITS};
use crate::entropy::table::{DecodeTable, EncodeKind, EncodeTable, Slots};
use crate::entropy::{CHUNK, LANES, REFILL_WORDS, SETS, refill_order};
use crate::inline::zip;
use lmc_layout::error::{Error, Result};

/// Decodes one chunk. Checks every read; the words and literals may run on into the rest of the body, which
/// [`LaneReader::finish`] notices. `found` is overwritten; callers keep it, so that it is not cleared for every chunk.
#[inline(always)]
pub(super) fn decode_chunk(
    table: &DecodeTable,
    lane: &mut LaneReader<'_>,
    literals: &mut LiteralReader<'_>,
    found: &mut [u32; LANES],
    out: &mut [u8; CHUNK],
) -> Result<()> {
    match &table.slots {
        Slots::Coarse(slots) => step::<COARSE_BITS, 2, COARSE>(slots, lane, found, out)?,
        Slots::Fine(slots) => {
            for half in out.as_chunks_mut::<LANES>().0 {
                step::<FINE_BITS, 1, FINE>(slots, lane, found, half)?;
            }
        }
    }
    if let Some(mark) = table.escape_mark {
        // A vector's worth at once: escapes are rare.
        for extent in out.as_chunks_mut::<16>().0 {
            if !extent.iter().fold(false, |any, s| any | (*s == mark)) {
                continue;
            }
            for s in extent.iter_mut().filter(|s| **s == mark) {
                *s = *literals.bytes.get(literals.pos).ok_or_else(|| Error::damaged("a block's literals run out"))?;
                literals.pos += 1;
            }
        }
    }
    Ok(())
}

/// Decodes `N` symbols on every lane, to `out[lane]`, `out[64 + lane]`, …, then refills.
///
/// Look-ups are scalar; the rest is arithmetic on arrays, which compilers vectorise. `found` is room for the entries.
#[inline(always)]
fn step<const BITS: u32, const N: usize, const SLOTS: usize>(
    slots: &[u32; SLOTS],
    lane: &mut LaneReader<'_>,
    found: &mut [u32; LANES],
    out: &mut [u8],
) -> Result<()> {
    let out: &mut [[u8; LANES]; N] = out.as_chunks_mut().0.try_into().expect("room for the symbols");
    for out in out {
        zip(found, &lane.x, |e, &x| *e = slots[x as usize & (SLOTS - 1)]);
        zip(out, found, |out, &e| *out = e as u8);
        zip(&mut lane.x, found, |x, &e| *x = (e >> 8 & 0xfff) * (*x >> BITS) + (e >> 20));
    }
    refill(lane)
}

/// Refills each lane that is due for a word.
#[inline(always)]
fn refill(lane: &mut LaneReader<'_>) -> Result<()> {
    let rest = &lane.bytes[(2 * lane.pos).min(lane.bytes.len())..];
    let mut taken = 0usize;
    if let Some(words) = rest.first_chunk::<{ 2 * REFILL_WORDS }>() {
        let words: &[[u8; 2]; REFILL_WORDS] = words.as_chunks().0.try_into().expect("the words of a refill");
        // The refill order: lanes 0, 4, …, 60, then 1, 5, …
        for first in 0..4 {
            for j in (first..LANES).step_by(4) {
                let x = lane.x[j];
                // Without a branch: whether a lane is due is unpredictable. `taken` is at most the number of lanes before, so that the
                // check of the index is a branch that is never taken.
                let refilled = x << 16 | u32::from(u16::from_le_bytes(words[taken]));
                let due = x < 1 << 16;
                lane.x[j] = if due { refilled } else { x };
                taken += usize::from(due);
            }
        }
    } else {
        for i in 0..LANES {
            let j = refill_order(i);
            if lane.x[j] < 1 << 16 {
                let w = rest.get(2 * taken..2 * taken + 2).ok_or_else(|| Error::damaged("a block's words run out"))?;
                lane.x[j] = lane.x[j] << 16 | u32::from(u16::from_le_bytes([w[0], w[1]]));
                taken += 1;
            }
        }
    }
    lane.pos += taken;
    Ok(())
}

/// Encodes one chunk: the predecessor of the one encoded last.
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
    let pair = |j: usize| (usize::from(symbols[j]), usize::from(symbols[LANES + j]));
    match &table.kind {
        EncodeKind::Huffman(codes) => emit(lane, |j, x| {
            let (s1, s2) = pair(j);
            let l = codes.len[s1] + codes.len[s2];
            let code = u32::from(codes.code[s1]) | u32::from(codes.code[s2]) << codes.len[s1];
            let due = x >> (32 - l) != 0;
            (due, (if due { x >> 16 } else { x }) << l | code)
        }),
        EncodeKind::Coarse(rows) => emit(lane, |j, x| {
            let (s1, s2) = pair(j);
            let (first, second) = (rows[s1], rows[s2]);
            let due = x >= (first.freq() * second.freq()) << (32 - 2 * COARSE_BITS);
            let x = if due { x >> 16 } else { x };
            (due, first.push::<COARSE_BITS>(second.push::<COARSE_BITS>(x)))
        }),
        EncodeKind::Fine(rows) => {
            for half in symbols.as_chunks::<LANES>().0.iter().rev() {
                emit(lane, |j, x| {
                    let row = rows[usize::from(half[j])];
                    let due = x >= row.freq() << (32 - FINE_BITS);
                    (due, row.push::<FINE_BITS>(if due { x >> 16 } else { x }))
                });
            }
        }
    }
}

/// Encodes on every lane: `push` returns for a lane and its state whether a word is emitted first, and the new state.
#[inline(always)]
fn emit(lane: &mut LaneWriter, push: impl Fn(usize, u32) -> (bool, u32)) {
    // Words go to the window's end, in falling order.
    let words: &mut [u16; REFILL_WORDS] =
        lane.words[..lane.pos].last_chunk_mut().expect("room was checked with the job");
    let mut free = REFILL_WORDS;
    for i in (0..LANES).rev() {
        let j = refill_order(i);
        let x = lane.x[j];
        let (due, next) = push(j, x);
        words[(free - 1) & (REFILL_WORDS - 1)] = x as u16;
        free -= usize::from(due);
        lane.x[j] = next;
    }
    lane.pos -= REFILL_WORDS - free;
}

pub(super) fn decode_cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    with_element!(job.width, E => decode_cluster_of::<E>(job))
}

#[inline(always)]
pub(super) fn decode_cluster_of<E: Element>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    let shape = job.shape;
    let merge = |symbols: &_, raw: &_, out: &mut _| merge_run_by_table::<E>(&shape, symbols, raw, out);
    match job.table {
        Some(table) => decode_rest(job, table, 0, merge),
        None => {
            decode_raw(job, merge);
            Ok(())
        }
    }
}

/// Decodes the chunks from `first` on with checked reads: those after the last one that a kernel can read at full width. `merge` merges a
/// run's symbols and raw bits.
#[inline(always)]
pub(super) fn decode_rest(
    job: &mut DecodeJob<'_, '_>,
    table: &DecodeTable,
    first: usize,
    merge: impl Fn(&[u8; RUN], &[u8], &mut [u8]),
) -> Result<()> {
    let runs = job.runs.len();
    if first == runs {
        return Ok(());
    }
    let (mut symbols, mut found) = ([0; RUN], [0; LANES]);
    for i in first..runs {
        decode_chunk(table, &mut job.lanes[i % SETS], job.literals, &mut found, &mut symbols)?;
        let (raw, out) = job.run(i);
        merge(&symbols, raw, out);
    }
    Ok(())
}

/// Writes the elements of a cluster without symbols.
#[inline(always)]
pub(super) fn decode_raw(job: &mut DecodeJob<'_, '_>, merge: impl Fn(&[u8; RUN], &[u8], &mut [u8])) {
    for i in 0..job.runs.len() {
        let (raw, out) = job.run(i);
        merge(&[0; RUN], raw, out);
    }
}

pub(super) fn encode_cluster(job: &mut EncodeJob<'_>) {
    with_element!(job.width, E => encode_cluster_of::<E>(job))
}

#[inline(always)]
pub(super) fn encode_cluster_of<E: Element>(job: &mut EncodeJob<'_>) {
    let raw_len = job.shape.raw_len(RUN);
    let mut symbols = [0; RUN];
    for (i, &run) in job.runs.iter().enumerate().rev() {
        let elements = &job.elements[run as usize * RUN * E::BYTES..][..RUN * E::BYTES];
        split_run::<E>(&job.shape, elements, &mut symbols, &mut job.raw[i * raw_len..][..raw_len]);
        if let Some(table) = job.table {
            encode_chunk(table, &mut job.lanes[i % SETS], job.literals, &symbols);
        }
    }
}
