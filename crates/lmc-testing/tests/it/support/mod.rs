//! Code that the tests share: data, and one check of every way to compress and restore.

pub(crate) mod snapshots;

use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lmc::{
    Base, CompressOptions, Compressor, Decoder, DecompressOptions, Decompressor, Encoder, Error, Level, ReadAt, Reader,
    Result, Sink, Source, Summary, WriteAt,
};
use lmc_kernels::isa::Isa;
pub(crate) use lmc_testing::data::noise;
use lmc_testing::decoders::{LIMIT, agree};
use lmc_testing::input::Random;
use lmc_testing::reference::decode_with_bases;
pub(crate) use lmc_testing::safetensors;

/// Roughly gaussian numbers, as a trained layer's weights are.
pub(crate) fn weights(n: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut uniform = || (random.u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..n).map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32 * 0.02).collect()
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

/// A file in memory that counts the bytes read of it.
pub(crate) struct Counted<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) read: AtomicU64,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: AtomicU64::new(0) }
    }
    /// Bytes read since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.read.swap(0, Ordering::SeqCst)
    }
}

impl ReadAt for Counted<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::SeqCst);
        self.bytes.read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

/// A stream that returns at most this many bytes at a time.
pub(crate) struct Trickle<T>(pub(crate) T, pub(crate) usize);

impl<T: io::Read> io::Read for Trickle<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.1);
        self.0.read(&mut buf[..n])
    }
}

/// A stream that fails after this many bytes: a full disk, or a broken connection.
pub(crate) struct Broken<T>(pub(crate) T, pub(crate) usize);

pub(crate) fn broken() -> io::Error {
    io::Error::other("pulled")
}

impl<T: io::Read> io::Read for Broken<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.1);
        if n == 0 && !buf.is_empty() {
            return Err(broken());
        }
        let n = self.0.read(&mut buf[..n])?;
        self.1 -= n;
        Ok(n)
    }
}

impl<T: io::Write> io::Write for Broken<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(self.1);
        if n == 0 && !buf.is_empty() {
            return Err(broken());
        }
        self.1 -= n;
        self.0.write(&buf[..n])
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl ReadAt for Broken<&[u8]> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset as usize + buf.len() > self.1 { Err(broken()) } else { self.0.read_exact_at(buf, offset) }
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

/// Checks that an error is that of something [`Broken`].
#[track_caller]
pub(crate) fn is_io(e: &Error) {
    assert_eq!(e.kind(), lmc::ErrorKind::Io);
    assert!(e.to_string().ends_with("pulled"), "{e}");
    assert!(std::error::Error::source(e).is_some());
}

pub(crate) fn decompress_options(threads: usize) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads)
}

