//! Features of the format that nobody knows yet: such a file can be listed, and is refused with a reason.

use lmc::{Base, DecompressOptions, Decompressor, ErrorKind, Reader, Sink, Source, decompress};
use lmc_testing::handmade::{FIRST, copy, records, stored};
use lmc_testing::reference::write::{File, Record, Segment};

const RAW: &[u8] = b"eight by";
const UNKNOWN: u32 = 1 << 16;

fn file() -> File {
    let mut file = File::new(vec![stored(RAW).record()]);
    let tensor = Segment { dtype: 9, name: b"w".to_vec(), shape: vec![2, 2], ..Segment::default() };
    (file.index.segments, file.index.writer) = (vec![tensor], b"lmc 9.1.0 max".to_vec());
    file
}

fn options() -> DecompressOptions {
    DecompressOptions::default().with_threads(1)
}

/// Restores a file as a stream.
fn from_front(file: &[u8]) -> lmc::Result<Vec<u8>> {
    let mut raw = Vec::new();
    Decompressor::new(&options())?.decompress(Source::reader(&mut &*file), &[], Sink::writer(&mut raw))?;
    Ok(raw)
}

#[test]
fn bits_of_the_header_that_no_block_needs_are_ignored_where_the_index_is_known() {
    let file = File { features: UNKNOWN | 1 << 31, ..file() }.to_bytes();
    assert_eq!(decompress(&file, &options()).expect("no block needs them"), RAW);
    let reader = Reader::open(&file[..], &options()).expect("it is valid");
    assert_eq!(reader.features().count(), 0);
    assert_eq!(reader.read_tensor("w").expect("it can be read"), RAW);
    let e = from_front(&file).expect_err("the index is not known yet");
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("(bit 16 and bit 31)"), "{e}");
}

/// Asserts that a file can be listed, and not be read.
#[track_caller]
fn is_listed_only(file: &File) {
    let file = file.to_bytes();
    let reader = Reader::open(&file[..], &options()).expect("it can be listed");
    assert_eq!(reader.features().collect::<Vec<_>>(), ["bit 16"]);
    assert_eq!((reader.writer(), reader.raw_size()), ("lmc 9.1.0 max", RAW.len() as u64));
    let tensor = reader.tensor("w").expect("it is listed");
    assert_eq!((tensor.dtype, &tensor.shape[..]), (Some(lmc::Dtype::Bf16), &[2, 2][..]));
    let refused = [
        reader.check_features().expect_err("it has an unknown feature"),
        reader.read_tensor("w").expect_err("it cannot be read"),
        reader.digests().expect_err("they may be anywhere"),
        decompress(&file, &options()).expect_err("it cannot be restored"),
    ];
    for e in refused {
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        let e = e.to_string();
        assert!(e.contains("bit 16") && e.contains("lmc 9.1.0 max"), "{e}");
    }
    let base = Base::lmc(Reader::open(&file[..], &options()).expect("it can be listed"));
    let delta = File { features: 1, ..File::delta(&[RAW], records(&[copy(&[(1, 0, RAW)])])) }.to_bytes();
    let mut decompressor = Decompressor::new(&options()).expect("no threads are needed");
    let e = decompressor.decompress(&delta, &[base], &mut Vec::new()).expect_err("the base cannot be read");
    assert!(e.to_string().contains("bit 16"), "{e}");
}

#[test]
fn a_file_that_needs_them_is_listed() {
    let mut unknown = file();
    (unknown.features, unknown.index.exact_features) = (UNKNOWN, UNKNOWN);
    is_listed_only(&unknown);
    // They may define another hash, and what is between header and index.
    unknown.hash = 7;
    is_listed_only(&unknown);
    unknown.records.insert(0, Record::new(*b"CODE", vec![1, 2, 3], vec![4; 9]));
    is_listed_only(&unknown);
    unknown.features |= 1;
    unknown.records[0] = Record::new(*b"BASE", FIRST.to_vec(), vec![]);
    is_listed_only(&unknown);
    // Without an unknown feature they are wrong.
    let wrong = File { hash: 7, ..file() }.to_bytes();
    let e = Reader::open(&wrong[..], &options()).expect_err("the hash is unknown");
    assert!(e.to_string().contains("hash has id 7"), "{e}");
}
