//! Terms of rows, which contexts depend on (§3.7), and predictions that are sums of terms of rows and columns (§3.9).

use super::Feature;
use super::optimizer::{exact, file_of, raw_bits, with_residuals};
use crate::input::Random;
use crate::one_grid;
use crate::reference::write::block::{Cluster, Mask, Operand, Predicted, Range, RowTerms, Rows, Stream, Terms};
use crate::reference::write::entropy::Coder;

pub(super) fn all() -> Vec<Feature> {
    [rows_of_keys(), streams_of_keys(), sums(), streams_of_sums()].into_iter().flatten().collect()
}

/// This many terms below `most`.
fn terms(n: usize, most: u64) -> Vec<u8> {
    let mut random = Random::new(n as u64 + most);
    (0..n).map(|_| random.below(most) as u8).collect()
}

/// A base of `n` elements whose top bytes are any.
fn base(n: usize, width_code: u8) -> Vec<u8> {
    Random::new(n as u64).bytes(n << width_code)
}

/// A column of elements of the base in contexts that depend on rows.
fn with_row_terms(base: &[u8], width_code: u8, rows: Rows, terms: Vec<u8>, boundaries: &[u8]) -> Predicted {
    let operand = Operand::of(vec![Range::of_base(1, base)]);
    let column = Predicted {
        row_terms: Some(RowTerms::of_rows(rows, terms)),
        boundaries: boundaries.to_vec(),
        streams: vec![raw_bits(width_code); boundaries.len() + 1],
        ..exact(base.len() >> width_code, width_code, operand)
    };
    with_residuals(column, |i| i as u64)
}

fn rows_of_keys() -> Vec<Feature> {
    let of = |name, shows, width_code: u8, n: usize, rows: Rows, boundaries: &[u8]| {
        let base = base(n, width_code);
        let terms = terms(RowTerms::count(rows, n), 256);
        file_of(name, "3.7", shows, with_row_terms(&base, width_code, rows, terms, boundaries), &[&base])
    };
    let thirds = [0x55, 0xaa];
    let fours = Rows { row: 4, position: 0 };
    let many: Vec<u8> = (1..=15).map(|i| 16 * i).collect();
    let largest = 1 << 48;
    vec![
        of("row-terms-1", "row terms of elements of 1 byte", 0, 10, fours, &thirds),
        of("row-terms-2", "row terms of elements of 2 bytes", 1, 10, fours, &thirds),
        of("row-terms-4", "row terms of elements of 4 bytes", 2, 10, fours, &thirds),
        of("row-terms-8", "row terms of elements of 8 bytes", 3, 10, fours, &thirds),
        of(
            "row-terms-position",
            "the column begins within a row and ends within one",
            1,
            12,
            Rows { row: 5, position: 3 },
            &thirds,
        ),
        of("row-terms-of-elements", "rows of one element", 1, 10, Rows { row: 1, position: 0 }, &thirds),
        of("row-terms-of-one-row", "a part of one row", 1, 10, Rows { row: 1000, position: 990 }, &thirds),
        of(
            "row-terms-largest",
            "a row that is as long as it may be, and another one",
            1,
            10,
            Rows { row: largest, position: largest - 1 },
            &thirds,
        ),
        of("row-terms-of-one-element", "one element, one boundary", 1, 1, Rows { row: 7, position: 6 }, &[1]),
        of("row-terms-contexts-16", "as many contexts as there may be, some of them empty", 1, 40, fours, &many),
    ]
}

fn streams_of_keys() -> Vec<Feature> {
    // 1, 1, 2, 2, −1, −0.5, and 0, which is less than its term.
    let base: Vec<u8> =
        [0x3f80u16, 0x3f80, 0x4000, 0x4000, 0xbf80, 0xbf00, 0].iter().flat_map(|u| u.to_le_bytes()).collect();
    let rows = Rows { row: 2, position: 0 };
    let known = with_row_terms(&base, 1, rows, vec![0, 1, 0x7e, 3], &[1, 0x7f, 0x80, 0xfd]);
    // Two rows in runs of 128, the terms as symbols; the streams of the contexts share the lanes with them.
    let wide = super::terms::base(300, 1);
    let pairs = Rows { row: 2, position: 1 };
    let coded = RowTerms {
        stream: Stream::of(0, Cluster { h: 4, coder: Coder::fine_rans(&[0, 1, 2, 3, 4], true), ..Cluster::default() }),
        ..RowTerms::of_rows(pairs, terms(151, 16))
    };
    let symbols = Stream::of(0, Cluster { h: 8, coder: Coder::huffman(&[0, 0, 1, 2], true), ..Cluster::default() });
    let column = with_row_terms(&wide, 1, pairs, coded.terms.clone(), &[0x80]);
    let coded =
        with_residuals(Predicted { row_terms: Some(coded), streams: vec![symbols; 2], ..column }, |i| i as u64 % 5);
    // Terms that are 0 but for one; a palette is not allowed, other maps are.
    let mut few = vec![0; 10];
    few[4] = 0x90;
    let listed = RowTerms {
        stream: Stream { map: 2, mask: Mask::List, ..Stream::default() },
        ..RowTerms::of_rows(rows, few.clone())
    };
    let twenty = super::terms::base(20, 1);
    let of_listed = with_row_terms(&twenty, 1, rows, few, &[0x80]);
    let listed = with_residuals(Predicted { row_terms: Some(listed), ..of_listed }, |i| i as u64);
    let grid = Predicted {
        row_terms: Some(RowTerms::of_rows(Rows { row: 4, position: 3 }, vec![1, 2, 3])),
        boundaries: vec![0x7d],
        streams: vec![raw_bits(1); 2],
        ..one_grid::column()
    };
    vec![
        file_of(
            "row-terms-modulo",
            "3.7",
            "keys that are taken modulo 256, at and next to boundaries",
            known,
            &[&base],
        ),
        file_of("row-terms-coded", "3.7", "terms as symbols, which share the lanes with the contexts", coded, &[&wide]),
        file_of("row-terms-listed", "3.7", "terms that are listed, under map 2", listed, &[&twenty]),
        file_of(
            "row-terms-and-grid",
            "3.7",
            "row terms where a grid predicts: the block names no ranges",
            with_residuals(grid, |i| i as u64),
            &[],
        ),
    ]
}

