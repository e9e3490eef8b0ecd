//! The hybrid integer code: a prefix code for the bucket of a number, which gives its magnitude, and its low bits raw
//! (`docs/format.md` §3.3.4).
//!
//! It codes data too small to fill lanes: it needs no state, and its table takes a few bytes. Gaps between random changes are
//! distributed geometrically, for which Golomb codes are the shortest prefix codes; this code comes within 0.01 bit of them, and adapts
//! to other distributions.

use super::code_lengths;
use super::cost::{self, BIT};
use super::histogram::{Histogram, by_count};
use crate::bits::{BitReader, BitWriter};
use crate::varint::Cursor;
use lmc_layout::error::{Error, Result};

const MAX_LEN: u8 = 11;
const SLOTS: usize = 1 << MAX_LEN;
/// Numbers that decide how many low bits are raw.
const SAMPLE: usize = 1024;

/// How numbers are coded, as it is stored; completeness is checked where tables are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HybridUint {
    /// Number of lowest bits, which no bucket distinguishes.
    raw_bits: u32,
    first: u8,
    /// Code lengths of the buckets from the first on; a single bucket needs no code, and its length is 0.
    lens: Box<[u16]>,
}

/// The bucket of a number, and the number of its low bits that are raw.
#[inline(always)]
fn bucket(number: u64, raw_bits: u32) -> (usize, u32) {
    let q = number >> raw_bits;
    if q < 16 {
        return (q as usize, raw_bits);
    }
    let len = 64 - q.leading_zeros();
    (16 + 4 * (len as usize - 5) + (q >> (len - 3) & 3) as usize, raw_bits + len - 3)
}

/// The lowest number of a bucket, and the number of its raw low bits; `None` if the bucket has numbers above 64 bits.
fn numbers(bucket: usize, raw_bits: u32) -> Option<(u64, u32)> {
    let (top, open) = match bucket.checked_sub(16) {
        None => (bucket as u64, raw_bits),
        Some(b) => (4 + (b as u64 & 3), raw_bits + b as u32 / 4 + 2),
    };
    let len = 64 - top.leading_zeros();
    (len + open <= 64).then(|| (top.checked_shl(open).unwrap_or(0), open))
}

fn histogram(numbers: &[u64], raw_bits: u32) -> (Histogram, u64) {
    let mut h = [0; 256];
    let mut open = 0;
    for &n in numbers {
        let (bucket, bits) = bucket(n, raw_bits);
        h[bucket] += 1;
        open += u64::from(bits);
    }
    (h, open)
}

/// Bits of a code's table, in 1/256 bit.
fn table_cost(h: &Histogram) -> u64 {
    let (first, last) = (h.iter().position(|&c| c > 0), h.iter().rposition(|&c| c > 0));
    let span = last.zip(first).map_or(0, |(l, f)| l - f);
    (24 + if span > 0 { 4 * (span as u64 + 1) } else { 0 }) * BIT
}

impl HybridUint {
    /// A code for these numbers (at least one).
    pub fn build(numbers: &[u64]) -> Self {
        assert!(!numbers.is_empty(), "a code needs a number");
        let sample: Vec<u64> = numbers.iter().copied().step_by(numbers.len().div_ceil(SAMPLE)).collect();
        let mean = sample.iter().map(|&n| u128::from(n)).sum::<u128>() / sample.len() as u128;
        let typical = 64 - (mean as u64).leading_zeros();
        let cost = |raw_bits: u32| {
            let (h, open) = histogram(&sample, raw_bits);
            let whole = (cost::entropy(&h) + open * BIT) as u128 * numbers.len() as u128 / sample.len() as u128;
            (whole + u128::from(table_cost(&h)), raw_bits)
        };
        let raw_bits = (typical.saturating_sub(5)..=typical.min(63)).map(cost).min().expect("one at least").1;
        let (h, _) = histogram(numbers, raw_bits);
        let order = by_count(&h);
        let buckets = || order.iter().map(|o| o.1);
        let first = buckets().min().expect("there is a number");
        let last = buckets().max().expect("there is a number");
        let mut lens = vec![0; usize::from(last - first) + 1];
        if order.len() > 1 {
            for (&(_, bucket), len) in order.iter().zip(code_lengths::limited(&order, MAX_LEN)) {
                lens[usize::from(bucket - first)] = len.into();
            }
        }
        Self { raw_bits, first: first as u8, lens: lens.into() }
    }

    /// Reads a code that [`Self::put`] wrote.
    pub fn parse(c: &mut Cursor<'_>) -> Result<Self> {
        let [raw_bits, first, last] = c.array()?;
        let count = usize::from(last) + 1;
        if raw_bits > 63 || usize::from(first) + count > 256 {
            return Err(Error::damaged(format!(
                "a hybrid integer code has {raw_bits} raw bits and buckets {first} to {}",
                usize::from(first) + count - 1
            )));
        }
        let mut lens = vec![0u16; count];
        if count > 1 {
            code_lengths::read(c, &mut lens)?;
        }
        Ok(Self { raw_bits: raw_bits.into(), first, lens: lens.into() })
    }

