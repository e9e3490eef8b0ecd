//! Elements to symbols and raw bits: the inverse of `merge`.

use super::super::super::vectors::ways::{BYTE_16, BYTES_32, way};
use super::merge::count;
use super::{at, at_mut, bits, load, store};
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::split::{Shape, split_run};
use crate::inline::{Each, zip};
use crate::map::Map;
use std::arch::x86_64::*;

kernels! {
    /// Splits the runs at `places` of `elements` into symbols and raw bits.
    pub(super) fn runs(
        s: &Shape, width: usize, elements: &[u8], places: &[u32], symbols: &mut [[u8; RUN]], raw: &mut [u8]
    ) {
        let way = way(width, s);
        let raw_len = s.raw_len(RUN);
        for (i, &place) in places.iter().enumerate() {
            let symbols = &mut symbols[i];
            let elements = &elements[place as usize * RUN * width..][..RUN * width];
            let raw = &mut raw[i * raw_len..][..raw_len];
            match width {
                1 => any_8(s, at(elements, 0), symbols, raw),
                2 if way == BYTE_16 => byte_16(at(elements, 0), symbols, at_mut(raw, 0)),
                2 => any_16(s, at(elements, 0), symbols, raw),
                4 if way == BYTES_32 => bytes_32(at(elements, 0), symbols, at_mut(raw, 0)),
                4 => any_32(s, at(elements, 0), symbols, raw),
                _ => with_element!(width, E => split_run::<E>(s, elements, symbols, raw)),
            }
        }
    }

    fn byte_16(elements: &[u8; 2 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; RUN]) {
        for q in 0..RUN / 32 {
            let v = [0, 32].each(|o| {
                let v = load(at(elements, 64 * q + o));
                _mm256_or_si256(_mm256_add_epi16(v, v), _mm256_srli_epi16::<15>(v))
            });
            let [low, high] = planes_of_words(v);
            store(at_mut(raw, 32 * q), low);
            store(at_mut(symbols, 32 * q), high);
        }
    }

    fn bytes_32(elements: &[u8; 4 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; 3 * RUN]) {
        for q in 0..RUN / 32 {
            let planes = planes_of_dwords([0, 32, 64, 96].each(|o| {
                let v = load(at(elements, 128 * q + o));
                _mm256_or_si256(_mm256_add_epi32(v, v), _mm256_srli_epi32::<31>(v))
            }));
            for (i, plane) in planes[..3].iter().enumerate() {
                store(at_mut(raw, RUN * i + 32 * q), *plane);
            }
            store(at_mut(symbols, 32 * q), planes[3]);
        }
    }

    fn any_8(s: &Shape, elements: &[u8; RUN], symbols: &mut [u8; RUN], raw: &mut [u8]) {
        let mut out = Planes::new(s, raw);
        let shift = |v: __m256i, n: u32| {
            let kept = if n > 7 { 0 } else { 0xffu8 >> n };
            _mm256_and_si256(_mm256_srl_epi16(v, count(n)), _mm256_set1_epi8(kept as i8))
        };
        for q in 0..RUN / 32 {
            let v = load(at(elements, 32 * q));
            let doubled = _mm256_add_epi8(v, v);
            let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm256_sub_epi8(doubled, negative),
                Map::Zigzag => _mm256_xor_si256(doubled, negative),
            };
            let v = _mm256_xor_si256(v, _mm256_set1_epi8(s.constant as i8));
            out.put(q, [shift(v, s.low)], v);
            store(at_mut(symbols, 32 * q), shift(v, s.symbol_shift()));
        }
        out.finish(s);
    }

    fn any_16(s: &Shape, elements: &[u8; 2 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8]) {
        let mut out = Planes::new(s, raw);
        for q in 0..RUN / 32 {
            let v = [0, 32].each(|o| {
                let v = load(at(elements, 64 * q + o));
                let doubled = _mm256_add_epi16(v, v);
                let v = match s.map {
                    Map::Identity => v,
                    Map::Rotate => _mm256_or_si256(doubled, _mm256_srli_epi16::<15>(v)),
                    Map::Zigzag => _mm256_xor_si256(doubled, _mm256_srai_epi16::<15>(v)),
                };
                _mm256_xor_si256(v, _mm256_set1_epi16(s.constant as i16))
            });
            let [lowest, _] = planes_of_words(v);
            out.put(q, planes_of_words(v.each(|v| _mm256_srl_epi16(v, count(s.low)))), lowest);
            let [symbol, _] = planes_of_words(v.each(|v| _mm256_srl_epi16(v, count(s.symbol_shift()))));
            store(at_mut(symbols, 32 * q), symbol);
        }
        out.finish(s);
    }

    fn any_32(s: &Shape, elements: &[u8; 4 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8]) {
        let mut out = Planes::new(s, raw);
        for q in 0..RUN / 32 {
            let v = [0, 32, 64, 96].each(|o| {
                let v = load(at(elements, 128 * q + o));
                let doubled = _mm256_add_epi32(v, v);
                let v = match s.map {
                    Map::Identity => v,
                    Map::Rotate => _mm256_or_si256(doubled, _mm256_srli_epi32::<31>(v)),
                    Map::Zigzag => _mm256_xor_si256(doubled, _mm256_srai_epi32::<31>(v)),
                };
                _mm256_xor_si256(v, _mm256_set1_epi32(s.constant as i32))
            });
            let [lowest, ..] = planes_of_dwords(v);
            out.put(q, planes_of_dwords(v.each(|v| _mm256_srl_epi32(v, count(s.low)))), lowest);
            let [symbol, ..] = planes_of_dwords(v.each(|v| _mm256_srl_epi32(v, count(s.symbol_shift()))));
            store(at_mut(symbols, 32 * q), symbol);
        }
        out.finish(s);
    }

    /// The low and the high bytes of 32 words, in order.
    fn planes_of_words(v: [__m256i; 2]) -> [__m256i; 2] {
        let low = _mm256_set1_epi16(0xff);
        let bytes = [
            _mm256_packus_epi16(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low)),
            _mm256_packus_epi16(_mm256_srli_epi16::<8>(v[0]), _mm256_srli_epi16::<8>(v[1])),
        ];
        // Packing works within halves, which are put in order here.
        bytes.each(|v| _mm256_permute4x64_epi64::<0b11_01_10_00>(v))
    }

    /// The lowest bytes of 32 dwords, in order, the next ones, ….
    fn planes_of_dwords(v: [__m256i; 4]) -> [__m256i; 4] {
        let transpose =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        // Four bytes of each plane, of four elements to the left and of four to the right.
        let v = v.each(|v| _mm256_shuffle_epi8(v, transpose));
        let low = [_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3])];
        let high = [_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3])];
        let ordered = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        [
            _mm256_unpacklo_epi64(low[0], low[1]),
            _mm256_unpackhi_epi64(low[0], low[1]),
            _mm256_unpacklo_epi64(high[0], high[1]),
            _mm256_unpackhi_epi64(high[0], high[1]),
        ]
        .each(|v| _mm256_permutevar8x32_epi32(v, ordered))
    }
}

