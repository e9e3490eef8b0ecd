//! Symbols and raw bits to elements: the inverse of `split`.

use super::super::super::vectors::ways::{self, ANY};
pub(super) use super::super::super::vectors::ways::{BYTE_16, BYTES_32};
use super::{at, at_mut, bits, index, interleave, load, store};
use crate::cluster::RUN;
use crate::cluster::split::Shape;
use crate::inline::array;
use crate::map::Map;
use std::arch::x86_64::*;

/// Further ways to merge.
pub(super) const ANY_8: u8 = 3;
pub(super) const ANY_16: u8 = 4;
pub(super) const ANY_32: u8 = 5;

/// The way for elements of a width and shape, if one is here.
pub(super) fn way(width: usize, s: &Shape) -> Option<u8> {
    match (width, ways::way(width, s)) {
        (1, _) => Some(ANY_8),
        (2, ANY) => Some(ANY_16),
        (4, ANY) => Some(ANY_32),
        (_, ANY) => None,
        (_, way) => Some(way),
    }
}

kernels! {
    /// Merges half `h` of a run: 64 symbols, the run's raw bits, into the run's elements.
    pub(super) fn half<const WAY: u8>(shape: &Shape, h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        match WAY {
            BYTE_16 => byte_16(h, symbols, raw, out),
            BYTES_32 => bytes_32(h, symbols, raw, out),
            ANY_8 => any_8(shape, h, symbols, raw, out),
            ANY_16 => any_16(shape, h, symbols, raw, out),
            _ => any_32(shape, h, symbols, raw, out),
        }
    }

    fn byte_16(h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        let low = load(at(raw, 64 * h));
        for (q, first) in [interleave(0), interleave(32)].into_iter().enumerate() {
            let v = _mm512_permutex2var_epi8(low, index(first), symbols);
            store(at_mut(out, 128 * h + 64 * q), _mm512_shldi_epi16::<15>(v, v));
        }
    }

    fn bytes_32(h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        let p: [__m512i; 3] = array(|i| load(at(raw, 128 * i + 64 * h)));
        for (q, first) in [interleave(0), interleave(32)].into_iter().enumerate() {
            let low = _mm512_permutex2var_epi8(p[0], index(first), p[1]);
            let high = _mm512_permutex2var_epi8(p[2], index(first), symbols);
            for (r, first) in [WORDS_LOW, WORDS_HIGH].into_iter().enumerate() {
                let v = _mm512_permutex2var_epi8(low, index(first), high);
                store(at_mut(out, 256 * h + 128 * q + 64 * r), _mm512_ror_epi32::<1>(v));
            }
        }
    }

    fn any_8(s: &Shape, h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        let shift = |v: __m512i, n: u32| {
            let keep = if n > 7 { 0 } else { 0xffu8 << n };
            _mm512_and_si512(_mm512_sll_epi16(v, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(keep as i8))
        };
        let mut v = shift(symbols, s.symbol_shift());
        let bytes = s.byte_planes();
        if bytes == 1 {
            v = _mm512_or_si512(v, shift(load(at(raw, 64 * h)), s.low));
        }
        if s.bit_planes() > 0 {
            let (rest, sign) = rest(s, h, raw);
            v = _mm512_or_si512(v, _mm512_or_si512(shift(rest, s.rest_shift()), sign));
        }
        v = _mm512_xor_si512(v, _mm512_set1_epi8(s.constant as i8));
        let halved = _mm512_and_si512(_mm512_srli_epi16::<1>(v), _mm512_set1_epi8(0x7f));
        let odd = _mm512_and_si512(v, _mm512_set1_epi8(1));
        let v = match s.map {
            Map::Identity => v,
            Map::Rotate => _mm512_or_si512(halved, _mm512_slli_epi16::<7>(odd)),
            Map::Zigzag => _mm512_xor_si512(halved, _mm512_sub_epi8(_mm512_setzero_si512(), odd)),
        };
        store(at_mut(out, 64 * h), v);
    }

    fn any_16(s: &Shape, h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        let bytes = s.byte_planes();
        let (rest, sign) = rest(s, h, raw);
        for q in 0..2 {
            let half = if q == 0 { _mm512_castsi512_si256(symbols) } else { _mm512_extracti64x4_epi64::<1>(symbols) };
            let mut v = _mm512_sll_epi16(_mm512_cvtepu8_epi16(half), _mm_cvtsi32_si128(s.symbol_shift() as i32));
            for i in 0..bytes {
                let p = load_32(at(raw, 128 * i + 64 * h + 32 * q));
                let p = _mm512_sll_epi16(_mm512_cvtepu8_epi16(p), _mm_cvtsi32_si128((s.low as usize + 8 * i) as i32));
                v = _mm512_or_si512(v, p);
            }
            if s.bit_planes() > 0 {
                let widen = |v: __m512i| _mm512_cvtepu8_epi16(if q == 0 { _mm512_castsi512_si256(v) } else { _mm512_extracti64x4_epi64::<1>(v) });
                let p = _mm512_sll_epi16(widen(rest), _mm_cvtsi32_si128(s.rest_shift() as i32));
                v = _mm512_or_si512(v, p);
                if s.sign_plane {
                    v = _mm512_or_si512(v, widen(sign));
                }
            }
            v = _mm512_xor_si512(v, _mm512_set1_epi16(s.constant as i16));
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm512_shldi_epi16::<15>(v, v),
                Map::Zigzag => {
                    let odd = _mm512_and_si512(v, _mm512_set1_epi16(1));
                    _mm512_xor_si512(_mm512_srli_epi16::<1>(v), _mm512_sub_epi16(_mm512_setzero_si512(), odd))
                }
            };
            store(at_mut(out, 128 * h + 64 * q), v);
        }
    }

    fn any_32(s: &Shape, h: usize, symbols: __m512i, raw: &[u8], out: &mut [u8]) {
        let bytes = s.byte_planes();
        let (rest, sign) = rest(s, h, raw);
        for q in 0..4 {
            let mut v = _mm512_sll_epi32(_mm512_cvtepu8_epi32(quarter_of(symbols, q)), _mm_cvtsi32_si128(s.symbol_shift() as i32));
            for i in 0..bytes {
                let p = load_16(at(raw, 128 * i + 64 * h + 16 * q));
                let p = _mm512_sll_epi32(_mm512_cvtepu8_epi32(p), _mm_cvtsi32_si128((s.low as usize + 8 * i) as i32));
                v = _mm512_or_si512(v, p);
            }
            if s.bit_planes() > 0 {
                let p = _mm512_sll_epi32(_mm512_cvtepu8_epi32(quarter_of(rest, q)), _mm_cvtsi32_si128(s.rest_shift() as i32));
                v = _mm512_or_si512(v, p);
                if s.sign_plane {
                    v = _mm512_or_si512(v, _mm512_cvtepu8_epi32(quarter_of(sign, q)));
                }
            }
            v = _mm512_xor_si512(v, _mm512_set1_epi32(s.constant as i32));
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm512_ror_epi32::<1>(v),
                Map::Zigzag => {
                    let odd = _mm512_and_si512(v, _mm512_set1_epi32(1));
                    _mm512_xor_si512(_mm512_srli_epi32::<1>(v), _mm512_sub_epi32(_mm512_setzero_si512(), odd))
                }
            };
            store(at_mut(out, 256 * h + 64 * q), v);
        }
    }

    /// The raw bits above the byte planes, and the sign if it has a plane, a byte each.
    fn rest(s: &Shape, h: usize, raw: &[u8]) -> (__m512i, __m512i) {
        if s.bit_planes() == 0 {
            return (_mm512_setzero_si512(), _mm512_setzero_si512());
        }
        let all = bits::join(&raw[RUN * s.byte_planes()..], s.bit_planes(), h);
        if !s.sign_plane {
            return (all, _mm512_setzero_si512());
        }
        let n = s.raw_bits % 8;
        let kept = _mm512_set1_epi8(((1u32 << n) - 1) as i8);
        let sign = _mm512_test_epi8_mask(all, _mm512_set1_epi8(1i8 << n));
        (_mm512_and_si512(all, kept), _mm512_maskz_set1_epi8(sign, 1))
    }

    fn quarter_of(v: __m512i, q: usize) -> __m128i {
        match q {
            0 => _mm512_castsi512_si128(v),
            1 => _mm512_extracti32x4_epi32::<1>(v),
            2 => _mm512_extracti32x4_epi32::<2>(v),
            _ => _mm512_extracti32x4_epi32::<3>(v),
        }
    }

    fn load_32(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are there to read.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    fn load_16(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there to read.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }
}

/// 16-bit words of two registers in turn.
const fn words(first: u8) -> [u8; 64] {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 16 {
        t[4 * i] = first + 2 * i as u8;
        t[4 * i + 1] = first + 2 * i as u8 + 1;
        t[4 * i + 2] = 64 + first + 2 * i as u8;
        t[4 * i + 3] = 64 + first + 2 * i as u8 + 1;
        i += 1;
    }
    t
}
const WORDS_LOW: [u8; 64] = words(0);
const WORDS_HIGH: [u8; 64] = words(32);
