//! The heads of predicted parts (§3.7): every decoder finds each rule that one breaks, with all checks and digests made
//! to fit.

use lmc::reference::write::File;
use lmc::reference::write::block::{
    Block, BlockFields, Context, ContextClasses, Dependency, Group, Named, Part, Predicted, Section,
};
use lmc_testing::handmade::{encoded, judged, records, unnamed};

/// A part of 2-byte elements that are predicted from F32, with other data of 4 bytes as context, in three classes, the
/// second of which is empty.
fn part() -> (Vec<u8>, Vec<Dependency>, Predicted) {
    let base: Vec<u8> = [0x3f80_0000u32, 0, 0x3f80_0000, 0x7f00_0000].iter().flat_map(|x| x.to_le_bytes()).collect();
    let dependencies = vec![
        Dependency { source: 1, offset: 0, bytes: base[..6].to_vec() },
        Dependency { source: 1, offset: 6, bytes: base[6..].to_vec() },
    ];
    let named = Named::of(0, 2);
    let classes = ContextClasses { shift: 24, boundaries: vec![100, 120] };
    let part = Predicted {
        raw: (1..9).collect(),
        width_code: 1,
        predictor: 2,
        conversion: 1,
        prediction: named,
        context: Context::Other { width_code: 2, named, classes },
        unchanged: None,
        sections: vec![Section::of(0, Group { k: 16, ..Group::default() }); 3],
    };
    (base, dependencies, part)
}

/// The head of [`part`], byte by byte.
const HEAD: [u8; 35] = [
    3, 1, 2, // method, width code, predictor
    1, 0, 2, // conversion, dependencies
    2, 2, 0, 2, // context, its width code, dependencies
    24, 2, 100, 120, // shift, boundaries
    0,   // no unchanged runs
    1, 0, 0, 1, 0, 0, 0, 16, 0, // one element in class 0
    0, // none in class 1
    3, 0, 0, 1, 0, 0, 0, 16, 0, // three in class 2
    0, // not part of it
];

/// What the decoder makes of [`part`] with another head.
fn judged_head(head: &[u8]) -> Result<Vec<u8>, String> {
    let (base, dependencies, part) = part();
    let mut fields = encoded(&Block { dependencies, ..Block::of(Part::Predicted(part), 0) });
    fields.parts[0] = head.to_vec();
    judged(File::delta(&[&base], records(&[fields])), &[&base])
}

/// Its head with the bytes from `at` on replaced.
fn head_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut head = HEAD[..34].to_vec();
    head[at..at + bytes.len()].copy_from_slice(bytes);
    head
}

#[test]
fn heads_of_predicted_parts() {
    assert_eq!(judged_head(&HEAD[..34]), Ok((1..9).collect()));
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
    refused_with(3, &[0], "not as many elements");
    for (width_code, conversion) in [(0, 1), (2, 1), (3, 1), (0, 2), (3, 2), (0, 3), (2, 3), (3, 3)] {
        refused_with(1, &[width_code, 2, conversion], "does not give elements of its width");
    }
    // Dependencies of the prediction, and of the context.
    for at in [4, 8] {
        refused_with(at, &[0, 0], "names no dependency");
        refused_with(at, &[0, 3], "does not exist");
        refused_with(at, &[1, 2], "does not exist");
        refused_with(at, &[2, 1], "does not exist");
        refused_with(at, &[0, 1], "not as many elements");
        refused_with(at, &[1, 1], "not as many elements");
        let mut head = HEAD[..34].to_vec();
        head.splice(at..at + 1, [[0xff; 9].as_slice(), &[1]].concat());
        refused_head(&head, "does not exist");
        let mut head = HEAD[..34].to_vec();
        head.splice(at + 1..at + 2, [[0xff; 9].as_slice(), &[1]].concat());
        refused_head(&head, "does not exist");
    }
    refused_with(6, &[3], "unknown context");
    refused_with(7, &[4], "width code exceeds 3");
    refused_with(7, &[1], "not as many elements");
    refused_with(7, &[3], "not as many elements");
    // Keys, boundaries and classes.
    refused_with(10, &[25, 2, 50, 60], "shift of a context");
    // With 0 as the first boundary the first class is empty.
    refused_head(&[&HEAD[..12], &[0, 100, 0, 0], &HEAD[15..24], &HEAD[25..34]].concat(), "first boundary is 0");
    refused_with(12, &[120, 100], "not larger");
    refused_with(12, &[100, 100], "not larger");
    refused_with(12, &[127, 128], "another number of elements");
    refused_with(12, &[1, 255], "another number of elements");
    // One class more with an element, one less: they still add up.
    refused_head(&[&HEAD[..15], &[2], &HEAD[16..25], &[2], &HEAD[26..34]].concat(), "another number of elements");
    refused_head(&[&HEAD[..15], &[0, 1], &HEAD[16..24], &HEAD[25..34]].concat(), "another number of elements");
    refused_head(&[&HEAD[..25], &[2], &HEAD[26..34]].concat(), "do not add up");
    refused_head(&[&HEAD[..25], &[4], &HEAD[26..34]].concat(), "do not add up");
    refused_head(&[&HEAD[..25], &[0xff; 9], &[1], &HEAD[26..34]].concat(), "do not add up");
    // They add up modulo 2^64.
    let wrapped = [&HEAD[..15], &[0xff; 9], &[1], &HEAD[16..24], &[0], &[5], &HEAD[26..34]].concat();
    refused_head(&wrapped, "do not add up");
    // What their sections say.
    refused_with(16, &[3], "unknown map");
    refused_with(17, &[3], "patches of an unknown kind");
    refused_with(18, &[65], "number of groups");
    refused_with(22, &[17], "more bits");
    refused_with(22, &[8], "no coder");
    // A boundary less: one class less, whose section is left over. A boundary more: the data end.
    let mut head = HEAD[..34].to_vec();
    head[11] = 1;
    head.remove(12);
    refused_head(&head, "");
    refused_head(&HEAD, "follows the digest");
    for end in 0..34 {
        // What is missing is taken from the digest, and so the head ends too early, or nothing fits.
        assert!(judged_head(&HEAD[..end]).is_err());
    }
}

