//! The fields of numbers: sign, exponent and mantissa, how often each value of them occurs, and their entropies in
//! bits.

use std::hash::{DefaultHasher, Hash, Hasher};

use lmc::Dtype;
use lmc::internals::coding_of;
use lmc_kernels::map::Map;

use super::sums::{Magnitudes, Sums};
use crate::element::{load, signed, with_width};

/// Bits of a mantissa that are counted together at most; longer ones are counted byte by byte.
const JOINT: u32 = 10;

/// From this many bytes on, elements of 16 bits are counted by value: to clear and read a count for each value takes less time than to
/// count the fields of each element (half of it here, more than all of it at half as many bytes). Counts of 32 bits hold a block.
const MANY: usize = 1 << 15;

/// The fields of a type, in bits from the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Bytes of an element, as the codec counts them.
    pub(crate) width: usize,
    pub(crate) sign: u32,
    pub(crate) exponent: u32,
    /// Of types that are no floats: all bits.
    pub(crate) mantissa: u32,
    /// Whether the highest exponent is that of infinities and no numbers.
    infinite: bool,
    /// Of floats: the exponent of numbers from 1 to below 2.
    bias: i32,
    /// Whether the values of elements are counted: they have 8 or 16 bits.
    narrow: bool,
    class: Class,
    /// The bits that are 0 in a zero; `None` if the type has none.
    zero: Option<u64>,
    /// Whether elements are halves of a number.
    complex: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Float,
    Signed,
    Unsigned,
    /// Bytes of unknown meaning.
    Bytes,
}

impl Fields {
    /// The fields of a dtype; of bytes without one.
    pub(crate) fn of(dtype: Option<Dtype>) -> Self {
        let width = dtype.map_or(1, Dtype::coding_width);
        let bits = 8 * width as u32;
        let (sign, exponent, class) = match dtype {
            None | Some(Dtype::Bool | Dtype::Named(_)) => (0, 0, Class::Bytes),
            Some(Dtype::F64) => (1, 11, Class::Float),
            Some(Dtype::F32 | Dtype::C64 | Dtype::Bf16) => (1, 8, Class::Float),
            Some(Dtype::F16 | Dtype::F8E5M2 | Dtype::F8E5M2Fnuz) => (1, 5, Class::Float),
            Some(Dtype::F8E4M3 | Dtype::F8E4M3Fnuz) => (1, 4, Class::Float),
            Some(Dtype::F8E8M0) => (0, 8, Class::Bytes),
            Some(d) if d.bits() < 8 => (0, 0, Class::Bytes),
            Some(d) => match coding_of(d).1 {
                Map::Zigzag => (0, 0, Class::Signed),
                _ => (0, 0, Class::Unsigned),
            },
        };
        let all = u64::MAX >> (64 - bits);
        let zero = match dtype {
            Some(Dtype::F8E8M0) => None,
            // There is one zero; with the sign it is no number.
            Some(Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz) => Some(all),
            _ if class == Class::Float => Some(all >> 1),
            _ => Some(all),
        };
        let complex = dtype == Some(Dtype::C64);
        let symmetric = (1 << exponent >> 1) - 1;
        let bias = match dtype {
            Some(Dtype::F8E4M3Fnuz | Dtype::F8E5M2Fnuz) => symmetric + 1,
            _ => symmetric,
        };
        let infinite = class == Class::Float && (width >= 2 || dtype == Some(Dtype::F8E5M2));
        let narrow = width <= 2 && dtype.is_some_and(|d| d.bits() == bits);
        let mantissa = bits - sign - exponent;
        Self { width, sign, exponent, mantissa, infinite, bias, narrow, class, zero, complex }
    }

    /// Whether elements are floats.
    pub(crate) fn is_float(&self) -> bool {
        self.class == Class::Float
    }

