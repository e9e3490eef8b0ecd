//! Predicted columns (§3.7).

use super::containers::feature;
use super::{Feature, redigested};
use crate::handmade::{encoded, records};
use crate::reference::write::File;
use crate::reference::write::block::{Block, Cluster, Column, Mask, Operand, Plain, Predicted, Range, Stream};
use crate::reference::write::entropy::Coder;
use crate::streams::to_bytes;

/// A delta of one column, predicted from ranges of its base: offset and length.
fn predicted(
    name: &'static str,
    shows: &'static str,
    base: &[u8],
    ranges: &[(usize, usize)],
    conversion: u8,
    column: Predicted,
) -> Feature {
    let range = |&(offset, length): &(usize, usize)| Range {
        source: 1,
        offset: offset as u64,
        bytes: base[offset..offset + length].to_vec(),
    };
    let operand = Operand::Ranges { conversion, ranges: ranges.iter().map(range).collect() };
    let column = Predicted { operand, ..column };
    let raw = column.raw.clone();
    let is_coded = |stream: &Stream| stream.clusters.iter().any(|cluster| cluster.coder != Coder::None);
    let lane_sets = if column.streams.iter().any(is_coded) { 2 } else { 0 };
    let fields = encoded(&Block::of(Column::Predicted(column), lane_sets));
    let file = File { features: 1, ..redigested(File::delta(&[base], records(&[fields])), &[base]) };
    feature(name, "3.7", shows, file, &[base], &raw)
}

fn column(raw: Vec<u8>, width_code: u8, boundaries: &[u8], stream: &Stream) -> Predicted {
    let streams = vec![stream.clone(); boundaries.len() + 1];
    let (operand, row_terms, boundaries) = (Operand::of(Vec::new()), None, boundaries.to_vec());
    Predicted { raw, width_code, operand, row_terms, boundaries, streams }
}

fn raw_bits(width_code: u8) -> Stream {
    Stream::of(0, Cluster { k: 8 << width_code, ..Cluster::default() })
}

pub(super) fn all() -> Vec<Feature> {
    [differences(), conversions(), contexts(), operands()].into_iter().flatten().collect()
}

fn differences() -> Vec<Feature> {
    // Zeros, the smallest subnormals, ones, the largest, infinities and NaNs, of both signs.
    let bf16 = [0, 0x8000, 1, 0x8001, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffff];
    let mut next = bf16;
    next.rotate_left(1);
    let of = |name, shows, width_code: u8, from: &[u64], to: &[u64]| {
        let base = to_bytes(from, width_code);
        let column = column(to_bytes(to, width_code), width_code, &[], &raw_bits(width_code));
        predicted(name, shows, &base, &[(0, base.len())], 0, column)
    };
    let (from, to) = ([0, 1, 1 << 63, u64::MAX, 5], [u64::MAX, 1, 0, 1 << 63, 3]);
    let cut = |elements: [u64; 5], w: u32| elements.map(|u| u >> (64 - w) | u & 1);
    vec![
        of("floats-1", "differences of floats of 1 byte", 0, &cut(from, 8), &cut(to, 8)),
        of("floats-2", "differences of BF16 of every kind", 1, &bf16, &next),
        of("floats-4", "differences of floats of 4 bytes", 2, &cut(from, 32), &cut(to, 32)),
        of("floats-8", "differences of floats of 8 bytes", 3, &from, &to),
    ]
}