#[test]
fn numbers_of_boundaries() {
    // Bytes without predictor, whose context is another byte: 0, so that all are in class 0.
    let head = |shift: u8, boundaries: &[u8]| {
        let mut head = vec![3, 0, 0, 2, 0, 0, 1, shift, boundaries.len() as u8];
        head.extend(boundaries);
        head.extend([0, 3, 0, 0, 1, 0, 0, 0, 8, 0]);
        head.extend(vec![0; boundaries.len()]);
        head
    };
    let judged_head = |head: Vec<u8>| {
        let base = vec![0; 3];
        let mut fields = unnamed(&[[1, 0, 3]]);
        fields.parts[0] = head;
        judged(File::delta(&[&base], records(&[fields])), &[&base])
    };
    let up_to = |count: u8| (1..=count).collect::<Vec<u8>>();
    for count in [1, 2, 63] {
        assert_eq!(judged_head(head(0, &up_to(count))), Ok(b"xyz".to_vec()));
    }
    for count in [0, 64, 255] {
        let why = judged_head(head(0, &up_to(count))).expect_err("that many boundaries are not valid");
        assert!(why.contains("number of boundaries"), "{why}");
    }
    for shift in [1, 8, 64, 255] {
        let why = judged_head(head(shift, &[1])).expect_err("bytes are not shifted");
        assert!(why.contains("shift of a context"), "{why}");
    }
    // The prediction as context needs one.
    let why = judged_head(vec![3, 0, 0, 1, 0, 1, 1, 0, 3, 0, 0, 1, 0, 0, 0, 8, 0, 0]).expect_err("there is none");
    assert!(why.contains("without a predictor"), "{why}");
}

#[test]
fn lengths_of_predicted_parts() {
    // Elements of two bytes in a part of an odd length.
    let (base, dependencies, mut part) = part();
    part.context = Context::None;
    let mut block = Block { dependencies, ..Block::of(Part::Predicted(part), 0) };
    block.parts.push(Part::Stored(b"more".to_vec()));
    block.pieces = vec![(0, 3), (1, 4), (0, 5)];
    let valid = encoded(&block);
    let judged_pieces = |pieces: Vec<(u8, u64)>| {
        let fields = BlockFields { pieces, ..valid.clone() };
        judged(File::delta(&[&base], records(&[fields])), &[&base])
    };
    assert_eq!(judged_pieces(block.pieces.clone()), Ok(b"\x01\x02\x03more\x04\x05\x06\x07\x08".to_vec()));
    let why = judged_pieces(vec![(0, 3), (1, 5), (0, 4)]).expect_err("seven bytes");
    assert!(why.contains("no multiple of its width"), "{why}");
    let why = judged_pieces(vec![(0, 3), (1, 6), (0, 3)]).expect_err("three elements");
    assert!(why.contains("not as many elements"), "{why}");
}
