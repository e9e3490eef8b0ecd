//! Symbols and raw bits to elements: the inverse of `split`.

use super::{at, at_mut, load, load_16, store};
use crate::group::RUN;
use crate::group::element::with_element;
use crate::group::split::{Shape, merge_run};
use crate::map::Map;
use std::arch::x86_64::*;

/// Ways to merge; a constant of the kernels, so that the frequent ones have loops of their own.
pub(super) const BYTE_16: u8 = 0;
pub(super) const BYTES_32: u8 = 1;
pub(super) const ANY: u8 = 2;

/// The way for elements of a width and shape.
pub(super) fn way(width: usize, s: &Shape) -> u8 {
    let plain = s.low == 0 && s.constant == 0 && s.map == Map::Rotate;
    match width {
        2 if plain && s.raw_bits == 8 => BYTE_16,
        4 if plain && s.raw_bits == 24 => BYTES_32,
        _ => ANY,
    }
}

kernels! {
    /// Merges the symbols and the raw bits of a run into its elements.
    pub(super) fn run(s: &Shape, width: usize, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8]) {
        match width {
            2 => any_16(s, symbols, raw, at_mut(out, 0)),
            4 => any_32(s, symbols, raw, at_mut(out, 0)),
            _ => with_element!(width, E => merge_run::<E>(s, symbols, raw, out)),
        }
    }

    /// Merges half `h` of a run: 64 symbols and the run's raw bits, into the run's elements.
    #[inline]
    pub(super) fn half<const WAY: u8>(h: usize, symbols: [__m256i; 2], raw: &[u8], out: &mut [u8]) {
        match WAY {
            BYTE_16 => byte_16(h, symbols, at(raw, 0), at_mut(out, 0)),
            _ => bytes_32(h, symbols, at(raw, 0), at_mut(out, 0)),
        }
    }

    /// Makes the element at a place in a run, which was merged with one symbol, that of another.
    #[inline]
    pub(super) fn exchange<const WAY: u8>(place: usize, old: u8, new: u8, out: &mut [u8]) {
        if WAY == BYTE_16 {
            let e: &mut [u8; 2] = at_mut(out, 2 * place);
            *e = (u16::from_le_bytes(*e) ^ (u16::from(old ^ new) << 8).rotate_right(1)).to_le_bytes();
        } else {
            let e: &mut [u8; 4] = at_mut(out, 4 * place);
            *e = (u32::from_le_bytes(*e) ^ (u32::from(old ^ new) << 24).rotate_right(1)).to_le_bytes();
        }
    }

    #[inline]
    fn byte_16(h: usize, symbols: [__m256i; 2], raw: &[u8; RUN], out: &mut [u8; 2 * RUN]) {
        for (q, symbols) in symbols.into_iter().enumerate() {
            let from = 64 * h + 32 * q;
            // Eight bytes to the left, eight to the right, so that unpacking gives sixteen elements in order.
            let [low, high] = [load(at(raw, from)), symbols].map(|v| _mm256_permute4x64_epi64::<0b11_01_10_00>(v));
            let rotated = |v| _mm256_or_si256(_mm256_srli_epi16::<1>(v), _mm256_slli_epi16::<15>(v));
            store(at_mut(out, 2 * from), rotated(_mm256_unpacklo_epi8(low, high)));
            store(at_mut(out, 2 * from + 32), rotated(_mm256_unpackhi_epi8(low, high)));
        }
    }

    #[inline]
    fn bytes_32(h: usize, symbols: [__m256i; 2], raw: &[u8; 3 * RUN], out: &mut [u8; 4 * RUN]) {
        for (q, symbols) in symbols.into_iter().enumerate() {
            let from = 64 * h + 32 * q;
            // Four bytes to the left, four to the right, so that unpacking twice gives eight elements in order.
            let dealt = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
            let plane = |i: usize| load(at(raw, RUN * i + from));
            let [a, b, c, d] =
                [plane(0), plane(1), plane(2), symbols].map(|v| _mm256_permutevar8x32_epi32(v, dealt));
            let low = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
            let high = [_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d)];
            let rotated = |v| _mm256_or_si256(_mm256_srli_epi32::<1>(v), _mm256_slli_epi32::<31>(v));
            for q in 0..2 {
                let to = 4 * from + 64 * q;
                store(at_mut(out, to), rotated(_mm256_unpacklo_epi16(low[q], high[q])));
                store(at_mut(out, to + 32), rotated(_mm256_unpackhi_epi16(low[q], high[q])));
            }
        }
    }

    fn any_16(s: &Shape, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8; 2 * RUN]) {
        let bytes = s.byte_planes();
        let shift = |v: __m128i, n: u32| _mm256_sll_epi16(_mm256_cvtepu8_epi16(v), _mm_cvtsi32_si128(n as i32));
        let bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15);
        let constant = _mm256_set1_epi16(s.constant as i16);
        for q in 0..RUN / 16 {
            let mut v = shift(load_16(at(symbols, 16 * q)), s.symbol_shift());
            for i in 0..bytes {
                v = _mm256_or_si256(v, shift(load_16(at(raw, RUN * i + 16 * q)), s.low + 8 * i as u32));
            }
            for j in 0..s.bit_planes() {
                let plane = i16::from_le_bytes(*at(raw, RUN * bytes + RUN / 8 * j + 2 * q));
                let set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(plane), bit), bit);
                v = _mm256_or_si256(v, _mm256_and_si256(set, _mm256_set1_epi16(1i16 << s.bit_position(j))));
            }
            v = _mm256_xor_si256(v, constant);
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm256_or_si256(_mm256_srli_epi16::<1>(v), _mm256_slli_epi16::<15>(v)),
                Map::Zigzag => {
                    let odd = _mm256_srai_epi16::<15>(_mm256_slli_epi16::<15>(v));
                    _mm256_xor_si256(_mm256_srli_epi16::<1>(v), odd)
                }
            };
            store(at_mut(out, 32 * q), v);
        }
    }

    fn any_32(s: &Shape, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8; 4 * RUN]) {
        let bytes = s.byte_planes();
        let widen = |v: &[u8; 8]| _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*v)));
        let shift = |v: &[u8; 8], n: u32| _mm256_sll_epi32(widen(v), _mm_cvtsi32_si128(n as i32));
        let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let constant = _mm256_set1_epi32(s.constant as i32);
        for q in 0..RUN / 8 {
            let mut v = shift(at(symbols, 8 * q), s.symbol_shift());
            for i in 0..bytes {
                v = _mm256_or_si256(v, shift(at(raw, RUN * i + 8 * q), s.low + 8 * i as u32));
            }
            for j in 0..s.bit_planes() {
                let plane = i32::from(raw[RUN * bytes + RUN / 8 * j + q]);
                let set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(plane), bit), bit);
                v = _mm256_or_si256(v, _mm256_and_si256(set, _mm256_set1_epi32(1i32 << s.bit_position(j))));
            }
            v = _mm256_xor_si256(v, constant);
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm256_or_si256(_mm256_srli_epi32::<1>(v), _mm256_slli_epi32::<31>(v)),
                Map::Zigzag => {
                    let odd = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<31>(v));
                    _mm256_xor_si256(_mm256_srli_epi32::<1>(v), odd)
                }
            };
            store(at_mut(out, 32 * q), v);
        }
    }
}
