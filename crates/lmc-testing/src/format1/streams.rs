//! Plain columns: maps, clusters, coders, palettes, patches, masks and codes of numbers.

use super::Feature;
use super::containers::feature;
use crate::handmade::{encoded, records};
use crate::reference::write::File;
use crate::reference::write::block::{Block, Cluster, Column, Mask, NumberCode, Patch, PatchCodes, Plain, Stream};
use crate::reference::write::entropy::{Coder, Pad, Table};
use crate::streams::to_bytes;

pub(super) fn all() -> Vec<Feature> {
    [maps(), clusters(), coders(), palettes(), patches(), masks()].into_iter().flatten().collect()
}

/// Elements of a plain column.
fn plain(
    name: &'static str,
    section: &'static str,
    shows: &'static str,
    width_code: u8,
    elements: &[u64],
    stream: Stream,
) -> Feature {
    let raw = to_bytes(elements, width_code);
    let mask_is_coded = match &stream.mask {
        Mask::Bits(cluster) | Mask::BitsAndSigns(cluster) => cluster.coder != Coder::None,
        Mask::None | Mask::List => false,
    };
    let is_coded = |cluster: &Cluster| cluster.coder != Coder::None;
    let lanes = mask_is_coded || is_coded(&stream.cluster_map) || stream.clusters.iter().any(is_coded);
    let column = Column::Plain(Plain { raw: raw.clone(), width_code, stream });
    let file = File::new(records(&[encoded(&Block::of(column, if lanes { 2 } else { 0 }))]));
    feature(name, section, shows, file, &[], &raw)
}

/// All bits raw.
fn raw_bits(width_code: u8) -> Cluster {
    Cluster { k: 8 << width_code, ..Cluster::default() }
}

/// The low `k` bits raw, of `w`.
fn low(k: u8, w: u8) -> Cluster {
    Cluster { k, h: w - k, ..Cluster::default() }
}

/// Elements of any width with low and high bits, and the sign bit.
const ELEMENTS: [u64; 5] = [0, 1, u64::MAX, 0x8000_8000_8000_8080, 0x0123_4567_89ab_cdef];

fn maps() -> Vec<Feature> {
    let of = |name, shows, map, width_code: u8| {
        let elements = ELEMENTS.map(|u| u & u64::MAX >> (64 - (8 << width_code)));
        plain(name, "4.1", shows, width_code, &elements, Stream::of(map, raw_bits(width_code)))
    };
    vec![
        of("identity-1", "map 0 of elements of 1 byte, all bits raw", 0, 0),
        of("identity-2", "map 0 of elements of 2 bytes, all bits raw", 0, 1),
        of("identity-4", "map 0 of elements of 4 bytes, all bits raw", 0, 2),
        of("identity-8", "map 0 of elements of 8 bytes, all bits raw", 0, 3),
        of("rotate-1", "map 1 of elements of 1 byte", 1, 0),
        of("rotate-2", "map 1 of elements of 2 bytes", 1, 1),
        of("rotate-4", "map 1 of elements of 4 bytes", 1, 2),
        of("rotate-8", "map 1 of elements of 8 bytes", 1, 3),
        of("zigzag-1", "map 2 of elements of 1 byte", 2, 0),
        of("zigzag-2", "map 2 of elements of 2 bytes", 2, 1),
        of("zigzag-4", "map 2 of elements of 4 bytes", 2, 2),
        of("zigzag-8", "map 2 of elements of 8 bytes", 2, 3),
    ]
}