    /// Appends the code to a head.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.raw_bits as u8, self.first, (self.lens.len() - 1) as u8]);
        if self.lens.len() > 1 {
            code_lengths::write(&self.lens, out);
        }
    }

    /// The code lengths of all buckets.
    fn all_lens(&self) -> [u16; 256] {
        let mut all = [0; 256];
        all[usize::from(self.first)..][..self.lens.len()].copy_from_slice(&self.lens);
        all
    }
}

/// Writes numbers.
pub struct HybridUintWriter {
    raw_bits: u32,
    lens: [u16; 256],
    codes: [u16; 256],
}

impl HybridUintWriter {
    /// A writer of numbers in a code.
    pub fn new(code: &HybridUint) -> Self {
        let lens = code.all_lens();
        Self { raw_bits: code.raw_bits, lens, codes: code_lengths::codes(&lens, MAX_LEN) }
    }

    /// Appends a number that the code was built for.
    #[inline(always)]
    pub fn put(&self, number: u64, out: &mut BitWriter) {
        let (bucket, open) = bucket(number, self.raw_bits);
        let (code, len) = (u64::from(self.codes[bucket]), u32::from(self.lens[bucket]));
        let low = number & ((1 << open) - 1);
        if len + open <= 57 {
            out.put(low << len | code, len + open);
        } else {
            out.put(code, len);
            out.put(low & 0xffff_ffff, 32);
            out.put(low >> 32, open - 32);
        }
    }
}

/// The number that the next bits of a sequence begin with.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The lowest number of its bucket, if all numbers have at most 28 bits coded.
    lowest: u32,
    bucket: u8,
    /// Bits of its code.
    len: u8,
    /// Bits that are raw.
    open: u8,
    /// Both.
    total: u8,
}

/// Reads numbers.
pub struct HybridUintReader {
    /// By the next bits, as many as the longest code has.
    slots: Box<[Slot; SLOTS]>,
    mask: usize,
    /// Lowest number by bucket.
    lowest: Box<[u64; 256]>,
    /// The most bits that a number takes.
    most: u32,
}

impl HybridUintReader {
    /// Checks the code.
    pub fn new(code: &HybridUint) -> Result<Self> {
        let single = code.lens.len() == 1;
        let used = |len: u16| len > 0 || single;
        code_lengths::check("a hybrid integer code", code.lens.iter().copied().filter(|&len| used(len)), MAX_LEN)?;
        let codes = code_lengths::codes(&code.all_lens(), MAX_LEN);
        let count = 1 << code.lens.iter().max().expect("a bucket at least");
        let (slots, lowest) = (Box::new([Slot::default(); SLOTS]), Box::new([0; 256]));
        let mut reader = Self { slots, mask: count - 1, lowest, most: 0 };
        for (bucket, &len) in (usize::from(code.first)..).zip(&code.lens[..]).filter(|(_, l)| used(**l)) {
            let (lowest, open) = numbers(bucket, code.raw_bits).ok_or_else(|| {
                Error::damaged(format!("bucket {bucket} of a hybrid integer code has numbers above 64 bits"))
            })?;
            let total = u32::from(len) + open;
            reader.lowest[bucket] = lowest;
            reader.most = reader.most.max(total);
            let [bucket8, len8, open, total] = [bucket as u8, len as u8, open as u8, total as u8];
            let slot = Slot { lowest: lowest as u32, bucket: bucket8, len: len8, open, total };
            reader.slots[..count].iter_mut().skip(codes[bucket].into()).step_by(1 << len).for_each(|s| *s = slot);
        }
        Ok(reader)
    }

    #[inline(always)]
    fn slot(&self, ahead: u64) -> Slot {
        self.slots[ahead as usize & self.mask & (SLOTS - 1)]
    }

    /// Reads the next number.
    #[inline(always)]
    pub fn take(&self, bits: &mut BitReader<'_>) -> u64 {
        let ahead = bits.peek();
        let Slot { bucket, len, open, total, .. } = self.slot(ahead);
        let lowest = self.lowest[usize::from(bucket)];
        if total <= 57 {
            bits.skip(total.into());
            return lowest + (ahead >> len & ((1 << open) - 1));
        }
        bits.skip(len.into());
        lowest + bits.take(open.into())
    }

    /// How many numbers are at least in the bits that `BitReader::peek` returns.
    pub fn at_once(&self) -> usize {
        57 / (self.most as usize).max(1)
    }

