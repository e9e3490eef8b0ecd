//! A sparse file of 3 GB, above all 32-bit lengths.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{decompress_options, noise};
use lmc::{CompressOptions, Compressor, Decompressor, ReadAt, Reader, Sink, Source, WriteAt};

const SIZE: u64 = 3_221_225_472 + 12_345;
/// Places of data: at the beginning, across 2^31, between, and at the end.
const ISLANDS: [u64; 4] = [100, (1 << 31) - 5000, 2_900_000_001, SIZE - 10_000];

/// Zeros, and islands of noise.
struct Sparse(Vec<u8>);

impl ReadAt for Sparse {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + buf.len() as u64 > SIZE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.fill(0);
        for at in ISLANDS {
            let from = at.max(offset);
            let to = (at + self.0.len() as u64).min(offset + buf.len() as u64);
            if from < to {
                let island = &self.0[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(island);
            }
        }
        Ok(())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(SIZE)
    }
}

/// A sink that compares the bytes written with the expected ones, and stores nothing.
struct Compare<'a> {
    with: &'a Sparse,
    written: AtomicU64,
}

impl WriteAt for Compare<'_> {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut want = vec![0; buf.len()];
        self.with.read_exact_at(&mut want, offset)?;
        assert!(want == buf, "{} bytes at {offset}", buf.len());
        self.written.fetch_add(buf.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_sparse_file_of_three_gigabytes() {
    let raw = Sparse(noise(10_000, 1));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.lmc");
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let mut last = 0;
    let mut out = std::fs::File::create(&path).unwrap();
    let summary = c.compress(Source::from(&raw).with_progress(&mut |n| last = n), &[], Sink::writer(&mut out)).unwrap();
    assert_eq!((summary.raw_size, last), (SIZE, SIZE));
    assert!(summary.compressed_size < SIZE / 1000, "{}", summary.compressed_size);

    let file = std::fs::File::open(&path).unwrap();
    let to = Compare { with: &raw, written: AtomicU64::new(0) };
    let mut d = Decompressor::new(&decompress_options(0)).unwrap();
    assert_eq!(d.decompress(Source::from(&file).with_progress(&mut |n| last = n), &[], &to).unwrap(), summary);
    assert_eq!(to.written.into_inner(), SIZE);

    let reader = Reader::open(file, &decompress_options(1)).unwrap();
    for at in ISLANDS {
        let mut column = vec![1; 10_000];
        reader.read_range(at, &mut column).unwrap();
        assert!(column == raw.0);
    }
}
