//! Encoding clusters.

use super::super::super::job::EncodeJob;
use super::super::super::vectors::index::ESCAPED;
use super::emit::{by_lane, emit, together, wide};
use super::fine;
use super::lookup::{Column, indexes, look_up};
use super::symbols::{Columns, Symbols};
use super::{AHEAD, COARSE, HUFFMAN, States, at, expect, in_order, load_states, mul_high, split, store_states};
use crate::cluster::RUN;
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::table::EncodeKind;
use crate::entropy::{CHUNK, REFILL_WORDS, SETS};
use crate::inline::{Each, array, zip};
use std::arch::x86_64::*;

/// Runs split before they are coded. Even, so that lane sets alternate across batches, too.
const BATCH: usize = 8;

kernels! {
    pub(in crate::arch) fn cluster(job: &mut EncodeJob<'_>) {
        let Some(table) = job.table else {
            let mut symbols = [[0; CHUNK]; BATCH];
            let raw_len = job.shape.raw_len(RUN);
            for (i, runs) in job.runs.chunks(BATCH).enumerate() {
                let raw = &mut job.raw[i * BATCH * raw_len..][..runs.len() * raw_len];
                split::runs(&job.shape, job.width, job.elements, runs, &mut symbols, raw);
            }
            return;
        };
        match &table.kind {
            EncodeKind::Huffman(codes) => by_index::<HUFFMAN>(job, &Symbols::huffman(codes, &table.kept)),
            EncodeKind::Coarse(rows) => by_index::<COARSE>(job, &Symbols::rans(rows, &table.kept)),
            EncodeKind::Fine(rows) => {
                let rows = fine::Rows::new(rows, &table.kept);
                chunks(job, |symbols, x, lane, literals| fine::push(&rows, symbols, x, lane, literals));
            }
        }
    }

    fn by_index<const CODER: u8>(job: &mut EncodeJob<'_>, symbols: &Symbols) {
        match symbols.index.stretches() {
            1 => stretches::<CODER, 1>(job, symbols),
            2 => stretches::<CODER, 2>(job, symbols),
            _ => stretches::<CODER, 8>(job, symbols),
        }
    }

    fn stretches<const CODER: u8, const N: usize>(job: &mut EncodeJob<'_>, table: &Symbols) {
        let columns = table.columns::<N>();
        chunks(job, |symbols, x, lane, literals| match &table.index.ranks {
            None => push::<CODER, N>(symbols, symbols, &columns, x, lane, literals),
            Some(rank) => {
                let ranks = symbols.each(|s| rank[usize::from(s)]);
                push::<CODER, N>(&ranks, symbols, &columns, x, lane, literals);
            }
        });
    }

    fn chunks(
        job: &mut EncodeJob<'_>, push: impl Fn(&[u8; CHUNK], &mut States, &mut LaneWriter, &mut LiteralWriter)
    ) {
        let raw_len = job.shape.raw_len(RUN);
        let mut x: [States; SETS] = array(|s| load_states(&job.lanes[s].x));
        let mut symbols = [[0; CHUNK]; BATCH];
        // From the last chunk to the first.
        for (b, runs) in job.runs.chunks(BATCH).enumerate().rev() {
            for ahead in (b * BATCH).saturating_sub(AHEAD)..(b * BATCH + BATCH).saturating_sub(AHEAD) {
                expect::<_MM_HINT_T0>(&job.elements[job.runs[ahead] as usize * RUN * job.width..][..RUN * job.width]);
                expect::<_MM_HINT_ET0>(&job.raw[ahead * raw_len..][..raw_len]);
            }
            let raw = &mut job.raw[b * BATCH * raw_len..][..runs.len() * raw_len];
            split::runs(&job.shape, job.width, job.elements, runs, &mut symbols, raw);
            for (i, symbols) in symbols[..runs.len()].iter().enumerate().rev() {
                let s = i % SETS;
                push(symbols, &mut x[s], &mut job.lanes[s], job.literals);
            }
        }
        zip(job.lanes, &x, |l, x| store_states(&mut l.x, x));
    }

    /// Encodes a chunk: first its second half, then its first, as a decoder reads them the other way round.
    fn push<const CODER: u8, const N: usize>(
        ranks: &[u8; CHUNK], symbols: &[u8; CHUNK], t: &Columns<N>, x: &mut States, lane: &mut LaneWriter,
        literals: &mut LiteralWriter
    ) {
        let halves = [by_lane(at(ranks, 0)), by_lane(at(ranks, 64))].each(|h| h.each(|s| indexes::<N>(t.index(s))));
        let code = [0, 1].each(|h| [0, 1].each(|p| look_up(&t.code, &halves[h][p])));
        let all = _mm256_or_si256(_mm256_or_si256(code[0][0], code[0][1]), _mm256_or_si256(code[1][0], code[1][1]));
        if _mm256_movemask_epi8(all) != 0 {
            escape(code, symbols, literals);
        }
        let kept = _mm256_set1_epi8(!ESCAPED as i8);
        let code = code.each(|h| h.each(|v| _mm256_and_si256(v, kept)));
        let size = [0, 1].each(|h| [0, 1].each(|p| look_up(&t.size, &halves[h][p])));
        let window = lane.words[..lane.pos].last_chunk_mut::<REFILL_WORDS>().expect("the job was checked");
        lane.pos -= if CODER == COARSE {
            push_rans(t, &halves, size, code, x, window)
        } else {
            push_huffman::<N>(size, code, x, window)
        };
    }

    /// Writes the literals of a chunk, last to first.
    fn escape(code: [[__m256i; 2]; 2], symbols: &[u8; CHUNK], literals: &mut LiteralWriter) {
        for h in [1, 0] {
            let marks = in_order(code[h]).each(|v| _mm256_movemask_epi8(v).cast_unsigned());
            let mut mask = u64::from(marks[0]) | u64::from(marks[1]) << 32;
            while mask != 0 {
                let last = 63 - mask.leading_zeros() as usize;
                literals.pos -= 1;
                literals.bytes[literals.pos] = symbols[64 * h + last];
                mask ^= 1 << last;
            }
        }
    }

    /// Returns the number of words of the chunk, which are at the end of `words`.
    fn push_huffman<const N: usize>(
        size: [[__m256i; 2]; 2], code: [[__m256i; 2]; 2], x: &mut States, words: &mut [u16; REFILL_WORDS]
    ) -> usize {
        // code + 2^length · second code, 2^(length + second length)
        let codes = together(code[0], code[1]);
        let shifts = together([_mm256_set1_epi8(1); 2], size[0]);
        let sizes = size.each(|s| wide(s));
        let scale: [__m256i; 4] = array(|z| _mm256_mullo_epi16(sizes[0][z], sizes[1][z]));
        // A word must go first if bits would be shifted out at the top.
        let stay = array(|z| _mm256_cmpeq_epi16(mul_high(x.high[z], scale[z]), _mm256_setzero_si256()));
        let taken = emit::<HUFFMAN, N>(stay, x, words);
        for z in 0..4 {
            let (h, l) = (&mut x.high[z], &mut x.low[z]);
            *h = _mm256_add_epi16(_mm256_mullo_epi16(*h, scale[z]), mul_high(*l, scale[z]));
            *l = _mm256_add_epi16(_mm256_mullo_epi16(*l, scale[z]), _mm256_maddubs_epi16(shifts[z], codes[z]));
        }
        taken
    }

    /// Encodes with a coarse table; returns the number of words, which are at the end of `words`.
    fn push_rans<const N: usize>(
        t: &Columns<N>, index: &[[[__m256i; N]; 2]; 2], freq: [[__m256i; 2]; 2], start: [[__m256i; 2]; 2],
        x: &mut States, words: &mut [u16; REFILL_WORDS]
    ) -> usize {
        let freq = freq.each(|f| wide(f));
        // A word must go first where x ≥ f1·f2·2^18.
        let stay = array(|z| {
            let top = _mm256_mullo_epi16(freq[0][z], freq[1][z]);
            _mm256_cmpgt_epi16(top, _mm256_srli_epi16::<2>(x.high[z]))
        });
        let taken = emit::<COARSE, N>(stay, x, words);
        for h in [1, 0] {
            let column = |c: &Column<N>| [look_up(c, &index[h][0]), look_up(c, &index[h][1])];
            let scale = wide(column(&t.scale));
            let reciprocal = together(column(&t.reciprocal[0]), column(&t.reciprocal[1]));
            let start = wide(start[h]);
            for z in 0..4 {
                let (high, low, f) = (&mut x.high[z], &mut x.low[z], freq[h][z]);
                let digit = |a: __m256i| {
                    _mm256_srli_epi16::<6>(mul_high(_mm256_mullo_epi16(a, scale[z]), reciprocal[z]))
                };
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
                let lowest = _mm256_and_si256(*low, _mm256_set1_epi16(0xff));
                let a = _mm256_or_si256(_mm256_slli_epi16::<8>(rest(a, q1)), lowest);
                let q0 = digit(a);
                // quotient · 128 + rest + start
                let slot = _mm256_add_epi16(rest(a, q0), start[z]);
                let upper = _mm256_add_epi16(_mm256_slli_epi16::<15>(q1), _mm256_slli_epi16::<7>(q0));
                *low = _mm256_add_epi16(upper, slot);
                *high = _mm256_add_epi16(_mm256_slli_epi16::<7>(q2), _mm256_srli_epi16::<1>(q1));
            }
        }
        taken
    }
}
