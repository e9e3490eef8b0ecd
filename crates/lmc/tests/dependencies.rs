//! Bases (§2.6), dependencies (§3.6) and the heads of predicted parts (§3.7): every decoder finds each rule that a file
//! breaks, with all checks and digests made to fit.

use lmc::reference::write::block::{
    Block, BlockFields, Context, ContextClasses, Dependency, Group, Named, Part, Predicted, Section,
};
use lmc::reference::write::{Bases, File, Record, content_hash, varint};
use lmc::reference::{Base, decode_with_bases};
use lmc::{DecompressOptions, decompress_delta};
use lmc_testing::decoders::{LIMIT, Way, agree_by_with_bases, agree_with_bases};

/// What all decoders make of a file, after its digests were made to fit what it decodes to.
#[track_caller]
fn judged(mut file: File, bases: &[&[u8]]) -> Result<Vec<u8>, String> {
    file.redigest(bases, LIMIT);
    agree_with_bases(&file.to_bytes(), bases)
}

/// The same for a file whose bases take more than the limits of these tests.
#[track_caller]
fn judged_without_limits(file: &File, bases: &[&[u8]]) -> Result<Vec<u8>, String> {
    let named: Vec<Base<'_>> = bases.iter().map(|base| Base::of(base)).collect();
    let expected = decode_with_bases(&file.to_bytes(), &named, LIMIT);
    let base = |raw: &&'_ [u8]| lmc::Base::new(raw.to_vec()).expect("memory can be read");
    let bases: Vec<lmc::Base<'_>> = bases.iter().map(base).collect();
    let decompressed = decompress_delta(&file.to_bytes(), &bases, &DecompressOptions::default());
    assert_eq!(decompressed.ok(), expected.clone().ok());
    expected
}

