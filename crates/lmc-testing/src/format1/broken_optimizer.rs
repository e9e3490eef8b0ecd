//! Operands of kinds 5, 6 and 7 (§3.9) that break a rule.

use super::{Broken, broken_delta, redigested};
use crate::handmade::{records, stored};
use crate::reference::write::File;
use crate::reference::write::block::BlockFields;

/// The base: 16 elements of 4 bytes.
fn base() -> Vec<u8> {
    (0..16u32).flat_map(|i| (0x3f80_0000 + 0x0012_3456 * i).to_le_bytes()).collect()
}

/// A block of one column of `length` bytes with this head, and nothing in the bulk.
pub(super) fn fields(length: u8, head: &[&[u8]], needs: u32) -> BlockFields {
    let mut fields = stored(&vec![0; length.into()]);
    (fields.columns, fields.bulk) = (vec![head.concat()], vec![Vec::new()]);
    (fields.needs, fields.has_body_check) = (needs, needs & 1 != 0);
    fields
}

/// No boundaries; `n` elements in context 0, whose residuals are 0, of `w` bits.
pub(super) fn zeros(n: u8, w: u8) -> [u8; 11] {
    [0, n, 0, 0, 1, 0, 0, w, 0, 0, 0]
}

/// Method, width code, an operand of a kind.
pub(super) fn start(width_code: u8, kind: u8) -> [u8; 3] {
    [3, width_code, kind]
}

/// One range of four elements of four bytes of the base.
const RANGE: [u8; 4] = [1, 1, 0, 16];
/// 0.5, which is a constant like any other.
const HALF: [u8; 4] = [0, 0, 0, 0x3f];
/// No number.
const ZERO: [u8; 4] = [0; 4];

/// Four elements of four bytes predicted by this operand: constants and ranges.
fn of_four(name: impl Into<String>, rule: &'static str, kind: u8, constants: &[[u8; 4]], ranges: &[&[u8]]) -> Broken {
    of_width(name, rule, 2, kind, constants, ranges)
}

/// 16 bytes of elements of another width.
fn of_width(
    name: impl Into<String>,
    rule: &'static str,
    width_code: u8,
    kind: u8,
    constants: &[[u8; 4]],
    ranges: &[&[u8]],
) -> Broken {
    let (n, w) = (16 >> width_code, 8 << width_code);
    let fields = fields(16, &[&start(width_code, kind), &constants.concat(), &ranges.concat(), &zeros(n, w)], 9);
    let base = base();
    let file = File { features: 9, ..File::delta(&[&base], records(&[fields])) };
    broken_delta(name, "3.9", rule, file, &[&base])
}

pub(super) fn all() -> Vec<Broken> {
    [features(), constants(), widths(), ranges(), averages_before()].into_iter().flatten().collect()
}

/// Kind, constants and lists of ranges of a valid operand.
const KINDS: [(&str, u8, usize, usize); 3] = [("scaled", 5, 1, 1), ("second-moment", 6, 4, 3), ("weight", 7, 4, 4)];

fn features() -> Vec<Broken> {
    let base = base();
    let of = |kind: u8, constants: usize, lists: usize, features, exact| {
        let head = [&start(2, kind)[..], &[HALF; 4][..constants].concat(), &[RANGE; 4][..lists].concat()].concat();
        let file = File::delta(&[&base], records(&[fields(16, &[&head, &zeros(4, 32)], 9)]));
        let mut file = redigested(File { features, ..file }, &[&base]);
        file.index.exact_features = exact;
        file.to_bytes()
    };
    let bit_3 = "a block with an operand of kind 5 to 8 needs bit 3 of the required features";
    let bit_0 = "a block that names a range needs bit 0 of the required features";
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
    let without_bit_3 = |(name, kind, constants, lists)| {
        broken(format!("{name}-needs-bit-3"), "3.6", bit_3, of(kind, constants, lists, 7, 1))
    };
    let mut all: Vec<Broken> = KINDS.map(without_bit_3).into();
    all.extend([
        broken("exact-features-without-bit-3".into(), "2.3", no_others, of(5, 1, 1, 9, 1)),
        broken("exact-features-of-bit-3-alone".into(), "2.3", no_others, of(5, 1, 1, 9, 8)),
        broken("exact-features-of-this-file".into(), "2.3", all_of_them, of(5, 1, 1, 15, 11)),
    ]);
    // Without the bases, which need bit 0 as well.
    let own = fields(16, &[&start(2, 5), &HALF, &[1, 0, 0, 16], &zeros(4, 32)], 11);
    let file = File { features: 8, ..File::new(records(&[stored(&base), own])) };
    all.push(broken_delta("scaled-needs-bit-0", "3.6", bit_0, file, &[]));
    all
}

