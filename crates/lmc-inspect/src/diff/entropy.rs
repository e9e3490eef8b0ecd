//! The entropy of the elements of a file, given those of its base.

use lmc::Dtype;
use lmc::internals::coding_of;
use lmc_kernels::map::Map;
use lmc_kernels::predict::residual::residuals;

use crate::element::{load, with_width};

/// The entropy of the difference of floats, given the exponents that they come from.
///
/// The difference d is the signed number of representable values from the old element to the new one, zigzagged: what
/// the codec codes. The key k is the top eight bits of the old element with its sign moved below the others: of `BF16`
/// and `F32`, the exponent. The entropy is
///
/// ```text
/// H = Σ over k of n(k) · H(d | k),  H(d | k) = − Σ over d of p(d | k) · log2 p(d | k),  p(d | k) = n(k, d) / n(k)
/// ```
///
/// with the counts n of everything that was added, so that the tensors of a dtype are pooled. It holds neither tables nor heads nor
/// checksums: no code that treats elements with one key alike is shorter, but one that looks at more (other tensors, the place,
/// changes nearby) may be. With few elements for the differences that occur, as between unrelated tensors, counts follow chance
/// and H is too small.
///
/// For elements of more than 16 bits it is not the entropy of d itself, because nearly every value of d occurs once. It
/// is the entropy of d's length in bits and of the eight bits behind its first one, given the same key, plus all bits
/// below those.
#[derive(Clone, Debug)]
pub struct DifferenceEntropy {
    dtype: Dtype,
    elements: u64,
    /// Bits as they are.
    below: u64,
    /// For each key that occurred, how often each symbol did.
    counts: Vec<Option<Box<[u64]>>>,
}

/// Bits behind the first one that are a part of a symbol, where not all are.
const BEHIND: u32 = 8;
/// Bytes of elements whose differences are computed at a time.
const AT_ONCE: usize = 4096;

impl DifferenceEntropy {
    /// Nothing counted yet. `None` for types that are no floats.
    pub fn new(dtype: Dtype) -> Option<Self> {
        let float = coding_of(dtype).1 == Map::Rotate;
        float.then(|| Self { dtype, elements: 0, below: 0, counts: vec![None; 256] })
    }

    /// Counts elements and those that they come from.
    ///
    /// # Panics
    /// If they are not of one length and whole.
    pub fn add(&mut self, new: &[u8], old: &[u8]) {
        let width = self.dtype.coding_width();
        assert!(new.len() == old.len() && new.len().is_multiple_of(width), "element for element");
        let mut differences = [0; AT_ONCE];
        for (new, old) in new.chunks(AT_ONCE).zip(old.chunks(AT_ONCE)) {
            let differences = &mut differences[..new.len()];
            residuals(width, new, old, differences);
            with_width!(width, add_differences(self, differences, old));
        }
        self.elements += (new.len() / width) as u64;
    }

