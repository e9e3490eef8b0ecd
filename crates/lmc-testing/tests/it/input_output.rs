//! Sources and destinations that fail, and their error messages.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    self, Broken, broken, check_all_paths, decompress_options, is_io, noise, refused, safetensors, set_header,
};
use lmc::{
    CompressOptions, Compressor, DecompressOptions, Decompressor, Dtype, ErrorKind, ReadAt, Reader, Sink, Source,
    WriteAt,
};

/// Accepts this many writes.
struct Full(AtomicUsize);

impl WriteAt for Full {
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map(|_| ()).map_err(|_| broken())
    }
}

/// A source that is shorter than it says.
struct Shrunk(Vec<u8>, u64);

impl ReadAt for Shrunk {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.1)
    }
}

#[test]
fn failures_of_sources_and_destinations_are_reported() {
    let raw = noise(6_000_000, 1);
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    for threads in [1, 3] {
        let o = CompressOptions::default().with_threads(threads);
        let mut c = Compressor::new(&o).unwrap();
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        for at in [0, 5, 16, 20, 1_000_000, 3_333_333, 5_999_999] {
            is_io(&c.compress(&mut Broken(&raw[..], at), &[], Sink::writer(&mut io::sink())).unwrap_err());
            is_io(&c.compress(&Broken(&raw[..], at), &[], Sink::writer(&mut io::sink())).unwrap_err());
            is_io(
                &c.compress(Source::reader(&mut &raw[..]), &[], Sink::writer(&mut Broken(io::sink(), at))).unwrap_err(),
            );
            is_io(&c.compress(&raw, &[], Sink::writer(&mut Broken(io::sink(), at))).unwrap_err());
            is_io(&d.decompress(&mut Broken(&file[..], at), &[], Sink::writer(&mut io::sink())).unwrap_err());
            is_io(
                &d.decompress(Source::reader(&mut &file[..]), &[], Sink::writer(&mut Broken(io::sink(), at)))
                    .unwrap_err(),
            );
            is_io(&d.decompress(&Broken(&file[..], at), &[], &Full(AtomicUsize::new(99))).unwrap_err());
        }
        for writes in 0..5 {
            is_io(&d.decompress(&file, &[], &Full(AtomicUsize::new(writes))).unwrap_err());
        }
        let shrunk = Shrunk(raw.clone(), 7_000_000);
        let e = c.compress(&shrunk, &[], Sink::writer(&mut io::sink())).unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("became shorter"), "{e}");
        // After all these errors they still work.
        let mut out = Vec::new();
        let summary = c.compress(Source::reader(&mut &raw[..]), &[], Sink::writer(&mut out)).unwrap();
        set_header(&mut out, &summary);
        assert!(out == file);
        let mut back = Vec::new();
        d.decompress(Source::reader(&mut &file[..]), &[], Sink::writer(&mut back)).unwrap();
        assert!(back == raw);
    }
}

#[test]
fn files_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let raw = noise(5_000_001, 2);
    let [from, packed, to] = ["raw", "packed", "back"].map(|n| dir.path().join(n));
    std::fs::write(&from, &raw).unwrap();
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let mut out = std::fs::File::create(&packed).unwrap();
    let summary = c.compress(&std::fs::File::open(&from).unwrap(), &[], Sink::writer(&mut out)).unwrap();
    let packed = std::fs::File::open(&packed).unwrap();
    assert_eq!(packed.size().unwrap(), summary.compressed_size);
    let mut d = Decompressor::new(&DecompressOptions::default()).unwrap();
    let out = std::fs::File::create(&to).unwrap();
    assert_eq!(d.decompress(&packed, &[], &out).unwrap(), summary);
    assert!(std::fs::read(&to).unwrap() == raw);
    let reader = Reader::open(packed, &DecompressOptions::default()).unwrap();
    let mut column = [0; 1000];
    reader.read_range(3_000_000, &mut column).unwrap();
    assert_eq!(column[..], raw[3_000_000..3_001_000]);
}

