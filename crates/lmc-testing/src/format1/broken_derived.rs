//! Operands of kinds 9 to 12 (§3.10) that break a rule.

use super::broken_optimizer::{fields, start, zeros};
use super::{Broken, broken_delta, redigested};
use crate::handmade::{LEAF, records};
use crate::reference::write::block::{Block, BlockFields, Column, Zstd};
use crate::reference::write::{File, varint};

/// The base: 256 elements of F32, or twice as many of 16 bits; as scales, they are finite in every dtype.
fn base() -> Vec<u8> {
    (0..256u32).flat_map(|i| (0x3a00_1234 + 0x0001_0101 * i).to_le_bytes()).collect()
}

/// One range of so many bytes of the base, from the first one.
fn range(length: u64) -> Vec<u8> {
    let mut range = vec![1, 1, 0];
    varint(&mut range, length);
    range
}

/// 0.5.
const HALF: [u8; 4] = [0, 0, 0, 0x3f];

/// A column of `length` bytes predicted by this operand: its kind, its fields, and its ranges.
fn of(name: impl Into<String>, rule: &'static str, width_code: u8, length: u8, operand: &[&[u8]]) -> Broken {
    of_base(name, rule, width_code, length, operand, &base())
}

/// [`of`] a base of zeros, from which zeros follow, as the column has: so nothing else is wrong.
fn of_zeros(name: impl Into<String>, rule: &'static str, width_code: u8, length: u8, operand: &[&[u8]]) -> Broken {
    of_base(name, rule, width_code, length, operand, &[0; 1024])
}

fn of_base(
    name: impl Into<String>,
    rule: &'static str,
    width_code: u8,
    length: u8,
    operand: &[&[u8]],
    base: &[u8],
) -> Broken {
    let operand = operand.concat();
    let (kind, rest) = operand.split_first().expect("an operand has a kind");
    let (n, w) = (length >> width_code, 8 << width_code);
    let fields = fields(length, &[&start(width_code, *kind), rest, &zeros(n, w)], 17);
    let file = File { features: 17, ..File::delta(&[base], records(&[fields])) };
    broken_delta(name, "3.10", rule, file, &[base])
}

pub(super) fn all() -> Vec<Broken> {
    [features(), casts(), codes(), groups(), scales(), too_many_bytes(), of_fields(), ranges()]
        .into_iter()
        .flatten()
        .collect()
}

