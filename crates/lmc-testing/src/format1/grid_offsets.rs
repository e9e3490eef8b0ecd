//! Grids with offsets (§3.8).

use super::Feature;
use super::containers::feature;
use super::grids::{bits_of, exact, file_of, indices, scales, sixteen, whole_rows};
use crate::handmade::{encoded, records};
use crate::input::Random;
use crate::one_grid;
use crate::reference::write::File;
use crate::reference::write::block::{Block, Cluster, Column, Grid, Groups, Mask, Patch, Stream};
use crate::reference::write::entropy::Coder;

pub(super) fn all() -> Vec<Feature> {
    [conversions(), groups(), sums(), streams(), columns()].into_iter().flatten().collect()
}

/// This many offsets between 2^−8 and 2^−4, and between −2^−4 and −2^−8.
fn offsets(n: usize) -> Vec<u32> {
    let mut random = Random::new(n as u64 + 1);
    scales(n).into_iter().map(|scale| scale ^ (random.u64() as u32 & 0x807f_ffff)).collect()
}

fn with_offsets(grid: Grid) -> Grid {
    Grid { offsets: Some(offsets(grid.scales.len())), ..grid }
}

fn conversions() -> Vec<Feature> {
    // Two groups of 32 to a row of the matrix.
    let groups = Groups { row: 64, rows: 1, columns: 32, position: 0 };
    let of = |conversion| exact(with_offsets(Grid::of(conversion, sixteen(), groups, scales(6), indices(192, 16))));
    vec![
        file_of("grid-offsets-f32", "sums as they are", of(0), 0),
        file_of("grid-offsets-bf16", "sums as BF16", of(1), 0),
        file_of("grid-offsets-f16", "sums as F16", of(3), 0),
    ]
}

fn groups() -> Vec<Feature> {
    let of = |name, shows, groups: Groups, n: usize| {
        let count = Grid::scale_count(&groups, n) as usize;
        file_of(name, shows, exact(with_offsets(Grid::of(1, sixteen(), groups, scales(count), indices(n, 16)))), 0)
    };
    vec![
        of(
            "grid-offsets-rows",
            "groups of three rows and four columns, the last ones of two; the column has parts of three rows of groups",
            Groups { row: 10, rows: 3, columns: 4, position: 17 },
            50,
        ),
        of(
            "grid-offsets-of-one-group",
            "a part of one group: one scale, one offset",
            Groups { row: 1000, rows: 1000, columns: 1000, position: 999_970 },
            30,
        ),
        of(
            "grid-offsets-of-elements",
            "groups of one element, as many scales and offsets as elements",
            Groups { row: 5, rows: 1, columns: 1, position: 0 },
            15,
        ),
        file_of("grid-offsets-small", "four scales, four offsets and six elements", one_grid::column_with_offsets(), 0),
    ]
}