    /// The next numbers: more than one, and at most [`Self::at_once`].
    #[inline(always)]
    pub fn take_some<const N: usize>(&self, bits: &mut BitReader<'_>, numbers: &mut [u64; N]) {
        const { assert!(N > 1, "numbers of more than 28 bits have no slots") };
        let (mut ahead, mut taken) = (bits.peek(), 0);
        for number in numbers {
            let Slot { lowest, len, open, total, .. } = self.slot(ahead);
            *number = u64::from(lowest) + (ahead >> len & ((1 << open) - 1));
            ahead >>= total;
            taken += u32::from(total);
        }
        bits.skip(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(numbers: &[u64]) -> u64 {
        let code = HybridUint::build(numbers);
        let mut stored = Vec::new();
        code.put(&mut stored);
        let mut c = Cursor::new(&stored);
        assert_eq!(HybridUint::parse(&mut c).unwrap(), code);
        c.finish().unwrap();
        let (mut w, writer) = (BitWriter::default(), HybridUintWriter::new(&code));
        numbers.iter().for_each(|&n| writer.put(n, &mut w));
        let bytes = w.finish();
        let taken = 8 * (stored.len() + bytes.len()) as u64;
        let (h, open) = histogram(numbers, code.raw_bits);
        let coded: u64 = h.iter().zip(code.all_lens()).map(|(&n, len)| u64::from(n) * u64::from(len)).sum();
        let promised = open + coded + table_cost(&h) / BIT;
        assert!(taken >= promised && taken < promised + 16, "{taken} {promised}");
        let reader = HybridUintReader::new(&code).unwrap();
        let mut bits = BitReader::new(&bytes);
        assert!(numbers.iter().all(|&n| reader.take(&mut bits) == n));
        assert!(bits.is_used_up());
        if reader.at_once() >= 2 {
            by_some::<2>(&reader, &bytes, numbers);
        }
        if reader.at_once() >= 3 {
            by_some::<3>(&reader, &bytes, numbers);
        }
        taken
    }

    fn by_some<const N: usize>(reader: &HybridUintReader, bytes: &[u8], numbers: &[u64]) {
        let (whole, rest) = numbers.as_chunks::<N>();
        let mut bits = BitReader::new(bytes);
        for numbers in whole {
            let mut some = [0; N];
            reader.take_some(&mut bits, &mut some);
            assert_eq!(&some, numbers);
        }
        assert!(rest.iter().all(|&n| reader.take(&mut bits) == n));
        assert!(bits.is_used_up());
    }

    #[test]
    fn buckets_hold_numbers() {
        for raw_bits in [0, 1, 7, 59, 60, 63] {
            for n in (0..5000).chain((0..64).flat_map(|s| [1 << s, (1 << s) - 1, 3 << s, u64::MAX >> s])) {
                let (b, open) = bucket(n, raw_bits);
                let (lowest, same) = numbers(b, raw_bits).expect("the number is in it");
                assert_eq!(open, same);
                assert!(lowest <= n && (n - lowest) >> open == 0);
            }
        }
        assert_eq!((bucket(15, 0), bucket(16, 0), bucket(u64::MAX, 0)), ((15, 0), (16, 2), (255, 61)));
        assert_eq!((numbers(255, 0).is_some(), numbers(255, 1).is_some()), (true, false));
        assert_eq!((numbers(0, 63).is_some(), numbers(1, 63).is_some(), numbers(2, 63).is_some()), (true, true, false));
    }

    #[test]
    fn numbers_come_back() {
        for n in [1, 2, 3, 100, 5000] {
            back(&vec![0; n]);
            back(&vec![u64::MAX; n]);
            back(&(0..n as u64).collect::<Vec<_>>());
            back(&(0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_of_28_bits_are_read_two_at_once() {
        for raw_bits in [24, 25] {
            // The highest numbers of 28 bits and more.
            let code = HybridUint { raw_bits, first: 0, lens: [4; 16].into() };
            let numbers: Vec<u64> =
                (0..16).flat_map(|q| [q << raw_bits, (q << raw_bits) + (1 << raw_bits) - 1]).collect();
            let (mut w, writer) = (BitWriter::default(), HybridUintWriter::new(&code));
            numbers.iter().for_each(|&n| writer.put(n, &mut w));
            let (bytes, reader) = (w.finish(), HybridUintReader::new(&code).unwrap());
            match reader.at_once() {
                2 => by_some::<2>(&reader, &bytes, &numbers),
                n => assert_eq!((raw_bits, n), (25, 1)),
            }
        }
    }

    #[test]
    fn gaps_by_chance_take_their_entropy() {
        // One element in 1000 is changed: h(p)/p bits for each gap.
        let mut random = lmc_test_inputs::Random::new(7);
        let mut gap = || (0..).find(|_| random.below(1000) == 0).expect("it happens");
        let gaps: Vec<u64> = (0..4000).map(|_| gap()).collect();
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        let entropy = gaps.len() as f64 * ((mean + 1.0).log2() + mean * ((mean + 1.0) / mean).log2());
        let taken = back(&gaps) as f64;
        assert!(taken < 1.01 * entropy, "{taken} {entropy}");
    }
}
