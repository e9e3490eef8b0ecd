//! Decoding clusters.
//!
//! What did not help, measured on Zen 5 with bf16 weights:
//! * three look-ups by slot instead of one of the rank: a tenth to a sixth slower; tables of many symbols still do it;
//! * columns by prefix for Huffman, without ranks: a shuffle less to wait for, one more to do, and no difference;
//! * the symbols of 16 chunks first, their literals and elements afterwards: no difference;
//! * literals put in without a branch: no difference. Literals put into stored symbols that are then loaded again: a
//!   tenth slower than putting them into the merged elements.

use super::super::super::job::DecodeJob;
use super::super::super::portable;
use super::super::super::vectors::shuffles::SPREAD;
use super::super::super::vectors::slots::Slots;
use super::super::super::vectors::ways::{ANY, BYTE_16, BYTES_32, exchange, way};
use super::fine;
use super::lookup::{indexes, look_up};
use super::merge;
use super::slots::{BY_RANK, BY_SLOT, Columns, rank};
use super::{
    AHEAD, COARSE, FINE, HUFFMAN, States, expect, in_order, load_16, load_states, mul_high, store, store_states,
};
use crate::cluster::RUN;
use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::entropy::table::{self, DecodeTable};
use crate::entropy::{CHUNK, CHUNK_WORDS, REFILL_WORDS, SETS};
use crate::inline::{Each, array, zip};
use lmc_layout::error::{Error, Result};
use std::arch::x86_64::*;