#[track_caller]
fn refused(file: File, bases: &[&[u8]], reason: &str) {
    match judged(file, bases) {
        Ok(_) => panic!("a file is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}

fn encoded(block: &Block) -> BlockFields {
    block.encode().expect("the block can be coded")
}

/// Bytes that are XORed with those of a block's dependencies, all of which are named.
fn copy(dependencies: &[(u64, u64, &[u8])]) -> BlockFields {
    let dependencies: Vec<Dependency> = dependencies
        .iter()
        .map(|&(source, offset, bytes)| Dependency { source, offset, bytes: bytes.to_vec() })
        .collect();
    let raw: Vec<u8> = dependencies.iter().flat_map(|dependency| dependency.bytes.clone()).collect();
    let part = Predicted {
        raw,
        width_code: 0,
        predictor: 1,
        conversion: 0,
        prediction: Named::of(0, dependencies.len() as u64),
        context: Context::None,
        unchanged: None,
        sections: vec![Section::of(0, Group { z: 8, ..Group::default() })],
    };
    encoded(&Block { dependencies, ..Block::of(Part::Predicted(part), 0) })
}

fn stored(bytes: &[u8]) -> BlockFields {
    encoded(&Block::of(Part::Stored(bytes.to_vec()), 0))
}

fn records(blocks: &[BlockFields]) -> Vec<Record> {
    blocks.iter().map(BlockFields::record).collect()
}

/// A block whose dependencies are given as numbers, and of which no part names one.
fn unnamed(dependencies: &[[u64; 3]]) -> BlockFields {
    let mut fields = stored(b"xyz");
    fields.dependency_count = dependencies.len() as u64;
    dependencies.iter().flatten().for_each(|&number| varint(&mut fields.dependencies, number));
    fields
}

/// The ways that see the whole file.
const WHOLE: [Way; 4] = [Way::Slice, Way::Stream, Way::Positional, Way::WriteOnly];

const FIRST: &[u8] = b"the first base";
const SECOND: &[u8] = b"the second one";
const BASES: [&[u8]; 2] = [FIRST, SECOND];

/// Two blocks: the first depends on both bases, the second also on the first block.
fn delta() -> File {
    let first = copy(&[(1, 4, b"first"), (2, 3, b" second one")]);
    let second = copy(&[(0, 0, b"first second"), (1, 0, b"the"), (0, 15, b"e")]);
    File::delta(&BASES, records(&[first, second]))
}

#[test]
fn several_dependencies_on_several_sources() {
    assert_eq!(judged(delta(), &BASES), Ok(b"first second onefirst secondthee".to_vec()));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let valid = delta().to_bytes();
    let bases = BASES.map(Base::of);
    assert!(decode_with_bases(&valid, &bases, LIMIT).is_ok());
    // The index is a zstd frame, some bits of which mean nothing.
    let blocks_end = 16 + delta().records.iter().map(|record| record.size() as usize).sum::<usize>();
    for bit in 0..8 * blocks_end {
        let mut file = valid.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_with_bases(&file, &bases, LIMIT).is_err(), "bit {bit}");
    }
}

#[test]
fn bases() {
    let hash = |bytes| Some(content_hash(bytes));
    let decoded = |bases: &[Base<'_>]| decode_with_bases(&delta().to_bytes(), bases, LIMIT);
    let right = [Base { raw: FIRST, content_hash: hash(FIRST) }, Base { raw: SECOND, content_hash: hash(SECOND) }];
    assert!(decoded(&right).is_ok());
    assert!(
        decoded(&[right[0], Base { content_hash: hash(FIRST), ..right[1] }]).is_err_and(|why| why.contains("hash"))
    );
    assert!(decoded(&right[..1]).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[&right[..], &right].concat()).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[]).is_err_and(|why| why.contains("another number of bases")));
    assert!(decoded(&[right[0], Base::of(b"short")]).is_err_and(|why| why.contains("length")));
    // Another base of the same length shows in the digests.
    assert!(decoded(&[right[0], Base::of(FIRST)]).is_err_and(|why| why.contains("digest")));
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

    // As many bases as there may be, and one more.
    for (count, fits) in [(1 << 16, true), ((1 << 16) + 1, false)] {
        let many = vec![&b"m"[..]; count];
        let file = File::delta(&many, records(&[copy(&[(count as u64, 0, b"m"), (1, 0, b"m")])])).to_bytes();
        let named: Vec<Base<'_>> = many.iter().map(|base| Base::of(base)).collect();
        assert_eq!(decode_with_bases(&file, &named, LIMIT).is_ok(), fits);
        let base = [lmc::Base::new(&b"m"[..]).expect("memory can be read")];
        assert_eq!(decompress_delta(&file, &base, &DecompressOptions::default()).is_ok(), fits);
    }
}

#[test]
fn bases_that_are_alike() {
    // Named twice, and given once or as often as they are named.
    let file = File::delta(&[FIRST, SECOND, FIRST], records(&[copy(&[(1, 0, b"the"), (3, 3, b" first")])]));
    assert_eq!(judged(file.clone(), &[FIRST, SECOND, FIRST]), Ok(b"the first".to_vec()));
    let given = |bases: &[&'static [u8]]| {
        let bases: Vec<_> = bases.iter().map(|raw| lmc::Base::new(*raw).expect("memory can be read")).collect();
        decompress_delta(&file.to_bytes(), &bases, &DecompressOptions::default())
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
    let ancillary = Record { tag: *b"note", head: vec![1], body: vec![2] };
    assert!(judged(changed(&|file| file.records.insert(1, ancillary.clone())), &BASES).is_ok());
    refused(changed(&|file| file.records.insert(0, ancillary.clone())), &BASES, "follow the header directly");
    refused(changed(&|file| file.records.insert(1, bases.clone())), &BASES, "follow the header directly");
    refused(changed(&|file| file.records.push(bases.clone())), &BASES, "follow the header directly");
    refused(changed(&|file| file.records[0].body.push(0)), &BASES, "the bases have a body");
    refused(changed(&|file| drop(file.records.remove(0))), &BASES, "not named");
    refused(changed(&|file| file.features = 0), &BASES, "bases need bit 0");
    refused(changed(&|file| file.features = 2), &BASES, "needs bit 0");
    // Bases that no block depends on.
    let unused = File { features: 1, ..File::delta(&BASES, records(&[stored(b"a")])) };
    assert!(judged(unused.clone(), &BASES).is_ok());
    refused(File { features: 0, ..unused }, &BASES, "bases need bit 0");
    // Features that nothing needs.
    for features in [1, 3] {
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
    // The index does not count them as ancillary.
    refused_index(|file| file.index.offset_gap = file.records[0].size(), "offset gap");
}

#[track_caller]
fn refused_index(change: impl FnOnce(&mut File), reason: &str) {
    let mut file = delta();
    change(&mut file);
    let decoded = agree_with_bases(&file.to_bytes(), &BASES);
    assert!(decoded.is_err_and(|why| why.contains(reason)));
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
        let length = if source == 0 { 10 } else { base };
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
    refused(file(&[[0, 10, 3]]), &BASES, "not within its source");
    refused(file(&[[0, 13, 1]]), &BASES, "not within its source");

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
    // Blocks of one byte. Each depends on the one before it.
    let chain = |length: u64| (0..length).map(|i| copy(&[(0, i, b"a")])).collect::<Vec<_>>();
    let file = |blocks: &[BlockFields]| File::delta(&[], records(&[&[stored(b"a")], blocks].concat()));
    assert_eq!(judged(file(&chain(8)), &[]), Ok(vec![b'a'; 9]));
    refused(file(&chain(9)), &[], "depth of a block exceeds 8");

    // Blocks of one byte, of depths 0 to 8, then one whose ranges touch some of them. The deepest one counts.
    let valid: [&[[u64; 3]]; 3] = [&[[0, 0, 8]], &[[0, 7, 1]], &[[0, 7, 1], [0, 0, 1]]];
    let too_deep: [&[[u64; 3]]; 4] = [&[[0, 8, 1]], &[[0, 0, 9]], &[[0, 7, 2]], &[[0, 0, 1], [0, 8, 1], [0, 1, 1]]];
    for (dependencies, fits) in valid.map(|valid| (valid, true)).into_iter().chain(too_deep.map(|deep| (deep, false))) {
        let bytes = [b'a'; 9];
        let named: Vec<(u64, u64, &[u8])> =
            dependencies.iter().map(|&[source, offset, length]| (source, offset, &bytes[..length as usize])).collect();
        let judged = [
            judged(file(&[chain(8), vec![copy(&named)]].concat()), &[]),
            // A reader of single blocks does not follow what no part names.
            agree_by_with_bases(&WHOLE, &file(&[chain(8), vec![unnamed(dependencies)]].concat()).to_bytes(), &[]),
        ];
        for judged in judged {
            match judged {
                Ok(_) => assert!(fits, "{dependencies:?}"),
                Err(why) => assert!(!fits && why.contains("depth of a block exceeds 8"), "{dependencies:?}: {why}"),
            }
        }
    }
    // Bases do not.
    let mut blocks = chain(8);
    blocks.push(copy(&[(1, 0, b"the")]));
    blocks.push(copy(&[(0, 9, b"the")]));
    let with_bases = |blocks: &[BlockFields]| File::delta(&BASES, records(&[&[stored(b"a")], blocks].concat()));
    assert!(judged(with_bases(&blocks), &BASES).is_ok());
}

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
    3, 0, 0, 1, 0, 0, 0, 16, 0,   // three in class 2
    255, // not part of it
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

    refused_with(0, &[4], "unknown method");
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
    refused_with(17, &[2], "patches of an unknown kind");
    refused_with(18, &[0], "number of groups");
    refused_with(18, &[65], "number of groups");
    refused_with(22, &[17], "more bits");
    refused_with(22, &[8], "no coder");
    // A boundary less: one class less, whose section is left over. A boundary more: the data end.
    let mut head = HEAD[..34].to_vec();
    head[11] = 1;
    head.remove(12);
    refused_head(&head, "");
    refused_head(&HEAD, "follows the digests");
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
