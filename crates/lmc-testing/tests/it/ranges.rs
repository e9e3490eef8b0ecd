//! Ranges of other data (§3.6), and the features and the check of a block that names some: every decoder finds each rule
//! that a file breaks, with all checks and digests made to fit.

use lmc_testing::damage::HUGE;
use lmc_testing::decoders::{LIMIT, Way, agree_by_with_bases, agree_with_bases};
use lmc_testing::handmade::{
    BASES, FIRST, LEAF, copy, delta, delta_raw, filled, judged, naming, naming_in_columns, prefixed, records, refused,
    stored,
};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::write::block::BlockFields;
use lmc_testing::reference::write::{File, varint};
use lmc_testing::vectors;

/// The ways that see the whole file.
const WHOLE: [Way; 4] = [Way::Slice, Way::Stream, Way::Positional, Way::WriteOnly];

#[test]
fn several_ranges_of_several_sources() {
    assert_eq!(judged(delta(), &BASES), Ok(delta_raw()));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let valid = delta().to_bytes();
    assert!(decode_with_bases(&valid, &BASES, LIMIT).is_ok());
    // The index is a zstd frame; some of its bits have no meaning.
    let blocks_end = 16 + delta().records.iter().map(|record| record.size() as usize).sum::<usize>();
    for bit in 0..8 * blocks_end {
        let mut file = valid.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        // A file may say that it may have grids when it has none.
        assert_eq!(decode_with_bases(&file, &BASES, LIMIT).is_err(), bit != 8 * 12 + 2, "bit {bit}");
    }
}

#[test]
fn ranges() {
    let first = || stored(b"0123456789");
    let file = |ranges: &[[u64; 3]]| File::delta(&BASES, records(&[first(), naming(ranges), first()]));
    let base = FIRST.len() as u64;
    for valid in [[0, 0, 10], [0, 9, 1], [0, 0, LEAF], [1, 0, base], [2, base - 1, 1]] {
        assert!(judged(file(&[valid, [1, 0, 1]]), &BASES).is_ok());
    }
    for source in [3, 1 << 32, u64::MAX] {
        refused(file(&[[source, 0, 1]]), &BASES, "not named");
    }
    for source in 0..3 {
        let length = if source == 0 { LEAF } else { base };
        refused(file(&[[source, 0, 0]]), &BASES, "a range is empty");
        for (offset, length) in [
            (0, length + 1),
            (length, 1),
            (length - 1, 2),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
            (1 << 63, 1 << 63),
        ] {
            refused(file(&[[source, offset, length]]), &BASES, "not within its source");
        }
    }
    // The block itself and those after it are out of reach.
    refused(file(&[[0, LEAF, 3]]), &BASES, "not within its source");
    refused(file(&[[0, 2 * LEAF, 1]]), &BASES, "not within its source");

    // The features that they need.
    let with_features = |features, ranges: &[[u64; 3]]| File { features, ..file(ranges) };
    assert!(judged(with_features(1, &[[1, 0, 1]]), &BASES).is_ok());
    refused(with_features(1, &[[1, 0, 1], [0, 0, 1]]), &BASES, "need bit 1");
    for block in [naming(&[[0, 0, 1]]), copy(&[(0, 0, b"0")])] {
        let own = |features| File { features, ..File::new(records(&[first(), block.clone()])) };
        assert!(judged(own(3), &[]).is_ok());
        refused(own(1), &[], "need bit 1");
        refused(own(0), &[], "need bit 0");
    }
}

/// A block that names a range, but says that it names that many.
fn naming_many(count: u64) -> BlockFields {
    let mut fields = naming(&[[1, 0, 1]]);
    let mut number = Vec::new();
    varint(&mut number, count);
    // Behind method and width code.
    fields.columns[0].splice(2..3, number);
    fields
}

#[test]
fn numbers_of_ranges() {
    let file = |fields: BlockFields| File::delta(&BASES, records(&[fields]));
    refused(file(naming_many(0)), &BASES, "");
    refused(file(naming_many(2)), &BASES, "");
    for count in HUGE.into_iter().chain([1 << 20]) {
        assert!(judged(file(naming_many(count)), &BASES).is_err());
    }
    let bytes = |count: usize| vec![[1, 0, 1]; count];
    assert!(judged(file(naming(&bytes(1 << 20))), &BASES).is_ok());
    refused(file(naming(&bytes((1 << 20) + 1))), &BASES, "more than 2^20 ranges");
    // The ranges of all columns count.
    let halves = |more: usize| file(naming_in_columns(&[&bytes(1 << 19), &bytes((1 << 19) + more)]));
    assert!(judged(halves(0), &BASES).is_ok());
    refused(halves(1), &BASES, "more than 2^20 ranges");
}

