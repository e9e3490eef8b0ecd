//! Encoding clusters.

use super::super::super::job::EncodeJob;
use super::super::super::portable;
use super::super::super::vectors::index::ESCAPED;
use super::super::super::vectors::ways::way;
use super::emit::{emit, put_literals};
use super::lookup::look_up;
use super::symbols::{Columns, Symbols};
use super::{
    COARSE, HUFFMAN, Quarter, States, at, bits, dwords, fine, load, load_states, low_64, mul_high, planes, shifted,
    store_states, words,
};
use crate::cluster::RUN;
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::rans;
use crate::entropy::table::EncodeKind;
use crate::entropy::{CHUNK, SETS};
use crate::inline::{Each, array, zip};
use std::arch::aarch64::*;

/// A byte for each lane.
type Bytes = [uint8x16_t; 4];

kernels! {
    pub(in crate::arch) fn cluster(job: &mut EncodeJob<'_>) {
        let Some(table) = job.table else { return portable::encode_cluster(job) };
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
        let way = way(job.width, &job.shape);
        let raw_len = job.shape.raw_len(RUN);
        let mut x: [States; SETS] = array(|s| load_states(&job.lanes[s].x));
        let mut symbols = [0; CHUNK];
        // From the last chunk to the first.
        for (i, &run) in job.runs.iter().enumerate().rev() {
            let elements = &job.elements[run as usize * RUN * job.width..][..RUN * job.width];
            let raw = &mut job.raw[i * raw_len..][..raw_len];
            planes::split(way, &job.shape, job.width, elements, &mut symbols, raw);
            let s = i % SETS;
            push(&symbols, &mut x[s], &mut job.lanes[s], job.literals);
        }
        zip(job.lanes, &x, |l, x| store_states(&mut l.x, x));
    }

    /// Encodes a chunk: first its second half, then its first, as a decoder reads them the other way round.
    fn push<const CODER: u8, const N: usize>(
        ranks: &[u8; CHUNK], symbols: &[u8; CHUNK], t: &Columns<N>, x: &mut States, lane: &mut LaneWriter,
        literals: &mut LiteralWriter
    ) {
        let mut index = [[vdupq_n_u8(0); 4]; 2];
        let mut size = index;
        let mut all = vdupq_n_u8(0);
        for h in 0..2 {
            for q in 0..4 {
                index[h][q] = t.index(load(at(ranks, 64 * h + 16 * q)));
                size[h][q] = look_up(&t.size, index[h][q]);
                all = vorrq_u8(all, size[h][q]);
            }
        }
        if vmaxvq_u8(all) >= ESCAPED {
            for h in [1, 0] {
                let marks = each!(4: q => vcltzq_s8(vreinterpretq_s8_u8(size[h][q])));
                put_literals(low_64(bits(marks)), 64 * h, symbols, literals);
            }
        }
        for half in &mut size {
            for v in half {
                *v = vandq_u8(*v, vdupq_n_u8(!ESCAPED));
            }
        }
        if CODER == COARSE {
            push_rans(t, &index, &size, x, lane);
        } else {
            push_huffman(t, &index, &size, x, lane);
        }
    }

    fn push_huffman<const N: usize>(
        t: &Columns<N>, index: &[Bytes; 2], length: &[Bytes; 2], x: &mut States, lane: &mut LaneWriter
    ) {
        let both = each!(4: q => dwords(words(vaddq_u8(length[0][q], length[1][q]))));
        // A word must go first if bits would be shifted out at the top.
        let due = each!(4: q => each!(4: z => vcltq_u32(vclzq_u32(x[q][z]), both[q][z])));
        emit(&due, x, lane);
        for (q, x) in x.iter_mut().enumerate() {
            // code + 2^length · second code
            let [a, b] = words(look_up(&t.code, index[0][q]));
            let [c, d] = words(look_up(&t.code, index[1][q]));
            let [even, odd] = words(length[0][q]);
            let even = vorrq_u16(a, vshlq_u16(c, vreinterpretq_s16_u16(even)));
            let odd = vorrq_u16(b, vshlq_u16(d, vreinterpretq_s16_u16(odd)));
            let code = dwords([even, odd]);
            *x = each!(4: z => vorrq_u32(vshlq_u32(x[z], vreinterpretq_s32_u32(both[q][z])), code[z]));
        }
    }

    fn push_rans<const N: usize>(
        t: &Columns<N>, index: &[Bytes; 2], gap: &[Bytes; 2], x: &mut States, lane: &mut LaneWriter
    ) {
        let slots = vdupq_n_u8(rans::COARSE as u8);
        let products = each!(4: q => {
            let a = words(vsubq_u8(slots, gap[0][q]));
            let b = words(vsubq_u8(slots, gap[1][q]));
            dwords([vmulq_u16(a[0], b[0]), vmulq_u16(a[1], b[1])])
        });
        // A word must go first where x ≥ f1·f2·2^18.
        let due = each!(4: q => each!(4: z => vcgeq_u32(vshrq_n_u32::<18>(x[q][z]), products[q][z])));
        emit(&due, x, lane);
        for (q, x) in x.iter_mut().enumerate() {
            for h in [1, 0] {
                let reciprocal = dwords_of(each!(4: i => look_up(&t.reciprocal[i], index[h][q])));
                let gap = dwords(words(gap[h][q]));
                let mut dividend = *x;
                if let Some(more) = t.more {
                    // Of equal gaps the mask is −1.
                    dividend = each!(4: z => vsubq_u32(x[z], vceqq_u32(gap[z], vdupq_n_u32(more))));
                }
                let quotient = each!(4: z => mul_high(dividend[z], reciprocal[z]));
                let quotient = shifted(quotient, look_up(&t.shift, index[h][q]));
                let start = dwords(words(look_up(&t.code, index[h][q])));
                // x − q·f + 128·q + start
                *x = each!(4: z => vmlaq_u32(vaddq_u32(x[z], start[z]), quotient[z], gap[z]));
            }
        }
    }

    /// The dwords of sixteen lanes, from their lowest bytes, the next ones, ….
    fn dwords_of([a, b, c, d]: [uint8x16_t; 4]) -> Quarter {
        let pairs = |low, high| {
            [vreinterpretq_u16_u8(vtrn1q_u8(low, high)), vreinterpretq_u16_u8(vtrn2q_u8(low, high))]
        };
        let (low, high) = (pairs(a, b), pairs(c, d));
        let v = [vtrn1q_u16(low[0], high[0]), vtrn1q_u16(low[1], high[1]), vtrn2q_u16(low[0], high[0]), vtrn2q_u16(low[1], high[1])];
        each!(4: z => vreinterpretq_u32_u16(v[z]))
    }
}
