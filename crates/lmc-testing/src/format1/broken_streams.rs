//! Plain columns whose streams (§3.3.1 to §3.5), lanes or tables (§5) break a rule.

use super::{Broken, broken_delta};
use crate::handmade::encoded;
use crate::reference::write::File;
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Plain, Stream};
use crate::reference::write::entropy::{Coder, Pad};

pub(super) fn all() -> Vec<Broken> {
    [streams(), palettes(), masks(), patches(), codes(), clusters(), lanes(), tables()].into_iter().flatten().collect()
}

/// No constant, no bits dropped, all raw: of elements of one byte, and of two.
const BYTES: [u8; 5] = [0, 0, 0, 8, 0];
const ELEMENTS: [u8; 5] = [0, 0, 0, 16, 0];
/// A code of numbers below 16, of four open bits each.
const NUMBERS: [u8; 3] = [4, 0, 0];

/// A plain column of `n` elements with this head, from the map on, and this bulk.
fn plain(
    name: &str,
    section: &'static str,
    rule: &'static str,
    (n, width_code): (usize, u8),
    stream: &[&[u8]],
    bulk: &[u8],
) -> Broken {
    let column = Column::Plain(Plain { raw: vec![0; n << width_code], width_code, stream: Stream::default() });
    let mut fields = encoded(&Block::of(column, 0));
    fields.columns[0] = [&[2, width_code][..], &stream.concat()].concat();
    fields.bulk[0] = bulk.to_vec();
    block(name, section, rule, &fields)
}

fn block(name: &str, section: &'static str, rule: &'static str, fields: &BlockFields) -> Broken {
    broken_delta(name, section, rule, File::new(vec![fields.record()]), &[])
}

fn streams() -> Vec<Broken> {
    let of = |name: &str, rule, n, stream: &[&[u8]], bulk: &[u8]| plain(name, "3.3.1", rule, (n, 0), stream, bulk);
    let mut part = encoded(&Block::of(Column::Stored(vec![7; 3]), 0));
    part.columns[0] = [&[2, 1, 0, 0, 1, 0][..], &ELEMENTS].concat();
    let mut width = encoded(&Block::of(Column::Stored(vec![7; 16]), 0));
    width.columns[0] = [&[2, 4, 0, 0, 1, 0][..], &[0, 0, 0, 128, 0]].concat();
    let clusters = BYTES.repeat(17);
    let cluster = "a stream that is no list must have a cluster";
    vec![
        block("plain-part-of-an-element", "3.3", "a column must have whole elements", &part),
        block("plain-width-code-4", "3.3", "the width code must be 0 to 3", &width),
        of("map-4", "the map must be 0 to 3", 2, &[&[4, 0, 1, 0], &BYTES], &[0, 0]),
        of("mask-4", "the mask must be 0 to 3", 2, &[&[0, 4, 2, 1, 0], &BYTES], &[0, 0]),
        of("clusters-0", cluster, 2, &[&[0, 0, 0, 0]], &[]),
        of("mask-bits-clusters-0", cluster, 2, &[&[0, 1, 1], &BYTES, &[0, 0]], &[1]),
        of(
            "clusters-17",
            "a stream must have at most 16 clusters",
            2,
            &[&[0, 0, 17, 0], &BYTES, &clusters],
            &[0, 0, 0],
        ),
        of("patches-2", "patches must be 0 or 1", 2, &[&[0, 0, 1, 2], &BYTES], &[0, 0]),
        // A patch of element 1, as it is for a decoder that takes any number but 0 for 1.
        of(
            "patches-255",
            "patches must be 0 or 1",
            2,
            &[&[0, 0, 1, 255, 1, 0], &TWO_BYTES, &[2], &BYTES],
            &[0, 1, 1, 0],
        ),
    ]
}

fn palettes() -> Vec<Broken> {
    let index = "a mapped value must be less than the number of values of the palette";
    // The palette 7, 8, 9.
    let of = |name: &str, rule, rest: &[&[u8]], bulk: &[u8]| {
        plain(name, "4.1", rule, (2, 1), &[&[&[3, 2, 7, 0, 8, 0, 9, 0][..]], rest].concat(), bulk)
    };
    vec![
        of("palette-index-3", index, &[&[0, 1, 0], &[0, 0, 14, 2, 0]], &[1, 1]),
        of("palette-index-256", index, &[&[0, 1, 0], &ELEMENTS], &[0, 0, 0, 1]),
        // The second element of two: a change of 3.
        of("palette-index-patched", index, &[&[0, 1, 1, 1, 0], &[0, 1, 0, 0, 2, 0, 0], &[0, 0, 16, 0, 0]], &[]),
        plain(
            "palette-twice",
            "3.3.1",
            "the values of a palette must differ",
            (2, 1),
            &[&[3, 2, 7, 0, 8, 0, 7, 0], &[0, 1, 0], &[0, 0, 15, 1, 0]],
            &[0],
        ),
    ]
}

