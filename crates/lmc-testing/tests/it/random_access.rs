//! Reading parts of a file, and no more of it than they need.

use crate::support::{Counted, decompress_options, noise, safetensors, weights};
use lmc::{CompressOptions, DecompressOptions, ErrorKind, Reader};
use lmc_inspect::describe_block;

fn bf16(n: usize, seed: u64) -> Vec<u8> {
    weights(n, seed).iter().flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec()).collect()
}

/// A file with a large tensor of 6 MiB, one of 1.2 MiB, and small ones.
fn file() -> (Vec<u8>, Vec<u8>) {
    let (large, middle, small) = (bf16(3 << 20, 1), bf16(600_000, 2), noise(3000, 3));
    let raw = safetensors(&[
        ("small.0", "U8", vec![3000], &small),
        ("large", "BF16", vec![3072, 1024], &large),
        ("middle", "BF16", vec![600, 1000], &middle),
        ("small.1", "U8", vec![30, 100], &small),
        ("nibbles", "F4", vec![4, 3], &small[..6]),
        ("none", "F32", vec![0, 5], &[]),
        ("scalar", "F32", vec![], &small[..4]),
    ]);
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    (raw, file)
}

#[test]
fn only_the_blocks_needed_are_read() {
    let (raw, file) = file();
    for threads in [1, 3] {
        let counted = Counted::new(&file);
        let reader = Reader::open(&counted, &decompress_options(threads)).unwrap();
        let blocks: Vec<_> = reader.blocks().collect();
        let opened = counted.take();
        let around = file.len() as u64 - blocks.iter().map(|b| b.record_len).sum::<u64>();
        assert_eq!(opened, around, "opening reads header, index and trailer, once");
        let check = |offset: u64, len: usize| {
            let mut out = vec![0; len];
            reader.read_range(offset, &mut out).unwrap();
            assert!(out == raw[offset as usize..][..len], "{len} bytes at {offset}");
            let end = offset + len as u64;
            let needed = blocks.iter().filter(|b| b.raw_offset < end && offset < b.raw_offset + b.raw_len);
            assert_eq!(counted.take(), if len == 0 { 0 } else { needed.map(|b| b.record_len).sum() });
        };
        check(0, 0);
        check(raw.len() as u64, 0);
        check(0, raw.len());
        for b in &blocks {
            check(b.raw_offset, 1);
            check(b.raw_offset, b.raw_len as usize);
            check(b.raw_offset + b.raw_len - 1, 1);
            check((b.raw_offset + b.raw_len - 1).min(raw.len() as u64 - 2), 2);
            check(
                b.raw_offset + b.raw_len / 3,
                (raw.len() as u64 - b.raw_offset - b.raw_len / 3).min(1 << 20) as usize,
            );
        }
    }
}

#[test]
fn tensors_and_rows() {
    let (raw, file) = file();
    let counted = Counted::new(&file);
    let reader = Reader::open(&counted, &DecompressOptions::default()).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&raw).unwrap();
    for (name, t) in theirs.tensors() {
        assert!(reader.read_tensor(&name).unwrap() == t.data());
        let mut out = vec![1; t.data().len()];
        reader.read_tensor_into(&name, &mut out).unwrap();
        assert!(out == t.data());
        let Some(&rows) = t.shape().first() else { continue };
        let row = t.data().len() / rows.max(1);
        assert!(reader.read_rows(&name, 0..rows as u64).unwrap() == t.data());
        assert!(reader.read_rows(&name, 0..0).unwrap().is_empty());
        if rows > 500 {
            assert!(reader.read_rows(&name, 100..202).unwrap() == t.data()[100 * row..202 * row]);
        }
    }
    counted.take();
    assert_eq!(reader.read_rows("large", 1000..1001).unwrap().len(), 2048);
    assert!(counted.take() < 1 << 20, "one block of seven");
    // Two rows of three nibbles are three bytes; one is not.
    assert_eq!(reader.read_rows("nibbles", 2..4).unwrap(), reader.read_tensor("nibbles").unwrap()[3..]);
    let large = reader.tensor("large").unwrap();
    assert_eq!((&large.shape[..], large.len), (&[3072, 1024][..], 6 << 20));
    assert!(reader.tensor("larg").is_none() && reader.tensor("zzz").is_none() && reader.tensor("").is_none());
}

