//! Kernels in plain Rust: correct everywhere, the measure of all others, and what those use for their last chunks.

use super::inline::{array, zip};
use super::job::{DecodeJob, EncodeJob, set_of};
use crate::entropy::fine::{self, FineDecodeTable};
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::table::{CoarseKind, CoarseTable, DecodeTable, EncodeKind, EncodeTable};
use crate::entropy::{CHUNK, LANES, REFILL_WORDS, SLOTS, refill_order};
use crate::error::{Error, Result};
use crate::group::RUN;
use crate::group::element::{Element, with_element};
use crate::group::split::{merge_run, split_run};

/// A table's columns side by side, so that a symbol costs one load: symbol in bits 0 … 7, frequency in bits 8 … 19,
/// offset above.
#[expect(clippy::large_enum_variant, reason = "one for each group, on the stack")]
pub(super) enum PackedTable<'a> {
    Coarse([u32; SLOTS], u8),
    Fine(&'a FineDecodeTable),
}

pub(super) fn pack(t: &DecodeTable) -> PackedTable<'_> {
    match t {
        DecodeTable::Coarse(t) => pack_coarse(t),
        DecodeTable::Fine(t) => PackedTable::Fine(t),
    }
}

pub(super) fn pack_coarse(t: &CoarseTable) -> PackedTable<'static> {
    let slot = |i| u32::from(t.symbol[i]) | u32::from(t.freq[i]) << 8 | u32::from(t.offset[i]) << 20;
    PackedTable::Coarse(array(slot), t.escape_mark)
}

/// Decodes one chunk. Checks every read; the words and literals may run on into the rest of the body, which
/// [`LaneReader::finish`] notices.
#[inline(always)]
pub(super) fn decode_chunk(
    table: &PackedTable<'_>,
    lane: &mut LaneReader<'_>,
    literals: &mut LiteralReader<'_>,
    out: &mut [u8; CHUNK],
) -> Result<()> {
    let escape_mark = match table {
        PackedTable::Coarse(slots, mark) => {
            step::<7, 2, SLOTS>(slots, lane, out)?;
            Some(*mark)
        }
        PackedTable::Fine(t) => {
            for half in out.as_chunks_mut::<LANES>().0 {
                step::<{ fine::SLOT_BITS }, 1, { fine::SLOTS }>(&t.slots, lane, half)?;
            }
            t.escape_mark
        }
    };
    if let Some(mark) = escape_mark {
        // A vector's worth at once: hardly any symbol is an escape.
        for piece in out.as_chunks_mut::<16>().0 {
            if !piece.iter().fold(false, |any, s| any | (*s == mark)) {
                continue;
            }
            for s in piece.iter_mut().filter(|s| **s == mark) {
                *s = *literals.bytes.get(literals.pos).ok_or_else(|| Error::damaged("a block's literals run out"))?;
                literals.pos += 1;
            }
        }
    }
    Ok(())
}

/// Lets every lane decode `N` symbols, for `out[lane]`, `out[64 + lane]`, …, and refill then.
///
/// Lanes look up one after the other; what follows from what they find is arithmetic on arrays, which compilers turn into vectors.
#[inline(always)]
fn step<const BITS: u32, const N: usize, const SLOTS: usize>(
    slots: &[u32; SLOTS],
    lane: &mut LaneReader<'_>,
    out: &mut [u8],
) -> Result<()> {
    let out: &mut [[u8; LANES]; N] = out.as_chunks_mut().0.try_into().expect("room for the symbols");
    for out in out {
        let mut found = [0; LANES];
        zip(&mut found, &lane.x, |e, &x| *e = slots[x as usize & (SLOTS - 1)]);
        zip(out, &found, |out, &e| *out = e as u8);
        zip(&mut lane.x, &found, |x, &e| *x = (e >> 8 & 0xfff) * (*x >> BITS) + (e >> 20));
    }
    refill(lane)
}

