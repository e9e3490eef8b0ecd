//! Bytes with segments from the caller: parts of files, tensors in memory.

use crate::support::restore;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Dtype, ErrorKind, Segment, Source};

fn floats(count: u32, scale: f32) -> Vec<u8> {
    (0..count).flat_map(|i| ((i as f32).sqrt() * scale).to_le_bytes()).collect()
}

fn segments(first: u64, second: u64) -> Vec<Segment> {
    let tensor = |name: &str, dtype: Dtype, offset, len: u64| {
        Segment::new(Some(name.into()), Some(dtype), [len * 8 / u64::from(dtype.bits())].into(), offset, len).unwrap()
    };
    vec![tensor("a", Dtype::F32, 0, first), tensor("b", Dtype::Bf16, first, second)]
}

#[test]
fn columns_are_deltas_of_columns() {
    let (old, new) = (floats(100_000, 1.0), floats(100_000, 1.00001));
    let columns = segments(300_000, 100_000);
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let (mut plain, mut delta) = (vec![], vec![]);
    c.compress(Source::segments(&new, &columns), &[], &mut plain).unwrap();
    let bases = [Base::of_segments(&old[..], &columns).unwrap()];
    c.compress(Source::segments(&new, &columns), &bases, &mut delta).unwrap();
    assert!(delta.len() * 10 < plain.len() * 7, "{} of {}", delta.len(), plain.len());
    let o = DecompressOptions::default();
    assert_eq!(lmc::decompress(&plain, &o).unwrap(), new);
    assert_eq!(restore(&delta, &bases, &o).unwrap(), new);
    // Tensors are found by name, wherever they are.
    let swapped = [&new[300_000..], &new[..300_000]].concat();
    let mut columns: Vec<Segment> = columns.into_iter().rev().collect();
    (columns[0].offset, columns[1].offset) = (0, 100_000);
    c.compress(Source::segments(&swapped, &columns), &bases, &mut delta).unwrap();
    assert!(delta.len() * 10 < plain.len() * 7, "{} of {}", delta.len(), plain.len());
    assert_eq!(restore(&delta, &bases, &o).unwrap(), swapped);
}

#[test]
fn segments_that_do_not_cover_the_bytes_are_refused() {
    let raw = floats(100, 1.0);
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let mut gap = segments(200, 200);
    gap[1].offset += 2;
    let mut beyond = segments(200, 200);
    beyond[1].len = u64::MAX;
    // Half of a tensor, with the shape of the whole; a tensor without a name; opaque bytes with a shape.
    let [mut halved, mut unnamed, mut shaped] = [segments(200, 200), segments(200, 200), segments(200, 200)];
    (halved[0].len, halved[1].offset, halved[1].len) = (100, 100, 300);
    unnamed[0].name = None;
    (shaped[1].name, shaped[1].dtype) = (None, None);
    for bad in [segments(200, 198), segments(200, 202), gap, beyond, vec![], halved, unnamed, shaped] {
        assert_eq!(c.compress(Source::segments(&raw, &bad), &[], &mut vec![]).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(Base::of_segments(&raw[..], &bad).unwrap_err().kind(), ErrorKind::Usage);
    }
    let name = || Some("t".into());
    for bad in [
        Segment::new(name(), Some(Dtype::F32), [3].into(), 0, 11),
        Segment::new(name(), Some(Dtype::F32), [1; 65].into(), 0, 4),
        Segment::new(name(), None, [].into(), 0, 4),
        Segment::new(None, Some(Dtype::F32), [1].into(), 0, 4),
        Segment::new(None, None, [1].into(), 0, 4),
    ] {
        assert_eq!(bad.unwrap_err().kind(), ErrorKind::Usage);
    }
    assert!(Segment::new(None, None, [].into(), 0, 4).unwrap().dtype.is_none());
}
