//! Codes of derived tensors (§3.10): kind 10.

use super::Feature;
use super::derived::{
    BF16, E4M3, E5M2, E8M0, F4, F16, F32, I8, SOURCES, SPECIAL, column, computations, elements, few, of_columns, part,
    weights, width_code,
};
use super::optimizer::{exact, file_of, raw_bits, with_residuals};
use crate::input::Random;
use crate::reference::write::block::{Cluster, Derivation, Derived, Groups, Mask, Operand, Predicted, Scales, Stream};
use crate::reference::write::entropy::Coder;

pub(super) fn all() -> Vec<Feature> {
    [codes(), groups_of_codes(), scales_in_streams()].into_iter().flatten().collect()
}

/// Rows and columns of the matrix that [`codes`] are of.
const CODED: (u64, u64) = (14, 24);

/// The numbers that scales of [`CODED`] rows are, and of groups of its columns.
fn of_scales() -> Vec<u32> {
    let mut random = Random::new(17);
    let mut scales = vec![
        0x3f80_0000,
        0x3c00_0000,
        0x4000_0000,
        0x3e99_999a,
        0xbf00_0000,
        0,
        0x8000_0000,
        0x0000_0100,
        0x7f00_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x4b00_0000,
        0x3400_0000,
        0x3f81_0000,
    ];
    scales.resize_with(100, || 0x3b80_0000 + random.below(0x0480_0000) as u32);
    scales
}

fn codes() -> Vec<Feature> {
    let (rows, row) = CODED;
    let n = (rows * row) as usize;
    let mut random = Random::new(10);
    // Beside the special ones, numbers of every size that the scales make codes of.
    let mut x = SPECIAL.to_vec();
    x.resize_with(n, || match random.below(3) {
        0 => (0x3f00_0000 + ((random.below(0x600) as u32) << 16)) | random.u64() as u32 & 0x8000_0000,
        _ => (0x3c00_0000 + random.below(0x0600_0000) as u32) | random.u64() as u32 & 0x8000_0000,
    });
    // Special numbers in all rows.
    let x: Vec<u32> = (0..n).map(|i| x[(i * 5 + i / 24) % n]).collect();
    let bases: [Vec<u8>; 2] = [
        SOURCES.iter().flat_map(|&(dtype, _)| elements(dtype, &x)).collect(),
        SCALES.iter().flat_map(|&dtype| elements(dtype, &of_scales())).collect(),
    ];
    let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
    let of = |name, shows, to: u8, start: usize| {
        let derived = |(i, (operation, precision, f)): (usize, (u8, u8, u32))| {
            let (from, scales) = ((start + i) % 3, (start + i) % 5);
            let whole = Groups { row, rows: 1, columns: row, position: 0 };
            let groups = match i {
                // Rectangles, with an edge in both directions; columns; the whole matrix; a part of a row of groups.
                1 => Groups { rows: 4, columns: 5, ..whole },
                3 => Groups { rows, columns: 1, ..whole },
                5 => Groups { rows, ..whole },
                7 => Groups { rows: 20, columns: 7, position: 31, ..whole },
                _ => whole,
            };
            let before = |sizes: &[u8], count: usize| sizes.iter().map(|&dtype| count << width_code(dtype)).sum();
            let dtypes = SOURCES.map(|(dtype, _)| dtype);
            let scale_count = groups.scale_count(n) as usize;
            let data = vec![
                part(1, &bases[0], before(&dtypes[..from], n), n << width_code(dtypes[from])),
                part(2, &bases[1], before(&SCALES[..scales], 100), scale_count << width_code(SCALES[scales])),
            ];
            let (from, scales) = (dtypes[from], SCALES[scales]);
            let derivation = Derivation::Codes { from, to, operation, precision, scales, f, groups };
            column(derivation, 0, if to == F4 { n / 2 } else { n }, data)
        };
        of_columns(name, shows, computations().enumerate().map(derived).collect(), None, &slices)
    };
    let every = "each operation with each precision, of each dtype, scales of each dtype, special ones among both";
    [
        of("codes-i8", every, I8, 0),
        of("codes-e4m3", every, E4M3, 1),
        of("codes-e5m2", every, E5M2, 2),
        of("codes-f4", every, F4, 4),
    ]
    .into()
}

/// Dtypes of scales.
const SCALES: [u8; 5] = [F16, BF16, F32, E4M3, E8M0];

