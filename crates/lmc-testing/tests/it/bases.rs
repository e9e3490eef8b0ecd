//! Bases (§2.6): every decoder finds each rule that a file breaks in naming them, with all checks and digests made to fit.

use crate::support::{judged_without_limits, restore};
use lmc::DecompressOptions;
use lmc_testing::decoders::{LIMIT, Way, agree_by_with_bases};
use lmc_testing::handmade::{BASES, FIRST, SECOND, copy, delta, judged, records, refused, stored};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::write::{Bases, File, Record};

#[test]
fn bases() {
    let decoded = |bases: &[&[u8]]| decode_with_bases(&delta().to_bytes(), bases, LIMIT);
    let right = [FIRST, SECOND];
    assert!(decoded(&right).is_ok());
    assert!(decoded(&[FIRST, FIRST]).is_err_and(|why| why.contains("hash")));
    assert!(decoded(&right[..1]).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[&right[..], &right].concat()).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[]).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[FIRST, b"short"]).is_err_and(|why| why.contains("length")));
    let without_bases = File::new(records(&[stored(b"a")])).to_bytes();
    assert!(decode_with_bases(&without_bases, &right, LIMIT).is_err_and(|why| why.contains("names no bases")));

    let with = |change: &dyn Fn(&mut Bases)| {
        let mut named = Bases::of(&BASES);
        change(&mut named);
        let mut file = delta();
        file.records[0] = named.record();
        file
    };
    assert!(judged(with(&|named| named.bases[1].name = "sélection".into()), &BASES).is_ok());
    assert!(judged(with(&|named| named.bases[1].name = vec![b'n'; 100_000]), &BASES).is_ok());
    refused(with(&|named| named.bases[1].name = vec![0xff]), &BASES, "UTF-8");
    refused(with(&|named| named.count = 0), &BASES, "impossible number of bases");
    refused(with(&|named| named.count = (1 << 16) + 1), &BASES, "impossible number of bases");
    refused(with(&|named| named.count = u64::MAX), &BASES, "impossible number of bases");
    refused(with(&|named| named.count = 1), &BASES, "follows the last base");
    refused(with(&|named| named.count = 3), &BASES, "too early");
    refused(with(&|named| named.after = vec![0]), &BASES, "follows the last base");
    refused(with(&|named| named.bases[0].raw_length += 1), &BASES, "a base does not have its length");
    refused(with(&|named| named.bases[0].raw_length = u64::MAX), &BASES, "a base does not have its length");
    for i in 0..2 {
        refused(with(&|named| named.bases[i].content_hash[7] ^= 1), &BASES, "a base does not have its content hash");
    }

    // The most bases, and one more.
    for (count, fits) in [(1 << 16, true), ((1 << 16) + 1, false)] {
        let many = vec![&b"m"[..]; count];
        let file = File::delta(&many, records(&[copy(&[(count as u64, 0, b"m"), (1, 0, b"m")])])).to_bytes();
        assert_eq!(decode_with_bases(&file, &many, LIMIT).is_ok(), fits);
        let base = [lmc::Base::new(&b"m"[..]).expect("memory can be read")];
        assert_eq!(restore(&file, &base, &DecompressOptions::default()).is_ok(), fits);
    }
}

#[test]
fn bases_that_are_alike() {
    // Named twice, and given once or as often as they are named.
    let file = File::delta(&[FIRST, SECOND, FIRST], records(&[copy(&[(1, 0, b"the"), (3, 3, b" first")])]));
    assert_eq!(judged(file.clone(), &[FIRST, SECOND, FIRST]), Ok(b"the first".to_vec()));
    let given = |bases: &[&'static [u8]]| {
        let bases: Vec<_> = bases.iter().map(|raw| lmc::Base::new(*raw).expect("memory can be read")).collect();
        restore(&file.to_bytes(), &bases, &DecompressOptions::default())
    };
    assert!(given(&[FIRST, SECOND]).is_ok_and(|raw| raw == b"the first"));
    assert!(given(&[SECOND, SECOND, FIRST]).is_ok_and(|raw| raw == b"the first"));
    given(&[FIRST, SECOND, b"another base!!"]).unwrap_err();
    given(&[FIRST, FIRST]).unwrap_err();
}

#[test]
fn records_of_bases() {
    let bases = Bases::of(&BASES).record();
    let changed = |change: &dyn Fn(&mut File)| {
        let mut file = delta();
        change(&mut file);
        file
    };
    let skippable = Record::new(*b"note", vec![1], vec![]);
    assert!(judged(changed(&|file| file.records.push(skippable.clone())), &BASES).is_ok());
    refused(changed(&|file| file.records.insert(0, skippable.clone())), &BASES, "follow the header directly");
    refused(changed(&|file| file.records.insert(1, skippable.clone())), &BASES, "a block follows");
    refused(changed(&|file| file.records.insert(1, bases.clone())), &BASES, "follow the header directly");
    // Decoders that read through the index do not look behind the last block.
    let behind = changed(&|file| file.records.push(bases.clone())).to_bytes();
    let why = agree_by_with_bases(&[Way::Slice, Way::Stream, Way::Positional], &behind, &BASES);
    assert!(why.is_err_and(|why| why.contains("follow the header directly")));
    refused(changed(&|file| file.records[0].body.push(0)), &BASES, "the bases have a body");
    refused(changed(&|file| drop(file.records.remove(0))), &BASES, "not named");
    refused(changed(&|file| file.features = 0), &BASES, "bases need bit 0");
    refused(changed(&|file| file.features = 2), &BASES, "needs bit 0");
    // Bases that no block depends on.
    let unused = File { features: 1, ..File::delta(&BASES, records(&[stored(b"a")])) };
    assert!(judged(unused.clone(), &BASES).is_ok());
    refused(File { features: 0, ..unused }, &BASES, "bases need bit 0");
    // Features that nothing needs.
    for features in [1, 3, 4, 5, 7] {
        assert!(judged(File { features, ..File::new(records(&[stored(b"a")])) }, &[]).is_ok());
    }
    // A head of 2^24 bytes, and of one more.
    let named = |name_length: usize| {
        let mut named = Bases::of(&[b"b"]);
        named.bases[0].name = vec![b'n'; name_length];
        named.record()
    };
    let rest = named(1 << 23).head.len() - (1 << 23);
    let file =
        |length| File { features: 1, ..File::new([vec![named(length - rest)], records(&[stored(b"a")])].concat()) };
    assert_eq!(file(1 << 24).records[0].head.len(), 1 << 24);
    assert!(judged_without_limits(&file(1 << 24), &[b"b"]).is_ok());
    let why = judged_without_limits(&file((1 << 24) + 1), &[b"b"]).expect_err("the head is too long");
    assert!(why.contains("exceeds 2^24 bytes"), "{why}");
}
