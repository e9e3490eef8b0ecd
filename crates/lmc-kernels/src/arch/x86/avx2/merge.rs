//! Symbols and raw bits to elements: the inverse of `split`.

use super::super::super::vectors::ways::BYTE_16;
use super::{at, at_mut, bits, load, store};
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::split::{Shape, merge_run};
use crate::inline::{Each, array};
use crate::map::Map;
use std::arch::x86_64::*;
use std::cmp::Ordering;

kernels! {
    /// Merges the symbols and the raw bits of a run into its elements.
    pub(super) fn run(s: &Shape, width: usize, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8]) {
        match width {
            1 => any_8(s, symbols, raw, at_mut(out, 0)),
            2 => any_16(s, symbols, raw, at_mut(out, 0)),
            4 => any_32(s, symbols, raw, at_mut(out, 0)),
            _ => with_element!(width, E => merge_run::<E>(s, symbols, raw, out)),
        }
    }

    /// Merges half `h` of a run: 64 symbols and the run's raw bits, into the run's elements.
    pub(super) fn half<const WAY: u8>(h: usize, symbols: [__m256i; 2], raw: &[u8], out: &mut [u8]) {
        match WAY {
            BYTE_16 => byte_16(h, symbols, at(raw, 0), at_mut(out, 0)),
            _ => bytes_32(h, symbols, at(raw, 0), at_mut(out, 0)),
        }
    }

    fn byte_16(h: usize, symbols: [__m256i; 2], raw: &[u8; RUN], out: &mut [u8; 2 * RUN]) {
        for (q, symbols) in symbols.into_iter().enumerate() {
            let from = 64 * h + 32 * q;
            // Eight bytes to the left, eight to the right, so that unpacking gives sixteen elements in order.
            let [low, high] = [load(at(raw, from)), symbols].each(|v| _mm256_permute4x64_epi64::<0b11_01_10_00>(v));
            let rotated = |v| _mm256_or_si256(_mm256_srli_epi16::<1>(v), _mm256_slli_epi16::<15>(v));
            store(at_mut(out, 2 * from), rotated(_mm256_unpacklo_epi8(low, high)));
            store(at_mut(out, 2 * from + 32), rotated(_mm256_unpackhi_epi8(low, high)));
        }
    }

    fn bytes_32(h: usize, symbols: [__m256i; 2], raw: &[u8; 3 * RUN], out: &mut [u8; 4 * RUN]) {
        for (q, symbols) in symbols.into_iter().enumerate() {
            let from = 64 * h + 32 * q;
            let plane = |i: usize| load(at(raw, RUN * i + from));
            let rotated = |v| _mm256_or_si256(_mm256_srli_epi32::<1>(v), _mm256_slli_epi32::<31>(v));
            for (r, v) in dwords([plane(0), plane(1), plane(2), symbols]).into_iter().enumerate() {
                store(at_mut(out, 4 * from + 32 * r), rotated(v));
            }
        }
    }

    fn any_8(s: &Shape, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8; RUN]) {
        let planes = Planes::new(s, raw);
        let [raw] = planes.raw();
        let shift = |v: __m256i, n: u32| {
            let kept = if n > 7 { 0 } else { 0xffu8 << n };
            _mm256_and_si256(_mm256_sll_epi16(v, count(n)), _mm256_set1_epi8(kept as i8))
        };
        for q in 0..RUN / 32 {
            let symbols = shift(load(at(symbols, 32 * q)), s.symbol_shift());
            let v = _mm256_or_si256(symbols, shift(load(at(raw, 32 * q)), s.low));
            let v = _mm256_or_si256(v, load(at(&planes.sign, 32 * q)));
            let v = _mm256_xor_si256(v, _mm256_set1_epi8(s.constant as i8));
            let odd = _mm256_and_si256(v, _mm256_set1_epi8(1));
            let halved = _mm256_and_si256(_mm256_srli_epi16::<1>(v), _mm256_set1_epi8(0x7f));
            let v = match s.map {
                Map::Identity => v,
                Map::Rotate => _mm256_or_si256(halved, _mm256_slli_epi16::<7>(odd)),
                Map::Zigzag => _mm256_xor_si256(halved, _mm256_sub_epi8(_mm256_setzero_si256(), odd)),
            };
            store(at_mut(out, 32 * q), v);
        }
    }

    fn any_16(s: &Shape, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8; 2 * RUN]) {
        let planes = Planes::new(s, raw);
        let raw: [_; 2] = planes.raw();
        let zero = _mm256_setzero_si256();
        for q in 0..RUN / 32 {
            // Eight bytes to the left, eight to the right, so that unpacking gives sixteen elements in order.
            let [low, high, symbols, sign] = [raw[0], raw[1], symbols, &planes.sign]
                .each(|p| _mm256_permute4x64_epi64::<0b11_01_10_00>(load(at(p, 32 * q))));
            let raw = [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)];
            let symbols = [_mm256_unpacklo_epi8(symbols, zero), _mm256_unpackhi_epi8(symbols, zero)];
            let sign = [_mm256_unpacklo_epi8(sign, zero), _mm256_unpackhi_epi8(sign, zero)];
            for r in 0..2 {
                let v = _mm256_sll_epi16(symbols[r], count(s.symbol_shift()));
                let v = _mm256_or_si256(_mm256_or_si256(v, _mm256_sll_epi16(raw[r], count(s.low))), sign[r]);
                let v = _mm256_xor_si256(v, _mm256_set1_epi16(s.constant as i16));
                let top = _mm256_slli_epi16::<15>(v);
                let v = match s.map {
                    Map::Identity => v,
                    Map::Rotate => _mm256_or_si256(_mm256_srli_epi16::<1>(v), top),
                    Map::Zigzag => _mm256_xor_si256(_mm256_srli_epi16::<1>(v), _mm256_srai_epi16::<15>(top)),
                };
                store(at_mut(out, 64 * q + 32 * r), v);
            }
        }
    }

    fn any_32(s: &Shape, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8; 4 * RUN]) {
        let planes = Planes::new(s, raw);
        let raw = planes.raw();
        let widen = |v: &[u8; 8]| _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*v)));
        for q in 0..RUN / 32 {
            let raw = dwords(raw.each(|p| load(at(p, 32 * q))));
            for (r, raw) in raw.into_iter().enumerate() {
                let from = 32 * q + 8 * r;
                let v = _mm256_sll_epi32(widen(at(symbols, from)), count(s.symbol_shift()));
                let v = _mm256_or_si256(v, _mm256_sll_epi32(raw, count(s.low)));
                let v = _mm256_or_si256(v, widen(at(&planes.sign, from)));
                let v = _mm256_xor_si256(v, _mm256_set1_epi32(s.constant as i32));
                let top = _mm256_slli_epi32::<31>(v);
                let v = match s.map {
                    Map::Identity => v,
                    Map::Rotate => _mm256_or_si256(_mm256_srli_epi32::<1>(v), top),
                    Map::Zigzag => _mm256_xor_si256(_mm256_srli_epi32::<1>(v), _mm256_srai_epi32::<31>(top)),
                };
                store(at_mut(out, 4 * from), v);
            }
        }
    }

    /// The count of a shift.
    pub(super) fn count(n: u32) -> __m128i {
        _mm_cvtsi32_si128(n as i32)
    }

    /// 32 elements of four bytes, in order, from their lowest bytes, the next ones, ….
    fn dwords(planes: [__m256i; 4]) -> [__m256i; 4] {
        // Four bytes to the left, four to the right, so that unpacking twice gives eight elements in order.
        let split = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        let [a, b, c, d] = planes.each(|v| _mm256_permutevar8x32_epi32(v, split));
        let low = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
        let high = [_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d)];
        [
            _mm256_unpacklo_epi16(low[0], high[0]),
            _mm256_unpackhi_epi16(low[0], high[0]),
            _mm256_unpacklo_epi16(low[1], high[1]),
            _mm256_unpackhi_epi16(low[1], high[1]),
        ]
    }
}