kernels! {
    pub(in crate::arch) fn cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        match way(job.width, &job.shape) {
            BYTE_16 => cluster_of::<BYTE_16>(job),
            BYTES_32 => cluster_of::<BYTES_32>(job),
            _ => cluster_of::<ANY>(job),
        }
    }

    fn cluster_of<const WAY: u8>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        let Some(table) = job.table else {
            let (shape, width) = (job.shape, job.width);
            portable::decode_raw(job, |symbols, raw, out| merge::run(&shape, width, symbols, raw, out));
            return Ok(());
        };
        let coarse = match &table.slots {
            table::Slots::Coarse(slots) => slots,
            table::Slots::Fine(_) => {
                let columns = Columns::none();
                return chunks::<WAY, FINE, BY_RANK>(job, table, &columns);
            }
        };
        let slots = Slots::new(coarse);
        match (slots.huffman, &slots.by_rank) {
            (true, Some(r)) => chunks::<WAY, HUFFMAN, BY_RANK>(job, table, &Columns::by_rank(r)),
            (true, None) => chunks::<WAY, HUFFMAN, BY_SLOT>(job, table, &Columns::by_slot(&slots)),
            (false, Some(r)) => chunks::<WAY, COARSE, BY_RANK>(job, table, &Columns::by_rank(r)),
            (false, None) => chunks::<WAY, COARSE, BY_SLOT>(job, table, &Columns::by_slot(&slots)),
        }
    }

    fn chunks<const WAY: u8, const CODER: u8, const N: usize>(
        job: &mut DecodeJob<'_, '_>, table: &DecodeTable, columns: &Columns<N>
    ) -> Result<()> {
        // A fine table in memory; a coarse one in registers.
        let slots: &[u32] = match &table.slots {
            table::Slots::Coarse(_) => &[],
            table::Slots::Fine(slots) => &slots[..],
        };
        // In a table without escape, no byte marks one.
        let may_escape = table.escape_mark.is_some();
        let mark = table.escape_mark.unwrap_or_default();
        let escape = _mm256_set1_epi8(mark as i8);
        let chunk_words = if CODER == FINE { CHUNK_WORDS } else { REFILL_WORDS };
        let raw_len = job.shape.raw_len(RUN);
        let lanes = &mut *job.lanes;
        let mut x: [States; SETS] = array(|s| load_states(&lanes[s].x));
        let mut i = 0;
        // The most words of a chunk; full-width loads stay within them.
        while i + SETS <= job.runs.len() && lanes.iter().all(|l| 2 * (l.pos + chunk_words) <= l.bytes.len()) {
            for &ahead in job.runs.get(i + AHEAD..i + AHEAD + SETS).unwrap_or_default() {
                expect::<_MM_HINT_ET0>(&job.out[ahead as usize * RUN * job.width..][..RUN * job.width]);
            }
            // Lane sets alternate, so that one works while the other waits.
            let (first, second): ([_; SETS], [_; SETS]);
            if CODER == FINE {
                let slots = slots.first_chunk().expect("4096 slots");
                first = array(|s| fine::step(&mut x[s], slots));
                refill_all(&mut x, lanes);
                second = array(|s| fine::step(&mut x[s], slots));
            } else {
                first = array(|s| step::<CODER, N>(&mut x[s], columns));
                second = array(|s| step::<CODER, N>(&mut x[s], columns));
            }
            refill_all(&mut x, lanes);
            for s in 0..SETS {
                let raw = &job.raw[i * raw_len..][..raw_len];
                let out = &mut job.out[job.runs[i] as usize * RUN * job.width..][..RUN * job.width];
                let marks = [first[s], second[s]].each(|half| half.each(|e| _mm256_cmpeq_epi8(e, escape)));
                let any = _mm256_or_si256(_mm256_or_si256(marks[0][0], marks[0][1]), _mm256_or_si256(marks[1][0], marks[1][1]));
                let escaped = may_escape && _mm256_testz_si256(any, any) == 0;
                if WAY == ANY {
                    let mut symbols = stored([first[s], second[s]]);
                    if escaped {
                        put_literals(marks, job.literals, |at, literal| symbols[at] = literal)?;
                    }
                    merge::run(&job.shape, job.width, &symbols, raw, out);
                } else {
                    merge::half::<WAY>(0, first[s], raw, out);
                    merge::half::<WAY>(1, second[s], raw, out);
                    if escaped {
                        put_literals(marks, job.literals, |at, literal| exchange::<WAY>(at, mark, literal, out))?;
                    }
                }
                i += 1;
            }
        }
        zip(lanes, &x, |l, x| store_states(&mut l.x, x));
        let (shape, width) = (job.shape, job.width);
        portable::decode_rest(job, table, i, |symbols, raw, out| merge::run(&shape, width, symbols, raw, out))
    }

    /// Calls `put` with the place of every mark and the literal that belongs there.
    fn put_literals(marks: [[__m256i; 2]; 2], literals: &mut LiteralReader<'_>, mut put: impl FnMut(usize, u8)) -> Result<()> {
        for (q, marks) in [marks[0][0], marks[0][1], marks[1][0], marks[1][1]].into_iter().enumerate() {
            let mut mask = _mm256_movemask_epi8(marks).cast_unsigned();
            while mask != 0 {
                let literal = literals.bytes.get(literals.pos);
                put(
                    32 * q + mask.trailing_zeros() as usize,
                    *literal.ok_or_else(|| Error::damaged("a block's literals run out"))?,
                );
                literals.pos += 1;
                mask &= mask - 1;
            }
        }
        Ok(())
    }

    fn stored(symbols: [[__m256i; 2]; 2]) -> [u8; CHUNK] {
        let mut bytes = [0; CHUNK];
        let [[a, b], [c, d]] = symbols;
        zip(bytes.as_chunks_mut().0, &[a, b, c, d], |to, e| store(to, *e));
        bytes
    }

    /// One symbol per lane: 64 symbols in order.
    fn step<const CODER: u8, const N: usize>(x: &mut States, t: &Columns<N>) -> [__m256i; 2] {
        let zero = _mm256_setzero_si256();
        let seven = _mm256_set1_epi16(0x7f);
        let pairs = [0, 2].each(|z| {
            // Bytes of register z and of z + 1, eight of each in turn, as packing and unpacking work within halves.
            let slot = _mm256_packus_epi16(_mm256_and_si256(x.low[z], seven), _mm256_and_si256(x.low[z + 1], seven));
            let index = indexes::<N>(if N == BY_RANK { rank::<CODER>(slot, &t.ranks) } else { slot });
            let scale = look_up(&t.scale, &index);
            let scale = [_mm256_unpacklo_epi8(zero, scale), _mm256_unpackhi_epi8(zero, scale)];
            if CODER == COARSE {
                let offset = _mm256_sub_epi8(slot, look_up(&t.start, &index));
                let offset = [_mm256_unpacklo_epi8(offset, zero), _mm256_unpackhi_epi8(offset, zero)];
                for y in 0..2 {
                    let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
                    // Below 2^16: f·(low >> 7) + offset.
                    let from_low = _mm256_and_si256(*l, _mm256_set1_epi16(!0x7f));
                    let from_low = _mm256_add_epi16(mul_high(from_low, scale[y]), offset[y]);
                    let from_high = _mm256_mullo_epi16(*h, scale[y]);
                    *l = _mm256_add_epi16(from_low, from_high);
                    let carry = _mm256_min_epu16(_mm256_subs_epu16(from_high, *l), _mm256_set1_epi16(1));
                    *h = _mm256_add_epi16(mul_high(*h, scale[y]), carry);
                }
            } else {
                for (y, scale) in scale.into_iter().enumerate() {
                    let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
                    *l = _mm256_or_si256(mul_high(*l, scale), _mm256_mullo_epi16(*h, scale));
                    *h = mul_high(*h, scale);
                }
            }
            look_up(&t.symbol, &index)
        });
        in_order(pairs)
    }

    fn refill_all(x: &mut [States], lanes: &mut [LaneReader<'_>]) {
        for (s, l) in lanes.iter_mut().enumerate() {
            l.pos += refill(&mut x[s], l.bytes[2 * l.pos..].first_chunk().expect("checked before the chunks"));
        }
    }

    /// Gives every lane below 2^16 its next word; returns the number of words taken.
    fn refill(x: &mut States, words: &[u8; 2 * REFILL_WORDS]) -> usize {
        let mut taken = 0;
        for z in [0, 2] {
            let due = [z, z + 1].each(|z| _mm256_cmpeq_epi16(x.high[z], _mm256_setzero_si256()));
            // Packing works within halves: eight lanes of one register, eight of the other, and again.
            let mask = _mm256_movemask_epi8(_mm256_packs_epi16(due[0], due[1])).cast_unsigned();
            let before = [0, mask & 0xff, mask & 0x00ff_00ff, mask & 0x00ff_ffff].each(|m| taken + m.count_ones() as usize);
            for (y, due) in due.into_iter().enumerate() {
                let w = _mm256_set_m128i(words_at(words, before[2 * y + 1]), words_at(words, before[2 * y]));
                let spread = |m: u32| load_16(&SPREAD[(m & 0xff) as usize]);
                let spread = _mm256_set_m128i(spread(mask >> (16 + 8 * y)), spread(mask >> (8 * y)));
                let w = _mm256_shuffle_epi8(w, spread);
                x.high[z + y] = _mm256_or_si256(x.high[z + y], _mm256_and_si256(due, x.low[z + y]));
                x.low[z + y] = _mm256_or_si256(w, _mm256_andnot_si256(due, x.low[z + y]));
            }
            taken += mask.count_ones() as usize;
        }
        taken
    }

    /// Eight words from word `at` on, which is the number of words that at most seven times eight lanes took.
    fn words_at(words: &[u8; 2 * REFILL_WORDS], at: usize) -> __m128i {
        debug_assert!(at + 8 <= REFILL_WORDS);
        // SAFETY: `refill` passes popcounts of the masks of up to 56 lanes, so that eight of the 64 words are left.
        unsafe { _mm_loadu_si128(words.as_ptr().add(2 * at).cast()) }
    }
}
