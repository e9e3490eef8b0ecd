//! Blocks of 32 elements in the files of llama.cpp (§3.10).

use super::dtypes::{F16, Tie, f4_magnitude, rounded};
use super::float32::{SIGN, difference, is_finite, is_nan, is_zero, nearest, number, product, quotient, sum};

// Types of blocks: their numbers in GGUF.
const Q4_0: u8 = 2;
const Q4_1: u8 = 3;
const Q5_0: u8 = 6;
const Q5_1: u8 = 7;
const Q8_0: u8 = 8;
const MXFP4: u8 = 39;

/// The bytes of each field of a type.
pub(super) fn lengths(blocks: u8) -> Option<&'static [usize]> {
    match blocks {
        Q4_0 => Some(&[2, 16]),
        Q4_1 => Some(&[2, 2, 16]),
        Q5_0 => Some(&[2, 4, 16]),
        Q5_1 => Some(&[2, 2, 4, 16]),
        Q8_0 => Some(&[2, 32]),
        MXFP4 => Some(&[1, 16]),
        _ => None,
    }
}

/// The fields of the block of 32 elements.
///
/// # Panics
/// When there is no such type.
pub(super) fn fields(blocks: u8, x: &[u64]) -> Vec<Vec<u8>> {
    let lengths = lengths(blocks).expect("there is such a type");
    if !x.iter().all(|&x| is_finite(x)) {
        return lengths.iter().map(|&length| vec![0; length]).collect();
    }
    let by_magnitude = |x: &&u64| **x & !SIGN;
    // The first of several.
    let largest = *x.iter().rev().max_by_key(by_magnitude).expect("32 elements");
    let magnitude = largest & !SIGN;
    match blocks {
        Q8_0 => {
            let d = quotient(magnitude, bits(127.0));
            let integer = |&x: &u64| match product(x, inverse(d)) {
                y if is_nan(y) => 0,
                y => number(y).round().clamp(-128.0, 127.0) as i8 as u8,
            };
            vec![f16(d), x.iter().map(integer).collect()]
        }
        Q4_0 | Q5_0 => {
            let (middle, most) = if blocks == Q4_0 { (8.0, 15.0) } else { (16.0, 31.0) };
            let d = quotient(largest, bits(-middle));
            let integer = |&x: &u64| truncated(sum(product(x, inverse(d)), bits(middle + 0.5)), most);
            [vec![f16(d)], of_integers(blocks, x.iter().map(integer).collect())].concat()
        }
        Q4_1 | Q5_1 => {
            let most = if blocks == Q4_1 { 15.0 } else { 31.0 };
            let (least, greatest) = extremes(x);
            let d = quotient(difference(greatest, least), bits(most));
            let integer = |&x: &u64| truncated(sum(product(difference(x, least), inverse(d)), bits(0.5)), most.into());
            [vec![f16(d), f16(least)], of_integers(blocks, x.iter().map(integer).collect())].concat()
        }
        _ => {
            // The exponent of 0 is 0, too.
            let e = (magnitude >> 23).saturating_sub(2);
            let scale = nearest(false, 1, 127 - e as i32);
            let code = |&x: &u64| {
                let y = product(x, scale);
                match f4_magnitude(y, Tie::Down) as u8 {
                    0 => 0,
                    code => code | if y & SIGN == 0 { 0 } else { 8 },
                }
            };
            vec![vec![e as u8], halves(&x.iter().map(code).collect::<Vec<u8>>())]
        }
    }
}

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

/// 1 ÷ D, or 0 if D is 0.
fn inverse(d: u64) -> u64 {
    if is_zero(d) { 0 } else { quotient(bits(1.0), d) }
}

/// As F16, two bytes.
fn f16(y: u64) -> Vec<u8> {
    (rounded(F16, y) as u16).to_le_bytes().into()
}

/// T(y, t).
fn truncated(y: u64, most: f64) -> u8 {
    if is_nan(y) { 0 } else { number(y).trunc().clamp(0.0, most) as u8 }
}

/// The least and the largest element, where −0 is less than 0.
fn extremes(x: &[u64]) -> (u64, u64) {
    let order = |x: &&u64| if **x & SIGN == 0 { **x as i64 } else { -1 - (**x & !SIGN) as i64 };
    let least = x.iter().min_by_key(order).expect("32 elements");
    let greatest = x.iter().max_by_key(order).expect("32 elements");
    (*least, *greatest)
}

/// The fields h, if the type has it, and q.
fn of_integers(blocks: u8, integers: Vec<u8>) -> Vec<Vec<u8>> {
    let high = integers.iter().rev().fold(0u32, |h, &integer| h << 1 | u32::from(integer >> 4 & 1));
    let q = halves(&integers);
    if matches!(blocks, Q5_0 | Q5_1) { vec![high.to_le_bytes().into(), q] } else { vec![q] }
}

/// The low four bits of each integer j, with those of integer j + 16.
fn halves(integers: &[u8]) -> Vec<u8> {
    let (low, high) = integers.split_at(16);
    low.iter().zip(high).map(|(low, high)| low & 15 | (high & 15) << 4).collect()
}
