//! Decoding clusters.

use super::super::super::job::DecodeJob;
use super::super::super::portable;
use super::super::super::vectors::shuffles::SPREAD;
use super::super::super::vectors::slots::Slots;
use super::super::super::vectors::ways::{ANY, BYTE_16, BYTES_32, exchange, way};
use super::lookup::look_up;
use super::slots::Columns;
use super::{
    COARSE, Due, HUFFMAN, Quarter, States, bits, dwords, fine, load, load_states, low_64, lowest, planes, shifted,
    store_states, words,
};
use crate::cluster::RUN;
use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::entropy::table::{self, DecodeTable};
use crate::entropy::{CHUNK_WORDS, REFILL_WORDS, SETS};
use crate::inline::{array, zip};
use lmc_layout::error::{Error, Result};
use std::arch::aarch64::*;

/// The symbols of a chunk.
type Symbols = [[uint8x16_t; 4]; 2];

kernels! {
    pub(in crate::arch) fn cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        let Some(table) = job.table else { return portable::decode_cluster(job) };
        let coarse = match &table.slots {
            table::Slots::Coarse(slots) => slots,
            table::Slots::Fine(slots) => {
                return chunks::<CHUNK_WORDS>(job, table, |x, lane, symbols| {
                    for half in symbols {
                        for (q, symbols) in half.iter_mut().enumerate() {
                            *symbols = fine::step(&mut x[q], slots);
                        }
                        refill(x, lane);
                    }
                });
            }
        };
        let slots = Slots::new(coarse);
        match (slots.huffman, &slots.by_rank) {
            (true, Some(r)) => coarse_chunks::<HUFFMAN, _>(job, table, &Columns::by_rank::<HUFFMAN>(r)),
            (true, None) => coarse_chunks::<HUFFMAN, _>(job, table, &Columns::by_slot::<HUFFMAN>(&slots)),
            (false, Some(r)) => coarse_chunks::<COARSE, _>(job, table, &Columns::by_rank::<COARSE>(r)),
            (false, None) => coarse_chunks::<COARSE, _>(job, table, &Columns::by_slot::<COARSE>(&slots)),
        }
    }

    fn coarse_chunks<const CODER: u8, const N: usize>(
        job: &mut DecodeJob<'_, '_>, table: &DecodeTable, columns: &Columns<N>
    ) -> Result<()> {
        chunks::<REFILL_WORDS>(job, table, |x, lane, symbols| coarse_chunk::<CODER, N>(x, lane, symbols, columns))
    }

    fn coarse_chunk<const CODER: u8, const N: usize>(
        x: &mut States, lane: &mut LaneReader<'_>, symbols: &mut Symbols, columns: &Columns<N>
    ) {
        for q in 0..4 {
            for half in &mut *symbols {
                half[q] = step::<CODER, N>(&mut x[q], columns);
            }
        }
        refill(x, lane);
    }

    /// `chunk` decodes a chunk, and reads at most `WORDS` words.
    fn chunks<const WORDS: usize>(
        job: &mut DecodeJob<'_, '_>, table: &DecodeTable,
        chunk: impl Fn(&mut States, &mut LaneReader<'_>, &mut Symbols)
    ) -> Result<()> {
        let way = way(job.width, &job.shape);
        // In a table without escape, no byte marks one.
        let mark = table.escape_mark.unwrap_or_default();
        let raw_len = job.shape.raw_len(RUN);
        let lanes = &mut *job.lanes;
        let mut x: [States; SETS] = array(|s| load_states(&lanes[s].x));
        let mut i = 0;
        // Full-width loads stay within the most words of a chunk.
        while i + SETS <= job.runs.len() && lanes.iter().all(|l| 2 * (l.pos + WORDS) <= l.bytes.len()) {
            for s in 0..SETS {
                let mut symbols = [[vdupq_n_u8(0); 4]; 2];
                chunk(&mut x[s], &mut lanes[s], &mut symbols);
                let raw = &job.raw[i * raw_len..][..raw_len];
                let out = &mut job.out[job.runs[i] as usize * RUN * job.width..][..RUN * job.width];
                let (mut marks, mut any) = (symbols, vdupq_n_u8(0));
                for half in &mut marks {
                    for m in half {
                        *m = vceqq_u8(*m, vdupq_n_u8(mark));
                        any = vorrq_u8(any, *m);
                    }
                }
                let escaped = vmaxvq_u8(any) != 0 && table.escape_mark.is_some();
                if way == ANY {
                    let mut symbols = planes::stored(&symbols);
                    if escaped {
                        put_literals(&marks, job.literals, |at, literal| symbols[at] = literal)?;
                    }
                    planes::merge_any(&job.shape, job.width, &symbols, raw, out);
                } else {
                    planes::merge(way, &symbols, raw, out);
                    if escaped {
                        put_literals(&marks, job.literals, |at, literal| match way {
                            BYTE_16 => exchange::<BYTE_16>(at, mark, literal, out),
                            _ => exchange::<BYTES_32>(at, mark, literal, out),
                        })?;
                    }
                }
                i += 1;
            }
        }
        zip(lanes, &x, |l, x| store_states(&mut l.x, x));
        let (shape, width) = (job.shape, job.width);
        portable::decode_rest(job, table, i, |symbols, raw, out| planes::merge_any(&shape, width, symbols, raw, out))
    }

    /// Calls `put` with the place of every mark and the literal that belongs there.
    fn put_literals(marks: &Symbols, literals: &mut LiteralReader<'_>, mut put: impl FnMut(usize, u8)) -> Result<()> {
        for (h, marks) in marks.iter().enumerate() {
            let mut mask = low_64(bits(*marks));
            while mask != 0 {
                let literal = literals.bytes.get(literals.pos);
                put(
                    64 * h + mask.trailing_zeros() as usize,
                    *literal.ok_or_else(|| Error::damaged("a block's literals run out"))?,
                );
                literals.pos += 1;
                mask &= mask - 1;
            }
        }
        Ok(())
    }

    /// One symbol per lane: 16 symbols in order.
    fn step<const CODER: u8, const N: usize>(x: &mut Quarter, t: &Columns<N>) -> uint8x16_t {
        let slot = vandq_u8(lowest(*x), vdupq_n_u8(0x7f));
        let index = t.index::<CODER>(slot);
        let scale = look_up(&t.scale, index);
        if CODER == HUFFMAN {
            *x = shifted(*x, scale);
        } else {
            let freq = dwords(words(scale));
            let offset = dwords(words(vsubq_u8(slot, look_up(&t.start, index))));
            *x = each!(4: z => vmlaq_u32(offset[z], freq[z], vshrq_n_u32::<7>(x[z])));
        }
        look_up(&t.symbol, index)
    }

    /// Gives every lane below 2^16 its next word.
    fn refill(x: &mut States, lane: &mut LaneReader<'_>) {
        let words = lane.bytes[2 * lane.pos..].first_chunk().expect("checked before the chunks");
        let due = Due::new(each!(8: part => vceqzq_u16(halves(x, part).1)));
        for part in 0..8 {
            let (low, high) = halves(x, part);
            let word = vqtbl1q_u8(words_at(words, due.before(part)), load(&SPREAD[due.mask(part)]));
            let high = vbslq_u16(due.parts[part], low, high);
            let low = vbslq_u16(due.parts[part], vreinterpretq_u16_u8(word), low);
            let (z, q) = (part / 2, 2 * (part % 2));
            x[q][z] = vreinterpretq_u32_u16(vzip1q_u16(low, high));
            x[q + 1][z] = vreinterpretq_u32_u16(vzip2q_u16(low, high));
        }
        lane.pos += due.count();
    }

    /// The lower and the upper halves of the eight states of a part.
    fn halves(x: &States, part: usize) -> (uint16x8_t, uint16x8_t) {
        let (z, q) = (part / 2, 2 * (part % 2));
        let (a, b) = (vreinterpretq_u16_u32(x[q][z]), vreinterpretq_u16_u32(x[q + 1][z]));
        (vuzp1q_u16(a, b), vuzp2q_u16(a, b))
    }

    /// Eight words from word `at` on, which is the number of words that at most seven times eight lanes took.
    fn words_at(words: &[u8; 2 * REFILL_WORDS], at: usize) -> uint8x16_t {
        debug_assert!(at + 8 <= REFILL_WORDS);
        // SAFETY: `refill` passes how many lanes are due in up to seven parts of eight, so that eight of the 64 words are left.
        unsafe { vld1q_u8(words.as_ptr().add(2 * at)) }
    }
}
