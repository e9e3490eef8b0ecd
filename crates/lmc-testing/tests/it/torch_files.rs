//! Files of PyTorch, and compressed forms that took them for plain bytes.

use std::fs;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Reader};

fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../testdata/layouts/torch/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn decompressed(file: &[u8], bases: &[Base<'_>]) -> Vec<u8> {
    let mut raw = Vec::new();
    Decompressor::new(&DecompressOptions::default()).unwrap().decompress(file, bases, &mut raw).unwrap();
    raw
}

fn compressed(raw: &[u8], bases: &[Base<'_>]) -> Vec<u8> {
    let mut file = Vec::new();
    Compressor::new(&CompressOptions::default()).unwrap().compress(raw, bases, &mut file).unwrap();
    file
}

fn as_base(file: &[u8]) -> Base<'_> {
    Base::lmc(Reader::open(file, &DecompressOptions::default()).unwrap())
}

#[test]
fn files_that_were_plain_bytes_are_restored() {
    let (old, new) = (sample("state.pt"), sample("state-next.pt"));
    let before = sample("before/state.pt.lmc");
    let reader = Reader::open(&before[..], &DecompressOptions::default()).unwrap();
    assert_eq!((reader.layout(), reader.segments().len()), ("raw", 1));
    assert_eq!(decompressed(&before, &[]), old);
    // A delta of the file is restored with it, whatever its base was compressed as.
    let delta = compressed(&new, &[Base::new(&old[..]).unwrap()]);
    for base in [before, compressed(&old, &[])] {
        assert_eq!(decompressed(&delta, &[as_base(&base)]), new);
    }
}

#[test]
fn files_that_were_plain_bytes_are_bases() {
    let (old, new) = (sample("before/state.pt.lmc"), sample("state-next.pt"));
    let bases = [as_base(&old)];
    assert_eq!(bases[0].layout(), "torch", "its format is known by now");
    let delta = compressed(&new, &bases);
    assert_eq!(decompressed(&delta, &bases), new);
    // As small as with the raw file, but for the base's name.
    assert_eq!(delta, compressed(&new, &[Base::new(&sample("state.pt")[..]).unwrap()]));
}

#[test]
fn tensors_of_a_file_are_read_by_name() {
    let (old, new) = (sample("state.pt"), sample("state-next.pt"));
    let delta = compressed(&new, &[Base::new(&old[..]).unwrap()]);
    let reader = Reader::open(&delta[..], &DecompressOptions::default()).unwrap();
    let reader = reader.with_bases(vec![Base::new(&old[..]).unwrap()]).unwrap();
    assert_eq!(reader.layout(), "torch");
    let weight = reader.tensor("model.0.weight").unwrap().clone();
    assert_eq!((&weight.shape[..], weight.len), (&[2, 3][..], 12));
    assert_eq!(reader.read_tensor("model.0.weight").unwrap(), new[weight.offset as usize..weight.end() as usize]);
    assert_eq!(
        reader.read_rows("model.0.weight", 1..2).unwrap(),
        new[weight.offset as usize + 6..weight.end() as usize]
    );
}
