//! Tensors whose elements are products of levels and scales, as dequantised weights are, or nearly.

use crate::input::{Input, Random};
use lmc::Dtype;

/// The types that have grids.
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// A safetensors file of a tensor of at least 32 KiB, of which some elements may be anything.
pub fn safetensors(input: &mut Input<'_>) -> Vec<u8> {
    let dtype = DTYPES[input.below(DTYPES.len())];
    let width = if dtype == Dtype::F32 { 4 } else { 2 };
    let n = (33 << 10) / width + input.below(1 << 13);
    let row = [1, 16, 64, 77, 128, 256, 1000, 1 + input.below(n)][input.below(8)];
    let (rows, columns) = [
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
    let levels = levels(input);
    let exponent = [0, 0, 0, -20, 20, -36, 36, input.below(76) as i32 - 38][input.below(8)];
    let spread = input.below(3) as u64;
    let damage = [0, 0, 2000, 100, 20, 3][input.below(6)];
    let mut random = input.random();
    let groups_in_a_row = row.div_ceil(columns);
    let scales: Vec<f32> = (0..rows_of_tensor.div_ceil(rows) * groups_in_a_row)
        .map(|_| (1 + random.below(1 << (1 + 11 * spread))) as f32 * 10f32.powi(exponent))
        .collect();
    let mut raw = Vec::with_capacity(n * width);
    for i in 0..n {
        let scale = scales[i / row / rows * groups_in_a_row + i % row / columns];
        let level = levels[random.below(levels.len() as u64).min(random.below(levels.len() as u64)) as usize];
        let mut bits = (scale * level).to_bits();
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
            // Not rounded: on a grid only where nothing is lost.
            _ => raw
                .extend((bits >> 16 & 0x8000 | bits.wrapping_sub(112 << 23) >> 13 & 0x7fff).to_le_bytes()[..2].iter()),
        }
    }
    let header =
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":[{rows_of_tensor},{row}],"data_offsets":[0,{}]}}}}"#, raw.len());
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &raw].concat()
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