    /// The pieces that a mantissa is counted in: first bit and bits of each.
    fn pieces(&self) -> impl Iterator<Item = (u32, u32)> {
        let (all, step) = (self.mantissa, if self.mantissa <= JOINT { self.mantissa.max(1) } else { 8 });
        (0..all).step_by(step as usize).map(move |at| (at, step.min(all - at)))
    }
}

/// How often the values of fields occur in a tensor, and properties that all its elements share.
#[derive(Clone, Debug)]
pub(crate) struct Histograms {
    fields: Fields,
    elements: u64,
    negative: u64,
    zeros: u64,
    exponents: Box<[u64]>,
    mantissas: Vec<(u32, Box<[u64]>)>,
    /// The values that occur, a bit each, of elements of 8 or 16 bits.
    values: Box<[u64]>,
    /// The bits that are set in any element.
    any: u64,
    /// As integers: the smallest and the largest.
    range: Option<(i128, i128)>,
    /// Of `F32`: whether all are values of `F16` too.
    half: bool,
}

impl Histograms {
    pub(crate) fn new(fields: Fields) -> Self {
        let zeros = |bits: u32| vec![0; 1 << bits].into_boxed_slice();
        Self {
            fields,
            elements: 0,
            negative: 0,
            zeros: 0,
            exponents: zeros(fields.exponent),
            mantissas: fields.pieces().map(|(at, bits)| (at, zeros(bits))).collect(),
            values: if fields.narrow { zeros(8 * fields.width as u32 - 6) } else { Box::default() },
            any: 0,
            range: None,
            half: fields.is_float() && fields.width == 4 && !fields.complex,
        }
    }

    /// Counts whole elements.
    pub(crate) fn add(&mut self, elements: &[u8]) {
        self.half = self.half && elements.chunks_exact(4).all(|e| is_half(load::<4>(e) as u32));
        match (self.fields.width, self.fields.class) {
            (2, Class::Float) if elements.len() >= MANY => self.add_values(elements),
            (4, Class::Float) => self.add_singles(elements),
            (width, _) => with_width!(width, add_as(self, elements)),
        }
    }

    /// Counts elements of 16 bits by value, then the fields of each value.
    fn add_values(&mut self, elements: &[u8]) {
        let mut counts = vec![0u32; 1 << 16];
        let (elements, _) = elements.as_chunks::<2>();
        elements.iter().for_each(|e| counts[usize::from(u16::from_le_bytes(*e))] += 1);
        let f = self.fields;
        for (e, &n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let (value, n) = (e as u64, u64::from(n));
            self.any |= value;
            if f.narrow {
                self.values[e >> 6] |= 1 << (e & 63);
            }
            self.zeros += if f.zero.is_some_and(|magnitude| value & magnitude == 0) { n } else { 0 };
            self.exponents[e >> f.mantissa & ((1 << f.exponent) - 1)] += n;
            self.negative += if f.sign > 0 { n * (value >> 15) } else { 0 };
            for (at, counts) in &mut self.mantissas {
                let last = counts.len() - 1;
                counts[e >> *at & last] += n;
            }
        }
        self.elements += elements.len() as u64;
    }