fn masks() -> Vec<Broken> {
    let of = |name: &str, rule, n, stream: &[&[u8]], bulk: &[u8]| plain(name, "3.3.2", rule, (n, 1), stream, bulk);
    let bits = |m| [&[0, 1, m][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    // Four bits of a gap and four of a value for each.
    let list = |m: u8| [&[0, 3, m][..], &NUMBERS, &[m.div_ceil(2)], &NUMBERS, &[m.div_ceil(2)]].concat();
    let signs = [&[1, 2, 1][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    let listed = |gaps: u8, values: u8| [&[0, 3, 1][..], &NUMBERS, &[gaps], &NUMBERS, &[values]].concat();
    let number = "the number of selected elements must be 1 to n";
    let exactly = "exactly m bits of a mask must be 1";
    let unused = "unused bits must be 0";
    let within = "all selected elements must lie in the stream";
    let length = "the length of numbers must be that of their bits, rounded up";
    vec![
        of("mask-of-0", number, 2, &[&bits(0)], &[0]),
        of("mask-of-more", number, 2, &[&bits(3)], &[3, 7, 1, 7, 1, 7, 1]),
        of("list-of-0", number, 2, &[&list(0)], &[]),
        of("list-of-more", number, 2, &[&list(3)], &[0, 0, 0, 0]),
        of("mask-bits-more", exactly, 2, &[&bits(1)], &[3, 7, 1]),
        of("mask-bits-fewer", exactly, 2, &[&bits(2)], &[1, 7, 8, 1, 2]),
        of("mask-unused-bits", unused, 3, &[&bits(1)], &[0xc, 8, 0]),
        of("signs-unused-bits", unused, 3, &[&signs], &[4, 0x84, 8, 0]),
        of("gap-at-the-end", within, 2, &[&list(1)], &[2, 6]),
        of("gaps-beyond-the-end", within, 2, &[&list(2)], &[0x10, 0x67]),
        of(
            "gaps-sum-modulo-2-64",
            within,
            2,
            // Gaps of 63 raw bits and bucket 1: 2^64 − 1 and 2^64 − 1; the second element would be 2^64 − 1 + 1 + 2^64 − 1.
            &[&[0, 3, 2, 63, 1, 0, 16], &NUMBERS, &[1]],
            &[&[0xff; 15][..], &[0x3f, 0x67]].concat(),
        ),
        of("gaps-unused-bits", unused, 3, &[&listed(1, 1)], &[0x12, 6]),
        of("values-unused-bits", unused, 3, &[&listed(1, 1)], &[2, 0x16]),
        of("gaps-long", length, 3, &[&listed(2, 1)], &[2, 0, 6]),
        of("values-long", length, 3, &[&listed(1, 2)], &[2, 6, 0]),
        of("gaps-short", length, 3, &[&listed(0, 1)], &[6]),
        of("values-short", length, 3, &[&listed(1, 0)], &[2]),
        of(
            "listed-value-2-16",
            "y + 1 must be less than 2^w",
            2,
            &[&[0, 3, 1], &NUMBERS, &[1], &[16, 0, 0, 2]],
            &[1, 0xff, 0xff],
        ),
    ]
}

/// Ten bytes and their patches with these codes.
fn patched(name: &str, section: &'static str, rule: &'static str, head: (u8, u8), codes: &[u8], bits: &[u8]) -> Broken {
    let (count, t) = head;
    let patches = [&[0, 0, 1, 1, count, t], codes, &[bits.len() as u8]].concat();
    plain(name, section, rule, (10, 0), &[&patches, &BYTES], &[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], bits].concat())
}

/// Gaps and changes of eight raw bits.
const TWO_BYTES: [u8; 6] = [8, 0, 0, 8, 0, 0];
/// The varint of 2^32.
const TWO_TO_32: [u8; 5] = [0x80, 0x80, 0x80, 0x80, 0x10];

fn patches() -> Vec<Broken> {
    let of = |name: &str, rule, head, bits: &[u8]| patched(name, "3.3.3", rule, head, &TWO_BYTES, bits);
    let among = "the element of a patch must be among the selected ones";
    let wide = "(y + 1) * 2^t must be less than 2^w";
    let length = "the length of patches must be that of their bits, rounded up";
    let counted = |name: &str, rule, count: &[u8], length: &[u8]| {
        let head = [&[0, 0, 1, 1], count, &[0], &TWO_BYTES, length, &BYTES];
        plain(name, "3.3.3", rule, (10, 0), &head, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 1])
    };
    vec![
        of("patches-none", "the number of patches must be 1 to m", (0, 0), &[]),
        of("patch-at-the-end", among, (1, 0), &[10, 0]),
        of("patch-beyond-the-end", among, (2, 0), &[9, 0, 0, 0]),
        of("patch-wide", wide, (1, 0), &[3, 0xff]),
        of("patch-wide-after-t", wide, (1, 7), &[3, 1]),
        of("patches-t-8", "t must be less than w", (1, 8), &[3, 0]),
        of("patches-long", length, (1, 0), &[3, 0, 0]),
        of("patches-short", length, (2, 0), &[3, 0, 1]),
        patched("patches-unused-bits", "3.3.3", "unused bits must be 0", (1, 0), &[8, 0, 0, 7, 0, 0], &[3, 0xff]),
        patched("patches-above-m", "3.3.3", "the number of patches must be 1 to m", (11, 0), &[0; 6], &[]),
        patched(
            "patch-gap-2-64",
            "3.3.3",
            among,
            (1, 0),
            &[63, 1, 0, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ),
        // Gaps of one bit and 63 open ones: 1 and 2^64 - 2, which lead to element 0 modulo 2^64. Changes are 1.
        plain(
            "patch-gaps-sum-modulo-2-64",
            "3.3.3",
            among,
            (10, 0),
            &[&[0, 0, 1, 1, 2, 0], &[63, 0, 1, 0x11], &[0, 0, 0], &[16], &BYTES],
            &[&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], &[2, 0, 0, 0, 0, 0, 0, 0], &[0xfd], &[0xff; 7]].concat(),
        ),
        counted("patches-2-32", "the number of patches must be 1 to m", &TWO_TO_32, &[2]),
        counted("patches-length-2-32", "the bulk must be as long as the head implies", &[1], &TWO_TO_32),
    ]
}

fn codes() -> Vec<Broken> {
    // Bits of 0 change the first element, or the second under bucket 1, to 0.
    let of = |name: &str, rule, gaps: &[u8], bits: &[u8]| {
        let head = [&[0, 0, 1, 1, 1, 0], gaps, &[8, 0, 0, bits.len() as u8], &BYTES];
        let first = usize::from(gaps[1] == 1);
        let mut bulk = [0; 10];
        bulk[first] = 1;
        plain(name, "3.3.4", rule, (10, 0), &head, &[&bulk[..], bits].concat())
    };
    let complete = "a code must be complete";
    let above = "first + count - 1 must be at most 255";
    let wide = "a bucket must hold numbers of at most 64 bits";
    vec![
        of("code-raw-bits-64", "the raw bits of a code must be at most 63", &[64, 0, 0], &[0; 9]),
        of("code-first-255", above, &[0, 255, 1, 0x11], &[0; 2]),
        // Only buckets 1 and 2 have codes.
        of("code-last-256", above, &[&[0, 1, 255, 0x11][..], &[0; 127]].concat(), &[0; 2]),
        of("code-incomplete", complete, &[0, 0, 1, 0x21], &[0; 2]),
        of("code-oversubscribed", complete, &[0, 0, 2, 0x11, 1], &[0; 2]),
        of("code-of-no-bucket", complete, &[0, 0, 1, 0], &[0; 2]),
        // Lengths 1 to 11, and 12 twice: the code is complete.
        of(
            "code-length-12",
            "a code length must be at most 11",
            &[0, 0, 12, 0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb, 0x0c],
            &[0; 2],
        ),
        of("code-half-byte", "a last half-byte left over must be 0", &[0, 0, 2, 0x21, 0x12], &[0; 2]),
        of("code-bucket-wide", wide, &[63, 2, 0], &[0; 9]),
        of("code-bucket-255-wide", wide, &[1, 255, 0], &[0; 9]),
    ]
}

fn clusters() -> Vec<Broken> {
    let of = |name: &str, rule, cluster: &[u8], bulk: &[u8]| {
        plain(name, "3.5", rule, (3, 0), &[&[0, 0, 1, 0], cluster], bulk)
    };
    let bits = "z + h + k must be at most w";
    // 130 elements in two clusters, with one bit for each run in the cluster map.
    let map = |name: &str, rule, map: &[u8; 5], bulk: &[u8]| {
        let zeros = [0, 8, 0, 0, 0];
        plain(name, "3.4", rule, (130, 0), &[&[0, 0, 2, 0], map, &zeros, &zeros], bulk)
    };
    let coder = {
        let cluster = Cluster { coder: Coder::huffman(&[1, 2], false), ..Cluster::default() };
        let plain = Plain { raw: vec![1, 2], width_code: 0, stream: Stream::of(0, cluster) };
        let mut fields = encoded(&Block::of(Column::Plain(plain), 2));
        (fields.lane_sets, fields.word_counts, fields.words) = (0, Vec::new(), Vec::new());
        fields.states.clear();
        block("coder-without-lanes", "5.1", "a block with a coder must have two lane sets", &fields)
    };
    vec![
        of("cluster-flag", "reserved flags of a cluster must be 0", &[4, 0, 0, 8, 0], &[0; 3]),
        plain(
            "cluster-flag-empty",
            "3.5",
            "reserved flags must be 0, also of a cluster without runs",
            (130, 0),
            &[&[0, 0, 2, 0], &[0, 8, 0, 0, 0], &[0, 8, 0, 0, 0], &[4, 8, 0, 0, 0]],
            &[],
        ),
        of("cluster-z", bits, &[0, 9, 0, 0, 0], &[]),
        of("cluster-h", bits, &[0, 0, 1, 8, 0], &[0; 3]),
        of("cluster-sum-256", bits, &[0, 0, 248, 16, 0], &[0; 6]),
        of("cluster-sign-plane", "with a sign plane, z must be at least 1", &[2, 0, 0, 8, 0], &[0; 4]),
        of("cluster-symbols-without-coder", "s must be 0 without a coder", &[0, 0, 0, 7, 0], &[0; 7]),
        of("raw-bits-unused", "unused bits of the last byte must be 0", &[0, 0, 7, 1, 0], &[0x0f]),
        of("sign-plane-unused", "unused bits of the last byte must be 0", &[2, 1, 7, 0, 0], &[0x0f]),
        map("cluster-map-2", "the cluster of a run must be less than G", &[0, 0, 6, 2, 0], &[0, 1]),
        map("cluster-map-unused", "unused bits of the last byte must be 0", &[0, 0, 7, 1, 0], &[6]),
        coder,
    ]
}

/// Symbols under a table with an escape, with a change.
fn coded(name: &str, section: &'static str, rule: &'static str, change: impl FnOnce(&mut BlockFields)) -> Broken {
    let mut fields = encoded(&coded_block(Pad::PadSymbol));
    change(&mut fields);
    block(name, section, rule, &fields)
}

/// Symbols of 6 bits, one of them a literal, in enough chunks for words in the first lane set.
fn coded_block(pad: Pad) -> Block {
    let symbols: Vec<u8> = (0..32).collect();
    let cluster = Cluster { h: 2, coder: Coder::fine_rans(&symbols, true), pad, ..Cluster::default() };
    let raw: Vec<u8> = (0..300u32).map(|i| if i == 2 { 40 } else { (i * 7 % 32) as u8 }).collect();
    Block::of(Column::Plain(Plain { raw, width_code: 0, stream: Stream::of(0, cluster) }), 2)
}

fn lanes() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut BlockFields)| coded(name, "5.1", rule, change);
    let pad = |name: &str, pad| block(name, "5.1", "padding must be the pad symbol", &encoded(&coded_block(pad)));
    let words = "all words must be used up, and no more be needed";
    let literals = "all literals must be used up, and no more be needed";
    let last = "every lane must end at 2^16";
    vec![
        of("state-below-2-16", "an initial state must be at least 2^16", |fields| fields.states[1][63] = 65535),
        block(
            "final-state",
            "5.1",
            last,
            &encoded(&Block { final_state: (1 << 16) + 1, ..coded_block(Pad::PadSymbol) }),
        ),
        of("final-state-of-unused-lanes", last, |fields| fields.states[1][5] += 1),
        of("words-left", words, |fields| {
            fields.words[0].push(0);
            fields.word_counts[0] += 1;
        }),
        of("words-of-unused-lanes", words, |fields| {
            fields.words[1].push(0);
            fields.word_counts[1] += 1;
        }),
        of("words-missing", words, |fields| {
            fields.words[0].pop();
            fields.word_counts[0] -= 1;
        }),
        of("literals-left", literals, |fields| {
            fields.literals.push(0);
            fields.literal_count += 1;
        }),
        of("literals-missing", literals, |fields| {
            fields.literals.pop();
            fields.literal_count -= 1;
        }),
        of("literal-wide", "a literal must be less than 2^s", |fields| fields.literals[0] = 64),
        pad("pad-symbol", Pad::Symbol(2)),
        pad("pad-literal", Pad::Literal(2)),
    ]
}