#[test]
fn lengths_of_ranges_add_up_to_256_mib_at_most() {
    // Such a block has a prefix that is too long or an operand of another length as well.
    let base = vec![0; 1 << 20];
    let mut ranges = vec![[1, 0, 1 << 20]; 256];
    ranges.push([1, 0, 1]);
    refused(File::delta(&[&base], records(&[naming(&ranges)])), &[&base], "exceed 2^28 bytes");
}

#[test]
fn depths() {
    // Blocks with one byte that is not 0. Each names that of the one before it.
    let chain = |length: u64| (0..length).map(|i| copy(&[(0, i * LEAF, b"a")])).collect::<Vec<_>>();
    let file = |blocks: &[BlockFields]| File::delta(&[], records(&[&[stored(b"a")], blocks].concat()));
    assert_eq!(judged(file(&chain(8)), &[]), Ok(filled(&[&b"a"[..]; 9])));
    refused(file(&chain(9)), &[], "depth of a block exceeds 8");

    // Such blocks, of depths 0 to 8, then one whose ranges, given in blocks, touch some of them. The deepest one counts.
    let valid: [&[[u64; 3]]; 3] = [&[[0, 0, 8]], &[[0, 7, 1]], &[[0, 7, 1], [0, 0, 1]]];
    let too_deep: [&[[u64; 3]]; 4] = [&[[0, 8, 1]], &[[0, 0, 9]], &[[0, 7, 2]], &[[0, 0, 1], [0, 8, 1], [0, 1, 1]]];
    let raw = filled(&[&b"a"[..]; 10]);
    for (blocks, fits) in valid.map(|valid| (valid, true)).into_iter().chain(too_deep.map(|deep| (deep, false))) {
        let bytes = |&[source, from, blocks]: &[u64; 3]| [source, from * LEAF, (blocks - 1) * LEAF + 1];
        let ranges: Vec<[u64; 3]> = blocks.iter().map(bytes).collect();
        let named: Vec<(u64, u64, &[u8])> = ranges
            .iter()
            .map(|&[source, offset, length]| (source, offset, &raw[offset as usize..][..length as usize]))
            .collect();
        for last in [copy(&named), naming(&ranges)] {
            match judged(file(&[chain(8), vec![last]].concat()), &[]) {
                Ok(_) => assert!(fits, "{blocks:?}"),
                Err(why) => assert!(!fits && why.contains("depth of a block exceeds 8"), "{blocks:?}: {why}"),
            }
        }
    }
    // Bases do not.
    let mut blocks = chain(8);
    blocks.push(copy(&[(1, 0, b"the")]));
    blocks.push(copy(&[(0, 9 * LEAF, b"the")]));
    let with_bases = |blocks: &[BlockFields]| File::delta(&BASES, records(&[&[stored(b"a")], blocks].concat()));
    assert!(judged(with_bases(&blocks), &BASES).is_ok());
}

#[test]
fn exact_features_are_those_that_blocks_need() {
    for vector in vectors::features() {
        let judged = |exact_features, ways: &[Way]| {
            let mut file = vector.file.clone();
            file.index.exact_features = exact_features;
            agree_by_with_bases(ways, &file.to_bytes(), &vector.bases())
        };
        let needs = vector.file.index.exact_features;
        assert_eq!(judged(needs, &Way::OF_DELTAS).as_ref(), Ok(&vector.raw), "{}", vector.name);
        for others in [0, 1, 2, 3, 4, 1 << 31].into_iter().filter(|&others| others != needs) {
            // One that reads single blocks knows the header, but not all blocks.
            let ways: &[Way] = if others & !vector.file.features == 0 { &WHOLE } else { &Way::OF_DELTAS };
            let why = judged(others, ways).expect_err(&vector.name);
            assert!(why.contains("exact feature"), "{}: {why}", vector.name);
        }
    }
}

#[test]
fn bodies_of_blocks_that_name_ranges_have_a_check() {
    for fields in [copy(&[(1, 0, FIRST)]), prefixed(FIRST, &[(1, 0, FIRST)]), naming(&[[1, 0, 1]])] {
        let judged_as_it_is = |fields: &BlockFields| {
            let file = File::delta(&BASES, vec![fields.record()]);
            agree_with_bases(&file.to_bytes(), &BASES)
        };
        assert!(judged_as_it_is(&fields).is_ok());
        for body_check_error in [1, 1 << 63, u64::MAX] {
            // The digest is right, so the check is not consulted.
            assert!(judged_as_it_is(&BlockFields { body_check_error, ..fields.clone() }).is_ok());
        }
        let without = BlockFields { has_body_check: false, ..fields };
        refused(File::delta(&BASES, records(&[without])), &BASES, "too early");
    }
    // And no others.
    let fields = BlockFields { has_body_check: true, ..stored(b"xyz") };
    refused(File::delta(&BASES, records(&[fields])), &BASES, "follows the digest");
}
