//! Encoding groups.

use super::super::super::job::EncodeJob;
use super::lookup::{indexes, look_up};
use super::symbols::{Columns, ESCAPED, Symbols};
use super::{States, at, load, load_states, mul_high, split, store_8_words, store_states};
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::table::EncodeKind;
use crate::entropy::{CHUNK, CHUNK_WORDS};
use crate::group::RUN;
use std::arch::x86_64::*;

const HUFFMAN: bool = false;
const RANS: bool = true;

/// Runs split before they are coded. Even, so that lane sets take turns across batches, too.
const BATCH: usize = 8;

kernels! {
    pub(super) fn group(job: &mut EncodeJob<'_>) {
        let Some(table) = job.table else {
            let mut symbols = [[0; CHUNK]; BATCH];
            let raw_len = job.shape.raw_len(RUN);
            for (i, runs) in job.runs.chunks(BATCH).enumerate() {
                let raw = &mut job.raw[i * BATCH * raw_len..][..runs.len() * raw_len];
                split::runs(&job.shape, job.width, job.elements, runs, &mut symbols, raw);
            }
            return;
        };
        let symbols = Symbols::new(table);
        let huffman = matches!(table.kind, EncodeKind::Huffman { .. });
        match (huffman, symbols.stretches()) {
            (true, 1) => chunks::<HUFFMAN, 1>(job, &symbols),
            (true, 2) => chunks::<HUFFMAN, 2>(job, &symbols),
            (true, _) => chunks::<HUFFMAN, 8>(job, &symbols),
            (false, 1) => chunks::<RANS, 1>(job, &symbols),
            (false, 2) => chunks::<RANS, 2>(job, &symbols),
            (false, _) => chunks::<RANS, 8>(job, &symbols),
        }
    }

    fn chunks<const CODER: bool, const N: usize>(job: &mut EncodeJob<'_>, table: &Symbols) {
        let columns = table.columns::<N>();
        let raw_len = job.shape.raw_len(RUN);
        let sets = job.lanes.len();
        let mut x: [States; 2] = std::array::from_fn(|s| load_states(&job.lanes[s % sets].x));
        let mut symbols = [[0; CHUNK]; BATCH];
        // From the last chunk to the first.
        for (b, runs) in job.runs.chunks(BATCH).enumerate().rev() {
            let raw = &mut job.raw[b * BATCH * raw_len..][..runs.len() * raw_len];
            split::runs(&job.shape, job.width, job.elements, runs, &mut symbols, raw);
            for (i, symbols) in symbols[..runs.len()].iter().enumerate().rev() {
                let s = i % sets;
                match &table.ranks {
                    None => push::<CODER, N>(symbols, symbols, &columns, &mut x[s], &mut job.lanes[s], job.literals),
                    Some(rank) => {
                        let ranks = symbols.map(|s| rank[usize::from(s)]);
                        push::<CODER, N>(&ranks, symbols, &columns, &mut x[s], &mut job.lanes[s], job.literals);
                    }
                }
            }
        }
        job.lanes.iter_mut().zip(&x).for_each(|(l, x)| store_states(&mut l.x, x));
    }

    /// Encodes a chunk: first its second half, then its first, as a decoder reads them the other way round.
    #[inline]
    fn push<const CODER: bool, const N: usize>(
        ranks: &[u8; CHUNK], symbols: &[u8; CHUNK], t: &Columns<N>, x: &mut States, lane: &mut LaneWriter,
        literals: &mut LiteralWriter
    ) {
        let halves = [by_lane(at(ranks, 0)), by_lane(at(ranks, 64))].map(|h| h.map(|s| indexes::<N>(t.index(s))));
        let code = [0, 1].map(|h| [0, 1].map(|p| look_up(&t.code, &halves[h][p])));
        let all = _mm256_or_si256(_mm256_or_si256(code[0][0], code[0][1]), _mm256_or_si256(code[1][0], code[1][1]));
        if _mm256_movemask_epi8(all) != 0 {
            escape(code, symbols, literals);
        }
        let window = lane.words[..lane.pos].last_chunk_mut::<CHUNK_WORDS>().expect("the job was checked");
        let mut left = CHUNK_WORDS;
        for p in [1, 0] {
            let kept = _mm256_set1_epi8(!ESCAPED as i8);
            let code = [0, 1].map(|h| _mm256_and_si256(code[h][p], kept));
            let size = [0, 1].map(|h| look_up(&t.size, &halves[h][p]));
            left = if CODER == RANS {
                push_rans(t, &[halves[0][p], halves[1][p]], size, code, x, 2 * p, window, left)
            } else {
                push_huffman(size, code, x, 2 * p, window, left)
            };
        }
        lane.pos -= CHUNK_WORDS - left;
    }

    /// The bytes of 64 lanes in order, as those of registers 0 and 1, 2 and 3, eight of each in turn.
    #[inline]
    fn by_lane(bytes: &[u8; 64]) -> [__m256i; 2] {
        let (a, b) = (load(at(bytes, 0)), load(at(bytes, 32)));
        let transpose =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let low = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x20>(a, b), transpose);
        let high = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x31>(a, b), transpose);
        [_mm256_unpacklo_epi32(low, high), _mm256_unpackhi_epi32(low, high)]
    }

    /// Writes the literals of a chunk, last to first.
    #[inline]
    fn escape(code: [[__m256i; 2]; 2], symbols: &[u8; CHUNK], literals: &mut LiteralWriter) {
        for h in [1, 0] {
            let marks = super::in_order(code[h]).map(|v| _mm256_movemask_epi8(v).cast_unsigned());
            let mut mask = u64::from(marks[0]) | u64::from(marks[1]) << 32;
            while mask != 0 {
                let last = 63 - mask.leading_zeros() as usize;
                literals.pos -= 1;
                literals.bytes[literals.pos] = symbols[64 * h + last];
                mask ^= 1 << last;
            }
        }
    }

    /// Encodes the lanes of registers z and z + 1; returns how many words of the window are still free.
    #[inline]
    fn push_huffman(
        size: [__m256i; 2], code: [__m256i; 2], x: &mut States, z: usize, words: &mut [u16; CHUNK_WORDS], left: usize
    ) -> usize {
        let zero = _mm256_setzero_si256();
        let one = _mm256_set1_epi8(1);
        // code + 2^length · second code, 2^(length + second length)
        let codes = [_mm256_unpacklo_epi8(code[0], code[1]), _mm256_unpackhi_epi8(code[0], code[1])];
        let scales = [_mm256_unpacklo_epi8(one, size[0]), _mm256_unpackhi_epi8(one, size[0])];
        let codes = [0, 1].map(|y| _mm256_maddubs_epi16(scales[y], codes[y]));
        let wide = |v: __m256i| [_mm256_unpacklo_epi8(v, zero), _mm256_unpackhi_epi8(v, zero)];
        let (first, second) = (wide(size[0]), wide(size[1]));
        let scale = [0, 1].map(|y| _mm256_mullo_epi16(first[y], second[y]));
        // What would be shifted out at the top says whether a word must go first.
        let stay = [0, 1].map(|y| _mm256_cmpeq_epi16(mul_high(x.high[z + y], scale[y]), zero));
        let left = emit(stay, x, z, words, left);
        for y in 0..2 {
            let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
            *h = _mm256_add_epi16(_mm256_mullo_epi16(*h, scale[y]), mul_high(*l, scale[y]));
            *l = _mm256_add_epi16(_mm256_mullo_epi16(*l, scale[y]), codes[y]);
        }
        left
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "what the lanes need, in registers")]
    fn push_rans<const N: usize>(
        t: &Columns<N>, index: &[[__m256i; N]; 2], freq: [__m256i; 2], start: [__m256i; 2], x: &mut States, z: usize,
        words: &mut [u16; CHUNK_WORDS], left: usize
    ) -> usize {
        let zero = _mm256_setzero_si256();
        let wide = |v: __m256i| [_mm256_unpacklo_epi8(v, zero), _mm256_unpackhi_epi8(v, zero)];
        let freqs = freq.map(wide);
        // A word must go first where x ≥ f1·f2·2^18.
        let stay = [0, 1].map(|y| {
            let top = _mm256_mullo_epi16(freqs[0][y], freqs[1][y]);
            _mm256_cmpgt_epi16(top, _mm256_srli_epi16::<2>(x.high[z + y]))
        });
        let left = emit(stay, x, z, words, left);
        for h in [1, 0] {
            let scale = wide(look_up(&t.scale, &index[h]));
            let r = [look_up(&t.reciprocal[0], &index[h]), look_up(&t.reciprocal[1], &index[h])];
            let r = [_mm256_unpacklo_epi8(r[0], r[1]), _mm256_unpackhi_epi8(r[0], r[1])];
            let start = wide(start[h]);
            for y in 0..2 {
                let (high, low) = (&mut x.high[z + y], &mut x.low[z + y]);
                let f = freqs[h][y];
                let digit = |a: __m256i| _mm256_srli_epi16::<6>(mul_high(_mm256_mullo_epi16(a, scale[y]), r[y]));
                let rest = |a: __m256i, q: __m256i| _mm256_sub_epi16(a, _mm256_mullo_epi16(q, f));
                let mut q2 = digit(*high);
                let mut rest2 = rest(*high, q2);
                if t.correct {
                    let over = _mm256_srai_epi16::<15>(rest2);
                    q2 = _mm256_add_epi16(q2, over);
                    rest2 = _mm256_add_epi16(rest2, _mm256_and_si256(over, f));
                }
                let a = _mm256_or_si256(_mm256_slli_epi16::<8>(rest2), _mm256_srli_epi16::<8>(*low));
                let q1 = digit(a);
                let a = _mm256_or_si256(_mm256_slli_epi16::<8>(rest(a, q1)), _mm256_and_si256(*low, _mm256_set1_epi16(0xff)));
                let q0 = digit(a);
                // quotient · 128 + rest + start
                let slot = _mm256_add_epi16(rest(a, q0), start[y]);
                let upper = _mm256_add_epi16(_mm256_slli_epi16::<15>(q1), _mm256_slli_epi16::<7>(q0));
                *low = _mm256_add_epi16(upper, slot);
                *high = _mm256_add_epi16(_mm256_slli_epi16::<7>(q2), _mm256_srli_epi16::<1>(q1));
            }
        }
        left
    }

    /// Writes the lower halves of the lanes of registers z and z + 1 that do not stay below their bound in front of the
    /// words that are there, and shifts them out. Returns how many words are still free.
    #[inline]
    fn emit(stay: [__m256i; 2], x: &mut States, z: usize, words: &mut [u16; CHUNK_WORDS], left: usize) -> usize {
        // Packing works within halves: eight lanes of one register, eight of the other, and again.
        let mask = !_mm256_movemask_epi8(_mm256_packs_epi16(stay[0], stay[1])).cast_unsigned();
        let parts = [
            (_mm256_castsi256_si128(x.low[z]), mask & 0xff, mask),
            (_mm256_extracti128_si256::<1>(x.low[z]), mask >> 16 & 0xff, mask & 0xffff_ff00),
            (_mm256_castsi256_si128(x.low[z + 1]), mask >> 8 & 0xff, mask & 0xff00_ff00),
            (_mm256_extracti128_si256::<1>(x.low[z + 1]), mask >> 24, mask & 0xff00_0000),
        ];
        // Each part's words are packed at the end of eight, which end where the words of the parts behind them begin. What
        // stands before them is overwritten by the parts in front, or never read.
        for (low, due, from_here) in parts.into_iter().rev() {
            let packed = _mm_shuffle_epi8(low, super::load_16(&GATHER[due as usize]));
            let end = left - (from_here.count_ones() - due.count_ones()) as usize;
            store_8_words(words[..end].last_chunk_mut().expect("eight words for each eight lanes"), packed);
        }
        for (y, stay) in stay.into_iter().enumerate() {
            let (h, l) = (&mut x.high[z + y], &mut x.low[z + y]);
            *l = _mm256_blendv_epi8(*h, *l, stay);
            *h = _mm256_and_si256(*h, stay);
        }
        left - mask.count_ones() as usize
    }
}

/// By the mask of eight lanes: the words of those in it, in order, at the end of eight.
static GATHER: [[u8; 16]; 256] = {
    let mut t = [[0x80; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (8, 8);
        while lane > 0 {
            lane -= 1;
            if (mask >> lane) & 1 == 1 {
                next -= 1;
                t[mask][2 * next] = 2 * lane as u8;
                t[mask][2 * next + 1] = 2 * lane as u8 + 1;
            }
        }
        mask += 1;
    }
    t
};
