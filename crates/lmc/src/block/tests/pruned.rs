//! Tensors that are mostly zeros.

use super::*;
use crate::block::methods::Method;
use crate::block::stream::plan::{Planner, coding_of};

/// Elements that the first column lists.
fn listed(record: &[u8]) -> usize {
    head_of(record).columns[0].method.streams().map(|s| s.listed()).sum()
}

/// `n` elements: one in `one_in` is a weight or an integer of a few bits, one in `wild` any bits; the others are 0.
fn pruned(dtype: Dtype, n: usize, one_in: u64, wild: u64, seed: u64) -> Vec<u8> {
    let mut r = Random(seed);
    let element = |r: &mut Random| -> Vec<u8> {
        let w = r.normal() * 0.02;
        let any = r.next().to_le_bytes();
        match dtype {
            _ if wild > 0 && r.next().is_multiple_of(wild) => any[..dtype.coding_width()].to_vec(),
            Dtype::Bf16 => bf16(w).to_vec(),
            // The weight in fewer bits, never subnormal.
            Dtype::F16 => (((w.abs().to_bits() >> 13).max(113 << 10) - (112 << 10)) as u16 | (any[0] as u16) << 15)
                .to_le_bytes()
                .to_vec(),
            Dtype::F32 => w.to_le_bytes().to_vec(),
            Dtype::F64 => (f64::from(w) * (1.0 + f64::from(any[0]) / 1e12)).to_le_bytes().to_vec(),
            _ => {
                let v = (r.normal() * 9.0) as i64;
                v.to_le_bytes()[..dtype.coding_width()].to_vec()
            }
        }
    };
    let zero = vec![0; dtype.coding_width()];
    (0..n).flat_map(|_| if r.next().is_multiple_of(one_in) { element(&mut r) } else { zero.clone() }).collect()
}

/// Entropy of the places of nonzero elements and of their exponents, plus all other bits, in bits.
fn entropy(raw: &[u8], dtype: Dtype) -> f64 {
    let (width, mantissa) = match dtype {
        Dtype::Bf16 => (2, 7),
        Dtype::F16 => (2, 10),
        Dtype::F32 => (4, 23),
        _ => (8, 52),
    };
    let mut exponents = std::collections::BTreeMap::new();
    let mut word = [0; 8];
    for e in raw.chunks(width).filter(|e| e.iter().any(|&b| b != 0)) {
        word[..width].copy_from_slice(e);
        let magnitude = u64::from_le_bytes(word) & !(1 << (8 * width - 1));
        *exponents.entry(magnitude >> mantissa).or_insert(0.0) += 1.0;
    }
    let (n, k) = ((raw.len() / width) as f64, exponents.values().sum::<f64>());
    let place = k * (n / k).log2() + (n - k) * (n / (n - k)).log2();
    place + exponents.values().map(|&c| c * (k / c).log2()).sum::<f64>() + k * (mantissa + 1) as f64
}

/// Constants are clusters without symbols, which need no lanes.
#[test]
fn constants_take_a_few_bytes() {
    for element in [[0, 0], [0x80, 0x3f]] {
        for dtype in [Dtype::Bf16, Dtype::I16] {
            let raw = element.repeat(1 << 19);
            let record = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default);
            assert!(matches!(head_of(&record).columns[0].method, Method::Plain(_)) && record.len() < 100, "{dtype:?}");
        }
    }
}

/// The size of a whole record, against the entropy of its elements.
#[test]
fn few_weights_cost_their_entropy() {
    for (dtype, width) in [(Dtype::Bf16, 2), (Dtype::F16, 2), (Dtype::F32, 4), (Dtype::F64, 8)] {
        for one_in in [1000, 500, 200, 50] {
            let raw = pruned(dtype, (8 << 20) / width, one_in, 0, one_in);
            let record = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default);
            let (taken, entropy) = (8.0 * record.len() as f64, entropy(&raw, dtype));
            let more = (taken - entropy) / (8.0 * raw.len() as f64);
            assert!(more < 0.0025, "{dtype:?}, one in {one_in}: {taken} bits, an entropy of {entropy}");
        }
    }
}

/// Every dtype and density: a sparse list is smaller than clusters, or clusters are used.
#[test]
fn lists_are_smaller_than_clusters() {
    let mut columns = 0;
    for &dtype in Dtype::ALL {
        let (width, map) = coding_of(dtype);
        for (one_in, wild) in [(1000, 0), (1000, 20), (100, 0), (100, 300), (10, 0), (10, 2), (4, 0), (2, 0), (1, 0)] {
            let raw = pruned(dtype, 60_000, one_in, wild, 5 + one_in);
            for &level in Level::ALL {
                let clusters = Planner::new(Isa::PORTABLE, level).plan_clusters(width, map, &raw).estimate;
                let record = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], level);
                let patched = listed(&record);
                assert!(
                    record.len() as u64 <= clusters + 700,
                    "{dtype:?}, one in {one_in}: {} of {clusters}",
                    record.len()
                );
                assert!(patched == 0 || one_in > 1, "{dtype:?}, one in {one_in}: too many are sparse");
                columns += usize::from(patched > 0);
            }
        }
    }
    // Floats at least, where they are few.
    assert!(columns > 7 * 5 * 3, "{columns} columns are sparse");
}

/// Rows that were pruned as a whole get a cluster, and the others are not sparse.
#[test]
fn whole_rows_of_zeros_are_clusters() {
    let rows =
        weights(512 * 512, 9).chunks(512).enumerate().map(|(i, row)| (i % 16 == 0, row.to_vec())).collect::<Vec<_>>();
    let raw: Vec<u8> =
        rows.iter().flat_map(|(kept, row)| row.iter().flat_map(|&w| bf16(if *kept { w } else { 0.0 }))).collect();
    let record = one(Some(Dtype::Bf16), &raw);
    assert_eq!(listed(&record), 0);
    assert!(record.len() * 16 < raw.len(), "{} of {}", record.len(), raw.len());
}

/// A mask that moved: a prediction is wrong wherever either has a weight, and a sparse list is far smaller.
#[test]
fn lists_are_smaller_than_predictions_of_other_masks() {
    for (dtype, width) in [(Dtype::Bf16, 2), (Dtype::F32, 4)] {
        for one_in in [8, 15, 20, 30] {
            let (raw, base) =
                (pruned(dtype, (1 << 20) / width, one_in, 0, 21), pruned(dtype, (1 << 20) / width, one_in, 0, 22));
            let files = predicted::Files(vec![vec![], base]);
            let plain = Extent::plain(Some(dtype), raw.len());
            let extent = Extent { base: Some(predicted::reference(1, 0)), ..plain };
            for &level in Level::ALL {
                let alone = round_trip(&raw, &[plain], level).len();
                let delta = round_trip_from(&raw, &[extent], &files, level).len();
                // The tolerance of estimates, and the range.
                assert!(delta <= alone + alone / 32 + 1400, "{dtype:?}, one in {one_in}: {delta} after {alone}");
            }
        }
    }
}
