//! Grids (§3.8) that break a rule.

use super::{Broken, broken_delta, redigested};
use crate::handmade::records;
use crate::one_grid::{INDICES, LEVELS, OF_GROUPS, REST, SCALES, START, fields, with_head};
use crate::reference::write::block::BlockFields;
use crate::reference::write::{File, varint};

/// A stream of scales or offsets that all are 1, whatever their number: it has no bytes in the bulk.
const ONES: [u8; 13] = [0, 0, 1, 0, 1, 32, 0, 0, 0, 0, 0, 0x80, 0x3f];

fn of_fields(name: &str, section: &'static str, rule: &'static str, fields: BlockFields) -> Broken {
    broken_delta(name, section, rule, File { features: 4, ..File::new(records(&[fields])) }, &[])
}

/// The column with this head, and with these bytes in the bulk if they are given.
fn of_head(
    name: &str,
    section: &'static str,
    rule: &'static str,
    head: &[&[u8]],
    bulk: impl Into<Option<Vec<u8>>>,
) -> Broken {
    let mut fields = with_head(&head.concat());
    if let Some(bulk) = bulk.into() {
        fields.bulk = vec![bulk];
    }
    of_fields(name, section, rule, fields)
}

pub(super) fn all() -> Vec<Broken> {
    [features(), conversions(), levels(), groups(), scales(), offsets(), streams()].into_iter().flatten().collect()
}

fn features() -> Vec<Broken> {
    let of = |name: &str, section, rule, features, exact| {
        let mut file = redigested(File { features, ..File::new(records(&[fields()])) }, &[]);
        file.index.exact_features = exact;
        Broken { name: name.into(), section, rule, file: file.to_bytes(), bases: Vec::new(), optional: None }
    };
    let bit_2 = "a block with a grid needs bit 2 of the required features";
    let no_others = "every block must need no features but the exact ones";
    let all_of_them = "the blocks must need all of the exact features";
    let check = "only a block that names ranges has the xxh3-64 of its body";
    vec![
        of("grids-need-bit-2", "3.6", bit_2, 0, 0),
        of("grids-need-bit-2-and-no-other", "3.6", bit_2, 3, 0),
        of("exact-features-without-grids", "2.3", no_others, 4, 0),
        of("exact-features-of-ranges", "2.3", all_of_them, 5, 5),
        of_fields("grid-body-check", "3.1", check, BlockFields { has_body_check: true, ..fields() }),
    ]
}

fn conversions() -> Vec<Broken> {
    let conversion = "the conversion of a grid must be 0, 1 or 3";
    let four = "conversion 0 needs a column of 4-byte elements";
    let two = "conversions 1 and 3 need a column of 2-byte elements";
    // Twelve bytes are elements of other widths, too.
    let of = |name: &str, rule, width_code: u8, conversion| {
        let n = 12 >> width_code;
        let (start, levels) = ([3, width_code, 4], [&[conversion], &LEVELS[1..]].concat());
        let rest = [0, n, 0, 0, 1, 0, 0, 8 << width_code, 0, 0, 0];
        let bulk = vec![0; usize::from(n).div_ceil(8)];
        of_head(name, "3.8", rule, &[&start, &levels, &[4, 2, 4, 3], &ONES, &INDICES, &rest], bulk)
    };
    vec![
        of("grid-conversion-2", conversion, 1, 2),
        of("grid-conversion-4", conversion, 1, 4),
        of("grid-conversion-0-to-1-byte", four, 0, 0),
        of("grid-conversion-0-to-2-bytes", four, 1, 0),
        of("grid-conversion-1-to-1-byte", two, 0, 1),
        of("grid-conversion-1-to-4-bytes", two, 2, 1),
        of("grid-conversion-3-to-4-bytes", two, 2, 3),
    ]
}