    /// Adds what another one of the same type counted.
    pub(crate) fn merge(&mut self, other: Self) {
        debug_assert_eq!(self.dtype, other.dtype);
        self.elements += other.elements;
        self.below += other.below;
        for (all, more) in self.counts.iter_mut().zip(other.counts) {
            match (all, more) {
                (Some(all), Some(more)) => all.iter_mut().zip(&more).for_each(|(n, m)| *n += m),
                (all, more) => *all = all.take().or(more),
            }
        }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many were counted.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// H of all of them together, in bits.
    pub fn bits(&self) -> f64 {
        let by_key = self.counts.iter().flatten().map(|counts| {
            let cost = |n: u64| if n > 0 { n as f64 * (n as f64).log2() } else { 0.0 };
            cost(counts.iter().sum()) - counts.iter().copied().map(cost).sum::<f64>()
        });
        by_key.sum::<f64>() + self.below as f64
    }

    /// Whether it is that of the difference itself.
    pub fn is_exact(&self) -> bool {
        self.dtype.coding_width() <= 2
    }
}

fn add_differences<const WIDTH: usize>(e: &mut DifferenceEntropy, differences: &[u8], old: &[u8]) {
    let exact = WIDTH <= 2;
    debug_assert_eq!(exact, e.is_exact());
    let symbols = if exact { 1 << (8 * WIDTH) } else { 65 << BEHIND };
    for (d, p) in differences.chunks_exact(WIDTH).zip(old.chunks_exact(WIDTH)) {
        let (d, p) = (load::<WIDTH>(d), load::<WIDTH>(p));
        let (symbol, below) = if exact { (d as usize, 0) } else { symbol(d) };
        let counts = &mut e.counts[usize::from(key::<WIDTH>(p))];
        counts.get_or_insert_with(|| vec![0; symbols].into())[symbol] += 1;
        e.below += u64::from(below);
    }
}

/// The top eight bits of an element whose sign has moved below the others.
#[inline(always)]
fn key<const WIDTH: usize>(element: u64) -> u8 {
    let bits = 8 * WIDTH as u32;
    ((element << 1 | element >> (bits - 1)) >> (bits - 8)) as u8
}

/// Length and first bits of a number, and how many bits of it are below those.
fn symbol(d: u64) -> (usize, u32) {
    let length = 64 - d.leading_zeros();
    let below = length.saturating_sub(1 + BEHIND);
    let behind = (d >> below) & ((1 << length.saturating_sub(1).min(BEHIND)) - 1);
    ((length as usize) << BEHIND | behind as usize, below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(dtype: Dtype, new: &[u8], old: &[u8]) -> f64 {
        let mut e = DifferenceEntropy::new(dtype).unwrap();
        e.add(new, old);
        e.bits()
    }

    #[test]
    fn known_distributions() {
        // Two exponents. Under one, nothing changes; under the other, half of all elements move by one value.
        let old: Vec<u8> = (0..4096u16).flat_map(|i| (0x3f80 + (i % 2) * 0x80).to_le_bytes()).collect();
        let each = old.chunks(2).map(|e| u16::from_le_bytes([e[0], e[1]])).enumerate();
        let new: Vec<u8> = each.flat_map(|(i, e)| (e + u16::from(i % 4 == 1)).to_le_bytes()).collect();
        assert_eq!(bits(Dtype::Bf16, &new, &old), 2048.0);
        assert_eq!(bits(Dtype::Bf16, &old, &old), 0.0);
        // All distances from 0 to 2^16 − 1 once, from one element.
        let all: Vec<u8> = (0..=u16::MAX).flat_map(|i| i.to_le_bytes()).collect();
        let same = 0x3f80u16.to_le_bytes().repeat(1 << 16);
        assert!((bits(Dtype::F16, &all, &same) / 65536.0 - 16.0).abs() < 1e-9);
    }

    #[test]
    fn tensors_of_a_dtype_are_pooled() {
        let (same, moved) = (0x3f80u16.to_le_bytes().repeat(64), 0x3f81u16.to_le_bytes().repeat(64));
        let mut e = DifferenceEntropy::new(Dtype::Bf16).unwrap();
        e.add(&same, &same);
        assert_eq!((e.bits(), e.elements(), e.is_exact()), (0.0, 64, true));
        e.add(&moved, &same);
        assert_eq!((e.bits(), e.elements()), (128.0, 128));
        // The sign is no part of the key.
        let negative = 0xbf80u16.to_le_bytes().repeat(128);
        e.add(&negative, &negative);
        let expected = 256.0 * -(0.25f64 * 0.25f64.log2() + 0.75 * 0.75f64.log2());
        assert!((e.bits() - expected).abs() < 1e-9);
    }

    #[test]
    fn parts_are_merged() {
        for dtype in [Dtype::Bf16, Dtype::F32] {
            // Another exponent in each half, and one in both.
            let old: Vec<u8> =
                (0..6000u32).flat_map(|i| ((0x3f80 + (i / 1500) * 0x80) << 16 | i).to_le_bytes()).collect();
            let new: Vec<u8> = old.iter().enumerate().map(|(i, b)| b ^ u8::from(i % 13 == 0)).collect();
            let all = bits(dtype, &new, &old);
            let mut parts = [0..12_000, 12_000..24_000].map(|part| {
                let mut e = DifferenceEntropy::new(dtype).unwrap();
                e.add(&new[part.clone()], &old[part]);
                e
            });
            let [first, second] = &mut parts;
            first.merge(second.clone());
            assert_eq!((first.bits(), first.elements()), (all, 24_000 / dtype.coding_width() as u64), "{dtype}");
            assert!(second.bits() < all);
        }
    }

    #[test]
    fn wide_distances_keep_their_low_bits() {
        let old = 1.0f32.to_le_bytes().repeat(1024);
        let new: Vec<u8> = (0..1024u32).flat_map(|i| (1.0f32.to_bits() + (1 << 19) + i).to_le_bytes()).collect();
        // Zigzag doubles them: 21 bits. Eight of these form a symbol with the length, which all of them share.
        assert_eq!(bits(Dtype::F32, &new, &old), 1024.0 * 12.0);
        assert_eq!(symbol(0), (0, 0));
        assert_eq!(symbol(1), (1 << 8, 0));
        assert_eq!(symbol(5), ((3 << 8) + 1, 0));
        assert_eq!(symbol(0x1ff), ((9 << 8) + 0xff, 0));
        assert_eq!(symbol(u64::MAX), ((64 << 8) + 0xff, 55));
    }

    #[test]
    fn only_of_floats() {
        for &dtype in Dtype::ALL {
            let float = !matches!(dtype, Dtype::Bool | Dtype::F8E8M0 | Dtype::F4 | Dtype::F6E2M3 | Dtype::F6E3M2)
                && !dtype.name().starts_with(['I', 'U']);
            assert_eq!(DifferenceEntropy::new(dtype).is_some(), float, "{dtype}");
        }
    }
}
