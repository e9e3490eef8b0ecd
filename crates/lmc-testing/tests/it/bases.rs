//! Bases that a file names twice (§2.6).

use crate::support::restore;
use lmc::DecompressOptions;
use lmc_testing::decoders::LIMIT;
use lmc_testing::handmade::{FIRST, SECOND, copy, judged, records};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::write::File;

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
    // The reference decoder takes exactly those that are named.
    let judged = |file: &File, bases: &[&[u8]]| decode_with_bases(&file.to_bytes(), bases, LIMIT).unwrap_err();
    assert!(judged(&file, &[FIRST, SECOND]).contains("another number of bases"));
    assert!(judged(&File::new(Vec::new()), &[FIRST]).contains("names no bases"));
}
