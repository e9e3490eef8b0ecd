//! Decoding groups.

use super::super::super::job::{DecodeJob, set_of};
use super::super::super::portable;
use super::lookup::{Column, ENTRIES, column, indexes, look_up};
use super::{States, load_16, load_states, merge, store, store_states};
use crate::entropy::lanes::LiteralReader;
use crate::entropy::table::DecodeTable;
use crate::entropy::{CHUNK, CHUNK_WORDS};
use crate::error::{Error, Result};
use crate::group::RUN;
use std::arch::x86_64::*;

/// Tables by rank of at most 16·N symbols; with `BY_SLOT` stretches, by slot.
struct Columns<const N: usize> {
    rank: Column<8>,
    symbol: Column<N>,
    /// Twice the frequency.
    scale: Column<N>,
    /// What to subtract from the slot to get the offset; not used for Huffman.
    start: Column<N>,
    escape: __m256i,
}

const BY_SLOT: usize = 8;

/// A table's columns by rank, or by slot where there are too many ranks.
struct Ranked {
    rank: [u8; ENTRIES],
    symbol: [u8; ENTRIES],
    scale: [u8; ENTRIES],
    start: [u8; ENTRIES],
    /// Stretches that the ranks need, or `BY_SLOT`.
    stretches: usize,
    huffman: bool,
}

impl Ranked {
    fn new(t: &DecodeTable) -> Self {
        // The 16-bit factor of a state is f·2^9.
        assert!(t.freq.iter().all(|&f| f < 128), "frequencies were checked");
        let start: [u8; ENTRIES] = std::array::from_fn(|slot| (slot as u8).wrapping_sub(t.offset[slot]));
        let huffman = (0..ENTRIES).all(|slot| {
            let len = 7 - t.freq[slot].ilog2();
            t.freq[slot].is_power_of_two() && usize::from(t.offset[slot]) == slot >> len
        });
        let mut r = Self { rank: [0; 128], symbol: [0; 128], scale: [0; 128], start: [0; 128], stretches: 0, huffman };
        let mut ranks = 0;
        for (slot, &start) in start.iter().enumerate() {
            let found = (0..ranks).find(|&i| r.symbol[i] == t.symbol[slot] && (huffman || r.start[i] == start));
            let rank = found.unwrap_or_else(|| {
                (r.symbol[ranks], r.scale[ranks], r.start[ranks]) = (t.symbol[slot], 2 * t.freq[slot], start);
                ranks += 1;
                ranks - 1
            });
            r.rank[slot] = rank as u8;
        }
        r.stretches = ranks.div_ceil(16);
        if r.stretches > 2 {
            r.stretches = BY_SLOT;
            (r.symbol, r.scale, r.start) = (t.symbol, t.freq.map(|f| 2 * f), start);
        }
        r
    }
}