    /// Counts floats of 32 bits by their exponents and the three pieces of their mantissas.
    fn add_singles(&mut self, elements: &[u8]) {
        // Two tables of each, as neighbours often have the same exponent: additions to one count wait for each other.
        let mut tables = [[[0u32; 256]; 4]; 2];
        let (elements, _) = elements.as_chunks::<4>();
        let (pairs, last) = elements.as_chunks::<2>();
        let count = |table: &mut [[u32; 256]; 4], e: &[u8; 4]| {
            let e = u32::from_le_bytes(*e);
            for (counts, value) in table.iter_mut().zip([e, e >> 8, e >> 16 & 0x7f, e >> 23]) {
                counts[(value & 0xff) as usize] += 1;
            }
        };
        for [a, b] in pairs {
            count(&mut tables[0], a);
            count(&mut tables[1], b);
        }
        last.iter().for_each(|e| count(&mut tables[0], e));
        let targets = self.mantissas.iter_mut().map(|(_, counts)| counts).chain([&mut self.exponents]);
        for (i, counts) in targets.enumerate() {
            let of_both = tables[0][i].iter().zip(&tables[1][i]);
            counts.iter_mut().zip(of_both).for_each(|(n, (a, b))| *n += u64::from(a + b));
        }
        let (mut any, mut zeros, mut negative) = (0, 0, 0);
        for e in elements {
            let e = u32::from_le_bytes(*e);
            any |= e;
            zeros += u32::from(e << 1 == 0);
            negative += e >> 31;
        }
        self.any |= u64::from(any);
        self.zeros += u64::from(zeros);
        self.negative += u64::from(negative);
        self.elements += elements.len() as u64;
    }

    /// Adds the counts of other elements of the same type.
    pub(crate) fn merge(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        self.elements += other.elements;
        self.negative += other.negative;
        self.zeros += other.zeros;
        add(&mut self.exponents, &other.exponents);
        self.mantissas.iter_mut().zip(&other.mantissas).for_each(|((_, a), (_, b))| add(a, b));
        self.values.iter_mut().zip(&other.values).for_each(|(a, b)| *a |= b);
        self.any |= other.any;
        self.half &= other.half;
        self.range = match (self.range, other.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// The figures of the counts.
    pub(crate) fn sums(&self) -> Sums {
        let float = self.fields.is_float();
        Sums {
            elements: self.elements,
            zeros: self.zeros,
            not_finite: match self.fields {
                // Of the narrow types, some have no infinities, and some no exponent for NaN.
                Fields { class: Class::Float, width: 2.., .. } => self.exponents[self.exponents.len() - 1],
                _ => 0,
            },
            sign_bits: if float { entropy(&[self.negative, self.elements - self.negative]) } else { 0.0 },
            exponent_bits: entropy(&self.exponents),
            mantissa_bits: self.mantissas.iter().map(|(_, counts)| entropy(counts)).sum(),
            exponents: match self.fields.exponent {
                0 => vec![],
                _ => self.exponents.chunks(64).map(bits_of).collect(),
            },
            values: (!self.values.is_empty()).then(|| self.values.iter().map(|v| u64::from(v.count_ones())).sum()),
            fits: self.fits(),
            fingerprint: self.fingerprint(),
            ..Sums::default()
        }
    }

    /// How large the numbers are: floats that are neither 0 nor, as far as their exponents tell, infinite or no numbers.
    pub(crate) fn magnitudes(&self) -> Magnitudes {
        if !self.fields.is_float() {
            return Magnitudes::default();
        }
        let numbers = self.exponents.len() - usize::from(self.fields.infinite);
        let counts = &self.exponents[..numbers];
        // Subnormal numbers are below the first power of two of others.
        let subnormal = counts[0].saturating_sub(self.zeros);
        let of_others = Magnitudes::new(-self.fields.bias + 1, &counts[1..]);
        let mut all = Magnitudes::new(-self.fields.bias, &[subnormal]);
        all.add(&of_others);
        all
    }

    /// The narrower type that holds every element exactly, the narrowest if there are several.
    fn fits(&self) -> Option<&'static str> {
        let low_zeros = |n: u32| self.any & ((1 << n) - 1) == 0;
        match self.fields {
            _ if self.elements == 0 || self.fields.complex => None,
            Fields { class: Class::Float, width: 4, .. } if low_zeros(16) => Some("BF16"),
            Fields { class: Class::Float, width: 4, .. } if self.half => Some("F16"),
            // Exponents that F32 has for normal numbers, and zeros.
            Fields { class: Class::Float, width: 8, .. } if low_zeros(29) => {
                let used = self.exponents.iter().enumerate().filter(|(_, n)| **n > 0).map(|(e, _)| e);
                let zeros_alone = self.exponents[0] == self.zeros;
                let fit = used.clone().all(|e| e == 0 || e == 2047 || (1023 - 126..=1023 + 127).contains(&e));
                (fit && zeros_alone).then_some("F32")
            }
            Fields { class: Class::Float, width: 2, exponent: 5, .. } if low_zeros(8) => Some("F8_E5M2"),
            Fields { class: Class::Signed | Class::Unsigned, width, .. } if width > 1 => {
                let (min, max) = self.range?;
                let types: [(&str, usize, i128, i128); 6] = [
                    ("U8", 1, 0, 0xff),
                    ("I8", 1, -0x80, 0x7f),
                    ("U16", 2, 0, 0xffff),
                    ("I16", 2, -0x8000, 0x7fff),
                    ("U32", 4, 0, 0xffff_ffff),
                    ("I32", 4, -0x8000_0000, 0x7fff_ffff),
                ];
                let narrower = types.iter().filter(|t| t.1 < width);
                narrower.into_iter().find(|t| t.2 <= min && max <= t.3).map(|t| t.0)
            }
            _ => None,
        }
    }

    /// Equal for equal tensors; different for almost all others.
    fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.fields.width, self.elements, self.negative, self.any).hash(&mut hash);
        self.exponents.hash(&mut hash);
        self.mantissas.hash(&mut hash);
        hash.finish()
    }
}