/// The destination of a run's raw bits.
struct Planes<'a> {
    bytes: &'a mut [u8],
    bits: &'a mut [u8],
    /// The bits above the byte planes, and the sign above those.
    rest: [u8; RUN],
    /// The position of the sign in `rest`.
    sign: Option<u32>,
}

impl<'a> Planes<'a> {
    fn new(s: &Shape, raw: &'a mut [u8]) -> Self {
        let (bytes, bits) = raw.split_at_mut(RUN * s.byte_planes());
        Self { bytes, bits, rest: [0; RUN], sign: s.sign_plane.then_some(s.raw_bits % 8) }
    }
}

impl Planes<'_> {
    kernels! {
        /// Takes the bytes of the raw bits of elements 32·q to 32·q + 31, and their lowest bytes, which have the sign.
        fn put<const N: usize>(&mut self, q: usize, raw: [__m256i; N], lowest: __m256i) {
            let count = self.bytes.len() / RUN;
            zip(self.bytes.as_chunks_mut::<RUN>().0, &raw, |plane, &v| store(at_mut(plane, 32 * q), v));
            let mut rest = if count < N { raw[count] } else { _mm256_setzero_si256() };
            if let Some(at) = self.sign {
                let kept = _mm256_set1_epi8(((1u32 << at) - 1) as i8);
                let sign = _mm256_sll_epi16(_mm256_and_si256(lowest, _mm256_set1_epi8(1)), super::merge::count(at));
                rest = _mm256_or_si256(_mm256_and_si256(rest, kept), sign);
            }
            store(at_mut(&mut self.rest, 32 * q), rest);
        }

        fn finish(self, s: &Shape) {
            bits::part(&self.rest, s.bit_planes(), self.bits);
        }
    }
}