fn sums() -> Vec<Feature> {
    // Each scale, with its offset, with each level: rows of as many elements as there are levels.
    let each = |name, shows, conversion, levels: &[u32], groups: &[(u32, u32)]| {
        let indices: Vec<u8> = groups.iter().flat_map(|_| 0..levels.len() as u8).collect();
        let (scales, offsets): (Vec<u32>, Vec<u32>) = groups.iter().copied().unzip();
        let grid = Grid::of(conversion, levels.to_vec(), whole_rows(levels.len() as u64), scales, indices);
        file_of(name, shows, exact(Grid { offsets: Some(offsets), ..grid }), 0)
    };
    let of = |pairs: &[(f32, f32)]| pairs.iter().map(|&(scale, offset)| (scale.to_bits(), offset.to_bits())).collect();
    let two = |exponent: i32| 2f32.powi(exponent);
    let signs = bits_of(&[1.0, -1.0]);
    let zeros: Vec<(u32, u32)> = of(&[
        (0.0, 0.0),
        (0.0, -0.0),
        (-0.0, 0.0),
        (-0.0, -0.0),
        (1.0, 0.0),
        (1.0, -0.0),
        (1.0, 1.0),
        (1.0, -1.0),
        (0.0, 1.0),
    ]);
    let cancelling: Vec<(u32, u32)> = of(&[
        (two(-126), two(-126)),
        (two(-149), -two(-149)),
        (f32::MAX, f32::MAX),
        (1.0 + two(-23), 1.0),
        (two(-100), -(two(-100) + two(-123))),
        (0.1, -0.3),
    ]);
    // The smallest subnormal, the largest, the smallest normal, and others.
    let small: Vec<(u32, u32)> = vec![
        (1, 1),
        (1, 0x8000_0003),
        (3, 0x007f_ffff),
        (0x007f_ffff, 0x807f_fffe),
        (0x0080_0000, 0x8000_0001),
        (0x0080_0001, 0x8080_0000),
        (0x0123_4567, 0x8123_4500),
        (0x0000_8000, 0x8000_0000),
        (0x2000_0000, 0x0000_0007),
    ];
    let levels_for_small = [0x3f80_0000, 0xbf80_0000, 0x3f00_0000, 0x4040_0000, 1, 0x6000_0000];
    let ties: Vec<(u32, u32)> = of(&[
        (1.0, two(-24)),
        (1.0, 3.0 * two(-24)),
        (1.0, two(-24) + two(-47)),
        (1.0, -two(-25)),
        (1.0, -3.0 * two(-25)),
        (two(24), 1.0),
        (two(24), 1.0 + two(-23)),
        (two(24) + 2.0, 1.0),
        (1.0, two(-149)),
        (two(127), -two(-149)),
    ]);
    // A product and a sum that are rounded once, together, differ.
    let fused: Vec<(u32, u32)> = of(&[
        (1.0 + two(-23), -(1.0 + two(-22))),
        (1.0 + two(-12), -1.0),
        (two(-149), two(-149)),
        (0.1, 100.0),
        (0.3, -0.09),
        (two(127), -f32::MAX),
    ]);
    let levels_for_fused = bits_of(&[1.0 + two(-23), 1.0 + two(-12), 0.5, 0.3, 1.5, 4.0]);
    let large: Vec<(u32, u32)> = of(&[
        (f32::MAX, two(102)),
        (f32::MAX, two(103)),
        (f32::MAX, f32::MAX),
        (f32::MAX, -f32::MAX),
        (two(127), two(127)),
        (two(126), two(127)),
        (65519.0, 0.5),
        (65519.0, 1.0),
        (65504.0, 16.0),
        (65504.0, 15.99),
        (-65536.0, 16.5),
    ]);
    let levels_for_large = bits_of(&[1.0, -1.0, 2.0, -2.0, 0.0]);
    // Next to the middle between two BF16 or two F16; binary32 rounds to the middle.
    let middles: Vec<(u32, u32)> = of(&[
        (1.0, two(-8) + two(-30)),
        (1.0 + two(-7), two(-8) - two(-30)),
        (1.0, two(-11) + two(-30)),
        (1.0 + two(-10), two(-11) - two(-30)),
    ]);
    let f16: Vec<(u32, u32)> = of(&[
        (two(-24), two(-25)),
        (two(-25), -two(-25)),
        (two(-14), -two(-24)),
        (1.0, -1.0 + two(-24)),
        (two(-25), 0.0),
    ]);
    vec![
        each("grid-offsets-zeros", "products, offsets and sums 0 and −0", 0, &bits_of(&[0.0, -0.0, 1.0, -1.0]), &zeros),
        each("grid-offsets-zeros-bf16", "the same as BF16", 1, &bits_of(&[0.0, -0.0, 1.0, -1.0]), &zeros),
        each(
            "grid-offsets-cancelling",
            "sums of opposite numbers, which are 0, and of nearly opposite ones",
            0,
            &bits_of(&[1.0, -1.0, 3.0]),
            &cancelling,
        ),
        each("grid-offsets-subnormal", "subnormal scales, products, offsets and sums", 0, &levels_for_small, &small),
        each("grid-offsets-subnormal-bf16", "the same as BF16", 1, &levels_for_small, &small),
        each("grid-offsets-subnormal-f16", "sums that are subnormal F16, or too small", 3, &signs, &f16),
        each("grid-offsets-ties", "sums in the middle of two numbers or next to it", 0, &signs, &ties),
        each(
            "grid-offsets-rounded",
            "sums of products that are rounded before they are added",
            0,
            &levels_for_fused,
            &fused,
        ),
        each("grid-offsets-infinite", "infinite products, infinite sums", 0, &levels_for_large, &large),
        each("grid-offsets-infinite-bf16", "the same as BF16", 1, &levels_for_large, &large),
        each("grid-offsets-infinite-f16", "the same as F16", 3, &levels_for_large, &large),
        each(
            "grid-offsets-rounded-twice",
            "sums that are rounded to binary32 first, then to BF16",
            1,
            &signs,
            &middles,
        ),
        each("grid-offsets-rounded-twice-f16", "the same with F16", 3, &signs, &middles),
    ]
}

