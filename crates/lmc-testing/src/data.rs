//! Raw data to compress: elements of many distributions, and safetensors files of many small tensors.

use crate::input::{Input, Random};
use lmc::Dtype;
pub use lmc_test_inputs::noise;

/// A dtype, or none.
pub fn dtype(input: &mut Input<'_>) -> Option<Dtype> {
    let choice = input.below(Dtype::ALL.len() + 1);
    choice.checked_sub(1).map(|at| Dtype::ALL[at])
}

/// Up to some thousand bytes as the input chooses them: its own, or elements of `dtype` that look like weights, like
/// optimizer states, or like data that mislead a sampling encoder.
pub fn elements(input: &mut Input<'_>, dtype: Option<Dtype>) -> Vec<u8> {
    let width = dtype.map_or(4, Dtype::coding_width);
    let kind = input.below(8);
    if kind == 0 {
        return input.rest().to_vec();
    }
    let count = if input.below(4) > 0 { input.below(300) } else { input.below(1 << 11) };
    let (a, b) = (input.u64(), input.below(64) as u32);
    let mut random = input.random();
    let mut raw = Vec::new();
    for i in 0..count {
        let element = match kind {
            1 => weight(&mut random, dtype),
            2 => a,
            3 => random.u64(),
            4 => random.u64() & (u64::MAX >> b),
            5 if i % 128 == usize::from(b as u8) => random.u64(),
            5 => a,
            6 if (i / 128) % 3 == 0 => weight(&mut random, dtype) & (u64::MAX << (b % 16)),
            6 => weight(&mut random, dtype),
            _ => random.u64() & random.u64() & random.u64() & a,
        };
        raw.extend(&element.to_le_bytes()[..width]);
    }
    let partial_element = input.below(8);
    raw.extend(input.bytes(partial_element));
    raw
}

/// The bits of a value of standard deviation 0.02, distributed almost like trained weights.
fn weight(random: &mut Random, dtype: Option<Dtype>) -> u64 {
    let unit = |random: &mut Random| (random.u64() >> 11) as f64 / (1u64 << 53) as f64;
    let sum: f64 = (0..3).map(|_| unit(random)).sum();
    let x = (sum - 1.5) * 0.04;
    match dtype {
        Some(Dtype::Bf16) => u64::from((x as f32).to_bits() >> 16),
        Some(Dtype::F16) => {
            let bits = (x as f32 * 2f32.powi(-112)).to_bits();
            u64::from((bits >> 16 & 0x8000) | (bits >> 13 & 0x7fff))
        }
        Some(Dtype::F64) => x.to_bits(),
        Some(Dtype::F32 | Dtype::C64) | None => u64::from((x as f32).to_bits()),
        _ => (x * 1000.0) as i64 as u64,
    }
}

/// A safetensors file of a few tensors.
pub fn safetensors(input: &mut Input<'_>) -> Vec<u8> {
    let mut header = String::from("{");
    let mut data = Vec::new();
    for i in 0..input.below(12) {
        let dtype = Dtype::ALL[input.below(Dtype::ALL.len())];
        let length = elements(input, Some(dtype));
        // Whole elements of any number of bits.
        let bytes = length.len() / 24 * 24;
        let (start, end) = (data.len(), data.len() + bytes);
        let count = bytes as u64 * 8 / u64::from(dtype.bits());
        let shape = if input.bool() { format!("[{count}]") } else { format!("[{},{}]", count / 2, 2) };
        data.extend(&length[..bytes]);
        let comma = if i > 0 { "," } else { "" };
        header +=
            &format!("{comma}\"t{i}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}");
    }
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
