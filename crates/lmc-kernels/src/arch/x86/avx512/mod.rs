//! AVX-512 kernels (F, BW, DQ, VL, VBMI, VBMI2, GFNI: Ice Lake, Zen 4 and later).
//!
//! A lane set is four registers of sixteen 32-bit states; register z holds lanes z, 4+z, 8+z, …, so that byte z of dword i of a
//! register of symbols belongs to lane 4i+z, symbols come out in order, and words are taken register by register. A 128-slot
//! table column is two registers, and a look-up one `vpermi2b`. The register forms of compress and expand are used throughout; the
//! memory forms are microcode on Zen 4.
//!
//! AVX2's kernels serve all else (decision 2): statistics, changes, the contexts of elements and their ranks, elements of eight bytes, and
//! fine tables with more symbols than registers hold.
//!
//! Soundness rests on two facts. Only an [`Isa`](crate::isa::Isa) of kind `Avx512` leads here, so the instructions exist. Loads and stores
//! go through references to arrays of their size, but for three: the words of lanes, sixteen at a time from or to a window, where the
//! number of lanes before or after is the bound; the masked load of `bits`, which touches no byte that it does not select; and the
//! streams of `scatter`, behind whose ends `places` made sure that there is room.

/// Declares functions with the features of this module; they can be called from one another without `unsafe`.
macro_rules! kernels {
    ($($(#[$attr:meta])* $vis:vis fn $name:ident $(<$(const $g:ident : $gt:ty),*>)? $(<$l:lifetime>)? ($($arg:tt)*) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$attr])*
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,gfni")]
        $vis fn $name $(<$(const $g: $gt),*>)? $(<$l>)? ($($arg)*) $(-> $ret)? $body
    )*};
}

mod bits;
pub(in crate::arch) mod decode;
mod emit;
pub(in crate::arch) mod encode;
mod fine;
mod merge;
pub(in crate::arch) mod predict;
mod ranks;
mod scatter;
mod split;

use super::super::job::{at, at_mut};
pub(in crate::arch) use super::avx2::{changes, stats};
use crate::entropy::lanes::WRITE_SLACK;
use crate::entropy::{LANES, REFILL_WORDS};
use crate::inline::array;
use std::arch::x86_64::*;

/// Runs between prefetching cache lines and using them.
const AHEAD: usize = 12;

/// The table of a cluster's symbols; a constant of the kernels.
const HUFFMAN: u8 = 0;
const COARSE: u8 = 1;
/// A coarse table with a frequency whose reciprocal is rounded down.
const COARSE_MORE: u8 = 3;
/// A fine table that registers hold.
const RANKED: u8 = 2;

/// Words that the encoder of 64 symbols may touch: its own, and those that a full store touches in front of them.
const WINDOW: usize = REFILL_WORDS + WRITE_SLACK;

/// The states of a lane set in registers.
type States = [__m512i; 4];

kernels! {
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are there to read.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    fn store(bytes: &mut [u8; 64], v: __m512i) {
        // SAFETY: 64 bytes are there to write.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) }
    }

    fn load_states(x: &[u32; LANES]) -> States {
        array(|z| {
            let lanes: [u32; 16] = array(|i| x[4 * i + z]);
            // SAFETY: sixteen dwords are 64 bytes.
            unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
        })
    }

    fn store_states(x: &mut [u32; LANES], states: &States) {
        for (z, s) in states.iter().enumerate() {
            let mut lanes = [0u32; 16];
            // SAFETY: sixteen dwords are 64 bytes.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), *s) };
            for (i, lane) in lanes.into_iter().enumerate() {
                x[4 * i + z] = lane;
            }
        }
    }

    /// The lowest byte of every dword, in the order of lanes.
    fn low_bytes(x: &[__m512i; 4]) -> __m512i {
        let byte = _mm512_set1_epi32(0xff);
        // Byte z of every dword from register z.
        let a = _mm512_ternarylogic_epi32::<0xca>(byte, x[0], _mm512_slli_epi32::<8>(x[1]));
        let b = _mm512_ternarylogic_epi32::<0xca>(byte, x[2], _mm512_slli_epi32::<8>(x[3]));
        _mm512_mask_blend_epi16(0xaaaa_aaaa, a, _mm512_slli_epi32::<16>(b))
    }

    /// Prefetches cache lines for reading, or with `_MM_HINT_ET0` for writing: the runs of a cluster are scattered, and
    /// encoders go backwards, which hardware prefetchers rarely follow.
    fn expect<const HINT: i32>(bytes: &[u8]) {
        for line in bytes.chunks(64) {
            _mm_prefetch::<HINT>(line.as_ptr().cast());
        }
    }

    /// Prefetches whole lines.
    fn expect_lines<const HINT: i32>(lines: &[[u8; 64]]) {
        for line in lines {
            _mm_prefetch::<HINT>(line.as_ptr().cast());
        }
    }

    /// Keeps a loaded value in its register, where the compiler would make one instruction of the load and an expand: on Zen 4
    /// those with a memory operand are microcode.
    fn in_register(mut v: __m512i) -> __m512i {
        // SAFETY: the assembly is empty.
        unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
        v
    }

    /// Byte `i` of the result is byte `of(i)` of `(a, b)` when used as the index of `vpermi2b`.
    fn index(of: [u8; 64]) -> __m512i {
        load(&of)
    }
}

/// Bytes of `a` and `b` in turn: `a0 b0 a1 b1 …`, from byte `first` on.
const fn interleave(first: u8) -> [u8; 64] {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 32 {
        t[2 * i] = first + i as u8;
        t[2 * i + 1] = 64 + first + i as u8;
        i += 1;
    }
    t
}

/// Every `step`-th byte of two registers, from byte `first` on, then those from `first + 1` on as far as there is room.
const fn every(step: usize, first: usize) -> [u8; 64] {
    let mut t = [0; 64];
    let n = 128 / step;
    let mut i = 0;
    while i < 64 {
        t[i] = (first + i / n + step * (i % n)) as u8;
        i += 1;
    }
    t
}
