//! Tensors whose elements are products of levels and scales, perhaps with an offset, as dequantised weights are, or nearly.

use crate::input::{Input, Random};
use lmc::Dtype;

/// The types that have grids.
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// A format with offsets: those of ggml, whose products and sums are rounded one after the other.
#[derive(Clone, Copy)]
struct Affine {
    /// Of the index of a level: levels are 0, 1, 2, …
    bits: u32,
    /// Elements of a group, which is part of a row.
    columns: usize,
    /// Scales and offsets are multiples, below this, of those of 256 elements. 0: each group has its own.
    multiples: u64,
}

const AFFINE: [Affine; 5] = [
    // Q4_1, Q5_1, Q2_K, Q4_K, Q5_K.
    Affine { bits: 4, columns: 32, multiples: 0 },
    Affine { bits: 5, columns: 32, multiples: 0 },
    Affine { bits: 2, columns: 16, multiples: 16 },
    Affine { bits: 4, columns: 32, multiples: 64 },
    Affine { bits: 5, columns: 32, multiples: 64 },
];

impl Affine {
    /// The scale and the offset of each of `count` groups.
    fn groups(self, count: usize, exponent: i32, random: &mut Random) -> Vec<(f32, f32)> {
        // As many bits as an F16 has.
        let f16 = |random: &mut Random| (1024 + random.below(1024)) as f32 * 2f32.powi(3 * exponent - 18);
        let (mut scale, mut offset) = (0.0, 0.0);
        let group = |i| {
            if self.multiples == 0 {
                return (f16(random), -8.0 * f16(random));
            }
            if i % (256 / self.columns) == 0 {
                (scale, offset) = (f16(random), f16(random));
            }
            (scale * random.below(self.multiples) as f32, -(offset * random.below(self.multiples) as f32))
        };
        (0..count).map(group).collect()
    }
}

/// A safetensors file of a tensor of at least 32 KiB; some elements may have any value.
pub fn safetensors(input: &mut Input<'_>) -> Vec<u8> {
    let choice = input.below(2 * DTYPES.len());
    let (dtype, has_offsets) = (DTYPES[choice % DTYPES.len()], choice >= DTYPES.len());
    let width = if dtype == Dtype::F32 { 4 } else { 2 };
    let n = (33 << 10) / width + input.below(1 << 13);
    let row = [1, 16, 64, 77, 128, 256, 1000, 1 + input.below(n)][input.below(8)];
    let (mut rows, mut columns) = [
        (1, 64),
        (1, 32),
        (1, row),
        (128, 128),
        (128, 1),
        (1, 16),
        (n, n),
        (1 + input.below(200), 1 + input.below(200)),
    ][input.below(8)];
    let rows_of_tensor = n.div_ceil(row);
    let n = rows_of_tensor * row;
    let mut levels = levels(input);
    let exponent = [0, 0, 0, -20, 20, -36, 36, input.below(76) as i32 - 38][input.below(8)];
    let spread = input.below(3) as u64;
    let damage = [0, 0, 2000, 100, 20, 3][input.below(6)];
    let affine = has_offsets.then(|| AFFINE[input.below(AFFINE.len())]);
    if let Some(Affine { bits, columns: of_format, .. }) = affine {
        (rows, columns, levels) = (1, of_format, (0..1 << bits).map(|q| q as f32).collect());
    }
    let mut random = input.random();
    let groups_in_a_row = row.div_ceil(columns);
    let group_count = rows_of_tensor.div_ceil(rows) * groups_in_a_row;
    let groups: Vec<(f32, f32)> = match affine {
        Some(affine) => affine.groups(group_count, exponent, &mut random),
        // Sums with −0 do not change.
        None => (0..group_count)
            .map(|_| ((1 + random.below(1 << (1 + 11 * spread))) as f32 * 10f32.powi(exponent), -0.0))
            .collect(),
    };
    let mut raw = Vec::with_capacity(n * width);
    for i in 0..n {
        let (scale, offset) = groups[i / row / rows * groups_in_a_row + i % row / columns];
        let level = levels[random.below(levels.len() as u64).min(random.below(levels.len() as u64)) as usize];
        let mut bits = (scale * level + offset).to_bits();
        if damage > 0 && random.below(damage) == 0 {
            bits = match random.below(3) {
                0 => bits.wrapping_add(1 << random.below(20)),
                1 => random.u64() as u32,
                _ => 0x7f80_0000 | (random.u64() as u32 & 0x8040_0000),
            };
        }
        match dtype {
            Dtype::F32 => raw.extend(bits.to_le_bytes()),
            Dtype::Bf16 => raw.extend((bits.saturating_add(0x7fff + (bits >> 16 & 1)) >> 16).to_le_bytes()[..2].iter()),
            _ => raw.extend(f16_of(bits).to_le_bytes()),
        }
    }
    let header =
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":[{rows_of_tensor},{row}],"data_offsets":[0,{}]}}}}"#, raw.len());
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &raw].concat()
}

/// The F16 nearest to the bits of an F32; of a NaN, the upper bits.
fn f16_of(bits: u32) -> u16 {
    let magnitude = bits & 0x7fff_ffff;
    let nearest = match magnitude >> 23 {
        // Subnormal numbers are multiples of 2^−24.
        ..113 => (f32::from_bits(magnitude) * 2f32.powi(24)).round_ties_even() as u32,
        113..143 => (magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13,
        143..255 => 0x7c00,
        255.. => 0x7c00 | magnitude >> 13 & 0x3ff,
    };
    (bits >> 16 & 0x8000 | nearest) as u16
}

/// The levels of a format, or any.
fn levels(input: &mut Input<'_>) -> Vec<f32> {
    let integers = |from: i32, to: i32| (from..=to).map(|i| i as f32).collect();
    match input.below(8) {
        0 => integers(-7, 7),
        1 => integers(-127, 127),
        2 => integers(-15, 15),
        3 => vec![0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
        4 => (0..127u8).flat_map(|code| [e4m3(code), -e4m3(code)]).collect(),
        5 => vec![-1.0, 0.0, 1.0],
        6 => integers(-128, 128),
        _ => {
            let count = 1 + input.below(300);
            let mut random: Random = input.random();
            (0..count).map(|_| (random.u64() as i32) as f32 / 1e9).collect()
        }
    }
}

fn e4m3(code: u8) -> f32 {
    let (e, m) = (i32::from(code >> 3), f32::from(code & 7) / 8.0);
    if e == 0 { m * 2f32.powi(-6) } else { (1.0 + m) * 2f32.powi(e - 7) }
}
