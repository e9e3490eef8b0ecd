//! Operands for derived tensors (§3.10) of every valid shape, as the input chooses them.

use crate::input::Input;
use crate::predictions::{constant, groups};
use crate::reference::write::block::{Derivation, Scales};
use crate::streams::{element_count, mask, patch, stream, to_bytes};

// Codes of §4.
const F16: u8 = 8;
const BF16: u8 = 9;
const F32: u8 = 10;
const E4M3: u8 = 13;
const E5M2: u8 = 14;
const F4: u8 = 18;

/// Casts that are not conversions (§3.7).
const CASTS: [(u8, u8); 9] = [
    (F16, BF16),
    (F16, F32),
    (F16, E4M3),
    (F16, E5M2),
    (BF16, F16),
    (BF16, E4M3),
    (BF16, E5M2),
    (F32, E4M3),
    (F32, E5M2),
];

/// Types of blocks, and the bytes of their fields.
const BLOCKS: [(u8, &[usize]); 6] =
    [(2, &[2, 16]), (3, &[2, 2, 16]), (6, &[2, 4, 16]), (7, &[2, 2, 4, 16]), (8, &[2, 32]), (39, &[1, 16])];

/// A derivation, the width code of its column, and the number of elements.
pub(crate) fn derivation(input: &mut Input<'_>) -> (Derivation, u8, usize) {
    let kind = input.below(4);
    let from = F16 + input.below(3) as u8;
    if kind == 0 {
        let (from, to) = CASTS[input.below(CASTS.len())];
        return (Derivation::Cast { from, to }, width_code(to), element_count(input));
    }
    if kind == 1 {
        let (blocks, lengths) = BLOCKS[input.below(BLOCKS.len())];
        let field = input.below(lengths.len());
        let length = lengths[field] * (1 + input.below(40));
        let width_code = input.below(4).min(length.trailing_zeros() as usize) as u8;
        return (Derivation::Field { from, blocks, field: field as u8 }, width_code, length >> width_code);
    }
    let (operation, precision, f) = (input.below(3) as u8, F16 + input.below(3) as u8, constant(input));
    let n = element_count(input);
    if kind == 2 {
        let to = [F16, BF16, F32, E4M3, 17][input.below(5)];
        let k = [1, 2, 3, 16, 32, 1 + input.below(64) as u64][input.below(6)];
        return (Derivation::Scales { from, to, operation, precision, f, k }, width_code(to), n);
    }
    let (to, scales) = ([3, E4M3, E5M2, F4][input.below(4)], [F16, BF16, F32, E4M3, 17][input.below(5)]);
    let groups = groups(input, if to == F4 { 2 * n } else { n });
    (Derivation::Codes { from, to, operation, precision, scales, f, groups }, 0, n)
}

/// Scales of a dtype, of so many bytes together, and their coding.
pub(crate) fn scales_in_a_stream(input: &mut Input<'_>, dtype: u8, length: usize, lane_sets: u8) -> Scales {
    let (width_code, map) = (width_code(dtype), input.below(3) as u8);
    let (mut stream, mut elements) = stream(input, width_code, map, Vec::new(), length >> width_code, lane_sets);
    patch(input, width_code, &mut stream, &mut elements, |_| true);
    mask(input, 8 << width_code, &mut stream, &mut elements, lane_sets);
    Scales { bytes: to_bytes(&elements, width_code), width_code, stream }
}

/// log2 of the bytes of an element.
fn width_code(dtype: u8) -> u8 {
    match dtype {
        F16 | BF16 => 1,
        F32 => 2,
        _ => 0,
    }
}
