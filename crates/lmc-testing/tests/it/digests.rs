//! Cryptographic digests in files: whoever compresses asks for them, and whoever restores compares them.

use crate::support::{Memory, weights};
use lmc::{
    Base, CompressOptions, Compressor, DecompressOptions, Decompressor, DigestAlgorithm, Encoder, ErrorKind, Reader,
    Sink, Source,
};
use lmc_testing::reference::write::{File, Record};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn bytes_of(memory: Memory) -> Vec<u8> {
    memory.0.into_inner().expect("no panic while it is held")
}

fn raw(seed: u64) -> Vec<u8> {
    weights(1_000_000, seed).iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn options() -> CompressOptions {
    CompressOptions::default().with_threads(2).with_digest(true)
}

fn digests_of(file: &[u8]) -> Vec<(u32, DigestAlgorithm, [u8; 32])> {
    let reader = Reader::open(file, &DecompressOptions::default()).expect("it is valid");
    let digests = reader.digests().expect("they can be read");
    digests.iter().map(|d| (d.source, d.algorithm, d.digest)).collect()
}

#[test]
fn every_way_to_compress_writes_them() {
    let raw = raw(1);
    let mut compressor = Compressor::new(&options()).expect("there are threads");
    let mut files = vec![lmc::compress(&raw, &options()).expect("memory is written")];
    let mut streamed = Vec::new();
    compressor.compress(Source::reader(&mut &raw[..]), &[], Sink::writer(&mut streamed)).expect("memory is written");
    let placed = Memory::default();
    compressor.compress(&raw, &[], &placed).expect("memory is written");
    let mut watched = Vec::new();
    let mut watch = |_| ();
    let source = Source::from(&raw).with_progress(&mut watch);
    compressor.compress(source, &[], &mut watched).expect("memory is written");
    let mut encoder = Encoder::new(Vec::new(), &options()).expect("there are threads");
    raw.chunks(100_001).for_each(|part| encoder.write_all(part).expect("memory is written"));
    files.extend([streamed, bytes_of(placed), watched, encoder.finish().expect("memory is written").0]);
    for file in &files {
        assert_eq!(digests_of(file), [(0, DigestAlgorithm::Sha256, sha256(&raw))]);
        assert_eq!(lmc::decompress(file, &DecompressOptions::default()).expect("it is right"), raw);
    }
    assert!(files[0] == files[2] && files[2] == files[3] && files[1] == files[4]);
    // Of an empty file, too.
    let empty = lmc::compress(b"", &options()).expect("memory is written");
    assert_eq!(digests_of(&empty), [(0, DigestAlgorithm::Sha256, sha256(b""))]);
}

/// Every way to restore a file whose source can be read at any offset.
fn restored(file: &[u8], bases: &[Base<'_>]) -> Vec<lmc::Result<Vec<u8>>> {
    let mut decompressor = Decompressor::new(&DecompressOptions::default().with_threads(2)).expect("there are threads");
    let (mut vector, mut streamed, placed) = (Vec::new(), Vec::new(), Memory::default());
    let done = [
        decompressor.decompress(file, bases, &mut vector),
        decompressor.decompress(file, bases, Sink::writer(&mut streamed)),
        decompressor.decompress(file, bases, &placed),
    ];
    done.into_iter().zip([vector, streamed, bytes_of(placed)]).map(|(done, raw)| done.map(|_| raw)).collect()
}

#[test]
fn a_digest_of_other_bytes_is_damage() {
    let raw = raw(2);
    let mut file = File::parse(&lmc::compress(&raw, &options()).expect("memory is written")).expect("it is valid");
    let index = file.records.iter().position(|record| record.tag == *b"dIGS").expect("it has digests");
    for (change, refused) in [(false, false), (true, true)] {
        if change {
            *file.records[index].head.last_mut().expect("it has a digest") ^= 1;
        }
        for restored in restored(&file.to_bytes(), &[]) {
            match restored {
                Ok(restored) => assert!(!refused && restored == raw),
                Err(e) => {
                    assert!(refused && e.kind() == ErrorKind::Damaged, "{e}");
                    assert!(e.to_string().contains("the SHA-256 of the raw bytes is"), "{e}");
                }
            }
        }
    }
    file.records.push(Record::new(*b"note", vec![], vec![]));
    file.records.remove(index);
    restored(&file.to_bytes(), &[]).into_iter().for_each(|r| assert!(r.is_ok_and(|restored| restored == raw)));
}

#[test]
fn a_base_with_the_same_content_hash_is_no_base() {
    let (old, new) = (raw(3), [&raw(3)[..], b"more"].concat());
    let base = Base::new(&old[..]).expect("memory can be read").with_name("step-1");
    let mut file = Vec::new();
    let mut compressor = Compressor::new(&options()).expect("there are threads");
    compressor.compress(&new, std::slice::from_ref(&base), &mut file).expect("memory is written");
    let of = |source, bytes: &[u8]| (source, DigestAlgorithm::Sha256, sha256(bytes));
    assert_eq!(digests_of(&file), [of(0, &new), of(1, &old)]);
    for restored in restored(&file, std::slice::from_ref(&base)) {
        assert!(restored.expect("the base is right") == new);
    }
    // As if its hash were forged.
    let mut forged = old.clone();
    forged[1_000_000] ^= 1;
    let hash = base.content_hash(1).expect("memory can be read");
    let forged = Base::new(&forged[..]).expect("memory can be read").with_hash(hash).with_name("forged");
    for restored in restored(&file, std::slice::from_ref(&forged)) {
        let e = restored.expect_err("the base is another file");
        assert_eq!(e.kind(), ErrorKind::Base);
        assert!(e.to_string().contains("\"forged\" is not the file that the delta was made from: its SHA-256"), "{e}");
    }
}

#[test]
fn headers_have_the_features_that_blocks_need() {
    let features = |file: &[u8]| u32::from_le_bytes(file[12..16].try_into().expect("four bytes"));
    let (old, new) = (raw(4), raw(5));
    let o = CompressOptions::default().with_threads(2);
    let mut compressor = Compressor::new(&o).expect("there are threads");
    let alone = lmc::compress(&old, &o).expect("memory is written");
    assert_eq!(features(&alone), 0);
    let mut streamed = Vec::new();
    let done = compressor.compress(Source::from(&old), &[], Sink::writer(&mut streamed)).expect("memory is written");
    assert_eq!(features(&streamed) & 0b1100, 0b1100, "they may be needed");
    streamed[..16].copy_from_slice(&done.header());
    assert_eq!(streamed, alone);
    let placed = Memory::default();
    compressor.compress(&old, &[], &placed).expect("memory is written");
    assert_eq!(bytes_of(placed), alone);
    // A record of bases needs a feature that perhaps no block does.
    let mut delta = vec![0; lmc::compress_bound(new.len() as u64) as usize];
    let base = Base::new(&old[..]).expect("memory can be read");
    let done = compressor.compress(&new, std::slice::from_ref(&base), &mut delta[..]).expect("memory is written");
    assert_eq!(features(&delta), 1);
    let restored = Decompressor::new(&DecompressOptions::default()).expect("there are threads").decompress(
        &delta[..done.compressed_size as usize],
        &[base],
        &mut Vec::new(),
    );
    assert_eq!(restored.expect("it is right"), done);
}
