//! A model's snapshots to compress as deltas: tensors that were trained, renamed, converted, resized, copied, or are new.

use crate::data;
use crate::input::{Input, Random};
use lmc::Dtype;

/// A file and its bases.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// Raw bytes of earlier files.
    pub bases: Vec<Vec<u8>>,
    /// Raw bytes of the file.
    pub new: Vec<u8>,
    /// The dtype of data of no known format.
    pub dtype: Option<Dtype>,
}

struct Tensor {
    name: String,
    dtype: Dtype,
    /// Whole rows of [`COLUMNS`] elements.
    bytes: Vec<u8>,
}

const COLUMNS: usize = 4;

/// Snapshots as the input chooses them.
pub fn snapshots(input: &mut Input<'_>) -> Snapshots {
    if input.below(4) == 0 {
        let dtype = data::dtype(input);
        let old = data::elements(input, dtype);
        let mut new = old.clone();
        step(input, dtype.map_or(4, Dtype::coding_width), &mut new);
        let cut = input.below(new.len() + 1);
        match input.below(4) {
            0 => new.truncate(cut),
            1 => new.extend(input.random().bytes(cut)),
            _ => {}
        }
        return Snapshots { bases: vec![old], new, dtype };
    }
    let old: Vec<Tensor> = (0..1 + input.below(5)).map(|i| tensor(input, format!("t{i}"))).collect();
    let mut new: Vec<Tensor> = Vec::new();
    for i in 0..1 + input.below(6) {
        let t = match input.below(4) {
            // A copy of an earlier tensor.
            0 if !new.is_empty() => derived(input, &new, i),
            1 => tensor(input, format!("n{i}")),
            _ => derived(input, &old, i),
        };
        if new.iter().all(|n| n.name != t.name) {
            new.push(t);
        }
    }
    // The checkpoint may have been in two files.
    let half = if input.bool() { input.below(old.len()) } else { 0 };
    let shards = [&old[..half], &old[half..]];
    let bases = shards.iter().filter(|tensors| !tensors.is_empty()).map(|tensors| file(tensors)).collect();
    Snapshots { bases, new: file(&new), dtype: None }
}

/// A new tensor.
fn tensor(input: &mut Input<'_>, name: String) -> Tensor {
    const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];
    let dtype = match input.below(4) {
        // All but the dtypes of less than a byte, whose rows may end within one.
        0 => {
            let whole: Vec<Dtype> = Dtype::ALL.iter().copied().filter(|d| d.bits() >= 8).collect();
            whole[input.below(whole.len())]
        }
        choice => FLOATS[choice - 1],
    };
    let mut bytes = data::elements(input, Some(dtype));
    if input.below(8) == 0 && !bytes.is_empty() {
        // Enough elements for a search among earlier tensors of the file.
        bytes = bytes.iter().copied().cycle().take((4096 + input.below(200)) * dtype.coding_width()).collect();
        step(input, dtype.coding_width(), &mut bytes);
    }
    bytes.truncate(bytes.len() / (COLUMNS * dtype.coding_width()) * (COLUMNS * dtype.coding_width()));
    Tensor { name, dtype, bytes }
}

/// A later version of one of these tensors.
fn derived(input: &mut Input<'_>, from: &[Tensor], i: usize) -> Tensor {
    let old = &from[input.below(from.len())];
    let name = if input.below(3) == 0 { format!("d{i}") } else { old.name.clone() };
    let mut t = Tensor { name, dtype: old.dtype, bytes: old.bytes.clone() };
    match (input.below(6), t.dtype) {
        (0, Dtype::F32) => {
            t.dtype = Dtype::Bf16;
            t.bytes = old.bytes.chunks(4).flat_map(|e| rounded(e).to_le_bytes()).collect();
        }
        (0, Dtype::Bf16) => {
            t.dtype = Dtype::F32;
            t.bytes = old.bytes.chunks(2).flat_map(|e| [0, 0, e[0], e[1]]).collect();
        }
        (1, dtype) => {
            let row = COLUMNS * dtype.coding_width();
            let rows = input.below(2 * (t.bytes.len() / row) + 2);
            let mut random = input.random();
            t.bytes.resize_with(rows * row, || random.u64() as u8);
        }
        _ => {}
    }
    step(input, t.dtype.coding_width(), &mut t.bytes);
    t
}

/// BF16 nearest to an F32, ties to even.
fn rounded(f32: &[u8]) -> u16 {
    let x = u32::from_le_bytes(f32.try_into().expect("four bytes"));
    (x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16) as u16
}

/// Changes elements of `width` bytes, as training does or otherwise.
fn step(input: &mut Input<'_>, width: usize, bytes: &mut [u8]) {
    let kind = input.below(8);
    let one_in = 1 + input.below(256) as u64;
    let mut random = input.random();
    let elements = bytes.len() / width;
    let outlier = input.below(elements.max(1));
    for (i, e) in bytes.chunks_exact_mut(width).enumerate() {
        let mut x = [0; 8];
        x[..width].copy_from_slice(e);
        let x = u64::from_le_bytes(x);
        let nearby = |x: u64, random: &mut Random, bits: u32| {
            x.wrapping_add(random.u64() >> (64 - bits)).wrapping_sub(1 << (bits - 1))
        };
        let x = match kind {
            0 | 1 => x,
            2 => nearby(x, &mut random, 2),
            3 if random.below(one_in) == 0 => nearby(x, &mut random, 4),
            3 => x,
            4 if i == outlier => random.u64(),
            4 => nearby(x, &mut random, 1),
            // Some runs are unchanged.
            5 if (i / 128) % 4 > 0 => x,
            5 => nearby(x, &mut random, 6),
            6 => special(&mut random, width),
            _ => random.u64(),
        };
        e.copy_from_slice(&x.to_le_bytes()[..width]);
    }
}

/// An element of `width` bytes that is a corner case of floats: a zero of either sign, infinity, not a number with any payload, or
/// a denormal.
pub fn special(random: &mut Random, width: usize) -> u64 {
    let top = 8 * width as u32 - 1;
    let sign = (random.u64() & 1) << top;
    let mantissa = [3, 7, 23, 52][width.trailing_zeros() as usize];
    let exponent = ((1 << top) - 1) & !((1 << mantissa) - 1);
    let payload = random.u64() & ((1 << mantissa) - 1);
    sign | match random.below(5) {
        0 => 0,
        1 => exponent,
        2 => exponent | payload,
        3 => payload,
        _ => 1,
    }
}

/// A safetensors file.
fn file(tensors: &[Tensor]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut entries = Vec::new();
    for Tensor { name, dtype, bytes } in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        let rows = bytes.len() / (COLUMNS * dtype.coding_width());
        // An element of the dtype may be several coded ones.
        let columns = COLUMNS * dtype.coding_width() * 8 / dtype.bits() as usize;
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":[{rows},{columns}],"data_offsets":[{start},{end}]}}"#
        ));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}