fn streams() -> Vec<Feature> {
    let base = || {
        let groups = Groups { row: 64, rows: 2, columns: 8, position: 70 };
        with_offsets(Grid::of(1, sixteen(), groups, scales(40), indices(512, 16)))
    };
    // Rotated, exponents are on top, and the sign is bit 0.
    let top = |numbers: &[u32]| numbers.iter().map(|number| (number << 1 >> 24) as u8).collect::<Vec<_>>();
    let coded = |coder| Stream::of(1, Cluster { k: 24, coder, ..Cluster::default() });
    let scale_stream = coded(Coder::huffman(&top(&scales(40)), false));
    let offset_stream = coded(Coder::fine_rans(&top(&offsets(40))[..30], true));
    let index_stream =
        Stream::of(0, Cluster { h: 4, coder: Coder::rans(&indices(512, 16), false), ..Cluster::default() });
    let all_coded = Grid { scale_stream, offset_stream, index_stream, ..base() };

    let mut zeros = base();
    let some = zeros.offsets.iter_mut().flatten().enumerate();
    some.filter(|(i, _)| i % 4 != 0).for_each(|(i, offset)| *offset = (i as u32 % 2) << 31);
    let signs = Mask::BitsAndSigns(Cluster { k: 8, ..Cluster::default() });
    zeros.offset_stream = Stream { mask: signs, ..Stream::of(1, Cluster { k: 31, z: 1, ..Cluster::default() }) };
    let mut listed = base();
    listed.offsets.iter_mut().flatten().enumerate().filter(|(i, _)| i % 9 != 8).for_each(|(_, offset)| *offset = 0);
    listed.offset_stream = Stream { mask: Mask::List, map: 2, ..Stream::default() };
    let mut patched = base();
    patched.offsets = Some(vec![0xbc12_3456; 40]);
    patched.offsets.iter_mut().flatten().skip(7).step_by(20).for_each(|offset| *offset ^= 0x1234_0000);
    patched.offset_stream = Stream {
        patches: [7, 27].map(|element| Patch { element, x: 0x1234_0000 }).into(),
        ..Stream::of(0, Cluster { constant: Some(0xbc12_3456), z: 32, ..Cluster::default() })
    };
    vec![
        file_of(
            "grid-offsets-coded",
            "scales, offsets and indices as symbols, which share the lanes",
            exact(all_coded),
            2,
        ),
        file_of("grid-offsets-masked", "few offsets, between zeros of both signs", exact(zeros), 0),
        file_of("grid-offsets-listed", "few offsets, which are listed", exact(listed), 0),
        file_of("grid-offsets-patched", "offsets that are all the same but two", exact(patched), 0),
    ]
}

fn columns() -> Vec<Feature> {
    let grid = || Grid::of(1, sixteen(), whole_rows(16), scales(4), indices(64, 16));
    // All predictions but 0 are negative.
    let (levels, offsets) = (bits_of(&(0..16).map(|x| x as f32).collect::<Vec<_>>()), vec![0xc170_0000; 4]);
    let mut predicted = exact(Grid { levels, offsets: Some(offsets), ..grid() });
    predicted.boundaries = vec![0x80, 0x83];
    let residuals = |count: usize| (0..count).map(|i| [0, 1, 0, 2, 0, 0, 5][i % 7]).collect();
    predicted.streams = vec![Stream { mask: Mask::List, ..Stream::default() }; 3];
    let counts = predicted.context_counts().expect("the grid has the elements");
    predicted.set_residuals(counts.into_iter().map(residuals).collect()).expect("the grid has the elements");

    let column = |grid| Column::Predicted(exact(grid));
    let block = Block {
        lane_sets: 0,
        columns: vec![column(with_offsets(grid())), column(grid()), Column::Predicted(one_grid::column_with_offsets())],
        extents: vec![(0, 101), (2, 12), (1, 128), (0, 27)],
        states_repeats: false,
        final_state: 1 << 16,
    };
    vec![
        file_of(
            "grid-offsets-residuals",
            "some elements differ from what the grid predicts, in three contexts",
            predicted,
            0,
        ),
        feature(
            "grid-offsets-and-none",
            "3.8",
            "a column with a grid without offsets, between two with offsets",
            File::new(records(&[encoded(&block)])),
            &[],
            &block.raw(),
        ),
    ]
}