/// Codes in groups of every form.
fn groups_of_codes() -> Vec<Feature> {
    let weights = weights(200);
    let x = elements(BF16, &weights);
    let scales: Vec<u8> = (0..60u32).flat_map(|i| (0x3800_0000 + 0x0001_2345 * i).to_le_bytes()).collect();
    let of = |name, shows, to, n: usize, groups: Groups| {
        let (operation, f) = if to == F4 { (1, 0x4220_0000) } else { (0, 0x3f80_0000) };
        let derivation = Derivation::Codes { from: BF16, to, operation, precision: F32, scales: F32, f, groups };
        let data = vec![part(1, &x, 6, 2 * n), part(2, &scales, 8, 4 * groups.scale_count(n) as usize)];
        let column = column(derivation, 0, if to == F4 { n / 2 } else { n }, data);
        file_of(name, "3.10", shows, column, &[&x, &scales])
    };
    let largest = 1 << 48;
    vec![
        of(
            "codes-row-edge",
            "kind 10, the last groups of a row have fewer columns",
            E4M3,
            90,
            Groups { row: 15, rows: 2, columns: 4, position: 0 },
        ),
        of(
            "codes-position",
            "kind 10, a column that begins and ends within rows and groups",
            E4M3,
            91,
            Groups { row: 15, rows: 4, columns: 8, position: 39 },
        ),
        of(
            "codes-one-element-groups",
            "kind 10, a scale for each element",
            I8,
            40,
            Groups { row: 8, rows: 1, columns: 1, position: 0 },
        ),
        of("codes-one-group", "kind 10, one scale", I8, 60, Groups { row: 1, rows: 60, columns: 1, position: 0 }),
        of(
            "codes-largest-rows",
            "kind 10, r · C is 2^48, position + N too",
            E5M2,
            12,
            Groups { row: 1 << 40, rows: 256, columns: 1 << 40, position: largest - 12 },
        ),
        of(
            "codes-f4-odd",
            "kind 10 of F4, rows of 7: a byte has elements of two rows",
            F4,
            70,
            Groups { row: 7, rows: 1, columns: 3, position: 3 },
        ),
        of(
            "codes-f4-scales",
            "kind 10 of F4, more scales than bytes: one for each element",
            F4,
            50,
            Groups { row: 50, rows: 1, columns: 1, position: 0 },
        ),
    ]
}

/// Codes with scales in a stream, of each width.
fn scales_in_streams() -> Vec<Feature> {
    let weights = weights(120);
    let x = elements(BF16, &weights);
    let of = |name, shows, scales: u8, count: usize, numbers: &[u32], stream: Stream| {
        let groups = Groups { row: 12, rows: 2, columns: 60 / count as u64, position: 0 };
        assert_eq!(groups.scale_count(120), count as u128);
        let (from, to, operation, precision, f) = (BF16, E4M3, 1, F32, 0x3f80_0000);
        let derivation = Derivation::Codes { from, to, operation, precision, scales, f, groups };
        let bytes = elements(scales, numbers);
        let is_coded = stream.clusters.iter().any(|cluster| cluster.coder != Coder::None);
        let scales = Some(Scales { bytes, width_code: width_code(scales), stream });
        let operand = Operand::Derived(Derived { derivation, data: vec![part(1, &x, 0, 240)], scales });
        // Those of residuals come behind that of scales, and share its lanes.
        let symbols = Cluster { h: 6, coder: Coder::huffman(&[0, 0, 1, 2, 3], true), ..Cluster::default() };
        let streams = vec![if is_coded { Stream::of(0, symbols) } else { raw_bits(0) }];
        file_of(name, "3.10", shows, with_residuals(Predicted { streams, ..exact(120, 0, operand) }, few), &[&x])
    };
    let sizes = |count: u32| (0..count).map(|i| 0x3800_0000 + 0x000b_4567 * i).collect::<Vec<u32>>();
    let symbols = Stream::of(1, Cluster { k: 24, coder: Coder::huffman(&[0x70], true), ..Cluster::default() });
    let listed = Stream { mask: Mask::List, map: 2, ..Stream::default() };
    vec![
        of("codes-scales-e4m3", "kind 10, a stream of scales of 1 byte", E4M3, 5, &sizes(5), raw_bits(0)),
        of(
            "codes-scales-e8m0",
            "kind 10, a stream of scales of F8_E8M0, zigzag",
            E8M0,
            10,
            &sizes(10),
            Stream { map: 2, ..raw_bits(0) },
        ),
        of(
            "codes-scales-f16",
            "kind 10, a stream of scales of F16, some of them 0, listed",
            F16,
            10,
            &{
                let mut scales = vec![0; 10];
                (scales[3], scales[8]) = (0x3c12_3000, 0xbc00_0000);
                scales
            },
            listed,
        ),
        of(
            "codes-scales-bf16",
            "kind 10, a stream of scales of BF16, rotated",
            BF16,
            5,
            &sizes(5),
            Stream { map: 1, ..raw_bits(1) },
        ),
        of("codes-scales-f32", "kind 10, a stream of scales of F32, with symbols", F32, 60, &sizes(60), symbols),
    ]
}
