//! Elements that are products of levels and scales. Formulas are those of the libraries that dequantise; `bench/sizes.py` names them.

use super::*;
use crate::block::Matrix;
use crate::block::methods::predicted::grid::find::find;
use crate::block::methods::predicted::operand::Operand;
use crate::block::methods::{Column, Method};
use lmc_kernels::predict::grid::Groups;

const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Rounds to the nearest of the values, with the sign.
fn nearest(values: &[f32], x: f32) -> f32 {
    let by_distance = |a: &&f32, b: &&f32| (**a - x.abs()).abs().total_cmp(&(**b - x.abs()).abs());
    values.iter().min_by(by_distance).unwrap().copysign(x)
}

fn e4m3() -> Vec<f32> {
    let value = |code: i32| {
        let (e, m) = (code >> 3, (code & 7) as f32 / 8.0);
        if e == 0 { m * 2f32.powi(-6) } else { (1.0 + m) * 2f32.powi(e - 7) }
    };
    (0..127).map(value).collect()
}

/// Quantises each group of a matrix by `of_group`, a scale and the levels of elements, and dequantises it.
fn dequantised(
    w: &[f32],
    row: usize,
    (rows, columns): (usize, usize),
    of_group: impl Fn(&[f32]) -> (f32, Vec<f32>),
) -> Vec<f32> {
    let groups = Groups { row: row as u64, rows: rows as u64, columns: columns as u64, position: 0 };
    let mut of = vec![vec![]; groups.count(w.len() as u64) as usize];
    groups.of(w.len()).for_each(|(group, range)| of[group].extend(range));
    let mut out = vec![0.0; w.len()];
    for at in of {
        let (scale, levels) = of_group(&at.iter().map(|&i| w[i]).collect::<Vec<_>>());
        at.iter().zip(levels).for_each(|(&i, level)| out[i] = level * scale);
    }
    out
}

/// The same with an offset: `of_group` gives it after the scale. Product and sum are each rounded to binary32.
fn dequantised_with_offsets(
    w: &[f32],
    row: usize,
    columns: usize,
    of_group: impl Fn(&[f32]) -> (f32, f32, Vec<f32>),
) -> Vec<f32> {
    let mut out = vec![];
    for group in w.chunks(row).flat_map(|of_row| of_row.chunks(columns)) {
        let (scale, offset, levels) = of_group(group);
        out.extend(levels.into_iter().map(|level| scale * level + offset));
    }
    out
}

/// Integers 0 … top of a group: the nearest ones.
fn with_offset(group: &[f32], scale: f32, offset: f32, top: f32) -> (f32, f32, Vec<f32>) {
    let level = |x: &f32| if scale == 0.0 { 0.0 } else { ((x - offset) / scale).round().clamp(0.0, top) };
    (scale, offset, group.iter().map(level).collect())
}

fn ends(group: &[f32]) -> (f32, f32) {
    group.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)))
}

/// Q4_1 of ggml, and the like of other numbers of bits: the smallest value and a step, both of fp16.
fn q4_1(top: f32) -> impl Fn(&[f32]) -> (f32, f32, Vec<f32>) {
    move |group| {
        let (low, high) = ends(group);
        with_offset(group, half((high - low) / top), half(low), top)
    }
}

/// K-quants of ggml: scale and offset are integers of 6 bits times an fp16; of 256 elements there, of all here.
fn k_quant(top: f32) -> impl Fn(&[f32]) -> (f32, f32, Vec<f32>) {
    let whole = [0.2 / top, 0.1].map(|most| half(most / 63.0));
    move |group| {
        let (low, high) = ends(group);
        let [scale, offset] = [((high - low) / top, whole[0]), (-low, whole[1])]
            .map(|(x, whole)| whole * (x / whole).round().clamp(0.0, 63.0));
        with_offset(group, scale, -offset, top)
    }
}

fn largest(group: &[f32]) -> f32 {
    group.iter().fold(0.0, |a, x| x.abs().max(a))
}

/// Symmetric integers up to `top`.
fn integers(top: f32) -> impl Fn(&[f32]) -> (f32, Vec<f32>) {
    move |group| {
        let scale = largest(group) / top;
        (scale, group.iter().map(|x| (x / scale).round()).collect())
    }
}

/// Levels of a format whose largest one is `top`.
fn format(levels: Vec<f32>) -> impl Fn(&[f32]) -> (f32, Vec<f32>) {
    move |group| {
        let scale = largest(group) / levels.last().unwrap();
        (scale, group.iter().map(|x| nearest(&levels, x / scale)).collect())
    }
}

