//! Bit planes of half a run: bit j of 64 bytes is plane j. A bit matrix of 8 by 8 is transposed by one instruction of GFNI,
//! which multiplies the vectors of one bit by it.

use super::{at_mut, index, store};
use crate::cluster::RUN;
use std::arch::x86_64::*;

/// Bytes of a plane of a run, and of half a run.
const PLANE: usize = RUN / 8;
const HALF: usize = PLANE / 2;

kernels! {
    /// Up to eight bit planes, one after the other, to the bytes of half `h`.
    pub(super) fn join(planes: &[u8], n: usize, h: usize) -> __m512i {
        let bytes = PLANE * n;
        assert!(bytes <= planes.len() && n <= 8);
        let below = |n: usize| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
        // SAFETY: the bytes that the mask selects lie in `planes`; other memory is not touched.
        let (a, b) = unsafe {
            (
                _mm512_maskz_loadu_epi8(below(bytes), planes.as_ptr().cast()),
                if bytes > 64 {
                    _mm512_maskz_loadu_epi8(below(bytes - 64), planes.as_ptr().add(64).cast())
                } else {
                    _mm512_setzero_si512()
                },
            )
        };
        transposed(_mm512_permutex2var_epi8(a, index(if h == 0 { ROWS[0] } else { ROWS[1] }), b))
    }

    /// The lowest `n` bits of the 64 bytes of half `h` to the planes of a run.
    pub(super) fn part(bytes: __m512i, n: usize, h: usize, planes: &mut [u8]) {
        let rows = transposed(_mm512_permutexvar_epi8(index(REVERSED), bytes));
        let mut parts = [0; 64];
        store(&mut parts, _mm512_permutexvar_epi8(index(PLANES), rows));
        for (j, part) in parts.as_chunks::<HALF>().0.iter().enumerate().take(n) {
            *at_mut(planes, PLANE * j + HALF * h) = *part;
        }
    }

    /// Bit k of byte i becomes bit i of byte 7 − k, in every eight bytes.
    fn transposed(v: __m512i) -> __m512i {
        _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed()), v)
    }
}

/// By half: the bytes of eight planes for eight elements at a time, the last plane's first.
const ROWS: [[u8; 64]; 2] = {
    let mut t = [[0; 64]; 2];
    let mut i = 0;
    while i < 64 {
        t[0][i] = (PLANE * (7 - i % 8) + i / 8) as u8;
        t[1][i] = t[0][i] + HALF as u8;
        i += 1;
    }
    t
};

/// Eight bytes backwards.
const REVERSED: [u8; 64] = {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 64 {
        t[i] = (i ^ 7) as u8;
        i += 1;
    }
    t
};

/// Byte i of every eight: those of plane i.
const PLANES: [u8; 64] = {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 64 {
        t[i] = (8 * (i % 8) + i / 8) as u8;
        i += 1;
    }
    t
};
