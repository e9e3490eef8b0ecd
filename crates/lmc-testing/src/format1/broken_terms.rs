//! Row terms (§3.7), and terms of rows and columns (§3.9), that break a rule.

use super::broken_optimizer::{fields, start, zeros};
use super::{Broken, broken_delta, redigested};
use crate::handmade::records;
use crate::reference::write::block::BlockFields;
use crate::reference::write::{File, varint};
use std::slice;

/// A stream of bytes that all are 0, whatever their number: it has no bytes in the bulk.
const ZEROS: [u8; 9] = [0, 0, 1, 0, 0, 8, 0, 0, 0];
/// A stream of bytes as they are in the bulk.
const RAW: [u8; 9] = [0, 0, 1, 0, 0, 0, 0, 8, 0];
/// A palette of one value.
const PALETTE: [u8; 11] = [3, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0];
/// Elements of a row, position, of kind 8 and of row terms.
const ROWS: [u64; 2] = [5, 2];
/// Elements of each column.
const N: u8 = 8;

/// A mask that selects so many elements: gaps of 0, and listed values of 1.
fn masked(count: u8) -> [u8; 11] {
    [0, 3, count, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn of_fields(name: &str, section: &'static str, rule: &'static str, fields: BlockFields) -> Broken {
    broken_delta(name, section, rule, File { features: 8, ..File::new(records(&[fields])) }, &[])
}

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|&number| varint(&mut bytes, number));
    bytes
}

/// Kind 8 with a shift, row and position, and streams.
fn operand(shift: u8, rows: [u64; 2], streams: &[&[u8]]) -> Vec<u8> {
    [&[shift], &varints(&rows)[..], &streams.concat()].concat()
}

/// Predictions that all are 0.
fn of_zeros() -> Vec<u8> {
    operand(6, ROWS, &[&ZEROS, &ZEROS])
}

/// The number of boundaries, row terms, boundaries, and contexts of elements of two bytes: the first context has all.
fn contexts(boundaries: &[u8], rows: [u64; 2], stream: &[u8]) -> Vec<u8> {
    let terms = [&[128 + boundaries.len() as u8], &varints(&rows)[..], stream].concat();
    let [_, all @ ..] = zeros(N, 16);
    [&terms, boundaries, &all[..], &vec![0; boundaries.len()]].concat()
}

/// Eight elements of two bytes, with this operand of kind 8, and what follows it; the bulk.
fn column(operand: &[u8], rest: &[u8], bulk: &[u8]) -> BlockFields {
    BlockFields { bulk: vec![bulk.to_vec()], ..fields(2 * N, &[&start(1, 8), operand, rest], 8) }
}

pub(super) fn all() -> Vec<Broken> {
    [features(), row_terms(), terms()].into_iter().flatten().collect()
}

fn features() -> Vec<Broken> {
    // By a grid, which needs bit 2: one level, a scale for each element of a matrix of one row.
    let grid = [&[1, 0, 0, 0, 0, 0x80, 0x3f, N, 1, N, 0][..], &[0, 0, 1, 0, 0, 32, 0, 0, 0], &ZEROS].concat();
    let with_grid = fields(2 * N, &[&start(1, 4), &grid, &contexts(&[9], ROWS, &ZEROS)], 12);
    let of = |name: &str, section, rule, fields: &BlockFields, features, exact| {
        let mut file = redigested(File { features, ..File::new(records(slice::from_ref(fields))) }, &[]);
        file.index.exact_features = exact;
        Broken { name: name.into(), section, rule, file: file.to_bytes(), bases: Vec::new(), optional: None }
    };
    let terms = column(&of_zeros(), &zeros(N, 16), &[]);
    let kinds = "a block with an operand of kind 5 to 8 needs bit 3 of the required features";
    let rows = "a block with row terms needs bit 3 of the required features";
    let no_others = "every block must need no features but the exact ones";
    let all_of_them = "the blocks must need all of the exact features";
    let check = "only a block that names ranges has the xxh3-64 of its body";
    vec![
        of("terms-need-bit-3", "3.6", kinds, &terms, 7, 0),
        of("row-terms-need-bit-3", "3.6", rows, &with_grid, 7, 4),
        of("exact-features-without-terms", "2.3", no_others, &terms, 15, 0),
        of("exact-features-without-row-terms", "2.3", no_others, &with_grid, 15, 4),
        of("exact-features-of-terms-and-ranges", "2.3", all_of_them, &terms, 15, 9),
        of_fields("terms-body-check", "3.1", check, BlockFields { has_body_check: true, ..terms }),
    ]
}