fn add_as<const WIDTH: usize>(h: &mut Histograms, elements: &[u8]) {
    let f = h.fields;
    let bits = 8 * WIDTH as u32;
    let integer = matches!(f.class, Class::Signed | Class::Unsigned) && WIDTH > 1;
    let (exponent_mask, mantissa) = ((1u64 << f.exponent) - 1, f.mantissa);
    let (mut any, mut zeros, mut negative) = (h.any, 0, 0);
    let (magnitude, has_zero) = (f.zero.unwrap_or(0), f.zero.is_some());
    let of_values = h.values.len().wrapping_sub(1);
    let (mut min, mut max) = h.range.unwrap_or((i128::MAX, i128::MIN));
    for e in elements.chunks_exact(WIDTH) {
        let e = load::<WIDTH>(e);
        any |= e;
        if WIDTH <= 2 && f.narrow {
            h.values[(e >> 6) as usize & of_values] |= 1 << (e & 63);
        }
        zeros += u64::from(e & magnitude == 0 && has_zero);
        if f.exponent > 0 {
            h.exponents[(e.checked_shr(mantissa).unwrap_or(0) & exponent_mask) as usize] += 1;
            negative += e >> (bits - 1);
        }
        for (at, counts) in &mut h.mantissas {
            let last = counts.len() - 1;
            counts[(e >> *at) as usize & last] += 1;
        }
        if integer {
            let value = if f.class == Class::Signed { i128::from(signed::<WIDTH>(e)) } else { i128::from(e) };
            (min, max) = (min.min(value), max.max(value));
        }
    }
    let n = (elements.len() / WIDTH) as u64;
    h.any = any;
    h.zeros += zeros;
    h.negative += if f.sign > 0 { negative } else { 0 };
    h.elements += n;
    if integer && n > 0 {
        h.range = Some((min, max));
    }
}

/// Whether `F16` has the value of the bits of an `F32`, too; for a NaN, whether its payload fits.
fn is_half(f: u32) -> bool {
    let (exponent, mantissa) = (f >> 23 & 0xff, f & 0x7f_ffff);
    match exponent {
        0 => mantissa == 0,
        255 => mantissa & 0x1fff == 0,
        113..=142 => mantissa & 0x1fff == 0,
        // Subnormal numbers of F16: fewer bits the smaller they are.
        103..=112 => (mantissa | 0x80_0000) & ((1 << (126 - exponent)) - 1) == 0,
        _ => false,
    }
}

