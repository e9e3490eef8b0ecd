//! Encoders and decoders: streams that are written to and read from.

use std::io::{self, BufRead, Read, Write};

use crate::support::{Broken, Trickle, decompress_options, delta_of, is_io, noise, safetensors, weights};
use lmc::{
    Base, CompressOptions, Compressor, Decoder, DecompressOptions, Decompressor, Dtype, Encoder, Error, ErrorKind,
    Reader, Sink, Source, Summary,
};
use lmc_testing::decoders::LIMIT;
use lmc_testing::input::Random;
use lmc_testing::reference::write::seal;

fn bytes_of(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|f| f.to_le_bytes()).collect()
}

/// The bytes read from a stream.
fn streamed(raw: &[u8], o: &CompressOptions) -> (Vec<u8>, Summary) {
    let mut file = Vec::new();
    let summary =
        Compressor::new(o).unwrap().compress(Source::reader(&mut &*raw), &[], Sink::writer(&mut file)).unwrap();
    (file, summary)
}

/// The error of this crate that a stream's error is.
#[track_caller]
fn inner(e: io::Error) -> Error {
    e.downcast::<Error>().expect("the source is an error of this crate")
}

/// Lengths, most of them small.
fn lengths(seed: u64) -> impl FnMut() -> usize {
    let mut random = Random::new(seed);
    move || {
        let bits = random.u64() % 22;
        (random.u64() % (1 << bits)) as usize
    }
}

#[test]
fn writes_of_any_lengths_give_the_file_of_a_stream() {
    let w = bytes_of(&weights(1_500_000, 1));
    let tensors = [("a", "F32", vec![1_000_000], &w[..4_000_000]), ("b", "F32", vec![500_000], &w[4_000_000..])];
    let mut zeros = vec![0; 30_000_000];
    zeros.extend(&w);
    // No header follows a length of one, and less than the header of a length of a million.
    let cut = [&1_000_000u64.to_le_bytes()[..], b"{", &[b' '; 500_000]].concat();
    let raws = [
        vec![],
        b"1234567".to_vec(),
        7u64.to_le_bytes().to_vec(),
        cut,
        noise(7_000_000, 1),
        safetensors(&tensors),
        zeros,
    ];
    for (i, raw) in raws.iter().enumerate() {
        for threads in [1, 3] {
            let o = CompressOptions::default().with_dtype(Dtype::F32).with_threads(threads);
            let (file, summary) = streamed(raw, &o);
            let mut encoder = Encoder::new(Vec::new(), &o).unwrap();
            let (mut rest, mut length) = (&raw[..], lengths(i as u64));
            while !rest.is_empty() {
                let column = rest.split_off(..length().min(rest.len())).unwrap();
                encoder.write_all(column).unwrap();
                encoder.flush().unwrap();
            }
            let (written, s) = encoder.finish().unwrap();
            assert_eq!(s, summary, "input {i}, {threads} threads");
            assert!(written == file, "input {i}, {threads} threads");
        }
    }
}

#[test]
fn blocks_are_written_before_the_end() {
    let raw = noise(40_000_000, 2);
    for threads in [1, 2] {
        let mut encoder = Encoder::new(Vec::new(), &CompressOptions::default().with_threads(threads)).unwrap();
        encoder.write_all(&raw).unwrap();
        let written = encoder.get_ref().len();
        assert!(written > raw.len() / 2, "{written} bytes");
        encoder.finish().unwrap();
    }
}

#[test]
fn reads_of_any_lengths_give_the_whole() {
    let raw = noise(7_000_000, 3);
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    for threads in [1, 3] {
        let mut decoder = Decoder::new(Trickle(&file[..], 4097), &decompress_options(threads)).unwrap();
        assert!(decoder.bases().is_empty());
        let (mut back, mut length, mut buf) = (vec![], lengths(4), vec![0; 1 << 22]);
        while back.len() < raw.len() {
            assert_eq!(decoder.summary(), None);
            let wanted = length();
            let n = decoder.read(&mut buf[..wanted]).unwrap();
            assert_eq!(n == 0, wanted == 0, "the end is not here");
            back.extend_from_slice(&buf[..n]);
        }
        assert!(back == raw, "{threads} threads");
        for _ in 0..2 {
            assert_eq!(decoder.read(&mut buf).unwrap(), 0);
        }
        let summary = decoder.summary().unwrap();
        assert_eq!((summary.raw_size, summary.compressed_size), (raw.len() as u64, file.len() as u64));
    }
}

#[test]
fn from_stream_to_stream() {
    let raw = noise(3_000_000, 4);
    let o = CompressOptions::default();
    let (file, _) = streamed(&raw, &o);
    let mut encoder = Encoder::new(Vec::new(), &o).unwrap();
    assert_eq!(io::copy(&mut &raw[..], &mut encoder).unwrap(), raw.len() as u64);
    assert!(encoder.finish().unwrap().0 == file);
    let mut back = Vec::new();
    let mut decoder = Decoder::new(&file[..], &DecompressOptions::default()).unwrap();
    assert_eq!(io::copy(&mut decoder, &mut back).unwrap(), raw.len() as u64);
    assert!(back == raw);
    let text = b"one\ntwo\nthree";
    let file = lmc::compress(text, &o).unwrap();
    let lines = Decoder::new(&file[..], &DecompressOptions::default()).unwrap().lines();
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["one", "two", "three"]);
}

