//! Masks (§3.3.2): known bytes, every kind in every decoder, and each rule that a mask breaks.

use lmc_testing::decoders::agree_with_bases;
use lmc_testing::handmade::{encoded, judged_block, refused_block};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, BlockFields, Cluster, Column, Mask, NumberCode, Plain, Stream};
use lmc_testing::reference::write::entropy::Coder;
use lmc_testing::vectors;

/// A block of one column of elements of two bytes with this head, from the map on, and this bulk.
fn fields(n: usize, stream: &[u8], bulk: &[u8]) -> BlockFields {
    let column = Column::Plain(Plain { raw: vec![0; 2 * n], width_code: 1, stream: Stream::default() });
    let mut fields = encoded(&Block::of(column, 0));
    fields.columns[0] = [&[2, 1], stream].concat();
    fields.bulk[0] = bulk.to_vec();
    fields
}

#[track_caller]
fn restored(fields: BlockFields, raw: &[u8]) {
    assert_eq!(judged_block(&fields), Ok(raw.to_vec()));
}

/// A cluster of bytes as they are, and one of elements of two bytes.
const BYTES: [u8; 5] = [0, 0, 0, 8, 0];
const ELEMENTS: [u8; 5] = [0, 0, 0, 16, 0];
/// A code of numbers below 16 with four open bits each and no code bits.
const NUMBERS: [u8; 3] = [4, 0, 0];

#[test]
fn every_vector_is_restored() {
    for vector in vectors::masks() {
        let decoded = agree_with_bases(&vector.file.to_bytes(), &vector.bases());
        assert!(decoded == Ok(vector.raw), "{}", vector.name);
    }
}

