//! Files of very many small tensors: little memory is kept for each.

use crate::{MIB, alone, at_most, peak};
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Reader};

const TENSORS: usize = 40_000;
/// Elements of a tensor, of two bytes.
const ELEMENTS: usize = 40;
/// Bytes that may be kept for each tensor, and taken by blocks, however many tensors there are.
const FOR_EACH: usize = 1024;
const BLOCKS: usize = 16 * MIB;

/// A safetensors file in which some elements of each tensor are `step` off.
fn checkpoint(step: u16) -> Vec<u8> {
    let mut header = String::from("{");
    let mut data = Vec::new();
    for i in 0..TENSORS {
        let (begin, end) = (data.len(), data.len() + 2 * ELEMENTS);
        let comma = if i == 0 { "" } else { "," };
        header += &format!(
            r#"{comma}"layers.{}.experts.{}.weight":{{"dtype":"BF16","shape":[{ELEMENTS}],"data_offsets":[{begin},{end}]}}"#,
            i / 8,
            i % 8
        );
        let element = |e: usize| 0x3c00 + (i * 31 + e * 57) as u16 % 512 + if e.is_multiple_of(5) { step } else { 0 };
        data.extend((0..ELEMENTS).flat_map(|e| element(e).to_le_bytes()));
    }
    header.push('}');
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

#[test]
fn of_each_tensor_little_is_kept() {
    let _alone = alone();
    let (old, new) = (checkpoint(0), checkpoint(3));
    let options = CompressOptions::default().with_threads(1);
    let mut compressor = Compressor::new(&options).unwrap();
    let mut delta = Vec::new();
    let (bases, opened) = peak(|| [Base::new(&old[..]).unwrap()]);
    at_most(FOR_EACH * TENSORS, opened, "opening a base");
    let (done, compressing) = peak(|| compressor.compress(&new, &bases, &mut delta));
    done.unwrap();
    at_most(FOR_EACH * TENSORS + BLOCKS, compressing, "compressing a delta");
    let (estimate, estimating) = peak(|| compressor.estimate(&new, &bases).unwrap());
    at_most(FOR_EACH * TENSORS + BLOCKS, estimating, "estimating");
    assert_eq!(estimate.raw_size, new.len() as u64);
    let base = Base::new(&new[..]).unwrap();
    let (diff, comparing) = peak(|| lmc_inspect::diff(&mut compressor, &base, &bases, &mut |_| ()).unwrap());
    at_most(FOR_EACH * TENSORS + BLOCKS, comparing, "comparing");
    assert!(diff.segments.len() == TENSORS + 1 && diff.segments[1].changes.changed == 8);
    let (reader, reading) = peak(|| Reader::open(&delta[..], &DecompressOptions::default()).unwrap());
    at_most(FOR_EACH * TENSORS, reading, "opening");
    assert_eq!(reader.segments().len(), TENSORS + 1);
}