/// Blocks that depend on earlier ones read these back, if the file can be read.
#[test]
fn an_output_that_is_only_written() {
    let dir = tempfile::tempdir().unwrap();
    let weights = noise(2_000_000, 3);
    let tensor = |name| (name, "BF16", vec![1_000_000], &weights[..]);
    let raw = safetensors(&[tensor("embedding"), tensor("head")]);
    for threads in [1, 3] {
        let o = CompressOptions::default().with_threads(threads);
        let file = lmc::compress(&raw, &o).unwrap();
        assert!(file.len() < raw.len() * 6 / 10, "the second tensor is the first one");
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        let to = dir.path().join("to");
        d.decompress(&file, &[], &std::fs::File::create(&to).unwrap()).unwrap();
        assert!(std::fs::read(&to).unwrap() == raw);
        let readable = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&to).unwrap();
        d.decompress(&file, &[], &readable).unwrap();
        assert!(std::fs::read(&to).unwrap() == raw);
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let device = std::fs::File::open("/dev/zero").unwrap();
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let e = c.compress(&device, &[], &mut vec![]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(e.to_string().contains("not a regular file"), "{e}");
}

/// The errors of a file that is decoded in order to be compressed again are those of the file.
#[test]
fn damaged_sources() {
    let raw = noise(3_000_000, 4);
    let mut file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let middle = file.len() / 2;
    file[middle] ^= 1;
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    for threads in [1, 3] {
        let mut c = Compressor::new(&CompressOptions::default().with_threads(threads)).unwrap();
        let e = c.compress(&reader, &[], &mut vec![]).unwrap_err();
        assert_eq!((e.kind(), e.block().is_some()), (ErrorKind::Damaged, true), "{e}");
        assert!(e.to_string().starts_with("cannot read the input: "), "{e}");
    }
}

#[test]
fn what_is_no_lmc_file_is_told() {
    let o = DecompressOptions::default();
    let file = lmc::compress(&noise(3_000_000, 1), &CompressOptions::default()).unwrap();
    let cases: [(&[u8], ErrorKind, &str); 7] = [
        (b"", ErrorKind::Damaged, "empty"),
        (
            b"\x28\xb5\x2f\xfd and more bytes, a few dozen of them, as a real one would have",
            ErrorKind::Unsupported,
            "zstd",
        ),
        (b"\x02\0\0\0\0\0\0\0{}", ErrorKind::Unsupported, "safetensors"),
        (&[7; 100], ErrorKind::Unsupported, "not an lmc file"),
        (&file[..5], ErrorKind::Damaged, "ends early"),
        (&file[..40], ErrorKind::Damaged, "ends early"),
        (&file[..2_000_000], ErrorKind::Damaged, "ends early"),
    ];
    for (bytes, kind, what) in cases {
        for e in refused(bytes, &o) {
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(what), "{e}");
        }
        assert_eq!(Reader::open(bytes, &o).unwrap_err().kind(), kind);
        assert_eq!(Decompressor::raw_size(bytes).unwrap_err().kind(), kind);
    }
    let [_, stream, _] = refused(&file[..2_000_000], &o);
    assert_eq!(stream.to_string(), "the file ends early; fetch it again (byte 2000000)");
    for version in [0, 9] {
        let mut other = file.clone();
        other[8] = version;
        for e in refused(&other, &o) {
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            assert!(e.to_string().contains(&format!("the file has version {version} of the lmc format")), "{e}");
        }
    }
    let longer = [&file[..], b"x"].concat();
    assert!(refused(&longer, &o)[1].to_string().contains("bytes follow the end"));
}

#[test]
fn an_output_of_the_wrong_size_is_refused() {
    let raw = noise(1000, 1);
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let mut d = Decompressor::new(&DecompressOptions::default()).unwrap();
    for len in [0, 999, 1001] {
        let e = d.decompress(&file, &[], &mut vec![0; len][..]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage);
        assert!(e.to_string().contains("1000 bytes"), "{e}");
    }
}

#[test]
fn the_first_error_is_reported_whatever_the_number_of_threads() {
    let raw = noise(12 << 20, 1);
    let mut file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let blocks: Vec<_> = Reader::open(&file[..], &DecompressOptions::default()).unwrap().blocks().collect();
    for b in [3, 5, 9] {
        let b = blocks[b];
        file[(b.record_offset + b.record_len / 2) as usize] ^= 1;
    }
    for threads in [1, 2, 5] {
        for e in refused(&file, &decompress_options(threads)) {
            assert_eq!((e.block(), e.offset()), (Some(3), Some(blocks[3].record_offset)), "{e}");
        }
    }
}

#[test]
fn many_small_tensors_share_blocks() {
    let data = noise(4096 * 10_000, 3).iter().map(|b| b & 0x7f).collect::<Vec<u8>>();
    let names: Vec<String> = (0..10_000).map(|i| format!("layer.{i}.weight")).collect();
    let tensors: Vec<_> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), "U8", vec![64, 64], &data[4096 * i..][..4096])).collect();
    let raw = support::safetensors(&tensors);
    let file = check_all_paths(&raw, &CompressOptions::default());
    let o = CompressOptions::default().with_dtype(Dtype::U8);
    let one = lmc::compress(&data, &o).unwrap();
    assert!(file.len() < one.len() + one.len() / 100 + raw.len() - data.len(), "{} {}", file.len(), one.len());
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    assert!(reader.blocks().len() < 50);
    for i in [0, 1, 4999, 9999] {
        assert!(reader.read_tensor(&names[i]).unwrap() == data[4096 * i..][..4096]);
    }
}

#[test]
fn to_memory_of_the_callers() {
    let mut raw: Vec<u8> = (0..800_000u32).flat_map(|i| ((i % 251) as f32).sqrt().to_le_bytes()).collect();
    raw.extend(noise(500_001, 1));
    for threads in [1, 3] {
        let o = CompressOptions::default().with_threads(threads).with_dtype(Dtype::F32);
        let want = lmc::compress(&raw, &o).unwrap();
        let mut c = Compressor::new(&o).unwrap();
        for room in [lmc::compress_bound(raw.len() as u64) as usize, want.len() + 1, want.len()] {
            let mut out = vec![0xaa; room];
            let done = c.compress(&raw, &[], &mut out[..]).unwrap();
            assert_eq!(done.compressed_size, want.len() as u64, "{threads} {room}");
            assert!(out[..want.len()] == want, "{threads} {room}");
        }
        for room in [0, 1, want.len() / 2, want.len() - 1] {
            let e = c.compress(&raw, &[], &mut vec![0; room][..]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Limit);
            assert!(e.to_string().contains(&format!("room for {room} bytes, and the file has {}", want.len())), "{e}");
        }
    }
}

#[test]
fn no_file_is_above_the_bound() {
    for n in [0, 1, 7, 4096, 1 << 20, 3_000_001] {
        let raw = noise(n, 2);
        let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
        assert!(file.len() as u64 <= lmc::compress_bound(n as u64), "{n}: {}", file.len());
    }
}