fn row_terms() -> Vec<Broken> {
    let of = |name: &str, section, rule, rest: &[u8], bulk: &[u8]| {
        of_fields(name, section, rule, column(&of_zeros(), rest, bulk))
    };
    let number = "128 + C: there must be 1 to 15 boundaries if there are row terms";
    let row = "a row must have 1 to 2^48 elements";
    let position = "the position must be less than R";
    let bulk = "the bulk must be exactly as long as the head and the cluster maps imply";
    let mask = "the number of selected elements must be 1 to n";
    let rows = |name: &str, rule, rows, stream: &[u8]| of(name, "3.7", rule, &contexts(&[9], rows, stream), &[]);
    let sixteen: Vec<u8> = (1..=16).collect();
    let largest = 1 << 48;
    // Keys of 0 less terms of 1 are 255, at least the boundary, which the counts do not say.
    let ones = [0, 0, 1, 0, 1, 8, 0, 0, 0, 1];
    let swapped = [&[129][..], &[2, 5], &ZEROS, &[9], &zeros(N, 16)[1..], &[0]].concat();
    vec![
        of("row-terms-boundaries-0", "3.7", number, &contexts(&[], ROWS, &ZEROS), &[]),
        of("row-terms-boundaries-16", "3.7", number, &contexts(&sixteen, ROWS, &ZEROS), &[]),
        of(
            "row-terms-missing",
            "3.7",
            "there are row terms after 128 + C",
            &[&[129, 9], &zeros(N, 16)[1..], &[0]].concat(),
            &[],
        ),
        rows("row-terms-row-0", row, [0, 0], &ZEROS),
        rows("row-terms-row-above-2-48", row, [largest + 1, 2], &ZEROS),
        rows("row-terms-position-above", position, [5, 5], &ZEROS),
        rows("row-terms-position-far-above", position, [5, u64::MAX], &ZEROS),
        of("row-terms-position-first", "3.7", position, &swapped, &[]),
        rows("row-terms-context-counts", "the number of elements of each context must be the stated one", ROWS, &ones),
        rows("row-terms-palette", "map 3 stands only in plain columns", ROWS, &PALETTE),
        of("row-terms-cut", "3.2", bulk, &contexts(&[9], ROWS, &RAW), &[0]),
        of("row-terms-too-many", "3.2", bulk, &contexts(&[9], ROWS, &RAW), &[0; 3]),
        of("row-terms-of-no-row", "3.3.2", mask, &contexts(&[9], ROWS, &masked(3)), &[]),
    ]
}

fn terms() -> Vec<Broken> {
    let of = |name: &str, section, rule, operand: &[u8], bulk: &[u8]| {
        of_fields(name, section, rule, column(operand, &zeros(N, 16), bulk))
    };
    let of_width = |name: &str, width_code: u8| {
        let rule = "kind 8 needs a column of 4-byte or 2-byte elements";
        let (n, w) = (16 >> width_code, 8 << width_code);
        let rows = operand(0, [5, 2], &[&ZEROS, &ZEROS]);
        of_fields(name, "3.9", rule, fields(16, &[&start(width_code, 8), &rows, &zeros(n, w)], 8))
    };
    let row = "a row must have 1 to 2^20 elements";
    let position = "the position must be less than R";
    let shift = "the shift must be less than w";
    let map = "map 3 stands only in plain columns";
    let bulk = "the bulk must be exactly as long as the head and the cluster maps imply";
    let mask = "the number of selected elements must be 1 to n";
    let rows = |name: &str, rule, rows| of(name, "3.9", rule, &operand(6, rows, &[&ZEROS, &ZEROS]), &[]);
    let streams = |name: &str, section, rule, of_rows: &[u8], of_columns: &[u8], bulk: &[u8]| {
        of(name, section, rule, &operand(6, ROWS, &[of_rows, of_columns]), bulk)
    };
    let four = fields(16, &[&start(2, 8), &operand(32, ROWS, &[&ZEROS, &ZEROS]), &zeros(4, 32)], 8);
    let largest = 1 << 20;
    vec![
        of_width("terms-1-byte", 0),
        of_width("terms-8-bytes", 3),
        of("terms-shift-16", "3.9", shift, &operand(16, ROWS, &[&ZEROS, &ZEROS]), &[]),
        of("terms-shift-255", "3.9", shift, &operand(255, ROWS, &[&ZEROS, &ZEROS]), &[]),
        of_fields("terms-shift-32", "3.9", shift, four),
        rows("terms-row-0", row, [0, 0]),
        rows("terms-row-above-2-20", row, [largest + 1, 2]),
        rows("terms-position-above", position, [5, 5]),
        rows("terms-position-far-above", position, [5, u64::MAX]),
        streams("terms-palette-of-rows", "3.9", map, &PALETTE, &ZEROS, &[]),
        streams("terms-palette-of-columns", "3.9", map, &ZEROS, &PALETTE, &[]),
        streams("terms-of-rows-cut", "3.2", bulk, &RAW, &ZEROS, &[0]),
        streams("terms-of-rows-too-many", "3.2", bulk, &RAW, &ZEROS, &[0; 3]),
        streams("terms-of-columns-cut", "3.2", bulk, &ZEROS, &RAW, &[0; 4]),
        streams("terms-of-columns-too-many", "3.2", bulk, &ZEROS, &RAW, &[0; 6]),
        of("terms-as-many-as-a-row-has", "3.2", bulk, &operand(6, [9, 2], &[&ZEROS, &RAW]), &[0; 9]),
        streams("terms-of-no-row", "3.3.2", mask, &masked(3), &ZEROS, &[]),
        streams("terms-of-no-column", "3.3.2", mask, &ZEROS, &masked(6), &[]),
        streams("terms-of-columns-missing", "3.9", "there are terms of columns", &ZEROS, &[], &[]),
    ]
}