fn clusters() -> Vec<Feature> {
    let bytes: Vec<u64> = (0..130).map(|i| i % 8).collect();
    let of_map = |cluster_of: &[u8], cluster_map: Cluster, clusters: Vec<Cluster>| Stream {
        cluster_of: cluster_of.to_vec(),
        cluster_map,
        clusters,
        ..Stream::default()
    };
    let constant = |c: u64, w: u8| Cluster { constant: Some(c), z: w, ..Cluster::default() };
    let two: Vec<u64> = (0..300).map(|i| if i / 128 == 1 { 7 } else { i % 4 }).collect();
    let sixteen: Vec<u64> = (0..129).map(|i| if i < 128 { 15 } else { 3 }).collect();
    let coded_map = Cluster { coder: Coder::fine_rans(&[0, 1, 0], false), ..Cluster::default() };
    vec![
        plain(
            "cluster-constant",
            "3.5",
            "a cluster with a constant and no bits",
            1,
            &[0x1234; 3],
            Stream::of(0, constant(0x1234, 16)),
        ),
        plain(
            "cluster-dropped-bits",
            "3.5",
            "low and high bits dropped, a constant for them",
            1,
            &[0xa015, 0xa025, 0xa0f5],
            Stream::of(0, Cluster { constant: Some(0xa005), z: 4, h: 8, k: 4, ..Cluster::default() }),
        ),
        plain(
            "cluster-constant-of-all-bits",
            "3.5",
            "a constant that changes raw bits, too",
            0,
            &[0x5a, 0xa5, 0xff],
            Stream::of(0, Cluster { constant: Some(0xff), k: 8, ..Cluster::default() }),
        ),
        plain(
            "sign-plane",
            "3.5",
            "a sign plane behind the raw bits, in two runs",
            1,
            &(0..130).map(|i| (i % 3) << 7 | (i & 1) << 15).collect::<Vec<_>>(),
            Stream::of(1, Cluster { z: 8, h: 5, k: 3, sign_plane: true, ..Cluster::default() }),
        ),
        plain(
            "planes-of-odd-lengths",
            "3.5",
            "a byte plane, three bit planes and a sign plane, of a run and of 13 elements",
            1,
            &(0..141).map(|i| (397 * i + 11 * i * i) & 0x7ff | u64::from(i % 3 == 0) << 15).collect::<Vec<_>>(),
            Stream::of(1, Cluster { z: 1, h: 4, k: 11, sign_plane: true, ..Cluster::default() }),
        ),
        plain(
            "sign-plane-alone",
            "3.5",
            "a sign plane and no other bits",
            0,
            &[1, 0, 1],
            Stream::of(0, Cluster { z: 1, h: 7, sign_plane: true, ..Cluster::default() }),
        ),
        plain("runs", "3.5", "bit planes of two runs, the last of two elements", 0, &bytes, Stream::of(0, low(3, 8))),
        plain(
            "byte-and-bit-planes",
            "3.5",
            "12 raw bits: a byte plane and four bit planes",
            1,
            &[0xabc, 0x123, 0xfff],
            Stream::of(0, low(12, 16)),
        ),
        plain(
            "clusters",
            "3.4",
            "two clusters; the cluster map has raw bits",
            0,
            &two,
            of_map(&[0, 1, 0], low(1, 8), vec![low(2, 8), constant(7, 8)]),
        ),
        plain(
            "clusters-coded-map",
            "3.4",
            "two clusters; the cluster map is coded",
            0,
            &two,
            of_map(&[0, 1, 0], coded_map, vec![low(2, 8), constant(7, 8)]),
        ),
        plain(
            "clusters-empty",
            "3.4",
            "the first of three clusters, and the second, have no run",
            0,
            &[3, 2],
            of_map(&[2], constant(2, 8), vec![raw_bits(0), raw_bits(0), low(2, 8)]),
        ),
        plain(
            "clusters-16",
            "3.4",
            "as many clusters as there may be",
            0,
            &sixteen,
            of_map(&[15, 3], low(4, 8), (0..16).map(|i| constant(i, 8)).collect()),
        ),
    ]
}

