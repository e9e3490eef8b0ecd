//! NEON kernels (every 64-bit Arm processor).
//!
//! Register z of a quarter of a lane set holds lanes z, 4+z, 8+z and 12+z of its sixteen, as the instructions that load and
//! store structures of four interleave them. Three insertions then put the low bytes of the four side by side, in the order
//! of lanes; consecutive lanes in the order of refills are in one register; and a shift by a variable count
//! reads the lowest byte of its count alone, so that counts in bytes need no widening.
//!
//! A look-up by slot or symbol is a byte in each of up to eight registers of 16 entries (`lookup`); most tables have few
//! enough symbols for one register.
//!
//! Only clusters have kernels here, and gathering residuals. NEON is in every build for aarch64, so that the compiler
//! vectorises the portable loops: the rest of the predict stage, statistics, and shapes other than the plain ones are
//! left to it.
//!
//! Soundness rests on two facts. Only an [`Isa`](crate::isa::Isa) of kind `Neon` leads here, so the instructions exist.
//! Loads and stores go through references to arrays of their size, but for the words of lanes, eight at a time from or
//! to a window of 64, where the number of lanes before or after is the bound; and the streams of residuals, behind
//! whose ends `places` made sure that there is room.

/// Declares functions with the features of this module; they can be called from one another without `unsafe`.
macro_rules! kernels {
    ($($(#[$attr:meta])* $vis:vis fn $name:ident $(<$(const $g:ident : $gt:ty),*>)? $(<$l:lifetime>)? ($($arg:tt)*) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$attr])*
        #[inline]
        #[target_feature(enable = "neon")]
        $vis fn $name $(<$(const $g: $gt),*>)? $(<$l>)? ($($arg)*) $(-> $ret)? $body
    )*};
}

/// An array of four or eight, in place.
macro_rules! each {
    (4: $i:ident => $e:expr) => { each!($i => $e; 0, 1, 2, 3) };
    (8: $i:ident => $e:expr) => { each!($i => $e; 0, 1, 2, 3, 4, 5, 6, 7) };
    ($i:ident => $e:expr; $($n:literal),*) => { [$({ let $i: usize = $n; $e }),*] };
}

pub(in crate::arch) mod decode;
mod emit;
pub(in crate::arch) mod encode;
mod fine;
mod lookup;
mod planes;
pub(in crate::arch) mod predict;
mod slots;
mod symbols;

use super::super::job::{at, at_mut};
use crate::entropy::LANES;
use crate::inline::array;
use std::arch::aarch64::*;

/// The table of a cluster's symbols; a constant of the kernels.
const HUFFMAN: u8 = 0;
const COARSE: u8 = 1;

/// A dword for each of sixteen lanes: lane 4i + z is dword i of register z.
type Quarter = [uint32x4_t; 4];
/// And for each lane of a set.
type States = [Quarter; 4];

/// Which lanes are due: eight in a register, those of z and quarters 0 and 1, of z and 2 and 3, of z + 1, …, as words are taken.
struct Due {
    parts: [uint16x8_t; 8],
    /// A bit for each.
    masks: u64,
    /// By byte: how many are due in a part and those before it.
    upto: u64,
}

impl Due {
    kernels! {
        fn new(parts: [uint16x8_t; 8]) -> Due {
            let bits = bits(each!(4: i =>
                vuzp1q_u8(vreinterpretq_u8_u16(parts[2 * i]), vreinterpretq_u8_u16(parts[2 * i + 1]))
            ));
            // At most eight each: no sum leaves its byte.
            let upto = low_64(vcntq_u8(bits)).wrapping_mul(0x0101_0101_0101_0101);
            Due { parts, masks: low_64(bits), upto }
        }
    }

    #[inline(always)]
    fn mask(&self, part: usize) -> usize {
        (self.masks >> (8 * part)) as usize & 0xff
    }

    /// How many are due before a part, at most eight times its number.
    #[inline(always)]
    fn before(&self, part: usize) -> usize {
        (self.upto << 8 >> (8 * part)) as usize & 0xff
    }

    /// How many are due behind a part, at most eight for each.
    #[inline(always)]
    fn behind(&self, part: usize) -> usize {
        self.count() - ((self.upto >> (8 * part)) as usize & 0xff)
    }

    #[inline(always)]
    fn count(&self) -> usize {
        (self.upto >> 56) as usize
    }
}

kernels! {
    fn load(bytes: &[u8; 16]) -> uint8x16_t {
        // SAFETY: 16 bytes are there to read.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    fn store(bytes: &mut [u8; 16], v: uint8x16_t) {
        // SAFETY: 16 bytes are there to write.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), v) }
    }

    /// The lowest bytes of sixteen lanes, in order.
    fn lowest(x: Quarter) -> uint8x16_t {
        let v = vsliq_n_u32::<16>(vsliq_n_u32::<8>(x[0], x[1]), vsliq_n_u32::<8>(x[2], x[3]));
        vreinterpretq_u8_u32(v)
    }

    /// Words of the even bytes, and of the odd ones.
    fn words(bytes: uint8x16_t) -> [uint16x8_t; 2] {
        let v = vreinterpretq_u16_u8(bytes);
        [vandq_u16(v, vdupq_n_u16(0xff)), vshrq_n_u16::<8>(v)]
    }

    /// The dwords of sixteen lanes, from words of the even lanes and of the odd ones.
    fn dwords(words: [uint16x8_t; 2]) -> Quarter {
        let (even, odd) = (vreinterpretq_u32_u16(words[0]), vreinterpretq_u32_u16(words[1]));
        let low = vdupq_n_u32(0xffff);
        [vandq_u32(even, low), vandq_u32(odd, low), vshrq_n_u32::<16>(even), vshrq_n_u32::<16>(odd)]
    }

    /// Shifts the states of sixteen lanes left by as many signed bytes.
    fn shifted(x: Quarter, by: uint8x16_t) -> Quarter {
        let by = vreinterpretq_u32_u8(by);
        // `vshlq_u32` uses only the lowest byte of a count.
        let by = [by, vshrq_n_u32::<8>(by), vshrq_n_u32::<16>(by), vshrq_n_u32::<24>(by)];
        each!(4: z => vshlq_u32(x[z], vreinterpretq_s32_u32(by[z])))
    }

    /// The upper halves of the products of dwords.
    fn mul_high(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        let low = vmull_u32(vget_low_u32(a), vget_low_u32(b));
        let high = vmull_high_u32(a, b);
        vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high))
    }

    /// A bit for each of 64 bytes that are all ones or all zeros, in the first eight bytes.
    fn bits(bytes: [uint8x16_t; 4]) -> uint8x16_t {
        let bit = load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
        let v = each!(4: i => vandq_u8(bytes[i], bit));
        let v = vpaddq_u8(vpaddq_u8(v[0], v[1]), vpaddq_u8(v[2], v[3]));
        vpaddq_u8(v, v)
    }

    fn low_64(v: uint8x16_t) -> u64 {
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(v))
    }

    fn load_states(x: &[u32; LANES]) -> States {
        let quarters = x.as_chunks::<16>().0;
        array(|q| {
            // SAFETY: 16 states are there to read.
            let uint32x4x4_t(a, b, c, d) = unsafe { vld4q_u32(quarters[q].as_ptr()) };
            [a, b, c, d]
        })
    }

    fn store_states(x: &mut [u32; LANES], states: &States) {
        for (q, x) in x.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let [a, b, c, d] = states[q];
            // SAFETY: 16 states are there to write.
            unsafe { vst4q_u32(x.as_mut_ptr(), uint32x4x4_t(a, b, c, d)) }
        }
    }
}
