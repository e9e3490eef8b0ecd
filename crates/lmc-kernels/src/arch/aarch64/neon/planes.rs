//! Elements to symbols and raw bits, and back.
//!
//! Instructions that load and store structures take elements apart into their bytes and put them together. A rotation by one
//! is then, for each byte, a shift and the insertion of a bit of its neighbour.

use super::super::super::vectors::ways::{BYTE_16, BYTES_32};
use super::{at, at_mut, load, store};
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::split::{Shape, merge_run, split_run};
use std::arch::aarch64::*;

/// [`merge`] for any shape: not inlined, so that kernels share one copy.
#[inline(never)]
pub(super) fn merge_any(s: &Shape, width: usize, symbols: &[u8; RUN], raw: &[u8], out: &mut [u8]) {
    with_element!(width, E => merge_run::<E>(s, symbols, raw, out));
}

#[inline(never)]
fn split_any(s: &Shape, width: usize, elements: &[u8], symbols: &mut [u8; RUN], raw: &mut [u8]) {
    with_element!(width, E => split_run::<E>(s, elements, symbols, raw));
}

/// Registers of 16 symbols.
const PARTS: usize = RUN / 16;

kernels! {
    /// Merges the symbols and the raw bits of a run into its elements, where it has a way of its own.
    pub(super) fn merge(way: u8, symbols: &[[uint8x16_t; 4]; 2], raw: &[u8], out: &mut [u8]) {
        match way {
            BYTE_16 => merge_16(symbols, at(raw, 0), at_mut(out, 0)),
            _ => merge_32(symbols, at(raw, 0), at_mut(out, 0)),
        }
    }

    pub(super) fn stored(symbols: &[[uint8x16_t; 4]; 2]) -> [u8; RUN] {
        let mut bytes = [0; RUN];
        for (q, to) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
            store(to, symbols[q / 4][q % 4]);
        }
        bytes
    }

    /// A byte whose number is rotated right by one, and the one whose lowest bit it gets.
    fn right(v: uint8x16_t, above: uint8x16_t) -> uint8x16_t {
        vsriq_n_u8::<1>(vshlq_n_u8::<7>(above), v)
    }

    /// The inverse.
    fn left(v: uint8x16_t, below: uint8x16_t) -> uint8x16_t {
        vsriq_n_u8::<7>(vshlq_n_u8::<1>(v), below)
    }

    fn merge_16(symbols: &[[uint8x16_t; 4]; 2], raw: &[u8; RUN], out: &mut [u8; 2 * RUN]) {
        for q in 0..PARTS {
            let symbols = symbols[q / 4][q % 4];
            let raw = load(at(raw, 16 * q));
            let out: &mut [u8; 32] = at_mut(out, 32 * q);
            // SAFETY: 32 bytes are there to write.
            unsafe { vst2q_u8(out.as_mut_ptr(), uint8x16x2_t(right(raw, symbols), right(symbols, raw))) }
        }
    }

    fn merge_32(symbols: &[[uint8x16_t; 4]; 2], raw: &[u8; 3 * RUN], out: &mut [u8; 4 * RUN]) {
        for q in 0..PARTS {
            let d = symbols[q / 4][q % 4];
            let (a, b, c) = (load(at(raw, 16 * q)), load(at(raw, RUN + 16 * q)), load(at(raw, 2 * RUN + 16 * q)));
            let out: &mut [u8; 64] = at_mut(out, 64 * q);
            // SAFETY: 64 bytes are there to write.
            unsafe { vst4q_u8(out.as_mut_ptr(), uint8x16x4_t(right(a, b), right(b, c), right(c, d), right(d, a))) }
        }
    }

    /// Splits a run into symbols and raw bits.
    pub(super) fn split(way: u8, s: &Shape, width: usize, elements: &[u8], symbols: &mut [u8; RUN], raw: &mut [u8]) {
        match way {
            BYTE_16 => split_16(at(elements, 0), symbols, at_mut(raw, 0)),
            BYTES_32 => split_32(at(elements, 0), symbols, at_mut(raw, 0)),
            _ => split_any(s, width, elements, symbols, raw),
        }
    }

    fn split_16(elements: &[u8; 2 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; RUN]) {
        for q in 0..PARTS {
            let from: &[u8; 32] = at(elements, 32 * q);
            // SAFETY: 32 bytes are there to read.
            let uint8x16x2_t(a, b) = unsafe { vld2q_u8(from.as_ptr()) };
            store(at_mut(raw, 16 * q), left(a, b));
            store(at_mut(symbols, 16 * q), left(b, a));
        }
    }

    fn split_32(elements: &[u8; 4 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; 3 * RUN]) {
        for q in 0..PARTS {
            let from: &[u8; 64] = at(elements, 64 * q);
            // SAFETY: 64 bytes are there to read.
            let uint8x16x4_t(a, b, c, d) = unsafe { vld4q_u8(from.as_ptr()) };
            for (i, v) in [left(a, d), left(b, a), left(c, b)].into_iter().enumerate() {
                store(at_mut(raw, RUN * i + 16 * q), v);
            }
            store(at_mut(symbols, 16 * q), left(d, c));
        }
    }
}