fn levels() -> Vec<Broken> {
    // All elements have the first level.
    let of = |name: &str, rule, level: u32| {
        let levels = [&LEVELS[..7], &level.to_le_bytes()].concat();
        of_head(name, "3.8", rule, &[&START, &levels, &OF_GROUPS, &ONES, &INDICES, &REST], vec![0])
    };
    let finite = "levels must be finite";
    vec![
        of("grid-levels-alike", "the levels must differ", 0x3f80_0000),
        of("grid-level-infinite", finite, 0xff80_0000),
        of("grid-level-nan", finite, 0x7fc0_0000),
        of("grid-level-nan-of-one-bit", finite, 0x7f80_0001),
    ]
}

fn groups() -> Vec<Broken> {
    let of = |name: &str, rule, groups: [u64; 4]| {
        let mut numbers = Vec::new();
        groups.into_iter().for_each(|number| varint(&mut numbers, number));
        of_head(name, "3.8", rule, &[&START, &LEVELS, &numbers, &ONES, &INDICES, &REST], vec![0b10_0110])
    };
    let columns = "a group must have 1 to C columns";
    let position = "the position must be less than r times C";
    let row_of_groups = "r times C must be at most 2^48";
    let end = "the position + n must be at most 2^48";
    let scales = "the number of scales must be at most n";
    let largest = 1 << 48;
    vec![
        of("grid-row-0", "a row must have at least 1 element", [0, 2, 2, 3]),
        of("grid-rows-0", "a group must have at least 1 row", [4, 0, 2, 3]),
        of("grid-columns-0", columns, [4, 2, 0, 3]),
        of("grid-columns-above", columns, [4, 2, 5, 3]),
        of("grid-columns-far-above", columns, [4, 2, u64::MAX, 3]),
        of("grid-position-above", position, [4, 2, 2, 8]),
        of("grid-position-far-above", position, [4, 2, 2, u64::MAX - 2]),
        of("grid-row-of-groups-above-2-48", row_of_groups, [1 << 24, (1 << 24) + 1, 1 << 24, 3]),
        of("grid-row-of-groups-modulo-2-64", row_of_groups, [1 << 32, 1 << 32, 1 << 32, 3]),
        of("grid-end-above-2-48", end, [largest, 1, largest, largest - 5]),
        of("grid-scales-above-n", scales, [8, 1, 2, 3]),
        of("grid-scales-far-above-n", scales, [largest, 1, 1, 3]),
    ]
}

fn scales() -> Vec<Broken> {
    // The last scale is of a group that the column has no element of.
    let of = |name: &str, number: usize, bits: u32| {
        let mut fields = fields();
        (0..4).for_each(|i| fields.bulk[0][4 * i + number] = bits.to_le_bytes()[i]);
        of_fields(name, "3.8", "scales must be finite", fields)
    };
    vec![
        of("grid-scale-infinite", 1, 0x7f80_0000),
        of("grid-scale-infinite-of-no-element", 3, 0xff80_0000),
        of("grid-scale-nan", 3, 0x7fc0_0000),
        of("grid-scale-nan-of-one-bit", 3, 0x7f80_0001),
    ]
}