/// Compresses a delta in memory.
pub(crate) fn delta_of(raw: &[u8], bases: &[Base<'_>], o: &CompressOptions) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    Compressor::new(o)?.compress(raw, bases, &mut file)?;
    Ok(file)
}

/// Restores a delta in memory.
pub(crate) fn restore(file: &[u8], bases: &[Base<'_>], o: &DecompressOptions) -> Result<Vec<u8>> {
    let mut raw = Vec::new();
    Decompressor::new(o)?.decompress(file, bases, &mut raw)?;
    Ok(raw)
}

/// Gives a file that was written to a stream the header that a file has of which all blocks are known.
pub(crate) fn set_header(file: &mut [u8], summary: &Summary) {
    file[..16].copy_from_slice(&summary.header());
}

/// Compresses `raw` in every way, checks that the bytes are the same, restores them in every way; the compressed file.
pub(crate) fn check_all_paths(raw: &[u8], o: &CompressOptions) -> Vec<u8> {
    let mut file = Vec::new();
    let summary = Compressor::new(&o.with_threads(1)).unwrap().compress(raw, &[], &mut file).unwrap();
    assert_eq!(summary.raw_size, raw.len() as u64);
    assert_eq!(summary.compressed_size, file.len() as u64);
    for threads in [1, 2, 5] {
        let mut c = Compressor::new(&o.with_threads(threads)).unwrap();
        let mut out = vec![1; 10];
        assert_eq!(c.compress(raw, &[], &mut out).unwrap(), summary);
        assert!(out == file, "slice, {threads} threads");
        for step in [usize::MAX, 65537] {
            out.clear();
            let mut last = 0;
            let s = c
                .compress(
                    Source::from(&mut Trickle(raw, step)).with_progress(&mut |n| last = n),
                    &[],
                    Sink::writer(&mut out),
                )
                .unwrap();
            assert_eq!((s, last), (summary, raw.len() as u64));
            set_header(&mut out, &summary);
            assert!(out == file, "stream, {threads} threads");
        }
        out.clear();
        let mut last = 0;
        assert_eq!(
            c.compress(Source::from(&raw).with_progress(&mut |n| last = n), &[], Sink::writer(&mut out)).unwrap(),
            summary
        );
        assert_eq!(last, raw.len() as u64);
        set_header(&mut out, &summary);
        assert!(out == file, "file, {threads} threads");
        let mut encoder = Encoder::new(Vec::new(), &o.with_threads(threads)).unwrap();
        raw.chunks(70_001).for_each(|column| encoder.write_all(column).unwrap());
        let (mut written, s) = encoder.finish().unwrap();
        assert_eq!(s, summary);
        set_header(&mut written, &summary);
        assert!(written == file, "an encoder, {threads} threads");
        out = vec![1; 10];
        assert_eq!(c.compress(&Counted::new(raw), &[], &mut out).unwrap(), summary);
        assert!(out == file, "file to memory, {threads} threads");
        check_restores(&file, raw, &summary, &decompress_options(threads));
    }
    assert_eq!(Decompressor::raw_size(&file).unwrap(), raw.len() as u64);
    let reader = Reader::open(&file, &decompress_options(2)).unwrap();
    assert_eq!((reader.raw_size(), reader.content_hash()), (raw.len() as u64, summary.content_hash));
    let end = reader.segments().iter().fold(0, |at, s| {
        assert_eq!(s.offset, at);
        s.end()
    });
    assert_eq!(end, reader.raw_size());
    let mut column = vec![0; raw.len() / 2];
    reader.read_range((raw.len() / 3) as u64, &mut column).unwrap();
    assert!(column == raw[raw.len() / 3..][..column.len()], "a range");
    file
}

/// Restores a file in every way.
pub(crate) fn check_restores(file: &[u8], raw: &[u8], summary: &Summary, o: &DecompressOptions) {
    let mut d = Decompressor::new(o).unwrap();
    let mut back = vec![0xee; raw.len()];
    assert_eq!(d.decompress(file, &[], &mut back[..]).unwrap(), *summary);
    assert!(back == raw, "to a slice, {} threads", o.threads);
    back.fill(0xdd);
    assert_eq!(d.decompress(&Counted::new(file), &[], &mut back[..]).unwrap(), *summary);
    assert!(back == raw, "from a file to a slice, {} threads", o.threads);
    back.clear();
    let mut last = 0;
    let s = d
        .decompress(
            Source::from(&mut Trickle(file, 65537)).with_progress(&mut |n| last = n),
            &[],
            Sink::writer(&mut back),
        )
        .unwrap();
    assert_eq!((s, last), (*summary, raw.len() as u64));
    assert!(back == raw, "to a stream, {} threads", o.threads);
    let mut decoder = Decoder::new(Trickle(file, 65537), o).unwrap();
    back.clear();
    decoder.read_to_end(&mut back).unwrap();
    assert_eq!(decoder.summary(), Some(*summary));
    assert!(back == raw, "a decoder, {} threads", o.threads);
    let to = Memory::default();
    last = 0;
    assert_eq!(d.decompress(Source::from(&file).with_progress(&mut |n| last = n), &[], &to).unwrap(), *summary);
    assert_eq!(last, raw.len() as u64);
    assert!(to.0.into_inner().unwrap() == raw, "to a file, {} threads", o.threads);
}

/// Compresses with every instruction set of the machine, which must give the same bytes, and restores with every one.
pub(crate) fn check_isas(raw: &[u8], o: &CompressOptions) -> Vec<u8> {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for isa in Isa::available() {
        let file = lmc::compress(raw, &o.with_isa(isa).with_threads(1)).unwrap();
        if let Some(first) = files.first() {
            assert!(file == *first, "{} writes other bytes than {}", isa.name(), Isa::PORTABLE.name());
        }
        files.push(file);
    }
    for isa in Isa::available() {
        assert!(lmc::decompress(&files[0], &decompress_options(1).with_isa(isa)).unwrap() == raw, "{}", isa.name());
    }
    files.swap_remove(0)
}

/// Results of restoring a file from a slice, from a stream and by positional reads.
pub(crate) fn try_all(file: &[u8], o: &DecompressOptions) -> [Result<Vec<u8>>; 3] {
    let mut d = Decompressor::new(o).unwrap();
    let slice = lmc::decompress(file, o);
    let mut streamed = Vec::new();
    let stream = d.decompress(Source::reader(&mut &*file), &[], Sink::writer(&mut streamed)).map(|_| streamed);
    let to = Memory::default();
    let positional = d.decompress(file, &[], &to).map(|_| to.0.into_inner().unwrap());
    [slice, stream, positional]
}

/// The errors of a file that no way restores.
pub(crate) fn refused(file: &[u8], o: &DecompressOptions) -> [Error; 3] {
    try_all(file, o).map(|r| r.expect_err("the file must be refused"))
}

/// A file built by hand, and the bytes that it must decode to.
pub(crate) struct Known {
    pub(crate) file: Vec<u8>,
    pub(crate) raw: Vec<u8>,
}

impl Known {
    /// Checks the reference decoder, which may judge the others after that.
    #[track_caller]
    pub(crate) fn check_reference(&self) {
        assert!(decode_with_bases(&self.file, &[], LIMIT).as_ref() == Ok(&self.raw));
    }

    /// Checks all decoders.
    #[track_caller]
    pub(crate) fn check(&self) {
        assert!(agree(&self.file).as_ref() == Ok(&self.raw));
    }
}

/// About normal.
pub(crate) fn normal(random: &mut Random) -> f32 {
    let sum: u64 = (0..12).map(|_| random.below(1 << 20)).sum();
    sum as f32 / (1 << 20) as f32 - 6.0
}

/// Compresses with a base, with equal results in several ways, and restores by every decoder; returns the compressed file.
pub(crate) fn restored(raw: &[u8], base: &[u8], level: Level) -> Vec<u8> {
    let bases = [Base::new(base).unwrap()];
    let compressed = |threads| {
        let o = CompressOptions::default().with_threads(threads).with_level(level);
        let mut out = Vec::new();
        Compressor::new(&o).unwrap().compress(raw, &bases, &mut out).unwrap();
        out
    };
    let lmc = compressed(1);
    assert!(compressed(3) == lmc);
    for threads in [1, 3] {
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        let mut back = vec![0; raw.len()];
        d.decompress(&lmc, &bases, &mut back[..]).unwrap();
        assert!(back == raw);
        let memory = Memory::default();
        d.decompress(&lmc[..], &bases, &memory).unwrap();
        assert!(memory.0.into_inner().unwrap() == raw);
        let mut back = Vec::new();
        d.decompress(Source::reader(&mut &lmc[..]), &bases, Sink::writer(&mut back)).unwrap();
        assert!(back == raw);
    }
    // The last block needs all its operands, some of them of blocks that are steps themselves.
    let reader = Reader::open(&lmc, &decompress_options(1)).unwrap().with_bases(bases.to_vec()).unwrap();
    let mut last = [0; 1000];
    reader.read_range((raw.len() - last.len()) as u64, &mut last).unwrap();
    assert_eq!(last, raw[raw.len() - last.len()..]);
    lmc
}