/// A valid operand of each kind, its width code, and the number of bytes of its column.
fn valid() -> [(&'static str, u8, u8, Vec<u8>); 4] {
    let codes = [&[10, 10, 13, 0, 10, 10][..], &HALF, &[4, 2, 2, 3], &range(32), &range(16)].concat();
    [
        ("cast", 0, 8, [&[9, 10, 13][..], &range(32)].concat()),
        ("codes", 0, 8, codes),
        ("scales", 2, 16, [&[11, 10, 10, 0, 10][..], &HALF, &[2], &range(32)].concat()),
        ("field", 0, 16, [&[12, 10, 2, 1][..], &range(128)].concat()),
    ]
}

fn features() -> Vec<Broken> {
    let base = base();
    let of = |(_, width_code, length, operand): &(&str, u8, u8, Vec<u8>), features, exact| {
        let (n, w) = (length >> width_code, 8 << width_code);
        let head = [&start(*width_code, operand[0])[..], &operand[1..], &zeros(n, w)];
        let file = File::delta(&[&base], records(&[fields(*length, &head, 17)]));
        let mut file = redigested(File { features, ..file }, &[&base]);
        file.index.exact_features = exact;
        file.to_bytes()
    };
    let bit_4 = "a block with an operand of kind 9 to 12 needs bit 4 of the required features";
    let no_others = "every block must need no features but the exact ones";
    let all_of_them = "the blocks must need all of the exact features";
    let broken = |name: String, section, rule, file| Broken {
        name,
        section,
        rule,
        file,
        bases: vec![base.clone()],
        optional: None,
    };
    let valid = valid();
    let mut all: Vec<Broken> = Vec::new();
    for kind in &valid {
        all.push(broken(format!("{}-needs-bit-4", kind.0), "3.6", bit_4, of(kind, 15, 1)));
    }
    all.extend([
        broken("exact-features-without-bit-4".into(), "2.3", no_others, of(&valid[0], 17, 1)),
        broken("exact-features-of-bit-4-alone".into(), "2.3", no_others, of(&valid[0], 17, 16)),
        broken("exact-features-of-bits-3-and-4".into(), "2.3", all_of_them, of(&valid[0], 31, 25)),
    ]);
    all
}

const FROM: &str = "from must be 8, 9 or 10";
const WIDTH: &str = "elements of the dtype must have the width of their column";

fn casts() -> Vec<Broken> {
    let to = "to of a cast must be 8, 9, 10, 13 or 14";
    let own = "to must be another dtype than from";
    let conversion = "a cast must not be one of the conversions";
    let cast = |name: &str, rule, from: u8, to: u8, width_code, bytes| {
        of(format!("cast-{name}"), rule, width_code, 8, &[&[9, from, to], &range(bytes)])
    };
    vec![
        cast("from-7", FROM, 7, 13, 0, 32),
        cast("from-e4m3", FROM, 13, 14, 0, 8),
        cast("from-11", FROM, 11, 13, 0, 64),
        cast("to-i8", to, 10, 3, 0, 32),
        cast("to-12", to, 10, 12, 3, 4),
        cast("to-e4m3-fnuz", to, 10, 15, 0, 32),
        cast("to-e8m0", to, 10, 17, 0, 32),
        cast("to-f4", to, 10, 18, 0, 32),
        cast("of-f16-to-f16", own, 8, 8, 1, 8),
        cast("of-bf16-to-bf16", own, 9, 9, 1, 8),
        cast("of-f32-to-f32", own, 10, 10, 2, 8),
        cast("of-f32-to-bf16", conversion, 10, 9, 1, 16),
        cast("of-bf16-to-f32", conversion, 9, 10, 2, 4),
        cast("of-f32-to-f16", conversion, 10, 8, 1, 16),
        cast("to-e4m3-of-2-bytes", WIDTH, 10, 13, 1, 16),
        cast("to-f16-of-1-byte", WIDTH, 9, 8, 0, 16),
        cast("to-f16-of-4-bytes", WIDTH, 9, 8, 2, 4),
        cast("to-f32-of-2-bytes", WIDTH, 8, 10, 1, 8),
        cast("to-f32-of-8-bytes", WIDTH, 8, 10, 3, 2),
    ]
}

const OPERATION: &str = "the operation must be 0 to 2";
const PRECISION: &str = "the precision must be 8, 9 or 10";
const FINITE: &str = "f must be finite";

/// Infinities, a signalling NaN, and a quiet one.
const NOT_FINITE: [(&str, u32); 4] =
    [("infinite", 0x7f80_0000), ("negative-infinite", 0xff80_0000), ("signalling", 0x7f80_0001), ("nan", 0x7fc0_0000)];

fn codes() -> Vec<Broken> {
    let to = "to of codes must be 3, 13, 14 or 18";
    let one = "codes need a column of 1-byte elements";
    let scale = "the dtype of scales must be 8, 9, 10, 13 or 17";
    // Eight codes in four groups.
    let with = |name: &str, rule, width_code, fields: [u8; 5], f: [u8; 4], bytes: [u64; 2]| {
        let operand = [&[10][..], &fields, &f, &[4, 2, 2, 3], &range(bytes[0]), &range(bytes[1])];
        of_zeros(format!("codes-{name}"), rule, width_code, 8, &operand)
    };
    let codes = |name: &str, rule, fields: [u8; 5]| with(name, rule, 0, fields, HALF, [32, 16]);
    let mut all = vec![
        with("from-e4m3", FROM, 0, [13, 3, 0, 10, 10], HALF, [8, 16]),
        with("from-7", FROM, 0, [7, 3, 0, 10, 10], HALF, [32, 16]),
        with("from-11", FROM, 0, [11, 3, 0, 10, 10], HALF, [64, 16]),
        codes("to-u8", to, [10, 2, 0, 10, 10]),
        codes("to-e4m3-fnuz", to, [10, 15, 0, 10, 10]),
        codes("to-e8m0", to, [10, 17, 0, 10, 10]),
        codes("to-19", to, [10, 19, 0, 10, 10]),
        codes("operation-3", OPERATION, [10, 13, 3, 10, 10]),
        codes("operation-255", OPERATION, [10, 13, 255, 10, 10]),
        codes("precision-0", PRECISION, [10, 13, 0, 0, 10]),
        codes("precision-7", PRECISION, [10, 13, 0, 7, 10]),
        codes("precision-e4m3", PRECISION, [10, 13, 0, 13, 10]),
        with("scales-i8", scale, 0, [10, 13, 0, 10, 3], HALF, [32, 4]),
        with("scales-e5m2", scale, 0, [10, 13, 0, 10, 14], HALF, [32, 4]),
        with("scales-f4", scale, 0, [10, 13, 0, 10, 18], HALF, [32, 2]),
        with("scales-f64", scale, 0, [10, 13, 0, 10, 21], HALF, [32, 32]),
        with("e4m3-of-2-bytes", one, 1, [10, 13, 0, 10, 10], HALF, [16, 16]),
        with("i8-of-2-bytes", one, 1, [10, 3, 0, 10, 10], HALF, [16, 16]),
    ];
    for (name, f) in NOT_FINITE {
        all.push(with(&format!("f-{name}"), FINITE, 0, [10, 13, 0, 10, 10], f.to_le_bytes(), [32, 16]));
    }
    all
}

fn groups() -> Vec<Broken> {
    let at_least_1 = "elements of a row, rows and columns of a group must be at least 1";
    let columns = "the columns of a group must be at most the elements of a row";
    let position = "the position must be less than r · C";
    let of_a_row = "r · C must be at most 2^48";
    let end = "the position + N must be at most 2^48";
    let few = "there must be at most N scales";
    let with = |name: &str, rule, to: u8, numbers: [u64; 4], bytes: [u64; 2]| {
        let mut groups = Vec::new();
        numbers.into_iter().for_each(|number| varint(&mut groups, number));
        let operand = [&[10, 10, to, 0, 10, 10][..], &HALF, &groups, &range(bytes[0]), &range(bytes[1])];
        of(format!("codes-{name}"), rule, 0, 8, &operand)
    };
    let codes = |name: &str, rule, numbers, scales: u64| with(name, rule, 13, numbers, [32, 4 * scales]);
    let most = 1 << 48;
    vec![
        codes("row-0", at_least_1, [0, 2, 2, 0], 4),
        codes("rows-0", at_least_1, [4, 0, 2, 0], 4),
        codes("columns-0", at_least_1, [4, 2, 0, 0], 4),
        codes("columns-5", columns, [4, 2, 5, 0], 1),
        codes("position-8", position, [4, 2, 2, 8], 4),
        codes("rows-too-long", of_a_row, [most + 1, 1, most + 1, 0], 1),
        codes("rows-too-many", of_a_row, [4, most / 4 + 1, 4, 0], 1),
        codes("rows-overflow", of_a_row, [1 << 32, 1 << 32, 1 << 32, 0], 1),
        codes("end", end, [most, 1, most, most - 7], 2),
        with("f4-end", end, 18, [most, 1, most, most - 15], [64, 8]),
        codes("scales-9", few, [3, 2, 1, 5], 9),
        with("f4-scales-18", few, 18, [2, 1, 1, 1], [64, 72]),
    ]
}

fn scales() -> Vec<Broken> {
    let to = "to of scales must be 8, 9, 10, 13 or 17";
    // As many scales as the column has elements, of groups of two.
    let with = |name: &str, rule, width_code: u8, fields: [u8; 4], f: [u8; 4], k: &[u8], bytes| {
        of_zeros(format!("scales-{name}"), rule, width_code, 8, &[&[11], &fields, &f, k, &range(bytes)])
    };
    let scales = |name: &str, rule, width_code: u8, fields: [u8; 4]| {
        with(name, rule, width_code, fields, HALF, &[2], 64 >> width_code)
    };
    let mut all = vec![
        with("from-e4m3", FROM, 0, [13, 17, 0, 10], HALF, &[2], 16),
        scales("from-7", FROM, 0, [7, 17, 0, 10]),
        with("from-11", FROM, 0, [11, 17, 0, 10], HALF, &[2], 128),
        scales("to-i8", to, 0, [10, 3, 0, 10]),
        scales("to-e5m2", to, 0, [10, 14, 0, 10]),
        scales("to-f4", to, 0, [10, 18, 0, 10]),
        scales("to-f64", to, 3, [10, 21, 0, 10]),
        scales("operation-3", OPERATION, 0, [10, 17, 3, 10]),
        scales("precision-7", PRECISION, 0, [10, 17, 0, 7]),
        scales("precision-i8", PRECISION, 0, [10, 17, 0, 3]),
        scales("precision-e5m2", PRECISION, 0, [10, 17, 0, 14]),
        scales("f32-of-2-bytes", WIDTH, 1, [10, 10, 0, 10]),
        scales("bf16-of-1-byte", WIDTH, 0, [10, 9, 0, 10]),
        scales("e8m0-of-2-bytes", WIDTH, 1, [10, 17, 0, 10]),
        scales("f32-of-8-bytes", WIDTH, 3, [10, 10, 0, 10]),
        with("k-0", "a group must have at least 1 element", 0, [10, 17, 0, 10], HALF, &[0], 64),
    ];
    let of_nothing = [&[11, 10, 17, 0, 10][..], &HALF, &[0, 0]];
    all.push(of_zeros("scales-k-0-of-nothing", "a group must have at least 1 element", 0, 8, &of_nothing));
    for (name, f) in NOT_FINITE {
        all.push(with(&format!("f-{name}"), FINITE, 0, [10, 17, 0, 10], f.to_le_bytes(), &[2], 64));
    }
    all
}

/// Scales of many bytes of this file: some 100 times the same zeros. They are 0.
fn too_many_bytes() -> Vec<Broken> {
    let of = |name: &str, rule, from: u8, n: u8, k: u64, ranges: u64| {
        let mut operand = [&[from, 10, 0, 10][..], &HALF].concat();
        varint(&mut operand, k);
        varint(&mut operand, ranges);
        for _ in 0..ranges {
            operand.extend([0, 0]);
            varint(&mut operand, LEAF);
        }
        let scales = fields(4 * n, &[&start(2, 11), &operand, &zeros(n, 32)], 19);
        let leaf = Block::of(Column::Zstd(Zstd::of(vec![0; LEAF as usize])), 0).encode().expect("zeros can be coded");
        let blocks: [BlockFields; 2] = [leaf, scales];
        broken_delta(name, "3.10", rule, File { features: 19, ..File::new(records(&blocks)) }, &[])
    };
    let bytes = "the ranges of scales must have at most 2^26 bytes";
    let k = "a group must have at most 2^24 elements";
    vec![
        of("scales-bytes", bytes, 10, 2, (1 << 23) + (1 << 15), 257),
        of("scales-k-2-24", k, 8, 1, (1 << 24) + (1 << 17), 129),
    ]
}

fn of_fields() -> Vec<Broken> {
    let types = "the type of blocks must be 2, 3, 6, 7, 8 or 39";
    let numbers = "the blocks must have the field";
    let whole = "a column must have a whole number of fields";
    let with = |name: &str, rule, length: u8, fields: [u8; 3], bytes| {
        of_zeros(format!("field-{name}"), rule, 0, length, &[&[12], &fields, &range(bytes)])
    };
    vec![
        with("from-e4m3", FROM, 16, [13, 2, 1], 32),
        with("from-7", FROM, 2, [7, 2, 0], 128),
        with("from-11", FROM, 16, [11, 2, 1], 256),
        with("of-f32", types, 16, [10, 0, 0], 64),
        with("of-type-4", types, 16, [10, 4, 0], 128),
        with("of-type-9", types, 16, [10, 9, 0], 128),
        with("of-type-40", types, 16, [10, 40, 0], 128),
        with("of-type-255", types, 16, [10, 255, 0], 128),
        with("2-of-q4-0", numbers, 16, [10, 2, 2], 128),
        with("3-of-q4-1", numbers, 16, [10, 3, 3], 128),
        with("3-of-q5-0", numbers, 16, [10, 6, 3], 128),
        with("4-of-q5-1", numbers, 16, [10, 7, 4], 128),
        with("2-of-q8-0", numbers, 32, [10, 8, 2], 128),
        with("2-of-mxfp4", numbers, 16, [10, 39, 2], 128),
        with("255-of-mxfp4", numbers, 16, [10, 39, 255], 128),
        with("d-cut", whole, 3, [10, 8, 0], 128),
        with("q-cut", whole, 17, [10, 2, 1], 128),
        with("q-short", whole, 31, [10, 8, 1], 128),
        with("h-cut", whole, 6, [10, 6, 1], 128),
    ]
}

/// No mask, one cluster without patches, of zeros of four bytes.
const STREAM: [u8; 8] = [0, 1, 0, 0, 0, 32, 0, 0];

fn ranges() -> Vec<Broken> {
    let none = "each data of an operand must have at least one range";
    let exactly = "the ranges of each data must be exactly the elements that are needed";
    let wrong = |length: u64| {
        let byte_more = [&[2][..], &range(length)[1..], &[1, 0, 1]].concat();
        // No range, an element too few, a byte too many, a byte too few.
        [
            ("none", none, vec![0]),
            ("short", exactly, range(length - 4)),
            ("long", exactly, byte_more),
            ("cut", exactly, range(length - 1)),
        ]
    };
    let mut all = Vec::new();
    for (name, width_code, length, operand) in valid() {
        let lists: &[(&str, u64)] = match name {
            "codes" => &[("x", 32), ("scales", 16)],
            "field" => &[("x", 128)],
            _ => &[("x", 32)],
        };
        let behind: usize = lists.iter().map(|list| range(list.1).len()).sum();
        let (fields, _) = operand.split_at(operand.len() - behind);
        for (i, (list, right)) in lists.iter().enumerate() {
            for (what, rule, wrong) in wrong(*right) {
                if (*list, what) == ("scales", "none") {
                    // They are in a stream, of which the rest of the head is none.
                    continue;
                }
                let mut ranges: Vec<Vec<u8>> = lists.iter().map(|list| range(list.1)).collect();
                ranges[i] = wrong;
                all.push(of(format!("{name}-{list}-{what}"), rule, width_code, length, &[fields, &ranges.concat()]));
            }
        }
    }
    // Scales in a stream that has a palette, of one value.
    let palette = [&[10, 10, 13, 0, 10, 10][..], &HALF, &[4, 2, 2, 3], &range(32), &[0, 3, 0], &HALF, &STREAM];
    all.push(of("codes-scales-palette", "the scales must not have map 3", 0, 8, &palette));
    // As many elements of F4 as the column has bytes, which are half of them.
    let half = [&[10, 10, 18, 0, 10, 10][..], &HALF, &[4, 2, 2, 3], &range(32), &range(16)];
    all.push(of("codes-f4-half", exactly, 0, 8, &half));
    all
}
