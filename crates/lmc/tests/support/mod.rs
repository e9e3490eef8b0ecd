//! What the tests share: data, and one check of every way to compress and restore.

#![allow(dead_code, reason = "no test needs all of it")]

use std::io;
use std::sync::Mutex;

use lmc::{CompressOptions, Compressor, DecompressOptions, Decompressor, Reader, WriteAt};

/// A generator of reproducible noise (splitmix64).
#[derive(Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Roughly gaussian, standard deviation 1.
    pub(crate) fn gaussian(&mut self) -> f32 {
        let sum: f64 = (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum();
        (sum - 6.0) as f32
    }
}

/// Random bytes.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).take(len).collect()
}

/// A file in memory that several threads write.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) Mutex<Vec<u8>>);

impl WriteAt for Memory {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut m = self.0.lock().unwrap();
        let (from, to) = (offset as usize, offset as usize + buf.len());
        let len = m.len().max(to);
        m.resize(len, 0xee);
        m[from..to].copy_from_slice(buf);
        Ok(())
    }
}

/// A stream that gives and takes a few bytes at a time.
pub(crate) struct Trickle<T>(pub(crate) T, pub(crate) usize);

impl<T: io::Read> io::Read for Trickle<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.1);
        self.0.read(&mut buf[..n])
    }
}

pub(crate) fn decompress_options(threads: usize) -> DecompressOptions {
    let mut o = DecompressOptions::default();
    o.threads = threads;
    o
}

/// Compresses `raw` in every way, checks that the bytes are the same, restores them in every way; the compressed file.
pub(crate) fn check_all_paths(raw: &[u8], o: &CompressOptions) -> Vec<u8> {
    let mut o = *o;
    o.threads = 1;
    let mut file = Vec::new();
    let summary = Compressor::new(&o).unwrap().compress_into(raw, &mut file).unwrap();
    assert_eq!(summary.raw_size, raw.len() as u64);
    assert_eq!(summary.compressed_size, file.len() as u64);
    for threads in [1, 2, 5] {
        o.threads = threads;
        let mut c = Compressor::new(&o).unwrap();
        let mut out = vec![1; 10];
        assert_eq!(c.compress_into(raw, &mut out).unwrap(), summary);
        assert!(out == file, "slice, {threads} threads");
        for step in [usize::MAX, 65537] {
            out.clear();
            let mut last = 0;
            let s = c.compress_stream(&mut Trickle(raw, step), &mut out, &mut |n| last = n).unwrap();
            assert_eq!((s, last), (summary, raw.len() as u64));
            assert!(out == file, "stream, {threads} threads");
        }
        out.clear();
        let mut last = 0;
        assert_eq!(c.compress_from(&raw, &mut out, &mut |n| last = n).unwrap(), summary);
        assert_eq!(last, raw.len() as u64);
        assert!(out == file, "file, {threads} threads");

        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        let mut back = vec![0xee; raw.len()];
        assert_eq!(d.decompress_into(&file, &mut back).unwrap(), summary);
        assert!(back == raw, "to a slice, {threads} threads");
        back.clear();
        let s = d.decompress_stream(&mut Trickle(&file[..], 65537), &mut back, &mut |_| ()).unwrap();
        assert_eq!(s, summary);
        assert!(back == raw, "to a stream, {threads} threads");
        let to = Memory::default();
        assert_eq!(d.decompress_to(&file, &to, &mut |n| last = n).unwrap(), summary);
        assert_eq!(last, raw.len() as u64);
        assert!(to.0.into_inner().unwrap() == raw, "to a file, {threads} threads");
    }
    assert_eq!(Decompressor::raw_size(&file).unwrap(), raw.len() as u64);
    let reader = Reader::open(&file, &decompress_options(2)).unwrap();
    assert_eq!((reader.raw_size(), reader.content_hash()), (raw.len() as u64, summary.content_hash));
    let end = reader.segments().iter().fold(0, |at, s| {
        assert_eq!(s.offset, at);
        s.end()
    });
    assert_eq!(end, reader.raw_size());
    let mut part = vec![0; raw.len() / 2];
    reader.read_range((raw.len() / 3) as u64, &mut part).unwrap();
    assert!(part == raw[raw.len() / 3..][..part.len()], "a range");
    file
}
