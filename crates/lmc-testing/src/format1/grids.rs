//! Grids (§3.8).

use super::containers::feature;
use super::{Feature, redigested};
use crate::handmade::{encoded, records};
use crate::input::Random;
use crate::one_grid;
use crate::reference::write::File;
use crate::reference::write::block::{
    Block, Cluster, Column, Grid, Groups, Mask, Operand, Plain, Predicted, Range, Stream,
};
use crate::reference::write::entropy::Coder;

pub(super) fn all() -> Vec<Feature> {
    [conversions(), groups(), products(), residuals(), streams(), columns()].into_iter().flatten().collect()
}

/// A file of this column.
pub(super) fn file_of(name: &'static str, shows: &'static str, column: Predicted, lane_sets: u8) -> Feature {
    let raw = column.raw.clone();
    let block = Block::of(Column::Predicted(column), lane_sets);
    feature(name, "3.8", shows, File::new(records(&[encoded(&block)])), &[], &raw)
}

/// A column that equals the predictions of the grid.
pub(super) fn exact(grid: Grid) -> Predicted {
    let (n, width_code) = (grid.indices.len(), if grid.conversion == 0 { 2 } else { 1 });
    let zeros = Stream::of(0, Cluster { z: 8 << width_code, ..Cluster::default() });
    let mut column = Predicted {
        raw: vec![0; n << width_code],
        width_code,
        operand: Operand::Grid(grid),
        row_terms: None,
        boundaries: Vec::new(),
        streams: vec![zeros],
    };
    column.set_residuals(vec![vec![0; n]]).expect("the grid has the elements");
    column
}

/// One group to a row of this many elements.
pub(super) fn whole_rows(row: u64) -> Groups {
    Groups { row, rows: 1, columns: row, position: 0 }
}

