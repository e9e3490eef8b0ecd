//! Small deltas that are damaged, cut short, or name ranges of data that cannot exist yet: every decoder refuses them,
//! or does what the reference does.

use crate::support::delta_of;
use lmc::{Base, CompressOptions, Dtype, ErrorKind, Reader};
use lmc_testing::decoders::{LIMIT, Way, agree_by_with_bases, agree_with_bases, isas, options};
use lmc_testing::handmade::{BASES, LEAF, copy, delta, delta_raw, records, refused, stored};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::BlockFields;
use lmc_testing::samples::weights;
use lmc_testing::{cases, flipped_bits};

/// The ways that see the whole file.
const WHOLE: [Way; 4] = [Way::Slice, Way::Stream, Way::Positional, Way::WriteOnly];

/// A file, its bases, and its raw bytes.
type Delta = (Vec<u8>, Vec<Vec<u8>>, Vec<u8>);

/// As the encoder writes it: some weights have moved, a few of them far. And one put together by hand: with ranges of the file itself.
fn deltas() -> [Delta; 2] {
    let old = weights(Dtype::Bf16, 300);
    let mut new = old.clone();
    for (i, w) in new.chunks_exact_mut(2).enumerate() {
        w[0] = w[0].wrapping_add([0, 1, 0, 255][i % 4]);
        w[1] ^= u8::from(i % 97 == 5) << 6;
    }
    let o = CompressOptions::default().with_dtype(Dtype::Bf16).with_threads(1);
    let base = Base::new(&old[..]).expect("memory can be read").with_name("old");
    let file = delta_of(&new, &[base], &o).expect("anything can be compressed");
    let by_hand = delta();
    [(file, vec![old], new), (by_hand.to_bytes(), BASES.map(<[u8]>::to_vec).to_vec(), delta_raw())]
}

fn slices(bases: &[Vec<u8>]) -> Vec<&[u8]> {
    bases.iter().map(|b| &b[..]).collect()
}

#[test]
fn every_truncation_is_refused() {
    for (file, bases, raw) in deltas() {
        let bases = slices(&bases);
        assert_eq!(agree_with_bases(&file, &bases), Ok(raw));
        for end in 0..file.len() {
            agree_with_bases(&file[..end], &bases).expect_err("it is cut short");
        }
    }
}

#[test]
fn every_flipped_bit_is_judged_as_by_the_reference() {
    for (file, bases, raw) in deltas() {
        let bases = slices(&bases);
        let mut refused = 0;
        for bit in flipped_bits(file.len()) {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A zstd frame has bits that mean nothing.
            match agree_by_with_bases(&WHOLE, &bad, &bases) {
                Ok(same) => assert!(same == raw, "bit {bit}"),
                Err(_) => refused += 1,
            }
            // A reader does not see all of the file.
            let given: Vec<Base<'_>> = bases.iter().map(|b| Base::new(*b).expect("memory can be read")).collect();
            for &isa in isas() {
                if let Ok(read) = Way::Reader.decode_delta(&bad, &given, isa) {
                    assert!(read == raw, "bit {bit}");
                }
            }
        }
        let all = flipped_bits(file.len()).count();
        assert!(refused + 64 > all, "{refused} of {all}");
    }
}

#[test]
fn every_flipped_bit_behind_the_checks_is_judged_as_by_the_reference() {
    for (file, bases, _) in deltas() {
        let bases = slices(&bases);
        let valid = File::parse(&file).expect("it is valid");
        let (mut accepted, mut refused) = (0, 0);
        for record in 0..valid.records.len() {
            let (head, body) = (valid.records[record].head.len(), valid.records[record].body.len());
            for bit in flipped_bits(head + body) {
                let mut bad = valid.clone();
                let r = &mut bad.records[record];
                let byte = if bit < 8 * head { &mut r.head[bit / 8] } else { &mut r.body[bit / 8 - head] };
                *byte ^= 1 << (bit % 8);
                bad.redigest(&bases, LIMIT);
                match agree_with_bases(&bad.to_bytes(), &bases) {
                    Ok(_) => accepted += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        // No bit of the handmade files is meaningless: an accepted file names other bytes of its bases.
        assert!(refused > cases(100) && accepted + refused > cases(500), "{accepted} accepted, {refused} refused");
    }
}

/// Blocks with five nonzero bytes; at least one depends on itself, on a later one, on each other, or on bytes that do not exist.
fn impossible() -> Vec<Vec<BlockFields>> {
    let at = |offset| copy(&[(0, offset, b"aaaaa")]);
    let first = || stored(b"first");
    vec![
        // On itself, whole and in column.
        vec![at(0)],
        vec![first(), at(LEAF)],
        vec![first(), at(LEAF - 4)],
        vec![first(), copy(&[(0, 0, b"aaa"), (0, LEAF + 4, b"aa")])],
        // On later ones.
        vec![at(LEAF), first()],
        vec![first(), at(2 * LEAF), first()],
        // On each other.
        vec![at(LEAF), at(0)],
        vec![first(), at(3 * LEAF), at(LEAF), at(2 * LEAF)],
        // After the end of the file, and above all 64-bit numbers.
        vec![first(), at(LEAF + 6)],
        vec![first(), at(1 << 40)],
        vec![first(), at(1 << 63)],
        vec![first(), at(u64::MAX - 4)],
        vec![first(), at(u64::MAX)],
        // Beyond the base, and on bases that are not there.
        vec![first(), copy(&[(1, 6, b"aaaaa")])],
        vec![first(), copy(&[(1, u64::MAX, b"aaaaa")])],
        vec![first(), copy(&[(2, 0, b"aaaaa")])],
        vec![first(), copy(&[(1 << 16, 0, b"aaaaa")])],
    ]
}

#[test]
fn what_blocks_depend_on_must_be_there_before_them() {
    for blocks in impossible() {
        let old = vec![b'a'; 5 * blocks.len()];
        let file = File::delta(&[&old], records(&blocks));
        refused(file.clone(), &[&old], "a range");
        let bytes = file.to_bytes();
        for threads in [1, 3] {
            let o = options(isas()[0]).with_threads(threads);
            // The blocks that are as they must be can be read, the others cannot.
            let base = Base::new(&old[..]).expect("memory can be read");
            let reader = Reader::open(&bytes[..], &o).and_then(|r| r.with_bases(vec![base])).expect("it can be opened");
            let mut broken = 0;
            for i in 0..blocks.len() as u64 {
                match reader.read_range(LEAF * i, &mut [0; 5]) {
                    Ok(()) => (),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
                        broken += 1;
                    }
                }
            }
            assert!(broken > 0);
        }
    }
}