fn tables() -> Vec<Broken> {
    // The table of an empty cluster: symbols of `s` bits above raw ones.
    let of = |name: &str, rule, coder: u8, s: u8, table: &[u8]| {
        let plain = Plain { raw: vec![0; 2], width_code: 1, stream: Stream::default() };
        let mut fields = encoded(&Block::of(Column::Plain(plain), 2));
        let cluster = [&[0, 0, 0, 16 - s, coder][..], table].concat();
        let map = [0, 8, 0, 0, 0];
        // Map 0, no mask, two clusters, no patches; all runs are of cluster 0, which is zeros.
        fields.columns[0] = [&[2, 1, 0, 0, 2, 0][..], &map, &[0, 16, 0, 0, 0], &cluster].concat();
        block(name, "5.3", rule, &fields)
    };
    let above = "first + count - 1 must be at most 255";
    let wide = "every symbol with an entry must be less than 2^s";
    let sum = "frequencies must sum to 2^b";
    let complete = "a Huffman code must be complete";
    let one = "at least one symbol other than the escape must be in the table";
    let width = "a symbol with a coder must have 1 to 8 bits";
    let frequency = "a frequency must be at most 2^b - 1";
    // 256 symbols and an escape, of 4096 slots: 255 times 15, 255 and 16.
    let everything = [&[0, 255][..], &[15; 255], &[0xff, 1], &[16]].concat();
    vec![
        // Frequencies of 2 and 2, whose sum is 2^2.
        of("cluster-coder-2", "the coder must be 0, 1, 7 or 12", 2, 8, &[0, 1, 2, 2, 0]),
        of("table-first-255", above, 1, 8, &[255, 1, 0x11, 0]),
        of("table-symbol-wide", wide, 7, 1, &[0, 2, 0, 64, 64, 0]),
        of("table-huffman-symbol-wide", wide, 1, 1, &[2, 0, 0x11]),
        of("table-sum-below", sum, 7, 8, &[0, 1, 64, 63, 0]),
        of("table-sum-above", sum, 7, 8, &[0, 1, 64, 65, 0]),
        of("table-12-sum", sum, 12, 8, &[0, 1, 64, 64, 0]),
        of("table-frequency-128", frequency, 7, 8, &[0, 0, 0x80, 1, 0]),
        of("table-12-frequency-4096", frequency, 12, 8, &[0, 0, 0x80, 32, 0]),
        of("table-256-symbols-and-escape", "with an escape, at most 255 symbols may have an entry", 12, 8, &everything),
        of("table-code-length-8", "a code length must be at most 7", 1, 8, &[0, 1, 0x88, 0]),
        of("table-incomplete", complete, 1, 8, &[0, 1, 0x21, 0]),
        of("table-oversubscribed", complete, 1, 8, &[0, 1, 0x11, 0x01]),
        of("table-half-byte", "a last half-byte left over must be 0", 1, 8, &[0, 1, 0x11, 0x10]),
        of("table-escape-alone", one, 7, 8, &[0, 0, 0, 0x80, 1]),
        of("table-empty", complete, 1, 8, &[0, 0, 0]),
        of("table-symbols-of-9-bits", width, 1, 9, &[0, 1, 0x11, 0]),
        of("table-symbols-of-0-bits", width, 7, 0, &[0, 0, 127, 1]),
    ]
}
