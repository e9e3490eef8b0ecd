//! Dependencies (§3.6): every decoder finds each rule that a file breaks, with all checks and digests made to fit.

use lmc_testing::decoders::{LIMIT, Way, agree_by_with_bases};
use lmc_testing::handmade::{
    BASES, FIRST, LEAF, copy, delta, delta_raw, filled, judged, records, refused, stored, unnamed,
};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::BlockFields;

/// The ways that see the whole file.
const WHOLE: [Way; 4] = [Way::Slice, Way::Stream, Way::Positional, Way::WriteOnly];

#[test]
fn several_dependencies_on_several_sources() {
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
        assert!(decode_with_bases(&file, &BASES, LIMIT).is_err(), "bit {bit}");
    }
}

#[test]
fn dependencies() {
    let first = || stored(b"0123456789");
    let file = |dependencies: &[[u64; 3]]| File::delta(&BASES, records(&[first(), unnamed(dependencies), first()]));
    let base = FIRST.len() as u64;
    for valid in [[0, 0, 10], [0, 9, 1], [1, 0, base], [2, base - 1, 1]] {
        assert!(judged(file(&[valid, [1, 0, 1]]), &BASES).is_ok());
    }
    refused(file(&[[3, 0, 1]]), &BASES, "not named");
    refused(file(&[[1 << 32, 0, 1]]), &BASES, "not named");
    refused(file(&[[u64::MAX, 0, 1]]), &BASES, "not named");
    for source in 0..3 {
        let length = if source == 0 { LEAF } else { base };
        refused(file(&[[source, 0, 0]]), &BASES, "a dependency is empty");
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
    let with_features = |features, dependencies: &[[u64; 3]]| File { features, ..file(dependencies) };
    assert!(judged(with_features(1, &[[1, 0, 1]]), &BASES).is_ok());
    refused(with_features(1, &[[1, 0, 1], [0, 0, 1]]), &BASES, "need bit 1");
    let own = |features| File { features, ..File::new(records(&[first(), unnamed(&[[0, 0, 1]])])) };
    assert!(judged(own(3), &[]).is_ok());
    refused(own(1), &[], "need bit 1");
    refused(own(0), &[], "need bit 0");

    // Their number.
    let mut more = unnamed(&[[1, 0, 1]]);
    more.dependency_count = 2;
    refused(File::delta(&BASES, records(&[more])), &BASES, "");
    for count in [1 << 20, 1 << 32, u64::MAX] {
        let mut fields = unnamed(&[[1, 0, 1]]);
        fields.dependency_count = count;
        assert!(judged(File::delta(&BASES, records(&[fields])), &BASES).is_err());
    }
    assert!(judged(File::delta(&BASES, records(&[unnamed(&vec![[1, 0, 1]; 1 << 20])])), &BASES).is_ok());
    let too_many = File::delta(&BASES, records(&[unnamed(&vec![[1, 0, 1]; (1 << 20) + 1])]));
    refused(too_many, &BASES, "more than 2^20 dependencies");
}

#[test]
fn lengths_of_dependencies_add_up_to_64_mib_at_most() {
    let base = vec![0; 1 << 20];
    let file = |dependencies: &[[u64; 3]]| File::delta(&[&base], records(&[unnamed(dependencies)]));
    let mut dependencies = vec![[1, 0, 1 << 20]; 64];
    assert!(judged(file(&dependencies), &[&base]).is_ok());
    dependencies.push([1, 0, 1]);
    refused(file(&dependencies), &[&base], "exceed 2^26 bytes");
}

#[test]
fn depths() {
    // Blocks with one byte that is not 0. Each depends on the one before it.
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
        let dependencies: Vec<[u64; 3]> = blocks.iter().map(bytes).collect();
        let named: Vec<(u64, u64, &[u8])> = dependencies
            .iter()
            .map(|&[source, offset, length]| (source, offset, &raw[offset as usize..][..length as usize]))
            .collect();
        let mut unnamed = file(&[chain(8), vec![unnamed(&dependencies)]].concat());
        unnamed.redigest(&[], LIMIT);
        let judged = [
            judged(file(&[chain(8), vec![copy(&named)]].concat()), &[]),
            // A reader of single blocks does not follow dependencies that no column uses.
            agree_by_with_bases(&WHOLE, &unnamed.to_bytes(), &[]),
        ];
        for judged in judged {
            match judged {
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