pub(super) fn bits_of(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// −8 … 7, as of four bits.
pub(super) fn sixteen() -> Vec<u32> {
    bits_of(&(-8..8).map(|x| x as f32).collect::<Vec<_>>())
}

/// This many numbers below `count`.
pub(super) fn indices(n: usize, count: u64) -> Vec<u8> {
    let mut random = Random::new(n as u64);
    (0..n).map(|_| random.below(count) as u8).collect()
}

/// This many scales between 2^−8 and 2^−4.
pub(super) fn scales(n: usize) -> Vec<u32> {
    let mut random = Random::new(n as u64);
    (0..n).map(|_| 0x3b80_0000 + random.below(0x0200_0000) as u32).collect()
}

fn conversions() -> Vec<Feature> {
    let of = |conversion| exact(Grid::of(conversion, sixteen(), whole_rows(8), scales(5), indices(40, 16)));
    vec![
        file_of("grid-f32", "products as they are; each row of the matrix is a group", of(0), 0),
        file_of("grid-bf16", "products as BF16; each row of the matrix is a group", of(1), 0),
        file_of("grid-f16", "products as F16; each row of the matrix is a group", of(3), 0),
    ]
}

fn groups() -> Vec<Feature> {
    let of = |name, shows, groups: Groups, n: usize| {
        let count = Grid::scale_count(&groups, n) as usize;
        file_of(name, shows, exact(Grid::of(1, sixteen(), groups, scales(count), indices(n, 16))), 0)
    };
    let largest = 1 << 48;
    vec![
        of(
            "grid-rows",
            "groups of three rows and four columns, the last ones of two; the column has parts of three rows of groups",
            Groups { row: 10, rows: 3, columns: 4, position: 17 },
            50,
        ),
        of(
            "grid-of-one-group",
            "a part of one group",
            Groups { row: 1000, rows: 1000, columns: 1000, position: 999_970 },
            30,
        ),
        of(
            "grid-of-elements",
            "groups of one element, as many scales as elements",
            Groups { row: 5, rows: 1, columns: 1, position: 0 },
            15,
        ),
        of("grid-of-one-column", "rows of one element", Groups { row: 1, rows: 4, columns: 1, position: 3 }, 10),
        of(
            "grid-columns",
            "each column of the matrix is a group, which has more rows than the matrix; it begins within a row",
            Groups { row: 7, rows: 1 << 40, columns: 1, position: 1_000_003 },
            20,
        ),
        of(
            "grid-largest",
            "a row of groups and a last element that are as large as they may be",
            Groups { row: largest, rows: 1, columns: largest / 2, position: largest - 20 },
            20,
        ),
        file_of(
            "grid-of-one-element",
            "one element",
            exact(Grid::of(0, sixteen(), whole_rows(1), scales(1), vec![3])),
            0,
        ),
        file_of("grid-small", "four scales and six elements", one_grid::column(), 0),
    ]
}

fn products() -> Vec<Feature> {
    // Each scale with each level: rows of as many elements as there are levels.
    let each = |name, shows, conversion, levels: Vec<u32>, scales: Vec<u32>| {
        let count = levels.len();
        let indices: Vec<u8> = (0..scales.len()).flat_map(|_| 0..=(count - 1) as u8).collect();
        file_of(name, shows, exact(Grid::of(conversion, levels, whole_rows(count as u64), scales, indices)), 0)
    };
    let one = 0x3f80_0000;
    // The smallest subnormal, the largest, the smallest normal, halves and others, of both signs.
    let small = vec![1, 0x8000_0001, 0x007f_ffff, 0x807f_ffff, 0x0080_0000, 0x3f00_0000, 0xbf00_0000, 0x3fc0_0000, one];
    let scales_for_small = vec![one, 0x3f00_0000, 0xbf40_0000, 3, 0x8000_0005, 0x0080_0001, 0x2000_0000, 0x6000_0000];
    let large = bits_of(&[1.0, -1.0, 2.0, 65504.0, 65519.0, 65520.0, -65536.0, 3.4e38, -3.4e38, 1e-30]);
    let scales_for_large = bits_of(&[1.0, 2.0, -1.5, 3e38, f32::MAX, 1e30]);
    // Products next to the middle between two BF16 or two F16, which binary32 rounds to the middle.
    let ties = vec![0x3fe3_ca82, 0x3faf_978d, 0x3f9e_f2a4, 0x3fce_fbc8];
    let scales_for_ties = vec![0x3f86_047f, 0x3f94_5809, 0x3fab_add2, 0x3f8d_7fcb];
    let all: Vec<u32> = (0..256).map(|i| (i as f32 - 128.0).to_bits()).collect();
    let f16 = bits_of(&[1.0, 1.5, -0.75, 1023.0, 2047.0]);
    let scales_for_f16 =
        bits_of(&[2f32.powi(-24), 2f32.powi(-25), -2f32.powi(-26), 2f32.powi(-14), 3.0 * 2f32.powi(-35)]);
    vec![
        each("grid-256-levels", "as many levels as there may be", 1, all, scales(2)),
        each("grid-1-level", "one level", 1, vec![0xc049_0fdb], scales(10)),
        each(
            "grid-zeros",
            "levels and scales 0 and −0, of which each sign has an effect",
            1,
            bits_of(&[0.0, -0.0, 1.0, -1.0]),
            bits_of(&[0.0, -0.0, 1.0, -1.0]),
        ),
        each(
            "grid-subnormal",
            "subnormal levels, scales and products, some rounded",
            0,
            small.clone(),
            scales_for_small.clone(),
        ),
        each("grid-subnormal-bf16", "the same as BF16", 1, small, scales_for_small),
        each("grid-subnormal-f16", "products that are subnormal F16, or too small", 3, f16, scales_for_f16),
        each("grid-infinite", "products that overflow to infinity", 0, large.clone(), scales_for_large.clone()),
        each(
            "grid-infinite-bf16",
            "the same as BF16; the largest products overflow by the conversion",
            1,
            large.clone(),
            scales_for_large.clone(),
        ),
        each(
            "grid-infinite-f16",
            "the same as F16; products of 65520 and more overflow by the conversion",
            3,
            large,
            scales_for_large,
        ),
        each(
            "grid-rounded-twice",
            "products that are rounded to binary32 first, then to BF16",
            1,
            ties.clone(),
            scales_for_ties.clone(),
        ),
        each(
            "grid-rounded-twice-f16",
            "products that are rounded to binary32 first, then to F16",
            3,
            ties,
            scales_for_ties,
        ),
    ]
}

fn residuals() -> Vec<Feature> {
    let column =
        |conversion, n: usize| exact(Grid::of(conversion, sixteen(), whole_rows(32), scales(n / 32), indices(n, 16)));
    let with = |mut column: Predicted, boundaries: &[u8], streams: Vec<Stream>, residual: &dyn Fn(usize) -> u64| {
        (column.boundaries, column.streams) = (boundaries.to_vec(), streams);
        let counts = column.context_counts().expect("the grid has the elements");
        let residuals = counts.into_iter().map(|count| (0..count).map(residual).collect());
        column.set_residuals(residuals.collect()).expect("the grid has the elements");
        column
    };
    let listed = Stream { mask: Mask::List, ..Stream::default() };
    let dense = |known: &[u8]| Stream::of(0, Cluster { h: 8, coder: Coder::rans(known, true), ..Cluster::default() });
    let few = |i: usize| if i % 50 == 3 { 2 + i as u64 % 3 } else { 0 };
    let many = |i: usize| [0, 1, 2, 0, 3, 0, 0, 200][i % 8];
    vec![
        file_of(
            "grid-residuals-listed",
            "few elements differ from what the grid predicts",
            with(column(1, 320), &[], vec![listed], &few),
            0,
        ),
        file_of(
            "grid-residuals-dense",
            "most elements differ, in three contexts, which share the lanes",
            with(
                column(1, 320),
                &[0x76, 0x7a],
                vec![dense(&[0, 1, 2, 3]), dense(&[0, 0, 0, 1, 2, 3]), dense(&[0, 200])],
                &many,
            ),
            2,
        ),
    ]
}

fn streams() -> Vec<Feature> {
    let base =
        || Grid::of(1, sixteen(), Groups { row: 64, rows: 2, columns: 8, position: 70 }, scales(40), indices(512, 16));
    let low: Vec<u8> = indices(512, 16);
    // Rotated, the exponents of the scales are on top.
    let exponents: Vec<u8> = scales(40).iter().map(|scale| (scale >> 23) as u8).collect();
    let coded_scales = Stream::of(1, Cluster { k: 24, coder: Coder::huffman(&exponents, false), ..Cluster::default() });
    let coded = Stream::of(0, Cluster { h: 4, coder: Coder::fine_rans(&low, true), ..Cluster::default() });
    let two = Stream {
        cluster_of: vec![0, 1, 1, 0],
        cluster_map: Cluster { k: 1, h: 7, ..Cluster::default() },
        clusters: vec![Cluster { k: 4, h: 4, ..Cluster::default() }; 2],
        ..Stream::default()
    };
    let mut masked = base();
    (0..512).filter(|i| i % 7 != 0).for_each(|i| masked.indices[i] = 0);
    (0..40).filter(|i| i % 5 != 0).for_each(|i| masked.scales[i] = 0);
    let bytes = Cluster { k: 8, ..Cluster::default() };
    masked.index_stream = Stream { mask: Mask::Bits(bytes.clone()), ..Stream::of(0, bytes) };
    masked.scale_stream = Stream { mask: Mask::List, ..Stream::default() };
    vec![
        file_of(
            "grid-coded",
            "scales and indices as symbols, which share the lanes",
            exact(Grid { scale_stream: coded_scales, index_stream: coded.clone(), ..base() }),
            2,
        ),
        file_of("grid-clusters", "a cluster map of the indices", exact(Grid { index_stream: two, ..base() }), 0),
        file_of("grid-masked", "a list of scales, a mask of indices; the others are 0", exact(masked), 0),
    ]
}

fn columns() -> Vec<Feature> {
    let base: Vec<u8> = (0..20).collect();
    let grid = || exact(Grid::of(1, sixteen(), whole_rows(4), scales(2), indices(8, 16)));
    let raw_bits = |k| Stream::of(0, Cluster { k, ..Cluster::default() });
    let by_range = Predicted {
        raw: base[4..8].to_vec(),
        width_code: 0,
        operand: Operand::of(vec![Range { source: 1, offset: 3, bytes: base[3..7].to_vec() }]),
        row_terms: None,
        boundaries: Vec::new(),
        streams: vec![raw_bits(8)],
    };
    let plain = Column::Plain(Plain { raw: b"plain".to_vec(), width_code: 0, stream: raw_bits(8) });
    let of = |columns: Vec<Column>, extents: Vec<(u8, u64)>| Block {
        lane_sets: 0,
        columns,
        extents,
        states_repeats: false,
        final_state: 1 << 16,
    };
    let grids = || [Column::Predicted(grid()), Column::Predicted(one_grid::column())];
    let [first, second] = grids();
    let two = of(vec![first, plain.clone(), second], vec![(2, 6), (1, 2), (0, 16), (2, 6), (1, 3)]);
    let [first, second] = grids();
    let beside = of(
        vec![first, Column::Predicted(by_range), Column::Stored(b"stored".to_vec()), second],
        vec![(0, 3), (1, 2), (0, 13), (3, 12), (2, 6), (1, 2)],
    );
    let delta = redigested(File::delta(&[&base], records(&[encoded(&beside)])), &[&base]);
    let delta = File { features: 5, ..delta };
    vec![
        feature(
            "grid-columns-of-a-block",
            "3.8",
            "two columns with grids and a plain one; the block names no ranges",
            File::new(records(&[encoded(&two)])),
            &[],
            &two.raw(),
        ),
        feature(
            "grid-and-range",
            "3.8",
            "two columns with grids, one predicted from a range, and a stored one; an extent cuts an element",
            delta,
            &[&base],
            &beside.raw(),
        ),
    ]
}