fn offsets() -> Vec<Broken> {
    let of = |name: &str, section, rule, offsets: u8, streams: &[&[u8]], bulk: Vec<u8>| {
        let start = [&START[..], &[LEVELS[0], offsets], &LEVELS[2..], &OF_GROUPS].concat();
        of_head(name, section, rule, &[&start, &streams.concat(), &REST], bulk)
    };
    let byte = "offsets must be 0 or 1";
    let bulk = "the bulk must be exactly as long as the head and the cluster maps imply";
    let map = "map 3 stands only in plain columns";
    let mask = "the number of selected elements must be 1 to n";
    let scales = "the number of scales must be at most n";
    let index = 0b10_0110;
    let palette = [3, 0, 0, 0, 0x80, 0x3f, 0, 1, 0, 0, 32, 0, 0, 0];
    // Gaps of 0, and listed values of 1.
    let masked = [0, 3, 5, 0, 0, 0, 0, 0, 0, 0, 0];
    // The last offset is of a group that the column has no element of.
    let finite = |name: &str, number: usize, bits: u32| {
        let mut planes = vec![0; 16];
        (0..4).for_each(|i| planes[4 * i + number] = bits.to_le_bytes()[i]);
        of(name, "3.8", "offsets must be finite", 1, &[&ONES, &SCALES, &INDICES], [planes, vec![index]].concat())
    };
    let groups = [&START[..], &[LEVELS[0], 1], &LEVELS[2..], &[8, 1, 2, 3], &ONES, &ONES, &INDICES, &REST].concat();
    vec![
        of("grid-offsets-2", "3.8", byte, 2, &[&ONES, &ONES, &INDICES], vec![index]),
        of("grid-offsets-255", "3.8", byte, 255, &[&ONES, &ONES, &INDICES], vec![index]),
        of(
            "grid-offsets-without-byte",
            "3.8",
            "there are offsets only if the byte is 1",
            0,
            &[&ONES, &ONES, &INDICES],
            vec![index],
        ),
        of("grid-offsets-missing", "3.8", "there are offsets if the byte is 1", 1, &[&ONES, &INDICES], vec![index]),
        of("grid-offsets-cut", "3.2", bulk, 1, &[&ONES, &SCALES, &INDICES], [vec![0; 15], vec![index]].concat()),
        of("grid-offsets-too-many", "3.2", bulk, 1, &[&ONES, &SCALES, &INDICES], [vec![0; 20], vec![index]].concat()),
        of("grid-offsets-of-no-scale", "3.3.2", mask, 1, &[&ONES, &masked, &INDICES], vec![index]),
        of("grid-palette-of-offsets", "3.8", map, 1, &[&ONES, &palette, &INDICES], vec![index]),
        of_head("grid-scales-above-n-with-offsets", "3.8", scales, &[&groups], vec![index]),
        finite("grid-offset-infinite", 1, 0x7f80_0000),
        finite("grid-offset-infinite-of-no-element", 3, 0xff80_0000),
        finite("grid-offset-nan", 3, 0x7fc0_0000),
        finite("grid-offset-nan-of-one-bit", 3, 0x7f80_0001),
    ]
}

fn streams() -> Vec<Broken> {
    let of = |name: &str, section, rule, scales: &[u8], indices: &[u8], rest: &[u8], bulk: Vec<u8>| {
        of_head(name, section, rule, &[&START, &LEVELS, &OF_GROUPS, scales, indices, rest], bulk)
    };
    let index = "each index must be less than the number of levels";
    let two_bits = [0, 0, 1, 0, 0, 0, 6, 2, 0];
    let palette_of_scales = [3, 0, 0, 0, 0x80, 0x3f, 0, 1, 0, 0, 32, 0, 0, 0];
    let palette_of_indices = [3, 1, 1, 0, 0, 1, 0, 0, 0, 7, 1, 0];
    let map = "map 3 stands only in plain columns";
    // Gaps of 0, and listed values of 1.
    let masked = |count: u8| [0, 3, count, 0, 0, 0, 0, 0, 0, 0, 0];
    let mask = "the number of selected elements must be 1 to n";
    let counts = "the number of elements of each context must be the stated one";
    // Four elements of the first context, which has three, and two of the other.
    let contexts = [&[1, 0x7f, 4][..], &REST[2..], &[2], &REST[2..]].concat();
    vec![
        of("grid-index-2", "3.8", index, &ONES, &two_bits, &REST, vec![0b00_0110, 0b10_0000]),
        of("grid-palette-of-scales", "3.8", map, &palette_of_scales, &INDICES, &REST, vec![0b10_0110]),
        of("grid-palette-of-indices", "3.8", map, &ONES, &palette_of_indices, &REST, vec![0b10_0110]),
        of("grid-mask-of-more-scales", "3.3.2", mask, &masked(5), &INDICES, &REST, vec![0b10_0110]),
        of("grid-mask-of-more-indices", "3.3.2", mask, &ONES, &masked(7), &REST, Vec::new()),
        of("grid-context-counts", "3.7", counts, &SCALES, &INDICES, &contexts, fields().bulk.concat()),
    ]
}
