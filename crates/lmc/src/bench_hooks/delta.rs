//! What a delta is made from: the bytes that a base has for those of a file, and how much they leave to be told.

use std::ops::Range;

use crate::base::Base;
use crate::diff::counterparts;
use crate::dtype::Dtype;
use crate::error::Result;
use crate::group::element::{Element, with_element};
use crate::layout;
use crate::map::Map;
use crate::predict::{Classes, Predictor};

/// For each byte of a file what a base has at its place, converted to the file's dtype; 0 where it has nothing.
pub struct Expected {
    /// As many as the file has.
    pub bytes: Vec<u8>,
    /// The stretches of the file that have something, and the dtype of their elements; whole elements.
    pub stretches: Vec<(Range<usize>, Option<Dtype>)>,
}

/// How many bits the elements of a dtype need, given the base.
///
/// This is the entropy of the distance in representable numbers (zigzag), conditional on the top eight bits below the
/// sign of the base's element (of `BF16` and `F32`, the exponent), over all elements of the dtype, from exact counts.
///
/// For elements of more than 16 bits it is not the entropy: there are too many distances to count in a file. It is the
/// entropy of the distance's length in bits and of the eight bits behind its first one, given the same key, and
/// the bits below those as they are: what a coder with such symbols cannot beat, and a better one might.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    pub dtype: Dtype,
    pub elements: u64,
    /// Bits of all elements together.
    pub bits: f64,
    /// Whether it is the entropy.
    pub exact: bool,
}

impl Expected {
    /// Looks for what a base has, as compression does.
    ///
    /// # Errors
    /// Those of reading the bases.
    pub fn new(raw: &[u8], dtype: Option<Dtype>, bases: &[Base<'_>]) -> Result<Self> {
        let layout = layout::detect(&mut &*raw, dtype)?;
        let segments = counterparts::segments(&layout, raw.len() as u64);
        let found = counterparts::find(&layout, &segments, &raw, bases)?;
        let (mut bytes, mut stretches) = (vec![0; raw.len()], vec![]);
        let (mut buf, mut converted) = (vec![], vec![]);
        for (segment, c) in segments.iter().zip(found) {
            let Some(c) = c.filter(|c| c.len > 0) else { continue };
            let start = segment.offset as usize;
            let old = c.read(segment, 0, c.len as usize, bases, &mut buf, &mut converted)?;
            bytes[start..start + old.len()].copy_from_slice(old);
            stretches.push((start..start + old.len(), segment.dtype));
        }
        Ok(Self { bytes, stretches })
    }

    /// What is left to be told of the elements of each float dtype in `raw`.
    pub fn entropies(&self, raw: &[u8]) -> Vec<Entropy> {
        let floats = Dtype::ALL.iter().filter(|d| d.map() == Map::Rotate);
        floats
            .filter_map(|&dtype| {
                let of_dtype = self.stretches.iter().filter(|s| s.1 == Some(dtype));
                let pairs = of_dtype.map(|(s, _)| (&raw[s.clone()], &self.bytes[s.clone()]));
                entropy(dtype, pairs)
            })
            .collect()
    }
}

/// The raw bytes of a base.
///
/// # Errors
/// Those of reading it.
pub fn raw_bytes(base: &Base<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; base.raw_size() as usize];
    base.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Bits behind the first one that are a part of a symbol, where not all are.
const BEHIND: u32 = 8;

fn entropy<'a>(dtype: Dtype, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Entropy> {
    let exact = dtype.coding_width() <= 2;
    let symbols = if exact { 1 << (8 * dtype.coding_width()) } else { 65 << BEHIND };
    let mut counts = Vec::new();
    let (mut elements, mut raw_bits) = (0, 0);
    with_element!(dtype.coding_width(), E => for (new, old) in pairs {
        counts.resize(256 * symbols, 0u64);
        for (u, p) in new.chunks_exact(E::BYTES).zip(old.chunks_exact(E::BYTES)) {
            let (u, p) = (E::load(u), E::load(p));
            let e = Predictor::Float.residual(u, p).wide();
            let (symbol, below) = if exact { (e as usize, 0) } else { symbol(e) };
            counts[usize::from(Classes::key(p, E::BITS - 8)) * symbols + symbol] += 1;
            raw_bits += u64::from(below);
            elements += 1;
        }
    });
    let by_key = counts.chunks(symbols).map(|counts| {
        let cost = |n: u64| if n > 0 { n as f64 * (n as f64).log2() } else { 0.0 };
        cost(counts.iter().sum()) - counts.iter().copied().map(cost).sum::<f64>()
    });
    (elements > 0).then(|| Entropy { dtype, elements, bits: by_key.sum::<f64>() + raw_bits as f64, exact })
}

