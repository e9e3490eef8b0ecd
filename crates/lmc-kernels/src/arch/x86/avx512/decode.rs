//! Decoding clusters.

use super::super::super::job::DecodeJob;
use super::super::super::portable;
use super::super::avx2;
use super::merge::{self, ANY_8, ANY_16, ANY_32, BYTE_16, BYTES_32};
use super::ranks::{self, Ranks};
use super::{AHEAD, COARSE, RANKED, States, at, expect, in_register, load, load_states, low_bytes, store_states};
use crate::cluster::RUN;
use crate::entropy::rans;
use crate::entropy::table::{DecodeTable, Slots};
use crate::entropy::{CHUNK, CHUNK_WORDS, REFILL_WORDS, SETS};
use crate::inline::Each;
use lmc_layout::error::Result;
use std::arch::x86_64::*;

/// Columns of a table, two registers each.
#[derive(Clone, Copy)]
struct Columns {
    symbol: [__m512i; 2],
    freq: [__m512i; 2],
    offset: [__m512i; 2],
}

kernels! {
    pub(in crate::arch) fn cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        match merge::way(job.width, &job.shape) {
            Some(BYTE_16) => with_way::<BYTE_16>(job),
            Some(BYTES_32) => with_way::<BYTES_32>(job),
            Some(ANY_8) => with_way::<ANY_8>(job),
            Some(ANY_16) => with_way::<ANY_16>(job),
            Some(ANY_32) => with_way::<ANY_32>(job),
            _ => avx2::decode::cluster(job),
        }
    }

    fn with_way<const WAY: u8>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        match job.table.map(|t| (t, &t.slots)) {
            None => {
                let raw_len = job.shape.raw_len(RUN);
                for (i, &run) in job.runs.iter().enumerate() {
                    let out = run_of(job.out, job.width, run);
                    for h in 0..2 {
                        merge::half::<WAY>(&job.shape, h, _mm512_setzero_si512(), &job.raw[i * raw_len..][..raw_len], out);
                    }
                }
                Ok(())
            }
            Some((t, Slots::Coarse(_))) => chunks::<WAY, COARSE>(job, t, None),
            Some((t, Slots::Fine(slots))) => match Ranks::new(slots) {
                Some(r) => chunks::<WAY, RANKED>(job, t, Some(&r)),
                None => avx2::decode::cluster(job),
            },
        }
    }

    fn chunks<const WAY: u8, const TABLE: u8>(
        job: &mut DecodeJob<'_, '_>, table: &DecodeTable, ranks: Option<&Ranks>
    ) -> Result<()> {
        let columns = match &table.slots {
            Slots::Coarse(slots) => columns(slots),
            Slots::Fine(_) => no_columns(),
        };
        let ranked = match ranks {
            Some(ranks) => ranks::Columns::new(ranks),
            None => ranks::Columns::none(),
        };
        let chunk_words = if TABLE == COARSE { REFILL_WORDS } else { CHUNK_WORDS };
        // In a table without escape, no byte marks one.
        let may_escape = if table.escape_mark.is_some() { u64::MAX } else { 0 };
        let escape = _mm512_set1_epi8(table.escape_mark.unwrap_or_default() as i8);
        let raw_len = job.shape.raw_len(RUN);
        // Separate variables for each set: an array that is indexed in a loop would live in memory.
        let [lane0, lane1] = &mut *job.lanes;
        let (mut x0, mut x1) = (load_states(&lane0.x), load_states(&lane1.x));
        let mut pos = [lane0.pos, lane1.pos];
        let bytes = [lane0.bytes, lane1.bytes];
        let literals = job.literals.bytes;
        let mut literal = job.literals.pos;
        let mut i = 0;

        // One symbol per lane.
        macro_rules! step {
            ($x:ident) => {
                if TABLE == RANKED { ranks::step(&mut $x, &ranked) } else { step(&mut $x, &columns) }
            };
        }
        macro_rules! refill {
            ($x:ident, $s:literal) => {
                pos[$s] += refill(&mut $x, at(bytes[$s], 2 * pos[$s]));
            };
        }
        macro_rules! put {
            ($e:ident, $s:literal) => {{
                let e = $e.each(|e| fill_in(e, escape, may_escape, literals, &mut literal));
                let raw = &job.raw[(i + $s) * raw_len..][..raw_len];
                if let Some(&ahead) = job.runs.get(i + $s + AHEAD) {
                    expect::<_MM_HINT_ET0>(&job.out[ahead as usize * RUN * job.width..][..RUN * job.width]);
                }
                let out = run_of(job.out, job.width, job.runs[i + $s]);
                merge::half::<WAY>(&job.shape, 0, e[0], raw, out);
                merge::half::<WAY>(&job.shape, 1, e[1], raw, out);
            }};
        }
        // The most words and literals of a chunk; full-width loads stay within them.
        while i + SETS <= job.runs.len()
            && 2 * (pos[0] + chunk_words) <= bytes[0].len()
            && 2 * (pos[1] + chunk_words) <= bytes[1].len()
            && literal + SETS * CHUNK <= literals.len()
        {
            if TABLE == COARSE {
                let e = [step!(x0), step!(x0)];
                refill!(x0, 0);
                put!(e, 0);
                let e = [step!(x1), step!(x1)];
                refill!(x1, 1);
                put!(e, 1);
            } else {
                // Latencies are longer: lane sets alternate.
                let none = _mm512_setzero_si512();
                let (mut e0, mut e1) = ([none; 2], [none; 2]);
                for h in 0..2 {
                    e0[h] = step!(x0);
                    e1[h] = step!(x1);
                    refill!(x0, 0);
                    refill!(x1, 1);
                }
                put!(e0, 0);
                put!(e1, 1);
            }
            i += SETS;
        }
        job.literals.pos = literal;
        store_states(&mut lane0.x, &x0);
        store_states(&mut lane1.x, &x1);
        [lane0.pos, lane1.pos] = pos;
        let shape = job.shape;
        portable::decode_rest(job, table, i, |symbols, raw, out| {
            for (h, symbols) in symbols.as_chunks().0.iter().enumerate() {
                merge::half::<WAY>(&shape, h, load(symbols), raw, out);
            }
        })
    }

    /// Replaces escapes by literals. Branchless: about one chunk in three has an escape, unpredictably.
    fn fill_in(e: __m512i, escape: __m512i, may_escape: u64, literals: &[u8], pos: &mut usize) -> __m512i {
        let mask = _mm512_mask_cmpeq_epi8_mask(may_escape, e, escape);
        let next = load(at(literals, *pos));
        *pos += mask.count_ones() as usize;
        _mm512_mask_expand_epi8(e, mask, in_register(next))
    }

    fn no_columns() -> Columns {
        let none = [_mm512_setzero_si512(); 2];
        Columns { symbol: none, freq: none, offset: none }
    }

    fn columns(slots: &[u32; rans::COARSE]) -> Columns {
        let pair = |shift: u32| {
            let c: [u8; rans::COARSE] = slots.each(|e| (e >> shift) as u8);
            let [a, b] = c.as_chunks::<64>().0.first_chunk::<2>().expect("128 slots");
            [load(a), load(b)]
        };
        Columns { symbol: pair(0), freq: pair(8), offset: pair(20) }
    }

    /// One symbol per lane: 64 symbols in order.
    fn step(x: &mut States, t: &Columns) -> __m512i {
        let byte = _mm512_set1_epi32(0xff);
        let slot = low_bytes(x);
        let freq = _mm512_permutex2var_epi8(t.freq[0], slot, t.freq[1]);
        let offset = _mm512_permutex2var_epi8(t.offset[0], slot, t.offset[1]);
        let next = |x: __m512i, freq: __m512i, offset: __m512i| {
            _mm512_add_epi32(_mm512_mullo_epi32(_mm512_srli_epi32::<7>(x), freq), offset)
        };
        x[0] = next(x[0], _mm512_and_si512(freq, byte), _mm512_and_si512(offset, byte));
        x[1] = next(
            x[1],
            _mm512_and_si512(_mm512_srli_epi32::<8>(freq), byte),
            _mm512_and_si512(_mm512_srli_epi32::<8>(offset), byte),
        );
        x[2] = next(
            x[2],
            _mm512_and_si512(_mm512_srli_epi32::<16>(freq), byte),
            _mm512_and_si512(_mm512_srli_epi32::<16>(offset), byte),
        );
        x[3] = next(x[3], _mm512_srli_epi32::<24>(freq), _mm512_srli_epi32::<24>(offset));
        _mm512_permutex2var_epi8(t.symbol[0], slot, t.symbol[1])
    }

    /// Gives every lane below 2^16 its next word; returns the number of words taken.
    fn refill(x: &mut States, words: &[u8; 2 * REFILL_WORDS]) -> usize {
        let mut taken = 0;
        for (z, x) in x.iter_mut().enumerate() {
            let due = _mm512_cmplt_epu32_mask(*x, _mm512_set1_epi32(1 << 16));
            debug_assert!(taken <= 16 * z);
            // SAFETY: at most sixteen words were taken for each register before, so that sixteen of the 64 are left.
            let w = unsafe { _mm256_loadu_si256(words.as_ptr().add(2 * taken).cast()) };
            let w = _mm512_maskz_expand_epi32(due, _mm512_cvtepu16_epi32(w));
            *x = _mm512_or_si512(_mm512_mask_slli_epi32::<16>(*x, due, *x), w);
            taken += due.count_ones() as usize;
        }
        taken
    }
}

/// The elements of a run.
#[inline(always)]
fn run_of(out: &mut [u8], width: usize, run: u32) -> &mut [u8] {
    &mut out[run as usize * RUN * width..][..RUN * width]
}
