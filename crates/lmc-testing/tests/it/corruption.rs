//! Every bit of a file matters: flipped as it is, it is noticed; with the checks recomputed so that the decoders are
//! really reached, all of them do what the reference does.

use lmc::{DecompressOptions, Reader};
use lmc_inspect::describe_block;
use lmc_testing::decoders::{LIMIT, Way, agree, agree_by};
use lmc_testing::reference::write::{File, seal};
use lmc_testing::{exhaustive, flipped_bits, samples};
use std::collections::BTreeSet;
use std::ops::Range;

#[test]
fn every_flipped_bit_is_noticed() {
    for (name, mut file, raw) in samples::all() {
        let frames = zstd_frames(&file);
        for bit in flipped_bits(file.len()) {
            file[bit / 8] ^= 1 << (bit % 8);
            if let Ok(decoded) = agree(&file) {
                // Some bits mean nothing: of a zstd frame, such as one of its header and the rest of its last byte; the low
                // ones of a scale or an offset, as results are rounded; a term of a row whose contexts stay the same; and a
                // file may say that it may have ranges or grids when it has none.
                let means_nothing = FEATURES.contains(&bit)
                    || name == "grid" && of_groups(&file, 16).contains(&(bit / 8))
                    || name == "grid with offsets" && of_groups(&file, 32).contains(&(bit / 8))
                    || name.contains("row-terms") && of_groups(&file, file.len()).contains(&(bit / 8))
                    || frames.iter().any(|frame| frame.contains(&(bit / 8)));
                assert!(means_nothing, "{name}: bit {bit}");
                assert!(decoded == raw, "{name}: bit {bit}");
            }
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Bits of the header for ranges, for grids, for steps of optimizers, and for derived tensors.
const FEATURES: [usize; 4] = [8 * 12, 8 * 12 + 2, 8 * 12 + 3, 8 * 12 + 4];

/// The bytes of the scales, and of the offsets if there are any, in a file with a block that begins with those of a
/// grid, as [`one_grid`](lmc_testing::one_grid) makes it.
fn of_groups(file: &[u8], length: usize) -> Range<usize> {
    let head = u32::from_le_bytes(file[20..24].try_into().expect("the head's length"));
    let body = 40 + head as usize;
    body..body + length
}

/// Places of zstd frames in a file.
fn zstd_frames(file: &[u8]) -> Vec<Range<usize>> {
    let frame = |at: usize| {
        let rest = &file[at..];
        let length = zstd::zstd_safe::find_frame_compressed_size(rest).ok()?;
        rest.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]).then_some(at..at + length)
    };
    (0..file.len()).filter_map(frame).collect()
}

#[test]
fn every_flipped_bit_of_a_block_is_judged_as_by_the_reference() {
    for (name, file, raw) in samples::all().into_iter().filter(|(_, _, raw)| !raw.is_empty()) {
        let file = File::parse(&file).expect("samples are valid");
        let (mut restored_otherwise, mut refused) = (0, 0);
        for (at, record) in file.records.iter().enumerate() {
            let head_bits = 8 * record.head.len();
            // Of a body one bit of each byte.
            let is_tried = |&bit: &usize| bit < head_bits || exhaustive() || bit % 8 == (at + bit / 8 + bit / 64) % 8;
            for bit in (0..8 * (record.head.len() + record.body.len())).filter(is_tried) {
                let mut records = file.records.clone();
                let damaged = &mut records[at];
                let head_length = damaged.head.len();
                match bit / 8 {
                    byte if byte < head_length => damaged.head[byte] ^= 1 << (bit % 8),
                    byte => damaged.body[byte - head_length] ^= 1 << (bit % 8),
                }
                damaged.redigest(LIMIT);
                match agree(&File::new(records).to_bytes()) {
                    Ok(decoded) => restored_otherwise += usize::from(decoded != raw),
                    Err(_) => refused += 1,
                }
            }
        }
        // Neither outcome is rare, or the decoders were not reached.
        assert!(restored_otherwise > 10 && refused > 10, "{name}: {restored_otherwise} decoded, {refused} refused");
    }
}

#[test]
fn every_flipped_bit_of_the_rest_is_judged_as_by_the_reference() {
    for (name, file, raw) in samples::all() {
        let parsed = File::parse(&file).expect("samples are valid");
        let blocks_end = 16 + parsed.records.iter().map(|record| record.size() as usize).sum::<usize>();
        for bit in (0..8 * 16).chain(8 * blocks_end..8 * file.len()) {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            seal(&mut damaged, false, LIMIT);
            // The reader does not see whether the content hash is right.
            let judged = agree_by(&[Way::Slice, Way::Stream, Way::Positional], &damaged);
            if let Ok(decoded) = judged {
                assert!(decoded == raw, "{name}: bit {bit}");
            }
        }
    }
}

/// Else no damage would reach some of them.
#[test]
fn samples_have_every_coder() {
    let mut coders = BTreeSet::new();
    for (_, file, raw) in samples::all() {
        let reader = Reader::open(&file[..], &DecompressOptions::default()).expect("samples are valid");
        if !raw.is_empty() {
            let block = describe_block(&reader, 0).expect("samples are valid");
            coders.extend(block.columns.iter().flat_map(|column| &column.clusters).map(|cluster| cluster.coder));
        }
    }
    assert_eq!(coders, BTreeSet::from(["fine-rans", "huffman", "none", "rans"]));
}