/// Bits that all these take together: n·H, H = −Σ p·log2 p.
pub(crate) fn entropy(counts: &[u64]) -> f64 {
    let cost = |n: u64| if n > 0 { n as f64 * (n as f64).log2() } else { 0.0 };
    (cost(counts.iter().sum()) - counts.iter().copied().map(cost).sum::<f64>()).max(0.0)
}

/// Which of up to 64 counts are not 0.
fn bits_of(counts: &[u64]) -> u64 {
    counts.iter().enumerate().fold(0, |bits, (i, n)| bits | u64::from(*n > 0) << i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dtype: Dtype, bytes: &[u8]) -> Histograms {
        let mut h = Histograms::new(Fields::of(Some(dtype)));
        // In two parts, as blocks have them.
        let half = bytes.len() / dtype.coding_width() / 2 * dtype.coding_width();
        h.add(&bytes[..half]);
        let mut other = Histograms::new(h.fields);
        other.add(&bytes[half..]);
        h.merge(&other);
        h
    }

    fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
        values.into_iter().flat_map(f32::to_le_bytes).collect()
    }

    #[test]
    fn counted_by_value_is_the_same() {
        for d in [Dtype::Bf16, Dtype::F16] {
            let bytes: Vec<u8> = lmc_test_inputs::noise(MANY, 1).iter().map(|b| b & 0x93).collect();
            let (mut by_value, mut one_by_one) =
                (Histograms::new(Fields::of(Some(d))), Histograms::new(Fields::of(Some(d))));
            by_value.add(&bytes);
            bytes.chunks(1000).for_each(|few| one_by_one.add(few));
            assert_eq!(format!("{by_value:?}"), format!("{one_by_one:?}"), "{d}");
            assert!(by_value.negative > 0 && by_value.zeros > 0, "{d}");
        }
    }

    #[test]
    fn singles_are_counted_as_others() {
        let mut values: Vec<u32> = lmc_test_inputs::noise(40_000, 2)
            .as_chunks()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b) & 0xbf9f_3bff)
            .collect();
        values[100..200].fill(0);
        values[200] = 1 << 31;
        values[201] = f32::NAN.to_bits();
        for n in [0, 1, 150, 201, 10_000] {
            let bytes: Vec<u8> = values[..n].iter().flat_map(|v| v.to_le_bytes()).collect();
            for dtype in [Dtype::F32, Dtype::C64] {
                let (mut singles, mut others) =
                    (Histograms::new(Fields::of(Some(dtype))), Histograms::new(Fields::of(Some(dtype))));
                singles.add_singles(&bytes);
                add_as::<4>(&mut others, &bytes);
                assert_eq!(format!("{singles:?}"), format!("{others:?}"), "{dtype} {n}");
            }
        }
    }

    #[test]
    fn fields_fill_their_types() {
        for &d in Dtype::ALL {
            let f = Fields::of(Some(d));
            assert_eq!(f.sign + f.exponent + f.mantissa, 8 * f.width as u32, "{d}");
            assert_eq!(f.pieces().map(|(_, bits)| bits).sum::<u32>(), f.mantissa, "{d}");
            assert!(f.pieces().all(|(_, bits)| bits <= JOINT), "{d}");
        }
        let f = Fields::of(Some(Dtype::F32));
        assert_eq!(f.pieces().collect::<Vec<_>>(), [(0, 8), (8, 8), (16, 7)]);
        assert_eq!(Fields::of(Some(Dtype::F16)).pieces().collect::<Vec<_>>(), [(0, 10)]);
    }

    #[test]
    fn known_entropies() {
        // Half of the signs, four exponents, all mantissas of seven bits, equally often.
        let all = (0..1024u16).map(|i| (i & 1) << 15 | (120 + (i >> 1 & 3)) << 7 | i >> 3);
        let s = count(Dtype::Bf16, &all.flat_map(u16::to_le_bytes).collect::<Vec<_>>()).sums();
        assert_eq!((s.sign_bits, s.exponent_bits, s.mantissa_bits), (1024.0, 2048.0, 7168.0));
        assert_eq!((s.elements, s.zeros, s.not_finite), (1024, 0, 0));
        assert_eq!(s.distinct_exponents(), 4);
        // Bits of the mantissa of F32: two values of its highest byte.
        let s = count(Dtype::F32, &f32s((0..512).map(|i| if i % 2 == 0 { 1.0 } else { 1.5 }))).sums();
        assert_eq!((s.sign_bits, s.exponent_bits, s.mantissa_bits), (0.0, 0.0, 512.0));
        let s = count(Dtype::U8, &[7; 100]).sums();
        assert_eq!((s.exponent_bits, s.mantissa_bits, s.distinct_exponents()), (0.0, 0.0, 0));
        let s = count(Dtype::F32, &f32s([0.0, -0.0, 1.0, f32::NAN, f32::INFINITY])).sums();
        assert_eq!((s.zeros, s.not_finite, s.distinct_exponents()), (2, 2, 3));
        let zeros = |dtype| count(dtype, &[0, 0x80, 0x40, 0]).sums().zeros;
        assert_eq!([Dtype::F8E4M3, Dtype::F8E4M3Fnuz, Dtype::F8E5M2Fnuz, Dtype::F8E8M0].map(zeros), [3, 2, 2, 0]);
    }

    #[test]
    fn what_fits_a_narrower_type() {
        let fits = |values: &[f32]| count(Dtype::F32, &f32s(values.iter().copied())).fits();
        assert_eq!(fits(&[1.0, -0.5, f32::from_bits(0x7f7f_0000)]), Some("BF16"));
        assert_eq!(fits(&[1.0 + 1.0 / 1024.0, 65504.0]), Some("F16"));
        assert_eq!(fits(&[1.0 + 1.0 / 1024.0, 65536.0]), None);
        // The smallest of F16, and half of it.
        assert_eq!(fits(&[1.0 + 1.0 / 1024.0, 2f32.powi(-24), 3.0 * 2f32.powi(-24)]), Some("F16"));
        assert_eq!(fits(&[1.0 + 1.0 / 1024.0, 2f32.powi(-25)]), None);
        assert_eq!(fits(&[1.0 + 1.0 / 1024.0, 1.5 * 2f32.powi(-24)]), None);
        assert_eq!(fits(&[]), None);
        assert_eq!(count(Dtype::C64, &f32s([1.0, -0.5])).fits(), None);
        let wide = |v: &[f64]| count(Dtype::F64, &v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).fits();
        assert_eq!(
            (wide(&[0.0, 0.1_f32.into(), 1e30_f32.into()]), wide(&[0.1]), wide(&[1e-300])),
            (Some("F32"), None, None)
        );
        let ints = |v: &[i64]| count(Dtype::I64, &v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).fits();
        assert_eq!(ints(&[0, 200]), Some("U8"));
        assert_eq!(ints(&[-1, 200]), Some("I16"));
        assert_eq!((ints(&[i64::MAX]), ints(&[-40_000])), (None, Some("I32")));
        assert_eq!(count(Dtype::Bf16, &[0; 8]).fits(), None);
        assert_eq!(count(Dtype::F16, &[0, 0x3c, 0, 0xbe]).fits(), Some("F8_E5M2"));
    }

    #[test]
    fn fingerprints_tell_tensors_apart() {
        let a = count(Dtype::F32, &f32s((0..100).map(|i| i as f32)));
        assert_eq!(a.fingerprint(), count(Dtype::F32, &f32s((0..100).map(|i| i as f32))).fingerprint());
        assert_ne!(a.fingerprint(), count(Dtype::F32, &f32s((0..100).map(|i| 1.0 + i as f32))).fingerprint());
    }
}