fn coders() -> Vec<Feature> {
    let few: Vec<u64> = [2, 2, 3, 2, 5, 2, 3, 2].to_vec();
    let symbols: Vec<u8> = few.iter().map(|&u| u as u8).collect();
    let runs: Vec<u64> = (0..300u64).map(|i| 5 + (i * i % 16).trailing_zeros().min(4) as u64).collect();
    let of_runs: Vec<u8> = runs.iter().map(|&u| u as u8).collect();
    let coded = |coder| Cluster { coder, ..Cluster::default() };
    let one =
        |name, shows, elements: &[u64], cluster: Cluster| plain(name, "5", shows, 0, elements, Stream::of(0, cluster));
    let weights: Vec<u64> = (0..300u64).map(|i| ((118 + i * i % 7) << 7) | (i * 37 % 128) | ((i % 2) << 15)).collect();
    let exponents: Vec<u8> = weights.iter().map(|u| (u >> 7) as u8).collect();
    let all: Vec<u64> = (0..256).collect();
    let of_all: Vec<u8> = (0..=255).collect();
    let escapes = [&few[..], &[200, 9, 200]].concat();
    // A code of each length.
    let lengths = Table { first: 1, entries: vec![1, 2, 3, 4, 5, 6, 7], escape: 7 };
    let each: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 1, 9].to_vec();
    // A frequency of 2^12 − 1.
    let rare = Table { first: 4, entries: vec![4095], escape: 1 };
    let unused = Stream {
        cluster_of: vec![1],
        cluster_map: Cluster { constant: Some(1), z: 8, ..Cluster::default() },
        clusters: vec![coded(Coder::huffman(&[1, 2], false)), coded(Coder::rans(&symbols, false))],
        ..Stream::default()
    };
    vec![
        one("huffman", "Huffman, one padded chunk", &few, coded(Coder::huffman(&symbols, false))),
        one("rans-7", "rANS with 7 bits a slot, one padded chunk", &few, coded(Coder::rans(&symbols, false))),
        one("rans-12", "rANS with 12 bits a slot, one padded chunk", &few, coded(Coder::fine_rans(&symbols, false))),
        one("huffman-chunks", "Huffman, three chunks, the last padded", &runs, coded(Coder::huffman(&of_runs, false))),
        one(
            "rans-7-chunks",
            "rANS with 7 bits, three chunks, the last padded",
            &runs,
            coded(Coder::rans(&of_runs, false)),
        ),
        one(
            "rans-12-chunks",
            "rANS with 12 bits, three chunks, the last padded",
            &runs,
            coded(Coder::fine_rans(&of_runs, false)),
        ),
        one("huffman-escape", "Huffman, three literals", &escapes, coded(Coder::huffman(&symbols, true))),
        one("rans-7-escape", "rANS with 7 bits, three literals", &escapes, coded(Coder::rans(&symbols, true))),
        one("rans-12-escape", "rANS with 12 bits, three literals", &escapes, coded(Coder::fine_rans(&symbols, true))),
        one("huffman-lengths", "a Huffman code of each length, 1 … 7", &each, coded(Coder::Huffman(lengths))),
        one(
            "rans-12-frequencies",
            "a frequency of 2^12 − 1 and an escape of frequency 1, which is not used",
            &[4; 5],
            coded(Coder::Rans { log_slots: 12, table: rare }),
        ),
        one(
            "rans-12-256-symbols",
            "a table of all 256 symbols, without an escape",
            &all,
            coded(Coder::fine_rans(&of_all, false)),
        ),
        one(
            "pad-symbol-as-literal",
            "padding is the pad symbol, but as literals",
            &few,
            Cluster { pad: Pad::PadSymbolAsLiteral, ..coded(Coder::rans(&symbols, true)) },
        ),
        one(
            "symbols-of-1-bit",
            "symbols of one bit above seven raw bits",
            &[0x81, 0x7f, 0, 0xff],
            Cluster { k: 7, coder: Coder::huffman(&[0, 1], false), ..Cluster::default() },
        ),
        plain(
            "symbols-and-raw-bits",
            "5",
            "BF16: the exponent as symbols, the mantissa raw, the sign in a plane",
            1,
            &weights,
            Stream::of(
                1,
                Cluster { z: 1, k: 7, sign_plane: true, coder: Coder::rans(&exponents, false), ..Cluster::default() },
            ),
        ),
        plain("table-of-an-empty-cluster", "5.1", "the table of a cluster without runs", 0, &few, unused),
    ]
}

