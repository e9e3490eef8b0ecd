//! The content hash is a function of the raw bytes (§2.5), for any layout and any path that computes it.

use crate::support::{delta_of, restore};
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Dtype, Level, Reader, Segment, Source};
use lmc_testing::input::Random;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// From the specification, with another library than the codec's.
fn by_hand(raw: &[u8]) -> [u8; 16] {
    let leaves: Vec<u8> = raw.chunks(256 << 10).flat_map(|leaf| xxh3_128(leaf).to_le_bytes()).collect();
    xxh3_128(&leaves).to_le_bytes()
}

fn options(dtype: Option<Dtype>, level: Level) -> CompressOptions {
    CompressOptions::default().with_dtype(dtype).with_level(level)
}

fn test_data() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let files = [folder.clone(), folder.join("small")].into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(folder).expect("the test data are there");
        entries.map(|entry| entry.expect("a folder can be read").path())
    });
    files.filter(|path| path.extension().is_some_and(|e| e == "safetensors" || e == "bin")).collect()
}

/// Segments of any type and length that cover some bytes.
fn any_segments(len: usize, random: &mut Random) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < len as u64 {
        let most = if random.below(2) == 0 { 3000 } else { 2 << 20 };
        let len = (1 + random.below(most)).min(len as u64 - at);
        let dtype = Dtype::ALL[random.below(Dtype::ALL.len() as u64) as usize];
        let width = u64::from(dtype.bits()) / 8;
        let segment = if random.below(4) > 0 && width > 0 && len.is_multiple_of(width) {
            let name = Some(format!("tensor {at}").as_str().into());
            Segment::new(name, Some(dtype), [len / width].into(), at, len)
        } else {
            Segment::new(None, None, [].into(), at, len)
        };
        segments.push(segment.expect("the shape fits the length"));
        at += len;
    }
    segments
}

/// The hash of a compressed file, as it was returned and as it is stored.
#[track_caller]
fn stored(file: &[u8], raw: &[u8]) -> [u8; 16] {
    let reader = Reader::open(file, &DecompressOptions::default()).expect("the compressed file opens");
    let restored = lmc::decompress(file, &DecompressOptions::default()).expect("the compressed file is restored");
    assert!(restored == raw);
    reader.content_hash()
}

#[test]
fn every_file_under_every_layout() {
    let mut random = Random::new(7);
    let mut files: Vec<Vec<u8>> = test_data().iter().map(|path| std::fs::read(path).expect("it can be read")).collect();
    assert!(files.len() >= 20, "{} files", files.len());
    // A header that promises other data than there are, and one that stands elsewhere.
    let model = files.iter().max_by_key(|raw| raw.len()).expect("there are files").clone();
    files.push(model[..model.len() - 1].to_vec());
    files.push([&[0; 8][..], &model].concat());
    for raw in &files {
        let want = by_hand(raw);
        assert_eq!(Base::new(&raw[..]).and_then(|base| base.content_hash(2)).expect("memory can be read"), want);
        // The layout that is found, and one that is given: elements of one type.
        for dtype in [None, Some(Dtype::U8), Some(Dtype::Bf16), Some(Dtype::F64)] {
            for level in [Level::Fast, Level::Default] {
                let file = lmc::compress(raw, &options(dtype, level)).expect("anything can be compressed");
                assert_eq!(stored(&file, raw), want, "{dtype:?}");
            }
        }
        // Segments that the caller knows.
        let mut compressor = Compressor::new(&CompressOptions::default()).expect("threads start");
        let mut file = Vec::new();
        for _ in 0..2 {
            let segments = any_segments(raw.len(), &mut random);
            let base = Base::of_segments(&raw[..], &segments).expect("they cover the bytes");
            assert_eq!(base.content_hash(1).expect("memory can be read"), want);
            let summary = compressor.compress(Source::segments(raw, &segments), &[], &mut file).expect("so do these");
            assert_eq!((summary.content_hash, stored(&file, raw)), (want, want));
        }
    }
}

#[test]
fn a_base_is_known_by_its_bytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gpt-step300-state.safetensors");
    let old = std::fs::read(path).expect("the test data are there");
    let mut new = old.clone();
    // Behind the header.
    (1 << 16..new.len()).step_by(1000).for_each(|i| new[i] ^= 1);
    // Made from a base whose layout was found; restored with one of any segments, and with one that was compressed as bytes.
    let delta = delta_of(&new, &[Base::new(&old[..]).unwrap()], &CompressOptions::default()).unwrap();
    let segments = any_segments(old.len(), &mut Random::new(8));
    let o = DecompressOptions::default();
    let compressed = lmc::compress(&old, &options(Some(Dtype::U8), Level::Fast)).unwrap();
    let compressed = Base::lmc(Reader::open(&compressed[..], &o).unwrap());
    for base in [Base::of_segments(&old[..], &segments).unwrap(), compressed] {
        assert!(restore(&delta, &[base], &o).unwrap() == new);
    }
}
