//! Fine tables: too large for registers, they are looked up lane by lane.

use super::emit::{emit, put_literals};
use super::{Quarter, States, at, bits, load, low_64, lowest, mul_high};
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::rans::FINE;
use crate::entropy::table::Row;
use crate::entropy::{CHUNK, LANES};
use crate::inline::array;
use std::arch::aarch64::*;

/// The encoder's table.
pub(super) struct Rows<'a> {
    rows: &'a [Row; 256],
    /// Bit j of byte i: whether the symbol 16·j + i is in the table, and the same for 16·(8 + j) + i.
    kept: uint8x16x2_t,
    /// Whether some symbol is not in the table.
    may_escape: bool,
}

impl<'a> Rows<'a> {
    kernels! {
        pub(super) fn new(rows: &'a [Row; 256], kept: &[bool; 256]) -> Rows<'a> {
            let bits = |from: usize| {
                load(&array(|i| (0..8).fold(0, |b, j| b | u8::from(kept[from + 16 * j + i]) << j)))
            };
            Rows { rows, kept: uint8x16x2_t(bits(0), bits(128)), may_escape: kept.contains(&false) }
        }
    }
}

kernels! {
    /// Decodes one symbol per lane: 16 symbols in order.
    pub(super) fn step(x: &mut Quarter, slots: &[u32; FINE]) -> uint8x16_t {
        let twelve = vdupq_n_u32(FINE as u32 - 1);
        let slot = |x: u32| slots[x as usize % FINE];
        let entries = each!(4: z => {
            let e = vdupq_n_u32(slot(vgetq_lane_u32::<0>(x[z])));
            let e = vsetq_lane_u32::<1>(slot(vgetq_lane_u32::<1>(x[z])), e);
            let e = vsetq_lane_u32::<2>(slot(vgetq_lane_u32::<2>(x[z])), e);
            vsetq_lane_u32::<3>(slot(vgetq_lane_u32::<3>(x[z])), e)
        });
        for (z, x) in x.iter_mut().enumerate() {
            let e = entries[z];
            let freq = vandq_u32(vshrq_n_u32::<8>(e), twelve);
            *x = vmlaq_u32(vshrq_n_u32::<20>(e), freq, vshrq_n_u32::<12>(*x));
        }
        lowest(entries)
    }

    /// Encodes a chunk: first its second half, then its first, as a decoder reads them the other way round.
    pub(super) fn push(t: &Rows<'_>, symbols: &[u8; CHUNK], x: &mut States, lane: &mut LaneWriter, literals: &mut LiteralWriter) {
        for (h, half) in symbols.as_chunks::<LANES>().0.iter().enumerate().rev() {
            if t.may_escape {
                put_literals(escaped(t, half), 64 * h, symbols, literals);
            }
            push_half(t, half, x, lane);
        }
    }

    /// A bit for each symbol that is not in the table.
    fn escaped(t: &Rows<'_>, symbols: &[u8; LANES]) -> u64 {
        let bit = load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
        let kept = each!(4: q => {
            let s = load(at(symbols, 16 * q));
            // The register by the symbol's highest bit, the byte by its lower half.
            let byte = vsliq_n_u8::<4>(s, vshrq_n_u8::<7>(s));
            vtstq_u8(vqtbl2q_u8(t.kept, byte), vqtbl1q_u8(bit, vshrq_n_u8::<4>(s)))
        });
        !low_64(bits(kept))
    }

    fn push_half(t: &Rows<'_>, symbols: &[u8; LANES], x: &mut States, lane: &mut LaneWriter) {
        // Reciprocals, and the halves above them (see `Row`).
        let row = |at: usize| vcreate_u64(t.rows[usize::from(symbols[at])].0);
        let rows: [[[uint32x4_t; 2]; 4]; 4] = each!(4: q => each!(4: z => {
            let first = 16 * q + z;
            let a = vreinterpretq_u32_u64(vcombine_u64(row(first), row(first + 4)));
            let b = vreinterpretq_u32_u64(vcombine_u64(row(first + 8), row(first + 12)));
            [vuzp1q_u32(a, b), vuzp2q_u32(a, b)]
        }));
        // A word must go first where x ≥ f·2^20.
        let bound = vdupq_n_u32(0xfff0_0000);
        let due = each!(4: q => each!(4: z => vcgeq_u32(x[q][z], vandq_u32(rows[q][z][1], bound))));
        emit(&due, x, lane);
        for q in 0..4 {
            x[q] = each!(4: z => pushed(x[q][z], rows[q][z][0], rows[q][z][1]));
        }
    }

    /// Pushes four symbols onto states: [`Row::push`].
    fn pushed(x: uint32x4_t, reciprocal: uint32x4_t, upper: uint32x4_t) -> uint32x4_t {
        let more = vandq_u32(vshrq_n_u32::<16>(upper), vdupq_n_u32(1));
        let shift = vandq_u32(vshrq_n_u32::<12>(upper), vdupq_n_u32(15));
        let quotient = mul_high(vaddq_u32(x, more), reciprocal);
        let quotient = vshlq_u32(quotient, vnegq_s32(vreinterpretq_s32_u32(shift)));
        // x − q·f + 4096·q + start
        let gap = vsubq_u32(vdupq_n_u32(FINE as u32), vshrq_n_u32::<20>(upper));
        let start = vandq_u32(upper, vdupq_n_u32(0xfff));
        vmlaq_u32(vaddq_u32(x, start), quotient, gap)
    }
}
