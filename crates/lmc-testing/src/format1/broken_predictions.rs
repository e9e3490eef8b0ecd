//! Predicted columns (§3.7) that break a rule.

use super::broken_optimizer::{fields, start, zeros};
use super::{Broken, broken_delta};
use crate::handmade::records;
use crate::reference::write::File;
use crate::three_contexts::{OPERAND, REST, START, with_head};

/// A column of four elements of two bytes with this head.
fn column(name: &str, section: &'static str, rule: &'static str, head: &[&[u8]]) -> Broken {
    let (base, fields) = with_head(&head.concat());
    let file = File { features: 1, ..File::delta(&[&base], records(&[fields])) };
    broken_delta(name, section, rule, file, &[&base])
}

/// A column of 16 zeros of this width code, whose operand has this kind and so many zeros of the base.
fn of_zeros(name: &str, rule: &'static str, [width_code, kind, length]: [u8; 3], features: u32) -> Broken {
    let base = [0; 16];
    let operand = [1, 1, 0, length];
    let fields = fields(16, &[&start(width_code, kind), &operand, &zeros(16 >> width_code, 8 << width_code)], features);
    broken_delta(name, "3.7", rule, File { features, ..File::delta(&[&base], records(&[fields])) }, &[&base])
}

pub(super) fn all() -> Vec<Broken> {
    let start = |name: &str, rule, start: [u8; 2]| column(name, "3.7", rule, &[&start, &OPERAND, &REST]);
    let operand = |name: &str, rule, operand: &[u8]| column(name, "3.7", rule, &[&START, operand, &REST]);
    let rest = |name: &str, rule, rest: &[&[u8]]| column(name, "3.7", rule, &[&START, &OPERAND, &rest.concat()]);
    let with = |at: usize, bytes: &[u8]| [&REST[..at], bytes, &REST[at + bytes.len()..]].concat();
    let conversion = |conversion: u8| [&[conversion], &OPERAND[1..]].concat();
    let width = "a conversion must give elements of the width of the column";
    let exactly = "the ranges of an operand must be exactly n elements";
    let larger = "each boundary must be larger than the one before it";
    let number = "the number of elements of each context must be the stated one";
    let sum = "the numbers of elements of contexts must add up to n";
    let many: Vec<u8> = [16].into_iter().chain(1..=16).collect();
    // 16 boundaries, all at most the keys of context 2, whose elements come last.
    let seventeen = [&many[..], &REST[3..13], &[0; 15], &REST[14..]].concat();
    vec![
        start("predicted-width-code-4", "the width code must be 0 to 3", [3, 4]),
        operand("operand-kind-13", "the kind of an operand must be 0 to 12", &conversion(13)),
        operand("operand-kind-255", "the kind of an operand must be 0 to 12", &conversion(255)),
        operand("conversion-2-to-2-bytes", width, &conversion(2)),
        start("conversion-1-to-4-bytes", width, [3, 2]),
        of_zeros("conversion-1-of-zeros", width, [2, 1, 16], 1),
        of_zeros("conversion-2-of-zeros", width, [1, 2, 16], 1),
        of_zeros("operand-kind-14", "the kind of an operand must be 0 to 12", [1, 14, 16], 17),
        operand("conversion-0-of-f32", exactly, &conversion(0)),
        operand("operand-ranges-0", "an operand must have at least one range", &[1, 0]),
        operand("operand-short", exactly, &[1, 2, 1, 0, 6, 1, 6, 9]),
        operand("operand-long", exactly, &[1, 3, 1, 0, 6, 1, 6, 10, 1, 0, 1]),
        rest("boundaries-16", "a column must have at most 15 boundaries", &[&seventeen]),
        rest("boundary-0", "the first boundary must be at least 1", &[&[3, 0, 100, 120], &[0], &REST[3..]]),
        rest("boundaries-falling", larger, &[&with(1, &[120, 100])]),
        rest("boundaries-alike", larger, &[&with(1, &[100, 100])]),
        rest("context-of-others", number, &[&with(1, &[127, 128])]),
        rest("context-counts", number, &[&REST[..3], &[2], &REST[4..14], &[2], &REST[15..]]),
        rest("contexts-short", sum, &[&with(14, &[2])]),
        rest("contexts-long", sum, &[&with(14, &[4])]),
        rest("contexts-sum-modulo-2-64", sum, &[&REST[..3], &[0xff; 9], &[1], &REST[4..13], &[0, 5], &REST[15..]]),
        column(
            "palette-predicted",
            "3.3.1",
            "map 3 stands only in plain columns",
            &[&START, &OPERAND, &REST[..4], &[3, 0, 0, 0], &REST[5..]],
        ),
    ]
}