/// A column of `n` elements that equal sums of terms.
fn sum(width_code: u8, n: usize, shift: u8, rows: Rows, most: u64) -> Predicted {
    let of_rows = terms(RowTerms::count(rows, n), most);
    let of_columns = terms((rows.row as usize).min(n), most + 1);
    exact(n, width_code, Operand::Terms(Terms::of(shift, rows, of_rows, of_columns)))
}

fn sums() -> Vec<Feature> {
    let of = |name, shows, column| file_of(name, "3.9", shows, column, &[]);
    let five = |position| Rows { row: 5, position };
    let largest = 1 << 20;
    let infinite = |shift| Operand::Terms(Terms::of(shift, Rows { row: 2, position: 0 }, vec![255], vec![255, 0]));
    vec![
        of("terms-f32", "sums of terms as exponents and two bits of an F32", sum(2, 12, 21, five(0), 128)),
        of("terms-bf16", "sums of terms as exponents and a bit of a BF16", sum(1, 12, 6, five(3), 128)),
        of("terms-shift-0", "sums of terms above 255, not shifted", sum(1, 12, 0, five(0), 255)),
        of("terms-shift-15", "sums of terms modulo 2^16", sum(1, 12, 15, five(0), 255)),
        of("terms-shift-31", "sums of terms modulo 2^32", sum(2, 12, 31, five(0), 255)),
        of(
            "terms-of-elements",
            "rows of one element: one term of a column",
            sum(2, 6, 20, Rows { row: 1, position: 0 }, 99),
        ),
        of(
            "terms-of-one-row",
            "a part of one row: each element has a term of its own",
            sum(2, 6, 20, Rows { row: 100, position: 94 }, 99),
        ),
        of(
            "terms-of-two-rows",
            "parts of two rows, fewer elements than a row has: each element has a term of its own",
            sum(2, 6, 20, Rows { row: 7, position: 4 }, 99),
        ),
        of(
            "terms-as-many-as-a-row",
            "as many elements as a row has, in two rows: terms are those of columns",
            sum(2, 7, 20, Rows { row: 7, position: 4 }, 99),
        ),
        of(
            "terms-largest",
            "a row that is as long as it may be, and another one",
            sum(2, 6, 20, Rows { row: largest, position: largest - 2 }, 99),
        ),
        of("terms-of-one-element", "one element", sum(1, 1, 7, five(4), 200)),
        of(
            "terms-infinite",
            "the largest sums of two terms and of one, the first is infinite",
            exact(2, 1, infinite(6)),
        ),
        of(
            "terms-infinite-f32",
            "the same with elements of 4 bytes, the second is infinite",
            exact(2, 2, infinite(23)),
        ),
    ]
}

fn streams_of_sums() -> Vec<Feature> {
    let of = |name, shows, column| file_of(name, "3.9", shows, column, &[]);
    let rows = Rows { row: 40, position: 13 };
    let plain = sum(2, 300, 21, rows, 16);
    let Operand::Terms(terms_of_plain) = &plain.operand else { unreachable!("the operand is terms") };
    let coder = Coder::fine_rans(&[0, 1, 2, 3, 4], true);
    let coded = Terms {
        row_stream: Stream { mask: Mask::List, ..Stream::default() },
        column_stream: Stream::of(0, Cluster { h: 3, coder, ..Cluster::default() }),
        ..terms_of_plain.clone()
    };
    let symbols = Stream::of(0, Cluster { h: 24, coder: Coder::huffman(&[0, 0, 1, 2], true), ..Cluster::default() });
    let coded = Predicted { operand: Operand::Terms(coded), streams: vec![symbols], ..plain.clone() };
    let distances = Predicted { streams: vec![raw_bits(2)], ..sum(2, 12, 21, Rows { row: 5, position: 1 }, 128) };
    let contexts = Predicted {
        row_terms: Some(RowTerms::of_rows(Rows { row: 6, position: 5 }, vec![9, 0, 30])),
        boundaries: vec![0x30, 0x50],
        streams: vec![raw_bits(2), Stream { mask: Mask::List, ..Stream::default() }, raw_bits(2)],
        ..sum(2, 12, 22, Rows { row: 5, position: 1 }, 128)
    };
    vec![
        of("terms-distances", "distances from sums of terms", with_residuals(distances, |i| i as u64)),
        of(
            "terms-coded",
            "terms that are listed, and terms as symbols, which share the lanes with the residuals",
            with_residuals(coded, |i| i as u64 % 4),
        ),
        of(
            "terms-and-row-terms",
            "sums of terms, and row terms with other rows, in three contexts",
            with_residuals(contexts, |i| i as u64),
        ),
    ]
}