/// Raw bits of a run in bytes.
struct Planes<'a> {
    bytes: &'a [u8],
    count: usize,
    /// The bits above the byte planes.
    rest: [u8; RUN],
    sign: [u8; RUN],
}

static ZERO: [u8; RUN] = [0; RUN];

impl Planes<'_> {
    kernels! {
        fn new<'a>(s: &Shape, raw: &'a [u8]) -> Planes<'a> {
            let count = s.byte_planes();
            let (bytes, bits) = raw.split_at(RUN * count);
            let mut p = Planes { bytes, count, rest: [0; RUN], sign: [0; RUN] };
            if s.bit_planes() > 0 {
                p.rest = bits::join(bits, s.bit_planes());
            }
            if s.sign_plane {
                let at = s.raw_bits % 8;
                p.sign = p.rest.each(|b| b >> at);
                p.rest = p.rest.each(|b| b & ((1 << at) - 1));
            }
            p
        }
    }

    /// The bytes of the raw bits, the lowest first.
    #[inline(always)]
    fn raw<const N: usize>(&self) -> [&[u8; RUN]; N] {
        array(|i| match i.cmp(&self.count) {
            Ordering::Less => at(self.bytes, RUN * i),
            Ordering::Equal => &self.rest,
            Ordering::Greater => &ZERO,
        })
    }
}
