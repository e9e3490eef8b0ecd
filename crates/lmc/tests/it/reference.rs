//! The reference decoder and the writer of test files agree with each other, so that either may judge the codec.

use lmc_testing::decoders::LIMIT;
use lmc_testing::input::{Input, Random};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::Column;
use lmc_testing::reference::{decode, decode_with_bases};
use lmc_testing::{blocks, deltas};
use std::collections::BTreeMap;

#[test]
fn every_shape_of_block_is_read_back() {
    let mut random = Random::new(1);
    let mut lists = 0;
    for case in 0..3000 {
        let choices = random.bytes(400);
        let mut input = Input::new(&choices);
        let mut blocks: Vec<_> = (0..1 + usize::from(case % 16 == 0)).map(|_| blocks::block(&mut input)).collect();
        let raw = blocks::fill(&mut blocks);
        let records = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        let decoded = decode(&File::new(records).to_bytes(), raw.len());
        assert!(decoded.as_ref() == Ok(&raw), "case {case}: {:?}", decoded.map(|_| "other bytes"));
        let is_list = |column: &&Column| matches!(column, Column::TensorList { .. });
        lists += blocks.iter().flat_map(|block| &block.columns).filter(is_list).count();
    }
    assert!(lists > 300, "{lists}");
}

#[test]
fn damage_to_tensor_lists_reaches_what_reads_them() {
    let mut random = Random::new(3);
    let (mut read, mut refused) = (0, BTreeMap::new());
    for _ in 0..6000 {
        let choices = random.bytes(400);
        let (block, damaged) = blocks::block_of_damaged_lists(&mut Input::new(&choices));
        if damaged {
            let mut record = block.record().expect("valid blocks can be coded");
            record.redigest(LIMIT);
            match decode(&File::new(vec![record]).to_bytes(), LIMIT) {
                Ok(_) => read += 1,
                Err(reason) => *refused.entry(reason).or_insert(0) += 1,
            }
        }
    }
    // Some rules are broken by the tests of tensor lists alone.
    assert!(read > 50 && refused.len() > 10, "{read} are read, {refused:?}");
}

#[test]
fn every_shape_of_delta_is_read_back() {
    let mut random = Random::new(2);
    // Counts of the relevant cases.
    let (mut own, mut of_bases, mut packs, mut patched, mut empty, mut unchanged) = (0, 0, 0, 0, 0, 0);
    for case in 0..3000 {
        let choices = random.bytes(600);
        let delta = deltas::delta(&mut Input::new(&choices));
        let (file, raw) = (delta.file(), delta.raw());
        let decoded = decode_with_bases(&file.to_bytes(), &delta.bases(), raw.len());
        assert!(decoded.as_ref() == Ok(&raw), "case {case}: {:?}", decoded.map(|_| "other bytes"));

        for block in &delta.blocks {
            own += usize::from(block.dependencies.iter().any(|dependency| dependency.source == 0));
            of_bases += usize::from(block.dependencies.iter().any(|dependency| dependency.source > 1));
            let is_predicted = |column: &Column| matches!(column, Column::Predicted(_));
            packs += usize::from(block.columns.iter().any(is_predicted) && !block.columns.iter().all(is_predicted));
            for column in &block.columns {
                match column {
                    Column::Plain(plain_column) => patched += usize::from(!plain_column.stream.patches.is_empty()),
                    Column::Predicted(predicted) => {
                        patched += predicted.streams.iter().filter(|stream| !stream.patches.is_empty()).count();
                        let contexts = !predicted.boundaries.is_empty();
                        empty += usize::from(contexts && predicted.streams.iter().any(|s| s.clusters.is_empty()));
                        let runs = predicted.unchanged.as_ref().map_or(&[][..], |unchanged| &unchanged.runs);
                        unchanged += usize::from(runs.contains(&0) && runs.contains(&1));
                    }
                    _ => (),
                }
            }
        }
    }
    let counts = [own, of_bases, packs, patched, empty, unchanged];
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}
