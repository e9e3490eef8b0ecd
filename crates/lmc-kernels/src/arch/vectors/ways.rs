//! Specialisations of merging symbols and raw bits.

use crate::cluster::split::Shape;
use crate::map::Map;

/// Ways to merge; a constant of the kernels, so that the frequent ones have loops of their own.
pub(in crate::arch) const BYTE_16: u8 = 0;
pub(in crate::arch) const BYTES_32: u8 = 1;
pub(in crate::arch) const ANY: u8 = 2;

/// The way for elements of a width and shape.
pub(in crate::arch) fn way(width: usize, s: &Shape) -> u8 {
    let plain = s.low == 0 && s.constant == 0 && s.map == Map::Rotate;
    match width {
        2 if plain && s.raw_bits == 8 => BYTE_16,
        4 if plain && s.raw_bits == 24 => BYTES_32,
        _ => ANY,
    }
}

/// Replaces the symbol of a merged element.
#[inline(always)]
pub(in crate::arch) fn exchange<const WAY: u8>(place: usize, old: u8, new: u8, out: &mut [u8]) {
    if WAY == BYTE_16 {
        let e = &mut out.as_chunks_mut::<2>().0[place];
        *e = (u16::from_le_bytes(*e) ^ (u16::from(old ^ new) << 8).rotate_right(1)).to_le_bytes();
    } else {
        let e = &mut out.as_chunks_mut::<4>().0[place];
        *e = (u32::from_le_bytes(*e) ^ (u32::from(old ^ new) << 24).rotate_right(1)).to_le_bytes();
    }
}