kernels! {
    pub(super) fn group(job: &mut DecodeJob<'_, '_>) -> Result<()> {
        let Some(table) = job.table else {
            let raw_len = job.shape.raw_len(RUN);
            let way = merge::way(job.width, &job.shape);
            for (i, &run) in job.runs.iter().enumerate() {
                let out = &mut job.out[run as usize * RUN * job.width..][..RUN * job.width];
                merge::run(way, &job.shape, &[0; RUN], &job.raw[i * raw_len..][..raw_len], out);
            }
            return Ok(());
        };
        let ranked = Ranked::new(table);
        match (ranked.huffman, ranked.stretches) {
            (true, 1) => chunks::<false, 1>(job, table, &ranked),
            (true, 2) => chunks::<false, 2>(job, table, &ranked),
            (true, _) => chunks::<false, BY_SLOT>(job, table, &ranked),
            (false, 1) => chunks::<true, 1>(job, table, &ranked),
            (false, 2) => chunks::<true, 2>(job, table, &ranked),
            (false, _) => chunks::<true, BY_SLOT>(job, table, &ranked),
        }
    }

    fn chunks<const RANS: bool, const N: usize>(
        job: &mut DecodeJob<'_, '_>, table: &DecodeTable, ranked: &Ranked
    ) -> Result<()> {
        let columns = Columns::<N> {
            rank: column(&ranked.rank),
            symbol: column(&ranked.symbol),
            scale: column(&ranked.scale),
            start: column(&ranked.start),
            escape: _mm256_set1_epi8(table.escape_mark as i8),
        };
        let way = merge::way(job.width, &job.shape);
        let raw_len = job.shape.raw_len(RUN);
        let sets = job.lanes.len();
        let mut x: [States; 2] = std::array::from_fn(|s| load_states(&job.lanes[s % sets].x));
        let mut symbols = [0; CHUNK];
        let mut merge = |i: usize, symbols: &[u8; CHUNK]| {
            let out = &mut job.out[job.runs[i] as usize * RUN * job.width..][..RUN * job.width];
            merge::run(way, &job.shape, symbols, &job.raw[i * raw_len..][..raw_len], out);
        };
        let mut i = 0;
        while i < job.runs.len() {
            let s = set_of(i, sets);
            let lane = &mut job.lanes[s];
            // A chunk takes CHUNK_WORDS words at most, and full-width loads stay within that.
            let rest = &lane.bytes[(2 * lane.pos).min(lane.bytes.len())..];
            let Some(words) = rest.first_chunk() else { break };
            let escapes = two_steps::<RANS, N>(&mut x[s], &columns, &mut symbols);
            lane.pos += refill(&mut x[s], words);
            if escapes {
                take_literals(table.escape_mark, job.literals, &mut symbols)?;
            }
            merge(i, &symbols);
            i += 1;
        }
        job.lanes.iter_mut().zip(&x).for_each(|(l, x)| store_states(&mut l.x, x));
        if i < job.runs.len() {
            // The last chunks, or a stream that ends too early.
            let packed = portable::pack(table);
            for i in i..job.runs.len() {
                portable::decode_chunk(&packed, table, &mut job.lanes[set_of(i, sets)], job.literals, &mut symbols)?;
                merge(i, &symbols);
            }
        }
        Ok(())
    }

    /// Decodes a chunk; the lanes are not refilled yet. Returns whether there is an escape.
    #[inline]
    fn two_steps<const RANS: bool, const N: usize>(x: &mut States, t: &Columns<N>, symbols: &mut [u8; CHUNK]) -> bool {
        let mut escapes = _mm256_setzero_si256();
        for half in symbols.as_chunks_mut::<64>().0 {
            for (to, e) in half.as_chunks_mut().0.iter_mut().zip(step::<RANS, N>(x, t)) {
                escapes = _mm256_or_si256(escapes, _mm256_cmpeq_epi8(e, t.escape));
                store(to, e);
            }
        }
        _mm256_testz_si256(escapes, escapes) == 0
    }

    /// One symbol a lane: 64 symbols in order.
    #[inline]
    fn step<const RANS: bool, const N: usize>(x: &mut States, t: &Columns<N>) -> [__m256i; 2] {
        let even_byte = _mm256_set1_epi16(0x00ff);
        let odd_byte = _mm256_set1_epi16(0xff00u16 as i16);
        // Bytes of lanes 4i and 4i + 1, of 4i + 2 and 4i + 3.
        let pairs = [0, 2].map(|z| {
            let slot = _mm256_or_si256(_mm256_and_si256(x.low[z], even_byte), _mm256_slli_epi16::<8>(x.low[z + 1]));
            let slot = _mm256_and_si256(slot, _mm256_set1_epi8(0x7f));
            let by_slot = indexes::<8>(slot);
            let index = if N == BY_SLOT {
                std::array::from_fn(|k| by_slot[k])
            } else {
                indexes::<N>(look_up(&t.rank, &by_slot))
            };
            let scale = look_up(&t.scale, &index);
            let scale = [_mm256_slli_epi16::<8>(scale), _mm256_and_si256(scale, odd_byte)];
            if RANS {
                let offset = _mm256_sub_epi8(slot, look_up(&t.start, &index));
                let offset = [_mm256_and_si256(offset, even_byte), _mm256_srli_epi16::<8>(offset)];
                for y in 0..2 {
                    let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
                    // Below 2^16: f·(low >> 7) + offset.
                    let from_low = _mm256_and_si256(*l, _mm256_set1_epi16(!0x7f));
                    let from_low = _mm256_add_epi16(_mm256_mulhi_epu16(from_low, scale[y]), offset[y]);
                    let from_high = _mm256_mullo_epi16(*h, scale[y]);
                    *l = _mm256_add_epi16(from_low, from_high);
                    let carry = _mm256_min_epu16(_mm256_subs_epu16(from_high, *l), _mm256_set1_epi16(1));
                    *h = _mm256_add_epi16(_mm256_mulhi_epu16(*h, scale[y]), carry);
                }
            } else {
                for (y, scale) in scale.into_iter().enumerate() {
                    let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
                    *l = _mm256_or_si256(_mm256_mulhi_epu16(*l, scale), _mm256_mullo_epi16(*h, scale));
                    *h = _mm256_mulhi_epu16(*h, scale);
                }
            }
            look_up(&t.symbol, &index)
        });
        let low = _mm256_unpacklo_epi16(pairs[0], pairs[1]);
        let high = _mm256_unpackhi_epi16(pairs[0], pairs[1]);
        [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)]
    }

    /// Gives every lane below 2^16 its next word; returns the number of words taken.
    #[inline]
    fn refill(x: &mut States, words: &[u8; 2 * CHUNK_WORDS]) -> usize {
        let mut taken = 0;
        for z in [0, 2] {
            let due = [z, z + 1].map(|z| _mm256_cmpeq_epi16(x.high[z], _mm256_setzero_si256()));
            let mask = _mm256_movemask_epi8(_mm256_packs_epi16(due[0], due[1])).cast_unsigned();
            for (y, due) in due.into_iter().enumerate() {
                // Packing works within halves: first the lower ones of both registers.
                let first = (mask >> (8 * y)) & 0xff;
                let second = (mask >> (16 + 8 * y)) & 0xff;
                let between = taken + first.count_ones() as usize;
                let w = _mm256_set_m128i(words_at(words, between), words_at(words, taken));
                let spread = _mm256_set_m128i(load_16(&SPREAD[second as usize]), load_16(&SPREAD[first as usize]));
                let w = _mm256_shuffle_epi8(w, spread);
                x.high[z + y] = _mm256_or_si256(x.high[z + y], _mm256_and_si256(due, x.low[z + y]));
                x.low[z + y] = _mm256_or_si256(w, _mm256_andnot_si256(due, x.low[z + y]));
                taken = between + second.count_ones() as usize;
            }
        }
        taken
    }

    /// Eight words from word `at` on, which is at most 56.
    #[inline]
    fn words_at(words: &[u8; 2 * CHUNK_WORDS], at: usize) -> __m128i {
        debug_assert!(at + 8 <= CHUNK_WORDS);
        load_16(words[2 * at..].first_chunk().expect("eight words for each eight lanes"))
    }
}

/// Replaces marks by literals.
#[cold]
fn take_literals(mark: u8, literals: &mut LiteralReader<'_>, symbols: &mut [u8; CHUNK]) -> Result<()> {
    for s in symbols.iter_mut().filter(|s| **s == mark) {
        *s = *literals.bytes.get(literals.pos).ok_or_else(|| Error::damaged("a block's literals run out"))?;
        literals.pos += 1;
    }
    Ok(())
}

/// By the mask of eight lanes: where each lane finds its word among the next eight, or a byte that reads as 0.
static SPREAD: [[u8; 16]; 256] = {
    let mut t = [[0x80; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if (mask >> lane) & 1 == 1 {
                t[mask][2 * lane] = 2 * next;
                t[mask][2 * lane + 1] = 2 * next + 1;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    t
};
