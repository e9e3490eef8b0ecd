//! Elements that differ from their predictions: 64 are compared at once. The first few of the mask are taken without looking how many
//! there are: branches on that would often be mispredicted.

use super::{AHEAD, expect, load};
use crate::cluster::RUN;
use crate::inline::array;
use crate::predict::changes::{Changes, Compared, Room, STEP};
use std::arch::x86_64::*;

/// Elements of `WIDTH` bytes that are compared at once.
type Step<const WIDTH: usize> = [[u8; 64]; WIDTH];

/// Elements of each step that are taken in any case: of those that seldom change, few steps have more.
const FIRST: usize = 3;

kernels! {
    pub(in crate::arch) fn find(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
        let room = &mut found.reset(c.width, most);
        match c.width {
            1 => find_of::<1>(c, most, room),
            2 => find_of::<2>(c, most, room),
            4 => find_of::<4>(c, most, room),
            _ => find_of::<8>(c, most, room),
        }
    }

    fn find_of<const WIDTH: usize>(c: &Compared<'_>, most: usize, room: &mut Room<'_>) -> bool {
        let Compared { elements, prediction, .. } = *c;
        let bits = splat::<WIDTH>(c.bits);
        let steps: &[Step<WIDTH>] = elements.as_chunks().0.as_chunks().0;
        let predicted: &[Step<WIDTH>] = prediction.as_chunks().0.as_chunks().0;
        let none = [[0; 64]; WIDTH];
        let ahead = AHEAD * RUN / STEP;
        for (i, step) in steps.iter().enumerate() {
            expect::<_MM_HINT_T0>(steps.get(i + ahead).unwrap_or(&none).as_flattened());
            expect::<_MM_HINT_T0>(predicted.get(i + ahead).unwrap_or(&none).as_flattened());
            find_in(bits, step, predicted.get(i).unwrap_or(&none), i * STEP, room);
            if *room.len > most {
                return false;
            }
        }
        let done = steps.len() * STEP * WIDTH;
        let (mut e, mut p) = (none, none);
        e.as_flattened_mut()[..elements.len() - done].copy_from_slice(&elements[done..]);
        if !prediction.is_empty() {
            p.as_flattened_mut()[..elements.len() - done].copy_from_slice(&prediction[done..]);
        }
        find_in(bits, &e, &p, steps.len() * STEP, room);
        *room.len <= most
    }

    /// Finds those of 64 elements, from element `first` on; there is room for all of them.
    fn find_in<const WIDTH: usize>(
        bits: __m256i,
        e: &Step<WIDTH>,
        p: &Step<WIDTH>,
        first: usize,
        room: &mut Room<'_>,
    ) {
        let mut mask = differing::<WIDTH>(bits, e, p);
        let n = mask.count_ones() as usize;
        let len = *room.len;
        let (e, p): (&[[u8; WIDTH]], &[[u8; WIDTH]]) = (e.as_flattened().as_chunks().0, p.as_flattened().as_chunks().0);
        let at = &mut room.at[len..][..STEP];
        let elements = &mut room.elements.as_chunks_mut::<WIDTH>().0[len..][..STEP];
        let predictions = &mut room.predictions.as_chunks_mut::<WIDTH>().0[len..][..STEP];
        let mut take = |slot: usize| {
            // Without a bit the last element: it is overwritten, or not counted.
            let i = (mask.trailing_zeros() as usize).min(STEP - 1);
            at[slot] = (first + i) as u32;
            (elements[slot], predictions[slot]) = (e[i], p[i]);
            mask &= mask.wrapping_sub(1);
        };
        for slot in 0..FIRST {
            take(slot);
        }
        for slot in FIRST..n {
            take(slot);
        }
        *room.len += n;
    }

    /// The elements that differ in some of `bits`.
    fn differing<const WIDTH: usize>(bits: __m256i, a: &Step<WIDTH>, b: &Step<WIDTH>) -> u64 {
        let (a, b): (&[[u8; 32]], &[[u8; 32]]) = (a.as_flattened().as_chunks().0, b.as_flattened().as_chunks().0);
        let d = |i: usize| _mm256_and_si256(_mm256_xor_si256(load(&a[i]), load(&b[i])), bits);
        let zero = _mm256_setzero_si256();
        let equal = match WIDTH {
            1 => (0..2).fold(0, |all, i| all | bytes(_mm256_cmpeq_epi8(d(i), zero)) << (32 * i)),
            2 => (0..2).fold(0, |all, i| {
                let [low, high] = array(|j| _mm256_cmpeq_epi16(d(2 * i + j), zero));
                // Packing works on halves of registers.
                let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
                all | bytes(both) << (32 * i)
            }),
            4 => (0..8).fold(0, |all, i| {
                let equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(d(i), zero));
                all | u64::from(_mm256_movemask_ps(equal).cast_unsigned()) << (8 * i)
            }),
            _ => (0..16).fold(0, |all, i| {
                let equal = _mm256_castsi256_pd(_mm256_cmpeq_epi64(d(i), zero));
                all | u64::from(_mm256_movemask_pd(equal).cast_unsigned()) << (4 * i)
            }),
        };
        !equal
    }

    /// The highest bits of bytes.
    fn bytes(v: __m256i) -> u64 {
        u64::from(_mm256_movemask_epi8(v).cast_unsigned())
    }

    /// The low bits of `v` in every element.
    fn splat<const WIDTH: usize>(v: u64) -> __m256i {
        let v = v.cast_signed();
        match WIDTH {
            1 => _mm256_set1_epi8(v as i8),
            2 => _mm256_set1_epi16(v as i16),
            4 => _mm256_set1_epi32(v as i32),
            _ => _mm256_set1_epi64x(v),
        }
    }
}
