//! AVX2 kernels (x86-64-v3: Haswell, Zen and later).
//!
//! A lane set is kept as 16-bit halves: register z of `high` and of `low` holds lanes z, 4+z, 8+z, …, 60+z. Everything
//! that happens to a state is then 16-bit arithmetic: AVX2 has a multiplication that gives the upper half, a lane is due
//! for a refill when its upper half is 0, and a refill is a byte shuffle by a table of 256 masks, without widening.
//! A state is scaled by f/128 as `state · (f·2^9) >> 16`, which for Huffman is the shift by the code's length that AVX2
//! lacks for words.
//!
//! A look-up in 128 entries is eight `vpshufb` (`lookup`), but rarely needed: few tables have more than 16 symbols,
//! and theirs takes three or four shuffles from a slot to the rank of its symbol (`slots`), and one for each column from
//! there. Encoders go from symbol to distance or rank in the same way (`symbols`).
//!
//! Soundness rests on two facts. Only an [`Isa`](crate::isa::Isa) of kind `Avx2` leads here, so the instructions exist.
//! Loads and stores go through references to arrays of their size, but for three: the words of lanes, eight at a time
//! from or to a window of 64, where the number of lanes before or after is the bound; gathers from tables with an entry
//! for every index; and the streams of residuals, behind whose ends `places` made sure that there is room.

/// Declares functions with the features of this module; they can be called from one another without `unsafe`.
macro_rules! kernels {
    ($($(#[$attr:meta])* $vis:vis fn $name:ident $(<$(const $g:ident : $gt:ty),*>)? $(<$l:lifetime>)? ($($arg:tt)*) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$attr])*
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        $vis fn $name $(<$(const $g: $gt),*>)? $(<$l>)? ($($arg)*) $(-> $ret)? $body
    )*};
}

mod bits;
pub(in crate::arch) mod changes;
pub(super) mod contexts;
pub(in crate::arch) mod decode;
mod emit;
pub(in crate::arch) mod encode;
mod fine;
mod gather;
mod lookup;
mod merge;
pub(in crate::arch) mod predict;
mod scatter;
mod slots;
mod split;
pub(in crate::arch) mod stats;
mod symbols;

use super::super::job::{at, at_mut};
use crate::entropy::LANES;
use crate::inline::array;
use std::arch::x86_64::*;

/// Runs between prefetching cache lines and using them. Even, so that they are prefetched in pairs where runs are processed in pairs.
const AHEAD: usize = 12;

/// The table of a cluster's symbols; a constant of the kernels.
const HUFFMAN: u8 = 0;
const COARSE: u8 = 1;
const FINE: u8 = 2;

/// The states of a lane set in registers: lane 4i + z is word i of register z.
#[derive(Clone, Copy)]
struct States {
    high: [__m256i; 4],
    low: [__m256i; 4],
}

kernels! {
    /// Prefetches cache lines: the runs of a cluster are scattered, which hardware prefetchers do not follow.
    fn expect<const HINT: i32>(bytes: &[u8]) {
        for line in (0..bytes.len()).step_by(64) {
            _mm_prefetch::<HINT>(bytes.as_ptr().wrapping_add(line).cast());
        }
    }

    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are there to read.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    fn store(bytes: &mut [u8; 32], v: __m256i) {
        // SAFETY: 32 bytes are there to write.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), v) }
    }

    /// Loads 16 bytes.
    fn load_16(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there to read.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// The upper halves of the products of words: `_mm256_mulhi_epu16`.
    ///
    /// LLVM treats that intrinsic as a widening multiplication, and then tends to compute 32-bit products, at half the speed.
    fn mul_high(a: __m256i, b: __m256i) -> __m256i {
        let product: __m256i;
        // SAFETY: an AVX2 instruction on registers, and this function has AVX2.
        unsafe {
            std::arch::asm!(
                "vpmulhuw {product}, {a}, {b}",
                a = in(ymm_reg) a,
                b = in(ymm_reg) b,
                product = lateout(ymm_reg) product,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        product
    }

    /// 64 bytes in the order of lanes, from the bytes of registers 0 and 1, 2 and 3, eight of each in turn.
    fn in_order(pairs: [__m256i; 2]) -> [__m256i; 2] {
        let even = _mm256_unpacklo_epi8(pairs[0], pairs[1]);
        let odd = _mm256_unpackhi_epi8(pairs[0], pairs[1]);
        let low = _mm256_unpacklo_epi8(even, odd);
        let high = _mm256_unpackhi_epi8(even, odd);
        [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)]
    }

    fn load_states(x: &[u32; LANES]) -> States {
        let words = |z: usize, shift: u32| {
            let mut bytes = [0; 32];
            for (i, b) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                *b = ((x[4 * i + z] >> shift) as u16).to_le_bytes();
            }
            load(&bytes)
        };
        States { high: array(|z| words(z, 16)), low: array(|z| words(z, 0)) }
    }

    fn store_states(x: &mut [u32; LANES], states: &States) {
        for z in 0..4 {
            let (mut high, mut low) = ([0; 32], [0; 32]);
            store(&mut high, states.high[z]);
            store(&mut low, states.low[z]);
            for i in 0..16 {
                x[4 * i + z] = u32::from_le_bytes([low[2 * i], low[2 * i + 1], high[2 * i], high[2 * i + 1]]);
            }
        }
    }
}
