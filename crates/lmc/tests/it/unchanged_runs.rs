//! The map of unchanged runs (§3.7): known bytes, and each rule that a column with a map breaks.

use lmc_testing::decoders::{LIMIT, agree_with_bases};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{
    Block, BlockFields, Cluster, Column, Dependency, Named, Predicted, Stream, UnchangedRuns,
};
use lmc_testing::reference::write::entropy::Coder;
use lmc_testing::reference::write::{File, varint};

/// Decodes a block with one base by all decoders, after its digests were set to those of its decoded bytes.
fn judged(fields: &BlockFields, base: &[u8]) -> Result<Vec<u8>, String> {
    let mut file = File { features: 1, ..File::delta(&[base], vec![fields.record()]) };
    file.redigest(&[base], LIMIT);
    agree_with_bases(&file.to_bytes(), &[base])
}

#[track_caller]
fn refused(fields: &BlockFields, base: &[u8], reason: &str) {
    match judged(fields, base) {
        Ok(_) => panic!("a block is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}

/// All bits of an element of `width` bytes as they are.
fn plain(width: usize) -> Cluster {
    Cluster { k: 8 * width as u8, ..Cluster::default() }
}

/// A column of differences to the bytes of the base, with any map.
fn block(raw: &[u8], base: &[u8], runs: &[u8], map: Cluster, lane_sets: u8) -> Block {
    let column = Predicted {
        raw: raw.to_vec(),
        width_code: 0,
        predictor: 2,
        conversion: 0,
        prediction: Named::of(0, 1),
        boundaries: vec![],
        unchanged: Some(UnchangedRuns { runs: runs.to_vec(), map }),
        streams: vec![Stream::of(0, plain(1))],
    };
    let dependencies = vec![Dependency { source: 1, offset: 0, bytes: base.to_vec() }];
    Block { dependencies, ..Block::of(Column::Predicted(column), lane_sets) }
}

/// 300 bytes, the base, and the block: of its three runs, the second is unchanged.
fn second_of_three() -> (Vec<u8>, Vec<u8>, BlockFields) {
    let base = Random::new(1).bytes(300);
    let mut raw = base.clone();
    raw[0] = raw[0].wrapping_add(1);
    raw[299] = raw[299].wrapping_add(0x80);
    let fields = block(&raw, &base, &[0, 1, 0], plain(1), 0).encode().expect("the block can be coded");
    (raw, base, fields)
}

/// What the head of that column has: up to the map, the map's cluster, and the rest.
const BEFORE: [u8; 7] = [3, 0, 2, 0, 0, 1, 0];
const MAP: [u8; 5] = [0, 0, 0, 8, 0];
const AFTER: [u8; 8] = [0, 0, 1, 0, 0, 0, 8, 0];

fn head(kind: u8, unchanged: u64, map: &[u8], coded: u64) -> Vec<u8> {
    let mut head = BEFORE.to_vec();
    head.push(kind);
    varint(&mut head, unchanged);
    head.extend(map);
    varint(&mut head, coded);
    head.extend(AFTER);
    head
}

#[test]
fn the_map_comes_before_the_first_stream() {
    let (raw, base, fields) = second_of_three();
    assert_eq!(fields.columns[0], head(1, 128, &MAP, 172));
    let mut residuals = vec![0; 172];
    (residuals[0], residuals[171]) = (2, 0xff);
    assert_eq!(fields.bulk[0], [&[0, 1, 0][..], &residuals].concat());
    assert_eq!(judged(&fields, &base), Ok(raw));
}

#[test]
fn heads_and_maps_that_break_a_rule() {
    let (_, base, valid) = second_of_three();
    let with_head = |head: Vec<u8>| BlockFields { columns: vec![head], ..valid.clone() };
    let with_map = |map: &[u8; 3]| {
        let mut fields = valid.clone();
        fields.bulk[0][..3].copy_from_slice(map);
        fields
    };
    for kind in [2, 3, 255] {
        refused(&with_head(head(kind, 128, &MAP, 172)), &base, "unknown kind of unchanged runs");
    }
    for other in [2, 0x81, 255] {
        refused(&with_map(&[0, other, 0]), &base, "neither unchanged nor coded");
        refused(&with_map(&[0, 1, other]), &base, "neither unchanged nor coded");
    }
    // The first run is as long, the last is not.
    assert!(judged(&with_map(&[1, 0, 0]), &base).is_ok());
    refused(&with_map(&[0, 0, 1]), &base, "another number of elements is in unchanged runs");
    refused(&with_map(&[1, 1, 0]), &base, "another number of elements is in unchanged runs");
    refused(&with_map(&[0, 0, 0]), &base, "another number of elements is in unchanged runs");
    for (unchanged, coded) in [(127, 173), (129, 171), (0, 300), (300, 0)] {
        refused(&with_head(head(1, unchanged, &MAP, coded)), &base, "");
    }
    for (unchanged, coded) in [(128, 171), (128, 173), (127, 172), (128, 0), (0, 172), (1 << 32, 172)] {
        refused(&with_head(head(1, unchanged, &MAP, coded)), &base, "do not add up");
    }
    // They add up modulo 2^64, and modulo 2^32.
    refused(&with_head(head(1, 128u64.wrapping_sub(1 << 9), &MAP, 172 + (1 << 9))), &base, "do not add up");
    refused(&with_head(head(1, 128 + (1 << 32), &MAP, 172)), &base, "do not add up");
    // The map's cluster is checked as any other.
    refused(&with_head(head(1, 128, &[0, 0, 0, 9, 0], 172)), &base, "more bits");
    refused(&with_head(head(1, 128, &[0, 0, 0, 7, 0], 172)), &base, "no coder");
    refused(&with_head(head(1, 128, &[0, 0, 0, 7, 1], 172)), &base, "no lanes");
    refused(&with_head(head(1, 128, &[4, 0, 0, 8, 0], 172)), &base, "unknown flag");
    for end in 0..valid.columns[0].len() {
        assert!(judged(&with_head(valid.columns[0][..end].to_vec()), &base).is_err());
    }
    // The map, or the bulk of the stream, is one byte too long or too short.
    for at in [0, 174] {
        let (mut longer, mut shorter) = (valid.clone(), valid.clone());
        longer.bulk[0].insert(at, 0);
        shorter.bulk[0].remove(at);
        assert!(judged(&longer, &base).is_err() && judged(&shorter, &base).is_err());
    }
}

#[test]
fn columns_that_are_all_unchanged_or_not_at_all() {
    let mut random = Random::new(3);
    for count in [1, 127, 128, 129, 255, 256, 128 * 128, 128 * 128 + 1, 40_000] {
        let base = random.bytes(count);
        let runs = count.div_ceil(128);
        // Coded in every way.
        let huffman = |map: &[u8]| Cluster { h: 1, coder: Coder::huffman(map, false), ..Cluster::default() };
        let rans = |map: &[u8]| Cluster { h: 7, coder: Coder::rans(map, true), ..Cluster::default() };
        let fine = |map: &[u8]| Cluster { h: 7, coder: Coder::fine_rans(map, false), ..Cluster::default() };
        let constant = |map: &[u8]| Cluster { z: 8, constant: Some(map[0].into()), ..Cluster::default() };
        let all_unchanged = vec![1; runs];
        let fields = block(&base, &base, &all_unchanged, constant(&all_unchanged), 0).encode().expect("all is there");
        assert!(fields.bulk[0].is_empty());
        assert_eq!(judged(&fields, &base).as_ref(), Ok(&base));
        for kind in 0..3 {
            let map: Vec<u8> = match kind {
                0 => vec![1; runs],
                1 => vec![0; runs],
                _ => (0..runs).map(|_| random.below(2) as u8).collect(),
            };
            let mut raw = base.clone();
            let coded = |i: &usize| map[i / 128] == 0;
            (0..count).filter(coded).for_each(|i| raw[i] ^= random.u64() as u8);
            for cluster in [plain(1), huffman(&map), rans(&map), fine(&map)] {
                let fields = block(&raw, &base, &map, cluster, 2).encode().expect("the block can be coded");
                assert!(judged(&fields, &base).as_ref() == Ok(&raw), "{count} elements, kind {kind}");
            }
        }
    }
}

#[test]
fn unchanged_elements_belong_to_no_context() {
    let mut random = Random::new(4);
    // BF16 predicted from F32, by every predictor, in one context and in several.
    let base = random.bytes(4 * 1000);
    let prediction = Named::of(0, 1);
    let runs = vec![0, 1, 1, 0, 1, 0, 0, 1];
    for predictor in 1..=2 {
        for boundaries in [vec![], vec![50, 100, 200]] {
            let mut column = Predicted {
                raw: vec![0; 2 * 1000],
                width_code: 1,
                predictor,
                conversion: 1,
                prediction,
                boundaries,
                unchanged: Some(UnchangedRuns { runs: runs.clone(), map: plain(1) }),
                streams: vec![Stream::of(1, plain(2)); 4],
            };
            let dependencies = vec![Dependency { source: 1, offset: 0, bytes: base.clone() }];
            let counts = column.context_counts(&dependencies).expect("the base has the elements");
            // The last run, which is unchanged, has 104 elements.
            assert_eq!(counts.iter().sum::<usize>(), 4 * 128);
            let residuals = counts.iter().map(|&n| (0..n).map(|_| random.below(1 << 16)).collect()).collect();
            column.set_residuals(&dependencies, residuals).expect("the base has the elements");
            let raw = column.raw.clone();
            let converted = |i: usize| {
                let x = u32::from_le_bytes(base[4 * i..][..4].try_into().expect("four bytes"));
                (x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16) as u16
            };
            for i in (128..384).chain(896..1000) {
                assert_eq!(raw[2 * i..][..2], converted(i).to_le_bytes());
            }
            let valid = Block { dependencies, ..Block::of(Column::Predicted(column), 0) };
            let fields = valid.encode().expect("the block can be coded");
            assert!(judged(&fields, &base).as_ref() == Ok(&raw));

            // A run that is coded changes places with one that is not: the contexts, if there are several, are others.
            let mut moved = fields.clone();
            moved.bulk[0].swap(0, 1);
            match judged(&moved, &base) {
                Ok(_) => assert_eq!(counts.len(), 1),
                Err(why) => assert!(why.contains("a context of a column has another number of elements"), "{why}"),
            }
        }
    }
}

#[test]
fn only_predictions_are_unchanged() {
    let base = [7; 200];
    let mut raw = base;
    raw[150] = 8;
    block(&raw, &base, &[1, 0], plain(1), 0).encode().expect("the second run is coded");
    let why = block(&raw, &base, &[0, 1], plain(1), 0).encode().expect_err("the second run is changed");
    assert!(why.contains("not its prediction"), "{why}");
}
