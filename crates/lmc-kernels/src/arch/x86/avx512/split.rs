//! Elements to symbols and raw bits: the inverse of `merge`.

use super::{at, at_mut, bits, every, index, load, store};
use crate::cluster::RUN;
use crate::cluster::split::Shape;
use crate::inline::{Each, array};
use crate::map::Map;
use std::arch::x86_64::*;

use super::merge::{ANY_8, ANY_16, BYTE_16, BYTES_32};

kernels! {
    /// Splits half `h` of a run: returns its 64 symbols, writes its raw bits.
    pub(super) fn half<const WAY: u8>(shape: &Shape, h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        match WAY {
            BYTE_16 => byte_16(h, elements, raw),
            BYTES_32 => bytes_32(h, elements, raw),
            ANY_8 => any_8(shape, h, elements, raw),
            ANY_16 => any_16(shape, h, elements, raw),
            _ => any_32(shape, h, elements, raw),
        }
    }

    fn byte_16(h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        let [a, b] = array(|q| {
            let v = load(at(elements, 128 * h + 64 * q));
            _mm512_shldi_epi16::<1>(v, v)
        });
        store(at_mut(raw, 64 * h), _mm512_permutex2var_epi8(a, index(every(2, 0)), b));
        _mm512_permutex2var_epi8(a, index(every(2, 1)), b)
    }

    fn bytes_32(h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        let v: [__m512i; 4] = array(|q| _mm512_rol_epi32::<1>(load(at(elements, 256 * h + 64 * q))));
        // Byte planes 0 and 1, 2 and 3, of 32 elements each.
        let low: [__m512i; 2] =
            array(|i| _mm512_permutex2var_epi8(v[2 * i], index(every(4, 0)), v[2 * i + 1]));
        let high: [__m512i; 2] =
            array(|i| _mm512_permutex2var_epi8(v[2 * i], index(every(4, 2)), v[2 * i + 1]));
        store(at_mut(raw, 64 * h), _mm512_shuffle_i64x2::<0x44>(low[0], low[1]));
        store(at_mut(raw, 128 + 64 * h), _mm512_shuffle_i64x2::<0xee>(low[0], low[1]));
        store(at_mut(raw, 256 + 64 * h), _mm512_shuffle_i64x2::<0x44>(high[0], high[1]));
        _mm512_shuffle_i64x2::<0xee>(high[0], high[1])
    }

    fn any_8(s: &Shape, h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        let v = load(at(elements, 64 * h));
        let doubled = _mm512_add_epi8(v, v);
        let negative = _mm512_movepi8_mask(v);
        let v = match s.map {
            Map::Identity => v,
            Map::Rotate => _mm512_mask_add_epi8(doubled, negative, doubled, _mm512_set1_epi8(1)),
            Map::Zigzag => _mm512_xor_si512(doubled, _mm512_movm_epi8(negative)),
        };
        let v = _mm512_xor_si512(v, _mm512_set1_epi8(s.constant as i8));
        let shift = |n: u32| {
            let keep = if n > 7 { 0 } else { 0xffu8 >> n };
            _mm512_and_si512(_mm512_srl_epi16(v, _mm_cvtsi32_si128(n as i32)), _mm512_set1_epi8(keep as i8))
        };
        let bytes = s.byte_planes();
        if bytes == 1 {
            store(at_mut(raw, 64 * h), shift(s.low));
        }
        if s.bit_planes() > 0 {
            put_rest(s, h, shift(s.rest_shift()), v, raw);
        }
        shift(s.symbol_shift())
    }

    fn any_16(s: &Shape, h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        let bytes = s.byte_planes();
        let v: [__m512i; 2] = array(|q| {
            let v = load(at(elements, 128 * h + 64 * q));
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm512_shldi_epi16::<1>(v, v),
                Map::Zigzag => _mm512_xor_si512(_mm512_add_epi16(v, v), _mm512_srai_epi16::<15>(v)),
            };
            _mm512_xor_si512(v, _mm512_set1_epi16(s.constant as i16))
        });
        let narrow = |n: usize| {
            let [a, b] = v.each(|v| _mm512_srl_epi16(v, _mm_cvtsi32_si128(n as i32)));
            _mm512_permutex2var_epi8(a, index(every(2, 0)), b)
        };
        for i in 0..bytes {
            store(at_mut(raw, 128 * i + 64 * h), narrow(s.low as usize + 8 * i));
        }
        if s.bit_planes() > 0 {
            put_rest(s, h, narrow(s.rest_shift() as usize), narrow(0), raw);
        }
        narrow(s.symbol_shift() as usize)
    }

    fn any_32(s: &Shape, h: usize, elements: &[u8], raw: &mut [u8]) -> __m512i {
        let bytes = s.byte_planes();
        let v: [__m512i; 4] = array(|q| {
            let v = load(at(elements, 256 * h + 64 * q));
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm512_rol_epi32::<1>(v),
                Map::Zigzag => _mm512_xor_si512(_mm512_add_epi32(v, v), _mm512_srai_epi32::<31>(v)),
            };
            _mm512_xor_si512(v, _mm512_set1_epi32(s.constant as i32))
        });
        let narrow = |n: usize| {
            let [a, b, c, d] = v.each(|v| _mm512_srl_epi32(v, _mm_cvtsi32_si128(n as i32)));
            let low = _mm512_permutex2var_epi8(a, index(every(4, 0)), b);
            let high = _mm512_permutex2var_epi8(c, index(every(4, 0)), d);
            _mm512_shuffle_i64x2::<0x44>(low, high)
        };
        for i in 0..bytes {
            store(at_mut(raw, 128 * i + 64 * h), narrow(s.low as usize + 8 * i));
        }
        if s.bit_planes() > 0 {
            put_rest(s, h, narrow(s.rest_shift() as usize), narrow(0), raw);
        }
        narrow(s.symbol_shift() as usize)
    }

    /// Writes the bit planes of half a run: of `rest`, the bytes above the byte planes, and of the signs, which are bit 0 of `lowest`.
    fn put_rest(s: &Shape, h: usize, rest: __m512i, lowest: __m512i, raw: &mut [u8]) {
        let mut bytes = rest;
        if s.sign_plane {
            let bit = _mm512_set1_epi8(1i8 << (s.raw_bits % 8));
            let sign = _mm512_test_epi8_mask(lowest, _mm512_set1_epi8(1));
            bytes = _mm512_or_si512(_mm512_andnot_si512(bit, rest), _mm512_maskz_mov_epi8(sign, bit));
        }
        bits::part(bytes, s.bit_planes(), h, &mut raw[RUN * s.byte_planes()..]);
    }
}
