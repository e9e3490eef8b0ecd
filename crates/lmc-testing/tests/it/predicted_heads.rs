//! The heads of predicted columns (§3.7): every decoder finds each rule that one breaks, with all checks and digests made
//! to fit.

use lmc_testing::handmade::{encoded, judged, naming, records};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, BlockFields, Column};
use lmc_testing::three_contexts::{OPERANDS, REST, START, column, with_head};

/// The decoder's result for [`column`] with another head.
fn judged_head(head: &[u8]) -> Result<Vec<u8>, String> {
    let (base, fields) = with_head(head);
    judged(File::delta(&[&base], records(&[fields])), &[&base])
}

#[track_caller]
fn refused_head(head: &[&[u8]], reason: &str) {
    match judged_head(&head.concat()) {
        Ok(_) => panic!("a head is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}

#[test]
fn starts_of_predicted_columns() {
    let refused_start = |start: [u8; 3], reason: &str| refused_head(&[&start, &OPERANDS, &REST], reason);
    assert_eq!(judged_head(&[&START[..], &OPERANDS, &REST].concat()), Ok((1..9).collect()));
    refused_start([5, 1, 1], "unknown method");
    refused_start([3, 4, 1], "width code exceeds 3");
    for predictor in [0, 3, 255] {
        refused_start([3, 1, predictor], "unknown predictor");
    }
}

#[test]
fn operands() {
    let refused_operands = |operands: &[u8], reason: &str| refused_head(&[&START, operands, &REST], reason);
    // The predictors have exactly one operand, even where others, which are valid as well, follow.
    let operand = &OPERANDS[1..];
    for count in [0, 2, 4, 5, 255] {
        let operands = [&[count][..], &operand.repeat(usize::from(count.min(5)))].concat();
        refused_operands(&operands, "number of operands");
    }
    let with_conversion = |conversion: u8| [&[1, conversion], &OPERANDS[2..]].concat();
    for conversion in [5, 255] {
        refused_operands(&with_conversion(conversion), "unknown conversion");
    }
    // Elements of two bytes come from F32 by conversions 1 and 3 alone.
    refused_operands(&with_conversion(2), "does not give elements of its column's width");
    assert!(judged_head(&[&START[..], &with_conversion(3), &REST].concat()).is_ok());
    refused_operands(&with_conversion(0), "do not have its column's number of elements");
    for (width_code, conversion) in [(0, 1), (2, 1), (3, 1), (0, 2), (3, 2), (0, 3), (2, 3), (3, 3)] {
        let head: [&[u8]; 3] = [&[3, width_code, 2], &with_conversion(conversion), &REST];
        refused_head(&head, "does not give elements of its column's width");
    }
    refused_operands(&[1, 1, 0], "no ranges");
    for ranges in [&[1, 1, 0, 6][..], &[1, 1, 0, 15], &[2, 1, 0, 6, 1, 0, 11], &[3, 1, 0, 6, 1, 6, 10, 1, 0, 1]] {
        refused_operands(&[&[1, 1][..], ranges].concat(), "do not have its column's number of elements");
    }
    refused_operands(&[1, 1, 2, 1, 0, 6, 1, 6, 11], "not within its source");
    refused_operands(&[1, 1, 2, 1, 0, 16, 1, 6, 0], "a range is empty");
    refused_operands(&[1, 1, 2, 2, 0, 6, 1, 6, 10], "not named");
    // A range more than there are, or many more.
    for count in [&[3][..], &[0xff, 0xff, 0xff, 0xff, 15], &[&[0xff; 9][..], &[1]].concat()] {
        refused_operands(&[&[1, 1], count, &OPERANDS[3..]].concat(), "");
    }
}

#[test]
fn boundaries_and_contexts() {
    let refused_rest = |rest: &[&[u8]], reason: &str| refused_head(&[&START, &OPERANDS, &rest.concat()], reason);
    let with = |at: usize, bytes: &[u8]| [&REST[..at], bytes, &REST[at + bytes.len()..]].concat();
    // With 0 as the first boundary the first context is empty.
    refused_rest(&[&[3, 0, 100, 120], &[0], &REST[3..]], "first boundary is 0");
    refused_rest(&[&with(1, &[120, 100])], "not larger");
    refused_rest(&[&with(1, &[100, 100])], "not larger");
    refused_rest(&[&with(1, &[127, 128])], "another number of elements");
    refused_rest(&[&with(1, &[1, 255])], "another number of elements");
    // One context more with an element, one less: they still add up.
    refused_rest(&[&REST[..3], &[2], &REST[4..14], &[2], &REST[15..]], "another number of elements");
    refused_rest(&[&REST[..3], &[0, 1], &REST[4..13], &REST[14..]], "another number of elements");
    refused_rest(&[&with(14, &[2])], "do not add up");
    refused_rest(&[&with(14, &[4])], "do not add up");
    refused_rest(&[&REST[..14], &[0xff; 9], &[1], &REST[15..]], "do not add up");
    // They add up modulo 2^64.
    refused_rest(&[&REST[..3], &[0xff; 9], &[1], &REST[4..13], &[0, 5], &REST[15..]], "do not add up");
    // The contents of their streams.
    refused_rest(&[&with(4, &[4])], "unknown map");
    refused_rest(&[&with(5, &[4])], "unknown mask");
    refused_rest(&[&with(6, &[65])], "number of clusters");
    refused_rest(&[&with(7, &[3])], "patches of an unknown kind");
    refused_rest(&[&with(11, &[17])], "more bits");
    refused_rest(&[&with(11, &[8])], "no coder");
    // A boundary less: one context less, whose stream is left over. A boundary more: the data end.
    refused_rest(&[&[1, 120], &REST[3..]], "");
    refused_rest(&[&REST, &[0]], "follows the digest");
    let head = [&START[..], &OPERANDS, &REST].concat();
    for end in 0..head.len() {
        // The missing byte is taken from the digest, so the head ends too early, or nothing fits.
        assert!(judged_head(&head[..end]).is_err());
    }
}

#[test]
fn numbers_of_boundaries() {
    // Differences to 0, so that all are in context 0.
    let judged_boundaries = |boundaries: &[u8]| {
        let base = vec![0; 3];
        let mut fields = naming(&[[1, 0, 3]]);
        let contexts = vec![0; boundaries.len()];
        let head = [
            &[3, 0, 2, 1, 0, 1, 1, 0, 3, boundaries.len() as u8],
            boundaries,
            &[3, 0, 0, 1, 0, 0, 0, 0, 8, 0],
            &contexts,
        ];
        fields.columns[0] = head.concat();
        fields.bulk[0] = b"xyz".to_vec();
        judged(File::delta(&[&base], records(&[fields])), &[&base])
    };
    let up_to = |count: u8| (1..=count).collect::<Vec<u8>>();
    for count in [0, 1, 2, 15] {
        assert_eq!(judged_boundaries(&up_to(count)), Ok(vec![60, 195, 61]));
    }
    for count in [16, 255] {
        let why = judged_boundaries(&up_to(count)).expect_err("that many boundaries are not valid");
        assert!(why.contains("too many boundaries"), "{why}");
    }
}

#[test]
fn lengths_of_predicted_columns() {
    // Elements of two bytes in a column of an odd length.
    let (base, mut column) = column();
    column.boundaries.clear();
    let mut block = Block::of(Column::Predicted(column), 0);
    block.columns.push(Column::Stored(b"more".to_vec()));
    block.extents = vec![(0, 3), (1, 4), (0, 5)];
    let valid = encoded(&block);
    let judged_extents = |extents: Vec<(u8, u64)>| {
        let fields = BlockFields { extents, ..valid.clone() };
        judged(File::delta(&[&base], records(&[fields])), &[&base])
    };
    assert_eq!(judged_extents(block.extents.clone()), Ok(b"\x01\x02\x03more\x04\x05\x06\x07\x08".to_vec()));
    let why = judged_extents(vec![(0, 3), (1, 5), (0, 4)]).expect_err("seven bytes");
    assert!(why.contains("no multiple of its width"), "{why}");
    let why = judged_extents(vec![(0, 3), (1, 6), (0, 3)]).expect_err("three elements");
    assert!(why.contains("do not have its column's number of elements"), "{why}");
}
