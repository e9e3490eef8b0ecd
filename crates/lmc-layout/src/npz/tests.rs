//! On files that NumPy wrote (`testdata/layouts/make.py`).

use std::fs;

use super::*;

fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{}/../../testdata/layouts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn tensors(file: &[u8]) -> Option<Vec<String>> {
    let layout = Npz.suggest(&mut &*file).unwrap()?;
    let mut at = 0;
    for segment in &layout.segments {
        assert_eq!(segment.offset, at, "segments have no gaps");
        at = segment.end();
    }
    assert!(at <= file.len() as u64);
    let tensors = layout.segments.iter().filter_map(|s| s.name.as_ref().zip(s.dtype).map(|t| (t, s)));
    Some(tensors.map(|((name, dtype), s)| format!("{name} {dtype} {:?}", &s.shape[..])).collect())
}

#[test]
fn arrays_of_an_archive() {
    let file = sample("arrays.npz");
    assert_eq!(
        tensors(&file).unwrap(),
        ["weight F32 [3, 4]", "deep/bias F16 [5]", "columns F64 [3, 2]", "scalar I64 []"]
    );
    assert_eq!(tensors(&sample("compressed.npz")), Some(vec![]), "its arrays are compressed");
}

#[test]
fn damage() {
    let file = sample("arrays.npz");
    (0..file.len()).for_each(|len| _ = tensors(&file[..len]));
    let mut recognised = 0;
    for bit in 0..8 * file.len() {
        let mut broken = file.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        recognised += usize::from(tensors(&broken).is_some());
    }
    assert!(recognised > 4000, "{recognised}");
}