fn constants() -> Vec<Broken> {
    let finite = "constants must be finite";
    let names = [&["a"][..], &["b", "h", "a", "c"], &["a", "s1", "s0", "e"]];
    // Infinities, a signalling NaN, and a quiet one.
    let not_finite = [0x7f80_0000u32, 0xff80_0000, 0x7f80_0001, 0x7fc0_0000];
    let mut all = Vec::new();
    for ((kind, number, _, lists), names) in KINDS.into_iter().zip(names) {
        for (i, name) in names.iter().enumerate() {
            let mut constants = vec![HALF; names.len()];
            constants[i] = not_finite[(i + usize::from(number)) % 4].to_le_bytes();
            all.push(of_four(
                format!("{kind}-{name}-not-finite"),
                finite,
                number,
                &constants,
                &[&[RANGE; 4][..lists].concat()],
            ));
        }
    }
    all
}

fn widths() -> Vec<Broken> {
    let four = "the kind needs a column of 4-byte elements";
    let either = "kind 5 needs a column of 4-byte or 2-byte elements";
    let of = |name: &str, rule, width_code, (_, kind, constants, lists): (&str, u8, usize, usize)| {
        of_width(name, rule, width_code, kind, &[HALF; 4][..constants], &[&[RANGE; 4][..lists].concat()])
    };
    let [scaled, second_moment, weight] = KINDS;
    vec![
        of("scaled-1-byte", either, 0, scaled),
        of("scaled-8-bytes", either, 3, scaled),
        of("second-moment-1-byte", four, 0, second_moment),
        of("second-moment-2-bytes", four, 1, second_moment),
        of("second-moment-8-bytes", four, 3, second_moment),
        of("weight-1-byte", four, 0, weight),
        of("weight-2-bytes", four, 1, weight),
        of("weight-8-bytes", four, 3, weight),
    ]
}

fn ranges() -> Vec<Broken> {
    let none = "each data of an operand must have at least one range";
    let exactly = "the ranges of each data must be exactly n elements";
    let names = [&["x"][..], &["v0", "m0", "m1"], &["w0", "m1", "v1", "m0"]];
    let mut all = Vec::new();
    for ((kind, number, constants, lists), names) in KINDS.into_iter().zip(names) {
        for list in 0..lists {
            // No range, an element too few, a byte too many, a byte too few.
            let wrong: [(&str, &'static str, &[u8]); 4] = [
                ("none", none, &[0]),
                ("short", exactly, &[1, 1, 0, 12]),
                ("long", exactly, &[2, 1, 0, 16, 1, 0, 1]),
                ("cut", exactly, &[2, 1, 0, 4, 1, 4, 11]),
            ];
            for (what, rule, wrong) in wrong {
                let is_m0 = number == 7 && list == 3;
                if is_m0 && what == "none" {
                    continue;
                }
                let mut ranges = vec![&RANGE[..]; lists];
                ranges[list] = wrong;
                let name = format!("{kind}-{}-{what}", names[list]);
                all.push(of_four(name, rule, number, &[HALF; 4][..constants], &ranges));
            }
        }
    }
    all
}

fn averages_before() -> Vec<Broken> {
    let if_s0_is_0 = "m0 must have no ranges if s0 is 0";
    let if_not = "m0 must have ranges if s0 is not 0";
    let of = |name: &str, rule, s0: [u8; 4], m0: &[u8]| {
        of_four(name, rule, 7, &[HALF, HALF, s0, HALF], &[&RANGE, &RANGE, &RANGE, m0])
    };
    vec![
        of("weight-m0-without-s0", if_s0_is_0, ZERO, &RANGE),
        of("weight-s0-without-m0", if_not, HALF, &[0]),
        of("weight-negative-0-without-m0", if_not, [0, 0, 0, 0x80], &[0]),
        of("weight-smallest-s0-without-m0", if_not, [1, 0, 0, 0], &[0]),
    ]
}