#[test]
fn an_encoder_reports_what_its_stream_does() {
    let raw = noise(6_000_000, 5);
    for threads in [1, 3] {
        let o = CompressOptions::default().with_threads(threads);
        for at in [0, 5, 20, 1_000_000, 5_999_999] {
            let mut encoder = Encoder::new(Broken(Vec::new(), at), &o).unwrap();
            let Err(e) = encoder.write_all(&raw) else {
                is_io(&encoder.finish().map(|_| ()).unwrap_err());
                continue;
            };
            is_io(&inner(e));
            let e = inner(encoder.write(b"more").unwrap_err());
            assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("an earlier write failed"), "{e}");
            assert_eq!(encoder.finish().map(|_| ()).unwrap_err().kind(), ErrorKind::Usage);
        }
    }
}

#[test]
fn a_decoder_reports_what_its_stream_does() {
    let raw = noise(6_000_000, 6);
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    for threads in [1, 3] {
        let o = decompress_options(threads);
        for at in [0, 5, 16, 1_000_000, file.len() - 1] {
            let mut back = vec![];
            let Ok(mut decoder) = Decoder::new(Broken(&file[..], at), &o) else {
                is_io(&Decoder::new(Broken(&file[..], at), &o).map(|_| ()).unwrap_err());
                continue;
            };
            is_io(&inner(decoder.read_to_end(&mut back).unwrap_err()));
            assert!(raw.starts_with(&back) && back.len() + (2 << 20) > at.min(raw.len()), "{at}: {} bytes", back.len());
            assert_eq!(inner(decoder.read(&mut [0]).unwrap_err()).kind(), ErrorKind::Usage);
            assert_eq!(decoder.summary(), None);
        }
    }
}

/// The output of a decoder, and its error.
fn decoded(file: &[u8], o: &DecompressOptions) -> (Vec<u8>, Result<Summary, Error>) {
    let mut raw = vec![];
    let done = Decoder::new(file, o).and_then(|mut d| match d.read_to_end(&mut raw) {
        Ok(_) => Ok(d.summary().expect("the end was read")),
        Err(e) => Err(inner(e)),
    });
    (raw, done)
}

#[test]
fn a_decoder_judges_as_a_decompressor_does() {
    let raw = bytes_of(&weights(700, 7));
    let file = lmc::compress(&raw, &CompressOptions::default().with_dtype(Dtype::F32)).unwrap();
    for threads in [1, 2] {
        let o = decompress_options(threads);
        let mut d = Decompressor::new(&o).unwrap();
        let mut judge = |bytes: &[u8]| {
            let (back, done) = decoded(bytes, &o);
            let mut streamed = vec![];
            match (done, d.decompress(Source::reader(&mut &*bytes), &[], Sink::writer(&mut streamed))) {
                (Ok(summary), Ok(s)) => assert_eq!(summary, s),
                (Err(e), Err(other)) => assert_eq!((e.kind(), e.to_string()), (other.kind(), other.to_string())),
                (one, other) => panic!("one of them accepts it: {one:?}, {other:?}"),
            }
            assert!(back == streamed);
            back
        };
        for n in 0..file.len() {
            judge(&file[..n]);
            assert!(decoded(&file[..n], &o).1.is_err(), "the first {n} bytes");
        }
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 0x21;
            judge(&bad);
        }
        judge(&[&file[..], b"x"].concat());
        assert!(judge(&file) == raw);
    }
}

#[test]
fn the_end_is_reported_after_the_hash_of_the_whole() {
    let raw = noise(2_000_000, 8);
    let mut file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let last = Reader::open(&file[..], &DecompressOptions::default()).unwrap().blocks().last().unwrap();
    // In the index, behind the header of its record and the raw size.
    file[(last.record_offset + last.record_len) as usize + 24 + 8] ^= 1;
    seal(&mut file, false, LIMIT);
    for threads in [1, 3] {
        let (back, done) = decoded(&file, &decompress_options(threads));
        assert!(back == raw, "{threads} threads");
        let e = done.unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("content hash does not match"), "{e}");
    }
    let kind = Decoder::new(&file[..], &decompress_options(1)).unwrap().read_to_end(&mut vec![]).unwrap_err().kind();
    assert_eq!(kind, io::ErrorKind::InvalidData);
}

#[test]
fn decoders_of_deltas_are_given_bases() {
    let old = weights(500_000, 9);
    let new: Vec<f32> = old.iter().map(|w| w * 1.001).collect();
    let (old, new) = (bytes_of(&old), bytes_of(&new));
    let o = CompressOptions::default().with_dtype(Dtype::F32);
    let base = |bytes| Base::new(bytes).unwrap().with_name("old");
    let delta = delta_of(&new, &[base(&old[..])], &o).unwrap();
    let open = || Decoder::new(&delta[..], &DecompressOptions::default()).unwrap();
    assert_eq!(open().bases()[0].name, "old");
    let mut back = vec![];
    open().with_bases(vec![base(&old[..])]).unwrap().read_to_end(&mut back).unwrap();
    assert!(back == new);
    let e = inner(open().read(&mut [0]).unwrap_err());
    assert!(e.kind() == ErrorKind::Base && e.to_string().contains("give the base"), "{e}");
    assert_eq!(open().with_bases(vec![base(&new[..])]).unwrap_err().kind(), ErrorKind::Base);
    let plain = lmc::compress(&new, &o).unwrap();
    let decoder = Decoder::new(&plain[..], &DecompressOptions::default()).unwrap();
    assert_eq!(decoder.with_bases(vec![base(&old[..])]).unwrap_err().kind(), ErrorKind::Base);
    let mut decoder = Decoder::new(&plain[..], &DecompressOptions::default()).unwrap();
    decoder.read_exact(&mut [0]).unwrap();
    assert_eq!(decoder.with_bases(vec![]).unwrap_err().kind(), ErrorKind::Usage);
}