#[test]
fn many_ranges_decode_each_block_once() {
    let (raw, file) = file();
    for threads in [1, 3] {
        let counted = Counted::new(&file);
        let reader = Reader::open(&counted, &decompress_options(threads)).unwrap();
        let size = raw.len();
        // In no order, overlapping, empty, of one block and of many.
        let ranges = [(size - 5, 5), (0, 7), (3, 0), (100, 3 << 20), (0, size), (size, 0), (5000, 20), (2 << 20, 9)];
        counted.take();
        let mut outs: Vec<Vec<u8>> = ranges.iter().map(|&(_, len)| vec![0xee; len]).collect();
        let wanted = ranges.iter().zip(&mut outs).map(|(&(at, _), out)| (at as u64, &mut out[..]));
        reader.read_ranges(wanted).unwrap();
        for ((at, len), out) in ranges.iter().zip(&outs) {
            assert!(raw[*at..][..*len] == out[..], "{len} bytes at {at}");
        }
        assert_eq!(counted.take(), reader.blocks().map(|b| b.record_len).sum::<u64>());
        reader.read_ranges([]).unwrap();
        assert_eq!(counted.take(), 0);
        let (mut good, mut bad) = ([0; 4], [0; 4]);
        let e = reader.read_ranges([(0, &mut good[..]), (size as u64 - 3, &mut bad)]).unwrap_err();
        assert_eq!((e.kind(), counted.take()), (ErrorKind::Usage, 0), "{e}");
    }
}

#[test]
fn wrong_arguments_are_usage_errors() {
    let (raw, file) = file();
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    let size = raw.len() as u64;
    let usage = |r: lmc::Result<Vec<u8>>| {
        let e = r.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage, "{e}");
        e.to_string()
    };
    for (offset, len) in [(size, 1), (size + 1, 0), (u64::MAX, 1), (0, size + 1), (size - 1, 2)] {
        usage(reader.read_range(offset, &mut vec![0; len as usize]).map(|()| vec![]));
    }
    assert!(usage(reader.read_tensor("nope")).contains("\"nope\""));
    assert!(usage(reader.read_tensor_into("large", &mut [0; 3]).map(|()| vec![])).contains("3 bytes"));
    usage(reader.read_rows("large", 3072..3073));
    usage(reader.read_rows("large", 0..u64::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    usage(reader.read_rows("large", 2..1));
    usage(reader.read_rows("none", 0..1));
    usage(reader.read_rows("scalar", 0..1));
    assert!(usage(reader.read_rows("nibbles", 0..1)).contains("byte"));
    usage(describe_block(&reader, 1000).map(|_| vec![]));
}

#[test]
fn errors_name_tensor_block_and_offset() {
    let (raw, mut file) = file();
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    let large = reader.tensor("large").unwrap().clone();
    let (at, hit) = reader.blocks().enumerate().find(|(_, b)| b.raw_offset > large.offset).unwrap();
    let middle = reader.tensor("middle").unwrap().clone();
    drop(reader);
    file[(hit.record_offset + hit.record_len - 100) as usize] ^= 4;
    for threads in [1, 2] {
        let o = decompress_options(threads);
        let reader = Reader::open(&file[..], &o).unwrap();
        let of_reader = reader.read_tensor("large").unwrap_err();
        let of_file = lmc::decompress(&file, &o).unwrap_err();
        for e in [of_reader, of_file] {
            assert_eq!(
                (e.kind(), e.tensor(), e.block(), e.offset()),
                (ErrorKind::Damaged, Some("large"), Some(at as u64), Some(hit.record_offset)),
                "{e}"
            );
        }
        // The rest is not touched by the damage.
        assert!(reader.read_tensor("middle").unwrap() == raw[middle.offset as usize..middle.end() as usize]);
        describe_block(&reader, at as u64).unwrap();
    }
}

#[test]
fn several_threads_may_read_at_once() {
    let (raw, file) = file();
    for threads in [1, 2] {
        let reader = Reader::open(&file[..], &decompress_options(threads)).unwrap();
        std::thread::scope(|s| {
            for i in 0..4 {
                let (reader, raw) = (&reader, &raw);
                s.spawn(move || {
                    for j in 0..8 {
                        let from = (i * 1_000_003 + j * 700_001) % (raw.len() - 2_000_000);
                        let mut out = vec![0; 2_000_000];
                        reader.read_range(from as u64, &mut out).unwrap();
                        assert!(out == raw[from..][..out.len()]);
                    }
                });
            }
        });
    }
}
