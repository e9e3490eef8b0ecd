//! Decoding groups.

use super::super::super::job::DecodeJob;
use super::super::super::portable;
use super::merge::{self, ANY_8, ANY_16, ANY_32, BYTE_16, BYTES_32};
use super::{States, load, load_states, store_states};
use crate::entropy::lanes::LaneReader;
use crate::entropy::table::DecodeTable;
use crate::entropy::{CHUNK, CHUNK_WORDS};
use crate::error::Result;
use crate::group::RUN;
use crate::group::element::with_element;
use crate::group::split::merge_run;
use std::arch::x86_64::*;

/// Columns of a table, two registers each.
#[derive(Clone, Copy)]
struct Columns {
    symbol: [__m512i; 2],
    freq: [__m512i; 2],
    offset: [__m512i; 2],
    escape: __m512i,
}

kernels! {
    pub(super) fn group(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        match merge::way(job.width, &job.shape) {
            Some(BYTE_16) => sets::<BYTE_16>(job),
            Some(BYTES_32) => sets::<BYTES_32>(job),
            Some(ANY_8) => sets::<ANY_8>(job),
            Some(ANY_16) => sets::<ANY_16>(job),
            Some(ANY_32) => sets::<ANY_32>(job),
            _ => portable_merge(job),
        }
    }

    fn sets<const WAY: u8>(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        match (job.table, job.lanes.len()) {
            (None, _) => {
                let raw_len = job.shape.raw_len(RUN);
                for (i, &run) in job.runs.iter().enumerate() {
                    let out = run_of(job.out, job.width, run);
                    for h in 0..2 {
                        merge::half::<WAY>(&job.shape, h, _mm512_setzero_si512(), &job.raw[i * raw_len..][..raw_len], out);
                    }
                }
                Ok(())
            }
            (Some(table), 1) => chunks::<WAY, 1>(job, table),
            (Some(table), _) => chunks::<WAY, 2>(job, table),
        }
    }

    fn chunks<const WAY: u8, const SETS: usize>(job: &mut DecodeJob<'_, '_>, table: &DecodeTable) -> Result<()> {
        let columns = columns(table);
        let raw_len = job.shape.raw_len(RUN);
        let lanes: &mut [LaneReader<'_>; SETS] = (&mut *job.lanes).try_into().expect("the number of sets");
        let mut x: [States; SETS] = std::array::from_fn(|s| load_states(&lanes[s].x));
        let mut i = 0;
        // Each chunk takes CHUNK_WORDS words and CHUNK literals at most; full-width loads stay within that.
        while i + SETS <= job.runs.len()
            && lanes.iter().all(|l| 2 * (l.pos + CHUNK_WORDS) <= l.bytes.len())
            && job.literals.pos + SETS * CHUNK <= job.literals.bytes.len()
        {
            for s in 0..SETS {
                let mut e = [step(&mut x[s], &columns), step(&mut x[s], &columns)];
                for e in &mut e {
                    let mask = _mm512_cmpeq_epi8_mask(*e, columns.escape);
                    if mask != 0 {
                        let literals = &job.literals.bytes[job.literals.pos..];
                        let literals = load(literals.first_chunk().expect("checked above"));
                        *e = _mm512_mask_expand_epi8(*e, mask, literals);
                        job.literals.pos += mask.count_ones() as usize;
                    }
                }
                let l = &mut lanes[s];
                l.pos += refill(&mut x[s], l.bytes[2 * l.pos..].first_chunk().expect("checked above"));
                let raw = &job.raw[(i + s) * raw_len..][..raw_len];
                let out = run_of(job.out, job.width, job.runs[i + s]);
                merge::half::<WAY>(&job.shape, 0, e[0], raw, out);
                merge::half::<WAY>(&job.shape, 1, e[1], raw, out);
            }
            i += SETS;
        }
        lanes.iter_mut().zip(&x).for_each(|(l, x)| store_states(&mut l.x, x));
        if i == job.runs.len() {
            return Ok(());
        }
        // The last chunks, or a stream that ends too early.
        let packed = portable::pack(table);
        for i in i..job.runs.len() {
            let mut symbols = [0; CHUNK];
            portable::decode_chunk(&packed, table, &mut lanes[i % SETS], job.literals, &mut symbols)?;
            let raw = &job.raw[i * raw_len..][..raw_len];
            let out = run_of(job.out, job.width, job.runs[i]);
            for (h, s) in symbols.as_chunks::<64>().0.iter().enumerate() {
                merge::half::<WAY>(&job.shape, h, load(s), raw, out);
            }
        }
        Ok(())
    }

    /// For widths without a merge of their own: symbols by vectors, the rest as the compiler does it.
    fn portable_merge(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        const BATCH: usize = 16;
        let raw_len = job.shape.raw_len(RUN);
        let mut symbols = [[0u8; RUN]; BATCH];
        let order: [u32; BATCH] = std::array::from_fn(|i| i as u32);
        let plain = crate::group::split::Shape {
            map: crate::map::Map::Identity, low: 0, raw_bits: 0, sign_plane: false, constant: 0,
        };
        // BATCH is even, so that lane sets take turns across batches, too.
        for (b, runs) in job.runs.chunks(BATCH).enumerate() {
            if job.table.is_some() {
                sets::<ANY_8>(&mut DecodeJob {
                    table: job.table,
                    shape: plain,
                    width: 1,
                    lanes: job.lanes,
                    literals: job.literals,
                    runs: &order[..runs.len()],
                    raw: &[],
                    out: symbols.as_flattened_mut(),
                })?;
            }
            for (i, &run) in runs.iter().enumerate() {
                let raw = &job.raw[(b * BATCH + i) * raw_len..][..raw_len];
                let out = run_of(job.out, job.width, run);
                with_element!(job.width, E => merge_run::<E>(&job.shape, &symbols[i], raw, out));
            }
        }
        Ok(())
    }

    fn columns(t: &DecodeTable) -> Columns {
        let pair = |c: &[u8; 128]| {
            let [a, b] = c.as_chunks::<64>().0.first_chunk::<2>().expect("128 slots");
            [load(a), load(b)]
        };
        Columns {
            symbol: pair(&t.symbol),
            freq: pair(&t.freq),
            offset: pair(&t.offset),
            escape: _mm512_set1_epi8(t.escape_mark as i8),
        }
    }

    /// One symbol a lane: 64 symbols in order.
    fn step(x: &mut States, t: &Columns) -> __m512i {
        let byte = _mm512_set1_epi32(0xff);
        // Byte z of every dword from state register z.
        let a = _mm512_ternarylogic_epi32::<0xca>(byte, x[0], _mm512_slli_epi32::<8>(x[1]));
        let b = _mm512_ternarylogic_epi32::<0xca>(byte, x[2], _mm512_slli_epi32::<8>(x[3]));
        let slot = _mm512_mask_blend_epi16(0xaaaa_aaaa, a, _mm512_slli_epi32::<16>(b));
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
    fn refill(x: &mut States, words: &[u8; 2 * CHUNK_WORDS]) -> usize {
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