/// Gives a word to each lane that is due for one.
#[inline(always)]
fn refill(lane: &mut LaneReader<'_>) -> Result<()> {
    let rest = &lane.bytes[(2 * lane.pos).min(lane.bytes.len())..];
    let mut taken = 0usize;
    if let Some(words) = rest.first_chunk::<{ 2 * REFILL_WORDS }>() {
        let words = words.as_chunks::<2>().0;
        // The refill order: lanes 0, 4, …, 60, then 1, 5, …
        for first in 0..4 {
            for j in (first..LANES).step_by(4) {
                let x = lane.x[j];
                // Without a branch: whether a lane is due is as good as random. `taken` is at most the number of lanes that went before.
                let refilled = x << 16 | u32::from(u16::from_le_bytes(words[taken & (REFILL_WORDS - 1)]));
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
    match &table.kind {
        EncodeKind::Coarse(kind) => encode_coarse(kind, lane, symbols),
        EncodeKind::Fine(t) => {
            for half in symbols.as_chunks::<LANES>().0.iter().rev() {
                emit(lane, |j, x| {
                    let row = t.rows[usize::from(half[j])];
                    let due = x >= row.bound();
                    (due, row.push(if due { x >> 16 } else { x }))
                });
            }
        }
    }
}

#[inline(always)]
fn encode_coarse(kind: &CoarseKind, lane: &mut LaneWriter, symbols: &[u8; CHUNK]) {
    let pair = |j: usize| (usize::from(symbols[j]), usize::from(symbols[LANES + j]));
    match kind {
        CoarseKind::Huffman { len, code } => emit(lane, |j, x| {
            let (s1, s2) = pair(j);
            let l = len[s1] + len[s2];
            let code = u32::from(code[s1]) | u32::from(code[s2]) << len[s1];
            let due = x >> (32 - l) != 0;
            (due, (if due { x >> 16 } else { x }) << l | code)
        }),
        CoarseKind::Rans { freq, start } => emit(lane, |j, x| {
            let (s1, s2) = pair(j);
            let (f1, f2) = (u32::from(freq[s1]), u32::from(freq[s2]));
            let due = x >= (f1 * f2) << 18;
            let x = if due { x >> 16 } else { x };
            let x = (x / f2) * 128 + x % f2 + u32::from(start[s2]);
            (due, (x / f1) * 128 + x % f1 + u32::from(start[s1]))
        }),
    }
}

/// Encodes on every lane: `push` says of a lane and its state whether a word must go first, and the new state.
#[inline(always)]
fn emit(lane: &mut LaneWriter, push: impl Fn(usize, u32) -> (bool, u32)) {
    // Words go to the window's end, in falling order.
    let words: &mut [u16; REFILL_WORDS] = lane.words[..lane.pos].last_chunk_mut().expect("the job was checked");
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

pub(super) fn decode_group(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    with_element!(job.width, E => decode_group_of::<E>(job))
}

#[inline(always)]
pub(super) fn decode_group_of<E: Element>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
    let shape = job.shape;
    let merge = |symbols: &_, raw: &_, out: &mut _| merge_run::<E>(&shape, symbols, raw, out);
    match job.table {
        Some(table) => decode_rest(job, table, 0, merge),
        None => {
            decode_raw(job, merge);
            Ok(())
        }
    }
}

/// Decodes the chunks from `first` on with every read checked: what comes after the last that a kernel may read at full width. `merge`
/// makes elements of a run's symbols and raw bits.
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
    let packed = pack(table);
    let sets = job.lanes.len();
    let mut symbols = [0; RUN];
    for i in first..runs {
        decode_chunk(&packed, &mut job.lanes[set_of(i, sets)], job.literals, &mut symbols)?;
        let (raw, out) = job.run(i);
        merge(&symbols, raw, out);
    }
    Ok(())
}

/// Makes the elements of a group that has no symbols.
#[inline(always)]
pub(super) fn decode_raw(job: &mut DecodeJob<'_, '_>, merge: impl Fn(&[u8; RUN], &[u8], &mut [u8])) {
    for i in 0..job.runs.len() {
        let (raw, out) = job.run(i);
        merge(&[0; RUN], raw, out);
    }
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