/// Length and first bits of a number, and how many bits of it are below those.
fn symbol(e: u64) -> (usize, u32) {
    let length = 64 - e.leading_zeros();
    let below = length.saturating_sub(1 + BEHIND);
    let behind = (e >> below) & ((1 << length.saturating_sub(1).min(BEHIND)) - 1);
    ((length as usize) << BEHIND | behind as usize, below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(dtype: Dtype, new: &[u8], old: &[u8]) -> f64 {
        entropy(dtype, [(new, old)].into_iter()).unwrap().bits
    }

    #[test]
    fn entropies_of_known_distributions() {
        // Two exponents. Under one, nothing changes; under the other, half of all elements move by one value.
        let old: Vec<u8> = (0..4096u16).flat_map(|i| (0x3f80 + (i % 2) * 0x80).to_le_bytes()).collect();
        let each = old.chunks(2).map(|e| u16::from_le_bytes([e[0], e[1]])).enumerate();
        let new: Vec<u8> = each.flat_map(|(i, e)| (e + u16::from(i % 4 == 1)).to_le_bytes()).collect();
        assert_eq!(bits(Dtype::Bf16, &new, &old), 2048.0);
        assert_eq!(bits(Dtype::Bf16, &old, &old), 0.0);
        assert!(entropy(Dtype::Bf16, std::iter::empty()).is_none());
        // All distances from 0 to 2^16 − 1 once, from one element.
        let all: Vec<u8> = (0..=u16::MAX).flat_map(|i| i.to_le_bytes()).collect();
        let same = 0x3f80u16.to_le_bytes().repeat(1 << 16);
        assert!((bits(Dtype::F16, &all, &same) / 65536.0 - 16.0).abs() < 1e-9);
    }

    #[test]
    fn wide_distances_keep_their_low_bits() {
        let old = 1.0f32.to_le_bytes().repeat(1024);
        let new: Vec<u8> = (0..1024u32).flat_map(|i| (1.0f32.to_bits() + (1 << 19) + i).to_le_bytes()).collect();
        // Zigzag doubles them: 21 bits, of which eight are a symbol with the length; all of them have the same.
        assert_eq!(bits(Dtype::F32, &new, &old), 1024.0 * 12.0);
        assert_eq!(symbol(0), (0, 0));
        assert_eq!(symbol(1), (1 << 8, 0));
        assert_eq!(symbol(5), ((3 << 8) + 1, 0));
        assert_eq!(symbol(0x1ff), ((9 << 8) + 0xff, 0));
        assert_eq!(symbol(u64::MAX), ((64 << 8) + 0xff, 55));
    }

    #[test]
    fn what_is_expected_is_what_the_base_has() {
        let base: Vec<u8> = (0..600u32).flat_map(|i| i.to_le_bytes()).collect();
        let raw: Vec<u8> = (0..500u32).flat_map(|i| (i + 1).to_le_bytes()).collect();
        let bases = [Base::new(&base[..]).unwrap()];
        let e = Expected::new(&raw, Some(Dtype::F32), &bases).unwrap();
        assert_eq!((e.bytes.len(), &e.bytes[..]), (2000, &base[..2000]));
        assert_eq!(e.stretches, [(0..2000, Some(Dtype::F32))]);
        let [f32] = e.entropies(&raw)[..] else { panic!() };
        assert_eq!((f32.dtype, f32.elements, f32.bits, f32.exact), (Dtype::F32, 500, 0.0, false));
        assert_eq!(raw_bytes(&bases[0]).unwrap(), base);
    }
}
