//! Blocks described.

use crate::safetensors;
use lmc::{CompressOptions, DecompressOptions, ErrorKind, Reader};
use lmc_inspect::describe_block;
use lmc_test_inputs::noise;

fn bf16(n: usize) -> Vec<u8> {
    // Noise, of a few exponents.
    let bytes = noise(2 * n, 7);
    bytes.chunks(2).flat_map(|b| [b[0], b[1] & 0x81 | 0x3c]).collect()
}

/// A file with a large tensor of 6 MiB, one of 1.2 MiB, and small ones.
fn file() -> Vec<u8> {
    let (large, middle, small) = (bf16(3 << 20), bf16(600_000), noise(3000, 3));
    let raw = safetensors(&[
        ("small.0", "U8", vec![3000], &small),
        ("large", "BF16", vec![3072, 1024], &large),
        ("middle", "BF16", vec![600, 1000], &middle),
        ("small.1", "U8", vec![30, 100], &small),
    ]);
    lmc::compress(&raw, &CompressOptions::default()).unwrap()
}

#[test]
fn blocks_are_described() {
    let file = file();
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    for (i, b) in reader.blocks().enumerate() {
        let d = describe_block(&reader, i as u64).unwrap();
        assert_eq!(d.raw_len, b.raw_len);
        assert_eq!(d.columns.iter().map(|p| p.raw_len).sum::<u64>(), b.raw_len);
        assert_eq!(d.columns.iter().map(|p| p.coded_len).sum::<u64>(), b.record_len);
        let of = |column| d.extents.iter().filter(|p| p.column == column).map(|p| p.raw_len).sum::<u64>();
        assert!(d.columns.iter().enumerate().all(|(i, p)| p.raw_len == of(i)));
        for p in &d.columns {
            for g in &p.clusters {
                assert_eq!(g.constant_bits + g.raw_bits + g.symbol_bits, 8 * p.width.unwrap() as u32);
            }
        }
    }
    // A block within the large tensor, except for the bytes before its first row.
    let d = describe_block(&reader, 3).unwrap();
    let large = d.columns.iter().max_by_key(|p| p.raw_len).unwrap();
    assert_eq!((large.method, large.width, large.map), ("plain", Some(2), Some("rotate")));
    assert_eq!(describe_block(&reader, 1000).unwrap_err().kind(), ErrorKind::Usage);
}
