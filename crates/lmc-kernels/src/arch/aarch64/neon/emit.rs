//! Words and literals that lanes emit.

use super::super::super::vectors::shuffles::GATHER;
use super::{Due, States, load};
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::{CHUNK, REFILL_WORDS};
use std::arch::aarch64::*;

kernels! {
    /// Writes those symbols from `from` on that a mask has, last to first.
    pub(super) fn put_literals(mut mask: u64, from: usize, symbols: &[u8; CHUNK], literals: &mut LiteralWriter) {
        while mask != 0 {
            let last = 63 - mask.leading_zeros() as usize;
            literals.pos -= 1;
            literals.bytes[literals.pos] = symbols[from + last];
            mask ^= 1 << last;
        }
    }

    /// The lower halves of the eight dwords of a part.
    fn lower(x: &States, part: usize) -> uint16x8_t {
        let (z, q) = (part / 2, 2 * (part % 2));
        vuzp1q_u16(vreinterpretq_u16_u32(x[q][z]), vreinterpretq_u16_u32(x[q + 1][z]))
    }

    /// Writes the lower halves of the lanes that are due (all ones, not all zeros) to the stream, and shifts them out.
    pub(super) fn emit(all: &States, x: &mut States, lane: &mut LaneWriter) {
        let words: &mut [u16; REFILL_WORDS] = lane.words[..lane.pos].last_chunk_mut().expect("the job was checked");
        let due = Due::new(each!(8: part => lower(all, part)));
        // Each part's words are packed at the end of eight, which end where the words of the parts behind them begin.
        // What stands before them is overwritten by the parts in front, or never read.
        for part in (0..8).rev() {
            let packed = vqtbl1q_u8(vreinterpretq_u8_u16(lower(x, part)), load(&GATHER[due.mask(part)]));
            let end = REFILL_WORDS - due.behind(part);
            debug_assert!((8..=REFILL_WORDS).contains(&end));
            // SAFETY: every part has eight lanes and gives that many words at most, so that in front of the words of the
            // parts behind it there are at least eight left of the 64 for it and for each part before it.
            unsafe { vst1q_u16(words.as_mut_ptr().add(end - 8), vreinterpretq_u16_u8(packed)) };
        }
        for q in 0..4 {
            x[q] = each!(4: z => vbslq_u32(all[q][z], vshrq_n_u32::<16>(x[q][z]), x[q][z]));
        }
        lane.pos -= due.count();
    }
}