fn conversions() -> Vec<Feature> {
    let f32: [u32; 20] = [
        0,
        0x8000_0000,
        1,
        0x3f80_0000,
        0xbf80_0000,
        0x3f80_8000,
        0x3f81_8000,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7f80_0001,
        0xffff_ffff,
        0x3f80_1000,
        0x3f80_3000,
        0x477f_efff,
        0x477f_f000,
        0x3300_0000,
        0x3300_0001,
        0x3880_0000,
        0x387f_ffff,
    ];
    let base: Vec<u8> = f32.iter().flat_map(|x| x.to_le_bytes()).collect();
    let zeros = Stream::of(0, Cluster { z: 16, ..Cluster::default() });
    let of = |name, shows, conversion, width_code: u8, base: &[u8], n: usize| {
        let stream =
            if width_code == 1 { zeros.clone() } else { Stream::of(0, Cluster { z: 32, ..Cluster::default() }) };
        let mut column = column(vec![0; n << width_code], width_code, &[], &stream);
        let range = Range { source: 1, offset: 0, bytes: base.to_vec() };
        column.operand = Operand::Ranges { conversion, ranges: vec![range] };
        column.set_residuals(vec![vec![0; n]]).expect("the range fits");
        predicted(name, shows, base, &[(0, base.len())], conversion, column)
    };
    vec![
        of("f32-to-bf16", "conversion 1 of F32 of every kind; all residuals are 0", 1, 1, &base, 20),
        of("bf16-to-f32", "conversion 2; all residuals are 0", 2, 2, &base[..16], 8),
        of("f32-to-f16", "conversion 3 of F32 of every kind; all residuals are 0", 3, 1, &base, 20),
    ]
}

fn contexts() -> Vec<Feature> {
    let base: Vec<u8> = [0x3f80u16, 0xbf80, 0, 0x4000, 0x3f81, 0x3c00].iter().flat_map(|u| u.to_le_bytes()).collect();
    let of = |name, shows, boundaries: &[u8], stream: &Stream| {
        let raw = base.iter().enumerate().map(|(i, &byte)| if i % 4 == 0 { byte ^ 1 } else { byte }).collect();
        predicted(name, shows, &base, &[(0, 12)], 0, column(raw, 1, boundaries, stream))
    };
    let sparse = Stream { mask: Mask::List, ..Stream::default() };
    let many: Vec<u8> = (1..=15).map(|i| 17 * i - 16).collect();
    let symbols = Stream::of(0, Cluster { h: 8, coder: Coder::fine_rans(&[0, 1, 2], true), ..Cluster::default() });
    vec![
        of("contexts", "two contexts", &[0x7f], &raw_bits(1)),
        of("contexts-empty", "four contexts, two of them empty", &[0x10, 0x7f, 0xff], &raw_bits(1)),
        of("contexts-16", "as many contexts as there may be", &many, &raw_bits(1)),
        of("contexts-masked", "a mask of each context, listed values", &[0x7f], &sparse),
        of("contexts-coded", "streams of two contexts, which share the lanes", &[0x7f], &symbols),
    ]
}

fn operands() -> Vec<Feature> {
    let base: Vec<u8> = (0..20).collect();
    let mut column_of_seven = column(base[5..12].to_vec(), 0, &[], &raw_bits(0));
    column_of_seven.raw[3] = 99;
    let pairs = [&base[7..10], &base[..3], &base[7..10], &base[19..]].concat();
    // With another column, whose elements stand between.
    let predicted_column = Predicted {
        operand: Operand::of(vec![Range { source: 1, offset: 3, bytes: base[3..7].to_vec() }]),
        ..column(base[4..8].to_vec(), 1, &[], &raw_bits(1))
    };
    let plain = Plain { raw: b"ab".to_vec(), width_code: 0, stream: raw_bits(0) };
    let columns = vec![Column::Predicted(predicted_column), Column::Plain(plain)];
    let block = Block {
        lane_sets: 0,
        columns,
        extents: vec![(0, 1), (1, 2), (0, 3)],
        states_repeats: false,
        final_state: 1 << 16,
    };
    let file = File::delta(&[&base], records(&[encoded(&block)]));
    let file = File { features: 1, ..redigested(file, &[&base]) };
    vec![
        predicted("range", "one range", &base, &[(5, 7)], 0, column_of_seven),
        predicted(
            "ranges",
            "four ranges, one of them twice, which end within elements",
            &base,
            &[(7, 3), (0, 3), (7, 3), (19, 1)],
            0,
            column(pairs, 1, &[], &raw_bits(1)),
        ),
        feature(
            "predicted-and-plain",
            "3.7",
            "a predicted column and a plain one; an extent cuts an element",
            file,
            &[&base],
            &block.raw(),
        ),
    ]
}
