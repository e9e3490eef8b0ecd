//! Fine tables: too large for registers, they are read by gathers.

use super::emit::{by_lane, emit, wide};
use super::{FINE, States, at, in_order, load, load_16, mul_high};
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::rans;
use crate::entropy::table::Row;
use crate::entropy::{CHUNK, LANES};
use crate::inline::{Each, array};
use std::arch::x86_64::*;

/// The encoder's table.
pub(super) struct Rows<'a> {
    rows: &'a [Row; 256],
    /// Bit j of byte i: whether the symbol 16·j + i is in the table, and the same for 16·(8 + j) + i.
    kept: [__m256i; 2],
    /// Whether some symbol is not in the table.
    may_escape: bool,
}

impl<'a> Rows<'a> {
    kernels! {
        pub(super) fn new(rows: &'a [Row; 256], kept: &[bool; 256]) -> Rows<'a> {
            let bits = |from: usize| {
                let bytes = array(|i| (0..8).fold(0, |b, j| b | u8::from(kept[from + 16 * j + i]) << j));
                _mm256_broadcastsi128_si256(load_16(&bytes))
            };
            Rows { rows, kept: [bits(0), bits(128)], may_escape: kept.contains(&false) }
        }
    }
}

kernels! {
    /// Decodes one symbol per lane: 64 symbols in order.
    pub(super) fn step(x: &mut States, slots: &[u32; rans::FINE]) -> [__m256i; 2] {
        let symbols: [__m256i; 4] = array(|z| {
            let (h, l) = (&mut x.high[z], &mut x.low[z]);
            let twelve = _mm256_set1_epi32(rans::FINE as i32 - 1);
            let [even, odd] = [*l, _mm256_srli_epi32::<16>(*l)].each(|slot| {
                let slot = _mm256_and_si256(slot, twelve);
                // SAFETY: the table has an entry for every number of twelve bits.
                unsafe { _mm256_i32gather_epi32::<4>(slots.as_ptr().cast(), slot) }
            });
            // 16 times the frequency.
            let scale = words(_mm256_srli_epi32::<4>(even), _mm256_slli_epi32::<12>(odd));
            let scale = _mm256_and_si256(scale, _mm256_set1_epi16(!0xf));
            let offset = words(_mm256_srli_epi32::<20>(even), _mm256_srli_epi32::<4>(odd));
            let offset = _mm256_and_si256(offset, _mm256_set1_epi16(0xfff));
            // Below 2^16: f·(low >> 12) + offset.
            let from_low = _mm256_and_si256(*l, _mm256_set1_epi16(!0xfff));
            let from_low = _mm256_add_epi16(mul_high(from_low, scale), offset);
            let from_high = _mm256_mullo_epi16(*h, scale);
            *l = _mm256_add_epi16(from_low, from_high);
            let carry = _mm256_min_epu16(_mm256_subs_epu16(from_high, *l), _mm256_set1_epi16(1));
            *h = _mm256_add_epi16(mul_high(*h, scale), carry);
            _mm256_and_si256(words(even, _mm256_slli_epi32::<16>(odd)), _mm256_set1_epi16(0xff))
        });
        in_order([_mm256_packus_epi16(symbols[0], symbols[1]), _mm256_packus_epi16(symbols[2], symbols[3])])
    }

    /// The lower words of one register's dwords, the upper words of another's.
    fn words(low: __m256i, high: __m256i) -> __m256i {
        _mm256_blend_epi16::<0xaa>(low, high)
    }

    /// Encodes a chunk: first its second half, then its first, as a decoder reads them the other way round.
    pub(super) fn push(t: &Rows<'_>, symbols: &[u8; CHUNK], x: &mut States, lane: &mut LaneWriter, literals: &mut LiteralWriter) {
        if t.may_escape {
            escape(t, symbols, literals);
        }
        for half in symbols.as_chunks::<LANES>().0.iter().rev() {
            push_half(t, half, x, lane);
        }
    }

    /// Writes the literals of a chunk, last to first.
    fn escape(t: &Rows<'_>, symbols: &[u8; CHUNK], literals: &mut LiteralWriter) {
        let bit = _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128));
        let nibble = _mm256_set1_epi8(0xf);
        for q in (0..CHUNK / 32).rev() {
            let s = load(at(symbols, 32 * q));
            let low = _mm256_and_si256(s, nibble);
            let [below, above] = t.kept.each(|k| _mm256_shuffle_epi8(k, low));
            let bit = _mm256_shuffle_epi8(bit, _mm256_and_si256(_mm256_srli_epi16::<4>(s), nibble));
            let kept = _mm256_and_si256(_mm256_blendv_epi8(below, above, s), bit);
            let mut mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(kept, _mm256_setzero_si256())).cast_unsigned();
            while mask != 0 {
                let last = 31 - mask.leading_zeros() as usize;
                literals.pos -= 1;
                literals.bytes[literals.pos] = symbols[32 * q + last];
                mask ^= 1 << last;
            }
        }
    }

    fn push_half(t: &Rows<'_>, symbols: &[u8; LANES], x: &mut States, lane: &mut LaneWriter) {
        let word = _mm256_set1_epi64x(0xffff);
        // Rows of the words 0, 4, 8, … of a state register, of 1, 5, 9, …, and so on.
        let rows = wide(by_lane(symbols)).each(|s| {
            [s, _mm256_srli_epi64::<16>(s), _mm256_srli_epi64::<32>(s), _mm256_srli_epi64::<48>(s)].each(|s| {
                let symbol = _mm256_and_si256(s, word);
                // SAFETY: there is a row for every byte, and `wide` made words of bytes.
                unsafe { _mm256_i64gather_epi64::<8>(t.rows.as_ptr().cast(), symbol) }
            })
        });
        // The halves above the reciprocals (see `Row`), of even words and of odd ones.
        let upper = rows.each(|r| [dwords(_mm256_srli_epi64::<32>(r[0]), r[2]), dwords(_mm256_srli_epi64::<32>(r[1]), r[3])]);
        // A word must go first where x ≥ f·2^20.
        let stay = array(|z| {
            let bound = words(_mm256_srli_epi32::<16>(upper[z][0]), upper[z][1]);
            let missing = _mm256_subs_epu16(_mm256_and_si256(bound, _mm256_set1_epi16(!0xf)), x.high[z]);
            let due = _mm256_cmpeq_epi16(missing, _mm256_setzero_si256());
            _mm256_xor_si256(due, _mm256_set1_epi16(-1))
        });
        let window = lane.words[..lane.pos].last_chunk_mut().expect("the job was checked");
        lane.pos -= emit::<FINE, 0>(stay, x, window);
        for z in 0..4 {
            let (h, l) = (&mut x.high[z], &mut x.low[z]);
            let even = divided(words(*l, _mm256_slli_epi32::<16>(*h)), [rows[z][0], rows[z][2]], upper[z][0]);
            let odd = divided(words(_mm256_srli_epi32::<16>(*l), *h), [rows[z][1], rows[z][3]], upper[z][1]);
            *l = words(even, _mm256_slli_epi32::<16>(odd));
            *h = words(_mm256_srli_epi32::<16>(even), odd);
        }
    }

    /// Pushes eight symbols onto states: [`Row::push`]. The rows of even dwords, then those of odd ones.
    fn divided(x: __m256i, rows: [__m256i; 2], upper: __m256i) -> __m256i {
        let more = _mm256_and_si256(_mm256_srli_epi32::<16>(upper), _mm256_set1_epi32(1));
        let dividend = _mm256_add_epi32(x, more);
        let even = _mm256_mul_epu32(dividend, rows[0]);
        let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(dividend), rows[1]);
        let shift = _mm256_and_si256(_mm256_srli_epi32::<12>(upper), _mm256_set1_epi32(15));
        let quotient = _mm256_srlv_epi32(dwords(_mm256_srli_epi64::<32>(even), odd), shift);
        // x − q·f + 4096·q + start
        let gap = _mm256_sub_epi32(_mm256_set1_epi32(rans::FINE as i32), _mm256_srli_epi32::<20>(upper));
        let start = _mm256_and_si256(upper, _mm256_set1_epi32(0xfff));
        _mm256_add_epi32(_mm256_add_epi32(x, start), _mm256_mullo_epi32(quotient, gap))
    }

    /// The lower dwords of one register's quadwords, the upper dwords of another's.
    fn dwords(low: __m256i, high: __m256i) -> __m256i {
        _mm256_blend_epi32::<0xaa>(low, high)
    }
}