#[test]
fn masks_as_they_are_written() {
    // Map 0; a mask of bits of two elements; one cluster without patches.
    let bits = [&[0, 1, 2][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    // Elements 1 and 3 of five: low bytes, then high bytes.
    restored(fields(5, &bits, &[0b01010, 7, 8, 1, 2]), &[0, 0, 7, 1, 0, 0, 8, 2, 0, 0]);
    // The same by gaps of 1 and 1.
    let gaps = [&[0, 3, 2][..], &NUMBERS, &[1], &[1, 0], &ELEMENTS].concat();
    restored(fields(5, &gaps, &[0x11, 7, 8, 1, 2]), &[0, 0, 7, 1, 0, 0, 8, 2, 0, 0]);
    // Listed: values of 1 more than their numbers.
    let listed = [&[0, 3, 2][..], &NUMBERS, &[1, 0], &NUMBERS, &[1]].concat();
    restored(fields(5, &listed, &[0x11, 0x86]), &[0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    let listed_bits = [&[0, 1, 2][..], &BYTES, &[0], &NUMBERS, &[1]].concat();
    restored(fields(5, &listed_bits, &[0b01010, 0x86]), &[0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    // Map 1 with signs of elements 0, 1 and 4: bit 0 of the mapped value is the top bit of the element.
    let signs = [&[1, 2, 2][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    restored(fields(5, &signs, &[0b01010, 0b10011, 6, 8, 0, 0]), &[0, 0x80, 3, 0x80, 0, 0, 4, 0, 0, 0x80]);
    // Signs change whatever bit 0 is.
    restored(fields(2, &[&[1, 2, 1][..], &BYTES, &[1, 0], &ELEMENTS].concat(), &[1, 1, 7, 0]), &[3, 0, 0, 0]);
}

/// Every kind of mask, with clusters or a list, under every map and width.
#[test]
fn masks_of_every_kind() {
    let mut random = Random::new(3);
    let mut kinds = [0; 8];
    for case in 0..600 {
        let (width_code, map) = (case % 4, (case / 4 % 3) as u8);
        let width = 1 << width_code;
        let w = 8 * width as u32;
        let n = [1, 7, 8, 9, 127, 128, 129, 1000, 1025, 3000][random.below(10) as usize];
        let (kind, listed, lanes) = (random.below(3) as usize, random.below(3) == 0, 2 * random.below(2) as u8);
        let one_in = [1, 2, 9, 200][random.below(4) as usize];
        let signed = kind == 1;
        let values: Vec<u64> = (0..n)
            .map(|i| {
                let v = random.u64() >> (64 - w) & 0x1ff;
                let coded = random.below(one_in) == 0 || i == n / 2;
                let sign = if signed { random.below(2) } else { 0 };
                if coded { v & !1 | 2 | sign } else { sign }
            })
            .collect();
        let selected = |v: &u64| if signed { *v > 1 } else { *v > 0 };
        let bytes: Vec<u8> = values
            .chunks(8)
            .map(|eight| eight.iter().rev().fold(0, |byte, v| byte << 1 | u8::from(selected(v))))
            .collect();
        let of_mask = if lanes > 0 {
            Cluster { coder: Coder::fine_rans(&bytes, random.below(2) == 0), ..Cluster::default() }
        } else {
            Cluster { k: 8, ..Cluster::default() }
        };
        let mask = [Mask::Bits(of_mask.clone()), Mask::BitsAndSigns(of_mask), Mask::Gaps][kind].clone();
        let clusters = if listed {
            vec![]
        } else if width == 1 {
            vec![Cluster { k: 8, ..Cluster::default() }]
        } else {
            vec![Cluster { k: 9, h: w as u8 - 9, ..Cluster::default() }; 2]
        };
        let count = values.iter().filter(|v| selected(v)).count();
        let cluster_of = (0..count.div_ceil(128)).map(|i| (i % 2) as u8 & u8::from(clusters.len() > 1)).collect();
        let cluster_map = Cluster { k: 8, ..Cluster::default() };
        let mut stream = Stream { map, mask, clusters, cluster_of, cluster_map, ..Stream::default() };
        stream.patch_codes.gaps = (random.below(2) == 0).then(|| NumberCode { raw: 12, first: 0, lengths: vec![0] });
        let raw: Vec<u8> =
            values.iter().flat_map(|&v| stream.unmapped(v, w).to_le_bytes().into_iter().take(width)).collect();
        let plain = Plain { raw: raw.clone(), width_code: width_code as u8, stream };
        let block = Block::of(Column::Plain(plain), lanes);
        restored(encoded(&block), &raw);
        kinds[4 * usize::from(listed) + kind] += 1;
    }
    assert!(kinds.iter().filter(|&&n| n > 20).count() == 6, "{kinds:?}");
}

#[test]
fn kinds_and_numbers_of_elements() {
    let stream = |kind: u8, m: u8| [&[0, kind, m][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    restored(fields(2, &stream(1, 1), &[2, 7, 1]), &[0, 0, 7, 1]);
    refused_block(&fields(2, &stream(4, 1), &[2, 7, 1]), "unknown mask");
    refused_block(&fields(2, &stream(1, 0), &[0]), "selects nothing");
    refused_block(&fields(2, &stream(1, 3), &[3, 7, 1, 7, 1, 7, 1]), "more elements than its stream");
    for (m, mask) in [(1, 3), (2, 1), (1, 0)] {
        refused_block(&fields(2, &stream(1, m), &[mask, 7, 8, 1, 2][..1 + 2 * usize::from(m)]), "another number");
    }
    let gaps = |m: u8| [&[0, 3, m][..], &NUMBERS, &[m.div_ceil(2)], &[1, 0], &ELEMENTS].concat();
    restored(fields(2, &gaps(1), &[1, 7, 1]), &[0, 0, 7, 1]);
    refused_block(&fields(2, &gaps(0), &[]), "selects nothing");
    refused_block(&fields(2, &gaps(3), &[0, 0, 1, 1, 1, 1, 1, 1]), "more elements than its stream");
    refused_block(&fields(2, &gaps(1), &[2, 7, 1]), "not in its stream");
    refused_block(&fields(2, &gaps(2), &[0x10, 7, 8, 1, 2]), "not in its stream");
}

#[test]
fn unused_bits_are_zero() {
    let stream = |kind: u8| [&[1, kind, 1][..], &BYTES, &[1, 0], &ELEMENTS].concat();
    restored(fields(3, &stream(1), &[4, 8, 0]), &[0, 0, 0, 0, 4, 0]);
    refused_block(&fields(3, &stream(1), &[0xc, 8, 0]), "unused bits");
    restored(fields(3, &stream(2), &[4, 4, 8, 0]), &[0, 0, 0, 0, 4, 0x80]);
    refused_block(&fields(3, &stream(2), &[4, 0x84, 8, 0]), "unused bits");
    // Bits of gaps, and of values.
    let listed = |gaps: u8, values: u8| [&[0, 3, 1][..], &NUMBERS, &[gaps, 0], &NUMBERS, &[values]].concat();
    restored(fields(3, &listed(1, 1), &[2, 6]), &[0, 0, 0, 0, 7, 0]);
    refused_block(&fields(3, &listed(1, 1), &[0x12, 6]), "do not end where");
    refused_block(&fields(3, &listed(1, 1), &[2, 0x16]), "do not end where");
    refused_block(&fields(3, &listed(2, 1), &[2, 0, 6]), "do not end where");
    refused_block(&fields(3, &listed(1, 2), &[2, 6, 0]), "do not end where");
    refused_block(&fields(3, &listed(0, 1), &[6]), "end too early");
    refused_block(&fields(3, &listed(1, 0), &[2]), "end too early");
}

#[test]
fn streams_without_mask_have_clusters() {
    refused_block(&fields(2, &[&[0, 0, 0][..], &NUMBERS, &[1]].concat(), &[0]), "neither a mask nor clusters");
    let all = |m: u8| [&[0, 1, m][..], &BYTES, &[17]].concat();
    refused_block(&fields(2, &all(2), &[3]), "number of clusters");
}

#[test]
fn listed_values_fit() {
    // A number of 16 open bits.
    let listed = [&[0, 3, 1][..], &NUMBERS, &[1, 0], &[16, 0, 0, 2]].concat();
    restored(fields(2, &listed, &[1, 0xfe, 0xff]), &[0, 0, 0xff, 0xff]);
    refused_block(&fields(2, &listed, &[1, 0xff, 0xff]), "wider than its element");
}