fn half(x: f32) -> f32 {
    let mut out = vec![];
    lmc_kernels::predict::convert(lmc_kernels::predict::Conversion::NarrowF16, &x.to_le_bytes(), &mut out);
    let (bits, sign) = (u32::from(out[0]) | u32::from(out[1] & 0x7f) << 8, out[1] >> 7);
    let value =
        if bits >> 10 == 0 { bits as f32 / (1 << 24) as f32 } else { f32::from_bits((bits << 13) + (112 << 23)) };
    if sign == 1 { -value } else { value }
}

/// The 4-bit NormalFloat of bitsandbytes.
fn nf4(group: &[f32]) -> (f32, Vec<f32>) {
    const LEVELS: [[f32; 8]; 2] = [
        [0.0, 0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84],
        [0.0, 0.091_050_036, 0.184_773_43, 0.284_441_38, 0.394_917_5, 0.525_073_05, 0.696_192_8, 1.0],
    ];
    let scale = largest(group);
    let levels = |x: f32| if x < 0.0 { LEVELS[1].to_vec() } else { [&LEVELS[0][..], &[1.0]].concat() };
    (scale, group.iter().map(|x| nearest(&levels(*x), x / scale)).collect())
}

/// Integers of 4 bits less a zero point, with scales of fp16, as AWQ has them.
fn with_zero_points(group: &[f32]) -> (f32, Vec<f32>) {
    let (low, high) = ends(group);
    let scale = half((high - low) / 15.0);
    let zero = (-low / scale).round().clamp(0.0, 15.0);
    (scale, group.iter().map(|x| ((x / scale).round() + zero).clamp(0.0, 15.0) - zero).collect())
}

/// Q4_0 of ggml: the element of largest magnitude becomes −8.
fn q4_0(group: &[f32]) -> (f32, Vec<f32>) {
    let top = group.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
    let scale = half(top / -8.0);
    (scale, group.iter().map(|x| (x / scale + 8.5).floor().clamp(0.0, 15.0) - 8.0).collect())
}

/// MXFP4: a power of two.
fn mxfp4(group: &[f32]) -> (f32, Vec<f32>) {
    let scale = 2f32.powf(largest(group).log2().floor() - 2.0);
    (scale, group.iter().map(|x| nearest(&E2M1, x / scale)).collect())
}

fn bytes(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::Bf16 => values.iter().flat_map(|v| bf16(*v)).collect(),
        _ => {
            let mut out = vec![];
            let wide = bytes(Dtype::F32, values);
            lmc_kernels::predict::convert(lmc_kernels::predict::Conversion::NarrowF16, &wide, &mut out);
            out
        }
    }
}

/// An extent of a matrix with rows of `row` elements, from an element on.
fn extent(dtype: Dtype, len: usize, row: usize, position: usize) -> Extent {
    let matrix = Some(Matrix { row: row as u64, position: position as u64 });
    Extent { matrix, ..Extent::plain(Some(dtype), len) }
}

/// The groups of the grids of a block.
fn grids(record: &[u8]) -> Vec<(u64, u64)> {
    let of_column = |c: Column| match c.method {
        Method::Predicted(p) => match p.operand {
            Operand::Grid(g) => Some((g.groups.rows, g.groups.columns)),
            _ => None,
        },
        _ => None,
    };
    head_of(record).columns.into_iter().filter_map(of_column).collect()
}

fn normal(n: usize, seed: u64) -> Vec<f32> {
    let mut r = Random(seed);
    (0..n).map(|_| r.normal() * 0.02).collect()
}

