//! Elements that differ from their predictions: 64 are compared at once, and those of the mask compressed.

use super::scatter::{next_lanes, pick};
use super::{AHEAD, expect_lines, index, load, store};
use crate::cluster::RUN;
use crate::inline::array;
use crate::predict::changes::{Changes, Compared, Room, STEP};
use std::arch::x86_64::*;

/// Elements of `WIDTH` bytes that are compared at once.
type Step<const WIDTH: usize> = [[u8; 64]; WIDTH];

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
            // Almost the first access to the block: prefetch it.
            expect_lines::<_MM_HINT_T0>(steps.get(i + ahead).unwrap_or(&none));
            expect_lines::<_MM_HINT_T0>(predicted.get(i + ahead).unwrap_or(&none));
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

    /// Finds those of 64 elements, from element `first` on, for which there is room.
    fn find_in<const WIDTH: usize>(bits: __m512i, e: &Step<WIDTH>, p: &Step<WIDTH>, first: usize, room: &mut Room<'_>) {
        let e: [__m512i; WIDTH] = array(|i| load(&e[i]));
        let p: [__m512i; WIDTH] = array(|i| load(&p[i]));
        let mask = differing(bits, &e, &p);
        if mask == 0 {
            return;
        }
        let n = mask.count_ones() as usize;
        let iota = index(array(|i| i as u8));
        let order = _mm512_mask_compress_epi8(iota, mask, iota);
        let first = _mm512_set1_epi32((first as u32).cast_signed());
        let mut numbers = order;
        for at in room.at[*room.len..][..n.next_multiple_of(16)].as_chunks_mut::<16>().0 {
            let v = _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(numbers)), first);
            // SAFETY: sixteen dwords are 64 bytes.
            unsafe { _mm512_storeu_si512(at.as_mut_ptr().cast(), v) };
            numbers = _mm512_shuffle_i64x2::<0b11_10_01>(numbers, numbers);
        }
        let mut numbers = order;
        let to = WIDTH * *room.len..WIDTH * *room.len + (WIDTH * n).next_multiple_of(64);
        let elements = room.elements[to.clone()].as_chunks_mut().0;
        let predictions = &mut room.predictions[to].as_chunks_mut().0[..elements.len()];
        for (i, element) in elements.iter_mut().enumerate() {
            let prediction = &mut predictions[i];
            if WIDTH == 1 {
                store(element, _mm512_permutexvar_epi8(numbers, e[0]));
                store(prediction, _mm512_permutexvar_epi8(numbers, p[0]));
            } else {
                store(element, pick(&e, numbers));
                store(prediction, pick(&p, numbers));
                numbers = next_lanes::<WIDTH>(numbers);
            }
        }
        *room.len += n;
    }

    /// The elements that differ in some of `bits`.
    fn differing<const WIDTH: usize>(bits: __m512i, a: &[__m512i; WIDTH], b: &[__m512i; WIDTH]) -> u64 {
        (0..WIDTH).fold(0, |all, i| {
            let d = _mm512_xor_si512(a[i], b[i]);
            let differing = match WIDTH {
                1 => _mm512_test_epi8_mask(d, bits),
                2 => u64::from(_mm512_test_epi16_mask(d, bits)),
                4 => u64::from(_mm512_test_epi32_mask(d, bits)),
                _ => u64::from(_mm512_test_epi64_mask(d, bits)),
            };
            all | differing << (64 / WIDTH * i)
        })
    }

    /// The low bits of `v` in every element.
    fn splat<const WIDTH: usize>(v: u64) -> __m512i {
        let v = v.cast_signed();
        match WIDTH {
            1 => _mm512_set1_epi8(v as i8),
            2 => _mm512_set1_epi16(v as i16),
            4 => _mm512_set1_epi32(v as i32),
            _ => _mm512_set1_epi64(v),
        }
    }
}
