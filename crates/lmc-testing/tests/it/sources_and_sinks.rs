//! Every source goes to every sink, with the same bytes.

use std::io::{Read, Write};

use crate::support::{Counted, Memory, Trickle, decompress_options, noise, safetensors};
use lmc::{
    CompressOptions, Compressor, Decompressor, Dtype, ErrorKind, ReadAt, Result, Sink, Source, Summary, WriteAt,
};

const WAYS: usize = 6;

/// Calls `f` with the `i`-th kind of source.
fn with_source<T>(i: usize, bytes: &[u8], f: impl FnOnce(Source<'_>) -> T) -> T {
    match i {
        0 => f(bytes.into()),
        1 => f((&bytes.to_vec()).into()),
        2 => f((&Counted::new(bytes)).into()),
        3 => f((&Counted::new(bytes) as &dyn ReadAt).into()),
        4 => f((&mut Trickle(bytes, 10_007)).into()),
        _ => f((&mut Trickle(bytes, usize::MAX) as &mut dyn Read).into()),
    }
}

/// The bytes that `f` writes to the `i`-th kind of sink, where `len` bytes are expected.
fn through_sink(i: usize, len: usize, f: impl FnOnce(Sink<'_>) -> Result<Summary>) -> (Vec<u8>, Summary) {
    let mut bytes = vec![7; [100, len, 0][i % 3]];
    let file = Memory::default();
    let done = match i {
        0 => f((&mut bytes).into()),
        1 => f((&mut bytes[..]).into()),
        2 => f(Sink::writer(&mut bytes)),
        3 => {
            bytes.clear();
            f((&mut bytes as &mut dyn Write).into())
        }
        4 => f((&file).into()),
        _ => f((&file as &dyn WriteAt).into()),
    };
    let done = done.unwrap_or_else(|e| panic!("sink {i}: {e}"));
    (if i < 4 { bytes } else { file.0.into_inner().unwrap() }, done)
}

fn input() -> Vec<u8> {
    let data = noise(3_000_000, 5);
    safetensors(&[("a", "F32", vec![500_000], &data[..2_000_000]), ("b", "U8", vec![1_000_000], &data[2_000_000..])])
}

#[test]
fn every_source_goes_to_every_sink() {
    let raw = input();
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    for threads in [1, 3] {
        let mut c = Compressor::new(&CompressOptions::default().with_threads(threads)).unwrap();
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        for (source, sink) in (0..WAYS).flat_map(|i| (0..WAYS).map(move |j| (i, j))) {
            for reported in [false, true] {
                let mut done = vec![];
                let mut progress = |n| done.push(n);
                let way = format!("source {source}, sink {sink}, {threads} threads, reported: {reported}");
                let (mut packed, summary) = through_sink(sink, file.len(), |sink| {
                    with_source(source, &raw, |s| match reported {
                        true => c.compress(s.with_progress(&mut progress), &[], sink),
                        false => c.compress(s, &[], sink),
                    })
                });
                // The header of a stream is written before it is known what blocks need.
                packed[..16].copy_from_slice(&summary.header());
                assert!(packed == file, "{way}");
                assert_eq!((summary.raw_size, summary.compressed_size), (raw.len() as u64, file.len() as u64), "{way}");
                let (back, restored) = through_sink(sink, raw.len(), |sink| {
                    with_source(source, &file, |s| match reported {
                        true => d.decompress(s.with_progress(&mut progress), &[], sink),
                        false => d.decompress(s, &[], sink),
                    })
                });
                assert!(back == raw, "{way}");
                assert_eq!(restored, summary, "{way}");
                let blocks = if reported { summary.blocks as usize } else { 0 };
                assert_eq!(done.len(), 2 * blocks, "{way}");
                for reported in done.chunks(blocks.max(1)) {
                    assert!(
                        reported.is_sorted() && reported.last() == Some(&(raw.len() as u64)),
                        "{way}: {reported:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn arrays_are_sources_and_sinks() {
    let o = CompressOptions::default().with_dtype(Dtype::U8);
    let (mut c, mut d) = (Compressor::new(&o).unwrap(), Decompressor::new(&decompress_options(1)).unwrap());
    let (raw, mut file, mut back) = ([3; 500], [0; 300], [0; 500]);
    let done = c.compress(&raw, &[], &mut file).unwrap();
    d.decompress(&file[..done.compressed_size as usize], &[], &mut back).unwrap();
    assert_eq!(back, raw);
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let raw = input();
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let mut d = Decompressor::new(&decompress_options(2)).unwrap();
    for source in 0..WAYS {
        let e = with_source(source, &raw, |s| c.compress(s, &[], &mut vec![0; file.len() - 1][..])).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit, "source {source}: {e}");
        assert!(e.to_string().contains(&format!("has room for {} bytes", file.len() - 1)), "source {source}: {e}");
        for len in [0, raw.len() - 1, raw.len() + 1] {
            let e = with_source(source, &file, |s| d.decompress(s, &[], &mut vec![0; len][..])).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Usage, "source {source}: {e}");
            assert!(e.to_string().contains(&format!("{len}")), "source {source}: {e}");
        }
    }
}

/// This compiles.
#[test]
fn types_that_other_threads_use() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<lmc::Base<'static>>();
    shared::<lmc::Reader<'static, std::fs::File>>();
    shared::<lmc::Error>();
    sent::<lmc::Compressor>();
    sent::<lmc::Decompressor>();
    sent::<lmc::Encoder<std::fs::File>>();
    sent::<lmc::Decoder<'static, std::fs::File>>();
}