/// A kind of quantised weights: its name, its groups, how a group is quantised, and the size of its file in parts of raw, which
/// `bench/sizes.py` gives, and a little for less than one block.
type Kind = (&'static str, Dtype, (usize, usize), Box<dyn Fn(&[f32]) -> (f32, Vec<f32>)>, f64);

/// The size of a block that begins within a group of a matrix, and ends within one, in parts of raw.
fn size_of_part(name: &str, dtype: Dtype, values: &[f32], row: usize) -> f64 {
    let (raw, width) = (bytes(dtype, values), dtype.coding_width());
    let part = &raw[300 * width..raw.len() - 77 * width];
    let record = round_trip(part, &[extent(dtype, part.len(), row, 300)], Level::Default);
    let size = record.len() as f64 / part.len() as f64;
    println!("{name} {dtype:?}: {size:.4}, groups {:?}", grids(&record));
    size
}

#[test]
fn dequantised_weights_take_little_more_than_quantised_ones() {
    let (row, n) = (1024, 1 << 18);
    let w = normal(n, 77);
    let kinds: Vec<Kind> = vec![
        ("fp8 blocks", Dtype::Bf16, (128, 128), Box::new(format(e4m3())), 0.425),
        ("fp8 blocks", Dtype::F32, (128, 128), Box::new(format(e4m3())), 0.213),
        ("fp8 channels", Dtype::Bf16, (1, row), Box::new(format(e4m3())), 0.425),
        ("int8 rows", Dtype::Bf16, (1, row), Box::new(integers(127.0)), 0.47),
        ("int8 rows", Dtype::F16, (1, row), Box::new(integers(127.0)), 0.47),
        ("int8 rows", Dtype::F32, (1, row), Box::new(integers(127.0)), 0.236),
        ("int8 columns", Dtype::F32, (n / row, 1), Box::new(integers(127.0)), 0.26),
        ("int4", Dtype::Bf16, (1, 64), Box::new(integers(7.0)), 0.246),
        ("int4", Dtype::F32, (1, 64), Box::new(integers(7.0)), 0.129),
        ("int4 down columns", Dtype::Bf16, (128, 1), Box::new(integers(7.0)), 0.233),
        ("nf4", Dtype::Bf16, (1, 64), Box::new(nf4), 0.267),
        ("awq", Dtype::F16, (1, 128), Box::new(with_zero_points), 0.24),
        ("awq", Dtype::Bf16, (1, 128), Box::new(with_zero_points), 0.24),
        ("q4_0", Dtype::Bf16, (1, 32), Box::new(q4_0), 0.277),
        ("q4_0", Dtype::F16, (1, 32), Box::new(q4_0), 0.28),
        ("mxfp4", Dtype::Bf16, (1, 32), Box::new(mxfp4), 0.26),
    ];
    let mut wrong = vec![];
    for (name, dtype, groups, quantise, most) in kinds {
        let values = dequantised(&w, row, groups, quantise);
        let size = size_of_part(name, dtype, &values, row);
        if size > most {
            wrong.push((name, dtype, size));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Also of 6 bits in groups of 16, where elements are seldom equal.
#[test]
fn dequantised_weights_with_offsets_take_little_more_than_quantised_ones() {
    let (row, n) = (1024, 1 << 18);
    let w = normal(n, 78);
    type Quantise = Box<dyn Fn(&[f32]) -> (f32, f32, Vec<f32>)>;
    let q6_k = |group: &[f32]| {
        let scale = largest(group) / 31.0;
        let scale = half(0.1 / 31.0 / 127.0) * (scale / half(0.1 / 31.0 / 127.0)).round();
        (scale, 0.0, group.iter().map(|x| (x / scale).round().clamp(-32.0, 31.0)).collect())
    };
    let kinds: Vec<(&str, Dtype, usize, Quantise, f64)> = vec![
        ("q4_1", Dtype::Bf16, 32, Box::new(q4_1(15.0)), 0.31),
        ("q4_1", Dtype::F16, 32, Box::new(q4_1(15.0)), 0.295),
        ("q5_1", Dtype::F16, 32, Box::new(q4_1(31.0)), 0.36),
        ("q4_k", Dtype::Bf16, 32, Box::new(k_quant(15.0)), 0.31),
        ("q4_k", Dtype::F16, 32, Box::new(k_quant(15.0)), 0.32),
        ("q4_k", Dtype::F32, 32, Box::new(k_quant(15.0)), 0.15),
        ("q5_k", Dtype::Bf16, 32, Box::new(k_quant(31.0)), 0.38),
        ("q5_k", Dtype::F32, 32, Box::new(k_quant(31.0)), 0.18),
        ("q2_k", Dtype::Bf16, 16, Box::new(k_quant(3.0)), 0.24),
        ("q6_k", Dtype::Bf16, 16, Box::new(q6_k), 0.43),
        ("q6_k", Dtype::F16, 16, Box::new(q6_k), 0.44),
        ("int4", Dtype::Bf16, 64, Box::new(q4_1(15.0)), 0.28),
    ];
    let mut wrong = vec![];
    for (name, dtype, columns, quantise, most) in kinds {
        let size = size_of_part(name, dtype, &dequantised_with_offsets(&w, row, columns, quantise), row);
        if size > most {
            wrong.push((name, dtype, size));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Of padded rows all elements are 0, and of groups whose scale is rounded to 0 all are the offset.
#[test]
fn groups_of_one_value_are_on_a_grid_with_offsets() {
    let (row, n) = (1024, 1 << 18);
    let values = dequantised_with_offsets(&normal(n, 79), row, 32, k_quant(15.0));
    let whole = bytes(Dtype::Bf16, &values);
    let without = round_trip(&whole, &[extent(Dtype::Bf16, whole.len(), row, 0)], Level::Default).len();
    let mut padded = values.clone();
    padded[7 * n / 10..].fill(0.0);
    let mut constant = values.clone();
    for group in constant.chunks_mut(32).step_by(6) {
        group.fill(group[0]);
    }
    for (name, values, most) in [("padded", padded, 72), ("constant", constant, 99)] {
        let raw = bytes(Dtype::Bf16, &values);
        let record = round_trip(&raw, &[extent(Dtype::Bf16, raw.len(), row, 0)], Level::Default);
        println!("{name}: {} of {without}, groups {:?}", record.len(), grids(&record));
        assert_eq!(grids(&record), [(1, 32)], "{name}");
        assert!(record.len() * 100 < without * most, "{name}: {} of {without}", record.len());
    }
}

/// Groups of 64 in rows of 1000 elements.
#[test]
fn the_last_group_of_a_row_may_be_shorter() {
    let (row, n) = (1000, 200_000);
    let raw = bytes(Dtype::Bf16, &dequantised(&normal(n, 8), row, (1, 64), integers(7.0)));
    let record = round_trip(&raw, &[extent(Dtype::Bf16, raw.len(), row, 0)], Level::Default);
    assert_eq!(grids(&record), [(1, 64)]);
    assert!(record.len() < raw.len() / 4, "{} of {}", record.len(), raw.len());
}

#[test]
fn elements_that_are_on_no_grid_are_coded_beside_it() {
    let (row, n) = (512, 1 << 17);
    let mut r = Random(9);
    for (groups, quantise, alone) in [
        ((1, 64), &integers(7.0) as &dyn Fn(&[f32]) -> (f32, Vec<f32>), 0.245),
        ((128, 128), &format(e4m3()), 0.425),
        ((1, row), &integers(127.0), 0.47),
    ] {
        let values = dequantised(&normal(n, 5), row, groups, quantise);
        for one_in in [n as u64, 1000, 20] {
            let damaged: Vec<f32> = values
                .iter()
                .map(|v| if r.next().is_multiple_of(one_in) { v * (1.0 + 0.02 * r.normal()) } else { *v })
                .collect();
            let raw = bytes(Dtype::Bf16, &damaged);
            let record = round_trip(&raw, &[extent(Dtype::Bf16, raw.len(), row, 0)], Level::Default);
            let size = record.len() as f64 / raw.len() as f64;
            println!("{groups:?}, one in {one_in}: {size:.4}, groups {:?}", grids(&record));
            assert!(size < alone * if one_in == 20 { 1.15 } else { 1.04 }, "{groups:?}, one in {one_in}: {size}");
        }
    }
}

/// Every special value among those of a grid.
#[test]
fn special_values_are_restored() {
    let (row, n) = (256, 1 << 16);
    let weights = normal(n, 3);
    let with_offsets = dequantised_with_offsets(&weights, row, 32, k_quant(15.0));
    let values = dequantised(&weights, row, (1, 64), integers(7.0));
    for (dtype, values) in
        [Dtype::F32, Dtype::Bf16, Dtype::F16].into_iter().flat_map(|d| [(d, &values), (d, &with_offsets)])
    {
        let width = dtype.coding_width();
        for scale in [1.0, 1e-36, 1e-38, 1e-40, 1e-44, 1e30, 1e39] {
            let scaled: Vec<f32> = values.iter().map(|v| (f64::from(*v) * scale) as f32).collect();
            let mut raw = bytes(dtype, &scaled);
            let all_zero = 64 * width;
            raw[5 * all_zero..7 * all_zero].fill(0);
            for (i, special) in
                [0u64, 1, 0x8000_0000_8000, 0xff80, 0x7f80, 0x7fc0, 0xffff_ffff, 0x7c00, 0xfc01].into_iter().enumerate()
            {
                raw[i * 4444 * width..][..width].copy_from_slice(&special.to_le_bytes()[..width]);
            }
            round_trip(&raw, &[extent(dtype, raw.len(), row, 0)], Level::Default);
            // Of one element each, and not of whole rows.
            round_trip(&raw, &[extent(dtype, raw.len(), 1, 0)], Level::Fast);
            round_trip(&raw[..raw.len() - 3 * width], &[extent(dtype, raw.len() - 3 * width, 77, 50)], Level::Default);
        }
        let zeros = vec![0; 1 << 16];
        round_trip(&zeros, &[extent(dtype, zeros.len(), row, 0)], Level::Default);
    }
}

/// Some groups have other contents, larger than a finite scale times the level that they would have.
#[test]
fn groups_that_are_on_no_grid_are_coded_beside_it() {
    let (row, n) = (1024, 1 << 16);
    let mut r = Random(77);
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for kind in 0..3 {
            let mut values = dequantised(&normal(n, 4), row, (1, 64), nf4);
            for group in values.chunks_mut(64).step_by(50) {
                for v in group {
                    *v = match kind {
                        0 => f32::from_bits(r.next() as u32),
                        1 => 2e38 + r.next() as f32 / u64::MAX as f32 * 1.3e38,
                        _ => ([0.562_617, -0.525_073_05, 0.0, 0.722_956_84][r.next() as usize % 4] * 4.2e38_f64) as f32,
                    };
                }
            }
            let raw = bytes(dtype, &values);
            let record = round_trip(&raw, &[extent(dtype, raw.len(), row, 0)], Level::Default);
            assert_eq!(grids(&record), [(1, 64)], "{dtype:?} {kind}");
        }
    }
}

/// No kind of ordinary elements is taken for a grid, whether or not the search is tried for it.
#[test]
fn what_is_no_grid_is_not_taken_for_one() {
    let mut r = Random(31);
    let file = |name| std::fs::read(format!("{}/../../testdata/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (trained, state) = (file("minilm-f32.safetensors"), file("gpt-step310-state.safetensors"));
    let trained: Vec<f32> = trained[8192..].as_chunks().0.iter().map(|e| f32::from_le_bytes(*e)).collect();
    let n = 1 << 14;
    for i in 0..1000usize {
        let row = [1usize, 64, 100, 512, 1 << 13][i % 5];
        let dtype = [Dtype::F32, Dtype::Bf16, Dtype::F16][i % 3];
        let at = |of: usize| 4 * (i * 7919 % (of / 4 - n));
        let raw = match i / 5 % 8 {
            0 => bytes(dtype, &normal(n, i as u64 + 1)),
            1 => bytes(dtype, &(0..n).map(|_| r.next() as f32 / u64::MAX as f32).collect::<Vec<_>>()),
            2 => bytes(dtype, &(0..n).map(|_| r.normal().exp()).collect::<Vec<_>>()),
            3 => (0..n * dtype.coding_width()).map(|_| r.next() as u8).collect(),
            4 => bytes(dtype, &(0..n).map(|_| (r.normal() * 3.0).round() + 0.1 * r.normal()).collect::<Vec<_>>()),
            5 => bytes(dtype, &(0..n).map(|_| r.normal() / r.normal().abs().max(0.01)).collect::<Vec<_>>()),
            6 => bytes(dtype, &trained[at(trained.len())..][..n]),
            _ => state[8192 + at(state.len() - 8192 - 4 * n)..][..n * dtype.coding_width()].to_vec(),
        };
        let found = find(dtype, &Matrix { row: row as u64, position: 0 }, &raw);
        let found = found.map(|found| (found.groups, found.levels.len()));
        assert!(found.is_none(), "kind {}, {dtype:?}: {found:?}", i / 5 % 8);
    }
}

/// Few values in each window, as a grid has, but any values.
#[test]
fn few_values_are_a_grid_if_they_take_less() {
    let (mut r, n) = (Random(32), 1 << 15);
    for i in 0..15usize {
        let row = [1usize, 64, 100, 512, 1 << 14][i % 5];
        let some = normal(60, i as u64 + 7);
        let values: Vec<f32> =
            (0..n).map(|_| some[r.next() as usize % 60] * (1.0 + (r.next() % 300) as f32 / 256.0)).collect();
        let dtype = [Dtype::F32, Dtype::Bf16, Dtype::F16][i % 3];
        let raw = bytes(dtype, &values);
        let with = round_trip(&raw, &[extent(dtype, raw.len(), row, 0)], Level::Default);
        let without = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default);
        assert!(grids(&with).is_empty() || with.len() < without.len(), "{dtype:?}: {:?}", grids(&with));
    }
}
