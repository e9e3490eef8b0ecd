//! Words that lanes emit, and bytes of lanes as the registers of states have them.

use super::super::super::vectors::shuffles::GATHER;
use super::{States, at, load, load_16};
use crate::entropy::REFILL_WORDS;
use std::arch::x86_64::*;

kernels! {
    /// From bytes of registers 0 and 1, 2 and 3, eight of each in turn, to words.
    pub(super) fn wide(pairs: [__m256i; 2]) -> [__m256i; 4] {
        together(pairs, [_mm256_setzero_si256(); 2])
    }

    /// Words of one byte from `low`, one from `high`.
    pub(super) fn together(low: [__m256i; 2], high: [__m256i; 2]) -> [__m256i; 4] {
        [
            _mm256_unpacklo_epi8(low[0], high[0]),
            _mm256_unpackhi_epi8(low[0], high[0]),
            _mm256_unpacklo_epi8(low[1], high[1]),
            _mm256_unpackhi_epi8(low[1], high[1]),
        ]
    }

    /// The bytes of 64 lanes in order, as those of registers 0 and 1, 2 and 3, eight of each in turn.
    pub(super) fn by_lane(bytes: &[u8; 64]) -> [__m256i; 2] {
        let (a, b) = (load(at(bytes, 0)), load(at(bytes, 32)));
        let transpose =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let low = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x20>(a, b), transpose);
        let high = _mm256_shuffle_epi8(_mm256_permute2x128_si256::<0x31>(a, b), transpose);
        [_mm256_unpacklo_epi32(low, high), _mm256_unpackhi_epi32(low, high)]
    }

    /// Writes the lower halves of the lanes that do not stay below their bound to the end of `words`, and shifts them out.
    /// Returns their number. (Const parameters make an instance per caller, which LLVM then inlines.)
    pub(super) fn emit<const CODER: u8, const N: usize>(
        stay: [__m256i; 4], x: &mut States, words: &mut [u16; REFILL_WORDS]
    ) -> usize {
        let mut left = REFILL_WORDS;
        for z in [2, 0] {
            // Packing works within halves: eight lanes of one register, eight of the other, and again.
            let mask = !_mm256_movemask_epi8(_mm256_packs_epi16(stay[z], stay[z + 1])).cast_unsigned();
            let parts = [
                (_mm256_castsi256_si128(x.low[z]), mask, 0x0000_0000),
                (_mm256_extracti128_si256::<1>(x.low[z]), mask >> 16, 0x0000_00ff),
                (_mm256_castsi256_si128(x.low[z + 1]), mask >> 8, 0x00ff_00ff),
                (_mm256_extracti128_si256::<1>(x.low[z + 1]), mask >> 24, 0x00ff_ffff),
            ];
            left -= mask.count_ones() as usize;
            // Each part's words are packed at the end of eight, which end where the words of the parts behind them begin.
            // What stands before them is overwritten by the parts in front, or never read.
            for (low, due, before) in parts.into_iter().rev() {
                let due = (due & 0xff) as usize;
                let packed = _mm_shuffle_epi8(low, load_16(&GATHER[due]));
                let end = left + ((mask & before).count_ones() + (due as u32).count_ones()) as usize;
                debug_assert!((8..=REFILL_WORDS).contains(&end));
                // SAFETY: every part has eight lanes and gives that many words at most, so that in front of the words of the
                // parts behind it there are at least eight left of the 64 for it and for each part before it.
                unsafe { _mm_storeu_si128(words.as_mut_ptr().add(end - 8).cast(), packed) };
            }
        }
        for (z, stay) in stay.into_iter().enumerate() {
            let (h, l) = (&mut x.high[z], &mut x.low[z]);
            *l = _mm256_blendv_epi8(*h, *l, stay);
            *h = _mm256_and_si256(*h, stay);
        }
        REFILL_WORDS - left
    }
}
