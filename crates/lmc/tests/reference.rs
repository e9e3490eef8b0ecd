//! The reference decoder and the writer of test files agree with each other, so that either may judge the codec.

use lmc::reference::{decode, write::File};
use lmc_testing::blocks;
use lmc_testing::input::{Input, Random};

#[test]
fn every_shape_of_block_is_read_back() {
    let mut random = Random::new(1);
    for case in 0..3000 {
        let choices = random.bytes(400);
        let mut input = Input::new(&choices);
        let blocks: Vec<_> = (0..1 + case % 3).map(|_| blocks::block(&mut input)).collect();
        let records = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        let raw: Vec<u8> = blocks.iter().flat_map(|block| block.raw()).collect();
        let decoded = decode(&File::new(records).to_bytes(), raw.len());
        assert!(decoded.as_ref() == Ok(&raw), "case {case}: {:?}", decoded.map(|_| "other bytes"));
    }
}
