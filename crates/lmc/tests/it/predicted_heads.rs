//! The heads of predicted columns (§3.7): every decoder finds each rule that one breaks, with all checks and digests made
//! to fit.

use lmc_testing::handmade::{encoded, judged, records, unnamed};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, BlockFields, Cluster, Column, Dependency, Named, Predicted, Stream};

/// A column of 2-byte elements predicted from F32, in three contexts; the second one is empty.
fn column() -> (Vec<u8>, Vec<Dependency>, Predicted) {
    let base: Vec<u8> = [0x3f80_0000u32, 0, 0x3f80_0000, 0x7f00_0000].iter().flat_map(|x| x.to_le_bytes()).collect();
    let dependencies = vec![
        Dependency { source: 1, offset: 0, bytes: base[..6].to_vec() },
        Dependency { source: 1, offset: 6, bytes: base[6..].to_vec() },
    ];
    let column = Predicted {
        raw: (1..9).collect(),
        width_code: 1,
        predictor: 1,
        conversion: 1,
        prediction: Named::of(0, 2),
        boundaries: vec![100, 120],
        unchanged: None,
        streams: vec![Stream::of(0, Cluster { k: 16, ..Cluster::default() }); 3],
    };
    (base, dependencies, column)
}

/// The head of [`column`], byte by byte.
const HEAD: [u8; 30] = [
    3, 1, 1, // method, width code, predictor
    1, 0, 2, // conversion, dependencies
    2, 100, 120, // boundaries
    0,   // no unchanged runs
    1, 0, 0, 1, 0, 0, 0, 16, 0, // one element in context 0
    0, // none in context 1
    3, 0, 0, 1, 0, 0, 0, 16, 0, // three in context 2
    0, // not part of it
];

/// What the decoder makes of [`column`] with another head.
fn judged_head(head: &[u8]) -> Result<Vec<u8>, String> {
    let (base, dependencies, column) = column();
    let mut fields = encoded(&Block { dependencies, ..Block::of(Column::Predicted(column), 0) });
    fields.columns[0] = head.to_vec();
    judged(File::delta(&[&base], records(&[fields])), &[&base])
}

/// Its head with the bytes from `at` on replaced.
fn head_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut head = HEAD[..29].to_vec();
    head[at..at + bytes.len()].copy_from_slice(bytes);
    head
}

#[test]
fn heads_of_predicted_columns() {
    assert_eq!(judged_head(&HEAD[..29]), Ok((1..9).collect()));
    #[track_caller]
    fn refused_with(at: usize, bytes: &[u8], reason: &str) {
        refused_head(&head_with(at, bytes), reason);
    }
    #[track_caller]
    fn refused_head(head: &[u8], reason: &str) {
        match judged_head(head) {
            Ok(_) => panic!("a head is accepted that breaks a rule: {reason}"),
            Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
        }
    }

    refused_with(0, &[5], "unknown method");
    refused_with(1, &[4], "width code exceeds 3");
    refused_with(2, &[4], "unknown predictor");
    refused_with(3, &[4], "unknown conversion");
    // Elements of two bytes come from F32 by conversions 1 and 3 alone.
    refused_with(3, &[2], "does not give elements of its width");
    assert!(judged_head(&head_with(3, &[3])).is_ok());
    refused_with(3, &[0], "do not have its number of elements");
    for (width_code, conversion) in [(0, 1), (2, 1), (3, 1), (0, 2), (3, 2), (0, 3), (2, 3), (3, 3)] {
        refused_with(1, &[width_code, 2, conversion], "does not give elements of its width");
    }
    // Dependencies.
    refused_with(4, &[0, 0], "names no dependency");
    refused_with(4, &[0, 3], "does not exist");
    refused_with(4, &[1, 2], "does not exist");
    refused_with(4, &[2, 1], "does not exist");
    refused_with(4, &[0, 1], "do not have its number of elements");
    refused_with(4, &[1, 1], "do not have its number of elements");
    let mut head = HEAD[..29].to_vec();
    head.splice(4..5, [[0xff; 9].as_slice(), &[1]].concat());
    refused_head(&head, "does not exist");
    let mut head = HEAD[..29].to_vec();
    head.splice(5..6, [[0xff; 9].as_slice(), &[1]].concat());
    refused_head(&head, "does not exist");
    // Boundaries and contexts. With 0 as the first boundary the first context is empty.
    refused_head(&[&HEAD[..7], &[0, 100, 0, 0], &HEAD[10..19], &HEAD[20..29]].concat(), "first boundary is 0");
    refused_with(7, &[120, 100], "not larger");
    refused_with(7, &[100, 100], "not larger");
    refused_with(7, &[127, 128], "another number of elements");
    refused_with(7, &[1, 255], "another number of elements");
    // One context more with an element, one less: they still add up.
    refused_head(&[&HEAD[..10], &[2], &HEAD[11..20], &[2], &HEAD[21..29]].concat(), "another number of elements");
    refused_head(&[&HEAD[..10], &[0, 1], &HEAD[11..19], &HEAD[20..29]].concat(), "another number of elements");
    refused_head(&[&HEAD[..20], &[2], &HEAD[21..29]].concat(), "do not add up");
    refused_head(&[&HEAD[..20], &[4], &HEAD[21..29]].concat(), "do not add up");
    refused_head(&[&HEAD[..20], &[0xff; 9], &[1], &HEAD[21..29]].concat(), "do not add up");
    // They add up modulo 2^64.
    let wrapped = [&HEAD[..10], &[0xff; 9], &[1], &HEAD[11..19], &[0], &[5], &HEAD[21..29]].concat();
    refused_head(&wrapped, "do not add up");
    // What their streams say.
    refused_with(11, &[3], "unknown map");
    refused_with(12, &[3], "patches of an unknown kind");
    refused_with(13, &[65], "number of clusters");
    refused_with(17, &[17], "more bits");
    refused_with(17, &[8], "no coder");
    // A boundary less: one context less, whose stream is left over. A boundary more: the data end.
    let mut head = HEAD[..29].to_vec();
    head[6] = 1;
    head.remove(7);
    refused_head(&head, "");
    refused_head(&HEAD, "follows the digest");
    for end in 0..29 {
        // What is missing is taken from the digest, and so the head ends too early, or nothing fits.
        assert!(judged_head(&HEAD[..end]).is_err());
    }
}

#[test]
fn numbers_of_boundaries() {
    // Differences to 0, so that all are in context 0.
    let judged_boundaries = |boundaries: &[u8]| {
        let base = vec![0; 3];
        let mut fields = unnamed(&[[1, 0, 3]]);
        let contexts = vec![0; boundaries.len()];
        let head =
            [&[3, 0, 2, 0, 0, 1, boundaries.len() as u8], boundaries, &[0, 3, 0, 0, 1, 0, 0, 0, 8, 0], &contexts];
        fields.columns[0] = head.concat();
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
    let (base, dependencies, mut column) = column();
    column.boundaries.clear();
    let mut block = Block { dependencies, ..Block::of(Column::Predicted(column), 0) };
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
    assert!(why.contains("do not have its number of elements"), "{why}");
}