fn palettes() -> Vec<Feature> {
    let palette = [0xabcd, 0x0001, 0x1234];
    let stream = Stream::of_palette(&palette, low(2, 16));
    let patched = Stream { patches: vec![Patch { element: 2, x: 2 }], ..stream.clone() };
    let all: Vec<u64> = (0..256).rev().collect();
    let coder = Coder::rans(&[0, 1, 2], false);
    let coded = Stream::of_palette(&palette, Cluster { h: 8, coder, ..Cluster::default() });
    let listed = Stream { mask: Mask::List, clusters: vec![], ..stream.clone() };
    vec![
        plain("palette", "4.1", "a palette of three values, indices raw", 1, &[0x1234, 0xabcd, 1, 0xabcd], stream),
        plain(
            "palette-1",
            "4.1",
            "a palette of one value",
            3,
            &[u64::MAX; 3],
            Stream::of_palette(&[u64::MAX], low(0, 64)),
        ),
        plain(
            "palette-256",
            "4.1",
            "a palette of 256 values, of which three occur",
            0,
            &[0, 1, 255],
            Stream::of_palette(&all, raw_bits(0)),
        ),
        plain(
            "palette-patched",
            "4.1",
            "an index is in the palette only after a patch",
            1,
            &[0x1234, 0xabcd, 1, 0xabcd],
            patched,
        ),
        plain("palette-coded", "4.1", "indices as symbols", 1, &[0x1234, 0xabcd, 1, 0xabcd], coded),
        plain(
            "palette-masked",
            "3.3.2",
            "elements that are not selected have the first value of the palette",
            1,
            &[0xabcd, 1, 0xabcd, 0x1234],
            listed,
        ),
    ]
}

/// A code of one bucket.
fn alone(raw: u8, bucket: u8) -> Option<NumberCode> {
    Some(NumberCode { raw, first: bucket, lengths: vec![0] })
}

fn patches() -> Vec<Feature> {
    let patched = |name, shows, width_code: u8, elements: &[u64], k: u8, codes: PatchCodes| {
        let mask = (1 << k) - 1;
        let patches =
            (0..).zip(elements).filter(|(_, u)| **u > mask).map(|(element, u)| Patch { element, x: u & !mask });
        let stream =
            Stream { patches: patches.collect(), patch_codes: codes, ..Stream::of(0, low(k, 8 << width_code)) };
        plain(name, "3.3.3", shows, width_code, elements, stream)
    };
    let mut many: Vec<u64> = (0..200).map(|i| i % 4).collect();
    [0, 1, 50, 127, 128, 199].iter().for_each(|&i| many[i] |= 0x10 << (i % 4));
    // Gaps of the buckets 0 to 11, whose codes have 1 to 11 bits.
    let gaps: Vec<u64> = [0u64, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].to_vec();
    let mut by_length = vec![0; 80];
    gaps.iter().fold(0, |next, gap| {
        by_length[(next + gap) as usize] = 8;
        next + gap + 1
    });
    let longest = NumberCode { raw: 0, first: 0, lengths: (1..=11).chain([11]).collect() };
    vec![
        patched("patches", "two patches; codes without raw bits", 0, &[1, 2, 0xf3, 0, 0x41], 2, PatchCodes::default()),
        patched(
            "patches-low",
            "patches that do not change the low bits",
            1,
            &[1, 0x8002, 3],
            2,
            PatchCodes { low: 15, ..PatchCodes::default() },
        ),
        patched(
            "patches-first-and-last",
            "patches of the first element and the last, across runs",
            0,
            &many,
            2,
            PatchCodes { low: 2, ..PatchCodes::default() },
        ),
        patched(
            "patches-raw-bits",
            "codes with raw bits: 3 of gaps, 8 of changes",
            0,
            &[1, 2, 0xf3, 0, 0x41],
            2,
            PatchCodes { low: 0, gaps: alone(3, 0), changes: alone(8, 0) },
        ),
        patched(
            "code-lengths",
            "a code of gaps of the lengths 1 … 11",
            0,
            &by_length,
            2,
            PatchCodes { low: 3, gaps: Some(longest), changes: None },
        ),
        patched(
            "patches-64-bits",
            "a patch of 2^64 − 1, in the last bucket, with 61 open bits, and one of 1",
            3,
            &[0, u64::MAX, 1],
            0,
            PatchCodes::default(),
        ),
        patched(
            "code-63-raw-bits",
            "a code of changes of 63 raw bits, bucket 1",
            3,
            &[0, u64::MAX],
            0,
            PatchCodes { low: 0, gaps: None, changes: alone(63, 1) },
        ),
    ]
}

