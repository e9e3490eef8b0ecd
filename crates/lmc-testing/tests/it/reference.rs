//! The reference decoder and the writer of test files agree with each other, so that either may judge the codec.

use lmc_testing::input::{Input, Random};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Column, Mask, Operand};
use lmc_testing::reference::{decode, decode_with_bases};
use lmc_testing::{blocks, deltas};

#[test]
fn every_shape_of_block_is_read_back() {
    let mut random = Random::new(1);
    // Counts of the relevant cases.
    let (mut palettes, mut planes, mut grids) = (0, 0, 0);
    for case in 0..3000 {
        let choices = random.bytes(400);
        let mut input = Input::new(&choices);
        let mut blocks: Vec<_> = (0..1 + usize::from(case % 16 == 0)).map(|_| blocks::block(&mut input)).collect();
        let raw = blocks::fill(&mut blocks);
        let records = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        let decoded = decode(&File::new(records).to_bytes(), raw.len());
        assert!(decoded.as_ref() == Ok(&raw), "case {case}: {:?}", decoded.map(|_| "other bytes"));
        for column in blocks.iter().flat_map(|block| &block.columns) {
            palettes += usize::from(matches!(column, Column::Plain(column) if column.stream.map == 3));
            planes += usize::from(matches!(column, Column::Zstd(column) if column.width_code > 0));
            grids += usize::from(column.has_grid());
        }
    }
    let counts = [palettes, planes, grids];
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}

#[test]
fn every_shape_of_delta_is_read_back() {
    let mut random = Random::new(2);
    // Counts of the relevant cases.
    let (mut own, mut of_bases, mut packs, mut patched, mut empty, mut masked) = (0, 0, 0, 0, 0, 0);
    let (mut grids, mut derived) = (0, 0);
    for case in 0..3000 {
        let choices = random.bytes(600);
        let delta = deltas::delta(&mut Input::new(&choices));
        let (file, raw) = (delta.file(), delta.raw());
        let decoded = decode_with_bases(&file.to_bytes(), &delta.bases(), raw.len());
        assert!(decoded.as_ref() == Ok(&raw), "case {case}: {:?}", decoded.map(|_| "other bytes"));

        for block in &delta.blocks {
            let names =
                |of: fn(u64) -> bool| block.columns.iter().flat_map(Column::ranges).any(|range| of(range.source));
            own += usize::from(names(|source| source == 0));
            of_bases += usize::from(names(|source| source > 1));
            let is_predicted = |column: &Column| matches!(column, Column::Predicted(_));
            packs += usize::from(block.columns.iter().any(is_predicted) && !block.columns.iter().all(is_predicted));
            for column in &block.columns {
                grids += usize::from(column.has_grid());
                match column {
                    Column::Plain(plain_column) => patched += usize::from(!plain_column.stream.patches.is_empty()),
                    Column::Predicted(predicted) => {
                        derived += usize::from(matches!(predicted.operand, Operand::Derived(_)));
                        patched += predicted.streams.iter().filter(|stream| !stream.patches.is_empty()).count();
                        let contexts = !predicted.boundaries.is_empty();
                        empty += usize::from(contexts && predicted.streams.iter().any(|s| s.clusters.is_empty()));
                        masked += predicted.streams.iter().filter(|stream| stream.mask != Mask::None).count();
                    }
                    Column::Zstd(_) | Column::Stored(_) => (),
                }
            }
        }
    }
    let counts = [own, of_bases, packs, patched, empty, masked, grids, derived];
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}
