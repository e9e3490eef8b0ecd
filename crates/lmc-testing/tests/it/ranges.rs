//! The limits of ranges of other data (§3.6): their number and lengths, and the depth of blocks.

use lmc_testing::handmade::{BASES, LEAF, copy, filled, judged, naming, naming_in_columns, records, refused, stored};
use lmc_testing::reference::write::block::BlockFields;
use lmc_testing::reference::write::{File, varint};

/// A block that names a range, but says that it names that many.
fn naming_many(count: u64) -> BlockFields {
    let mut fields = naming(&[[1, 0, 1]]);
    let mut number = Vec::new();
    varint(&mut number, count);
    // Behind method, width code and conversion.
    fields.columns[0].splice(3..4, number);
    fields
}

#[test]
fn numbers_of_ranges() {
    let bases: [&[u8]; 1] = [&[0]];
    let file = |fields: BlockFields| File::delta(&bases, records(&[fields]));
    refused(file(naming_many(0)), &bases, "");
    refused(file(naming_many(2)), &bases, "");
    for count in [1 << 20, 1 << 32, 1 << 63, u64::MAX] {
        assert!(judged(file(naming_many(count)), &bases).is_err());
    }
    let bytes = |count: usize| vec![[1, 0, 1]; count];
    assert!(judged(file(naming(&bytes(1 << 20))), &bases).is_ok());
    refused(file(naming(&bytes((1 << 20) + 1))), &bases, "more than 2^20 ranges");
    // The ranges of all columns count.
    let halves = |more: usize| file(naming_in_columns(&[&bytes(1 << 19), &bytes((1 << 19) + more)]));
    assert!(judged(halves(0), &bases).is_ok());
    refused(halves(1), &bases, "more than 2^20 ranges");
}

#[test]
fn lengths_of_ranges_add_up_to_256_mib_at_most() {
    // Such a block has an operand of another length as well.
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
        match judged(file(&[chain(8), vec![copy(&named)]].concat()), &[]) {
            Ok(_) => assert!(fits, "{blocks:?}"),
            Err(why) => assert!(!fits && why.contains("depth of a block exceeds 8"), "{blocks:?}: {why}"),
        }
    }
    // Bases do not.
    let mut blocks = chain(8);
    blocks.push(copy(&[(1, 0, b"the")]));
    blocks.push(copy(&[(0, 9 * LEAF, b"the")]));
    let with_bases = |blocks: &[BlockFields]| File::delta(&BASES, records(&[&[stored(b"a")], blocks].concat()));
    assert!(judged(with_bases(&blocks), &BASES).is_ok());
}