fn masks() -> Vec<Feature> {
    let elements: [u64; 13] = [0, 5, 0, 0, 0x1234, 0, 0, 0, 0, 1, 0xffff, 0, 0];
    // Zeros of both signs; 16 bits, whose sign is the top one.
    let signed: [u64; 10] = [0x8000, 0, 0x3f80, 0xbf80, 0, 0x8000, 0, 0, 0x0001, 0x8000];
    let selected: Vec<bool> =
        [false, true, true, false, true, false, false, false, false, true, true, false, false].into();
    let bits = || Mask::Bits(raw_bits(0));
    let signs = || Mask::BitsAndSigns(raw_bits(0));
    let of = |name, shows, stream: Stream| plain(name, "3.3.2", shows, 1, &elements, stream);
    let clusters = |mask| Stream { mask, ..Stream::of(0, raw_bits(1)) };
    let list = || Stream { mask: Mask::List, ..Stream::default() };
    let bytes = |elements: &[u64]| -> Vec<u8> {
        elements.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, u| byte << 1 | u8::from(*u != 0))).collect()
    };
    let coded = Cluster { coder: Coder::fine_rans(&bytes(&elements), false), ..Cluster::default() };
    let long: Vec<u64> = (0..1100).map(|i| if i % 4 == 0 { 1 + i % 3 } else { 0 }).collect();
    let in_clusters = Stream {
        mask: Mask::Bits(Cluster { constant: Some(0x11), h: 3, k: 5, ..Cluster::default() }),
        cluster_of: vec![0, 1, 0],
        cluster_map: low(1, 8),
        clusters: vec![low(2, 8), raw_bits(0)],
        ..Stream::default()
    };
    let patched = |mask| Stream {
        mask,
        patches: vec![Patch { element: 1, x: 0x1200 }, Patch { element: 3, x: 0xff00 }],
        ..Stream::of(0, low(8, 16))
    };
    let even = Cluster { z: 1, k: 15, ..Cluster::default() };
    vec![
        of("mask-bits", "a mask of bits, one cluster", clusters(bits())),
        of("mask-bits-coded", "a mask of bits under rANS, one cluster", clusters(Mask::Bits(coded))),
        of("mask-bits-patched", "a mask of bits; patches count selected elements", patched(bits())),
        of("list", "a list of elements", list()),
        of(
            "mask-selects-zeros",
            "a selected element that is 0",
            Stream { selected: Some(selected.clone()), ..clusters(bits()) },
        ),
        of(
            "list-raw-bits",
            "codes with raw bits, of gaps and of values",
            Stream { patch_codes: PatchCodes { low: 0, gaps: alone(4, 0), changes: alone(16, 0) }, ..list() },
        ),
        plain(
            "mask-bits-and-signs",
            "3.3.2",
            "signs apart, of all elements, under map 1",
            1,
            &signed,
            Stream { map: 1, mask: signs(), ..Stream::of(1, even.clone()) },
        ),
        plain(
            "mask-bits-and-signs-patched",
            "3.3.2",
            "signs come after patches",
            1,
            &[0x8000, 0x3f80, 0xbf80],
            Stream {
                mask: signs(),
                patches: vec![Patch { element: 1, x: 0x7f00 }],
                ..Stream::of(1, Cluster { z: 1, h: 0, k: 15, ..Cluster::default() })
            },
        ),
        plain(
            "mask-all",
            "3.3.2",
            "a mask that selects all elements",
            0,
            &[1, 2, 3],
            Stream { mask: bits(), ..Stream::of(0, raw_bits(0)) },
        ),
        plain("mask-clusters", "3.3.2", "a mask, and clusters of runs of selected elements", 0, &long, in_clusters),
        plain(
            "list-one-of-many",
            "3.3.2",
            "one listed element in the last place, a gap of bucket 24",
            3,
            &[&[0; 70][..], &[u64::MAX]].concat(),
            list(),
        ),
    ]
}
