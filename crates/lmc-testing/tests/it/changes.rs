//! The elements that a delta changes: those that differ, or `None` where there is more to it.

use lmc::{Base, CompressOptions, Compressor, Dtype, ErrorKind, Level};
use lmc_testing::data::noise;

fn delta(new: &[u8], bases: &[&Vec<u8>], dtype: Dtype, level: Level) -> Vec<u8> {
    let o = CompressOptions::default().with_level(level).with_dtype(Some(dtype)).with_threads(1);
    let bases: Vec<Base<'_>> = bases.iter().map(|b| Base::new(*b).unwrap()).collect();
    let mut file = Vec::new();
    Compressor::new(&o).unwrap().compress(new, &bases, &mut file).unwrap();
    file
}

const DTYPES: [(Dtype, usize); 6] =
    [(Dtype::U8, 1), (Dtype::Bf16, 2), (Dtype::I16, 2), (Dtype::F32, 4), (Dtype::U32, 4), (Dtype::F64, 8)];

/// Elements of several blocks, and the same with one of `every` changed.
fn pair(width: usize, every: usize) -> (Vec<u8>, Vec<u8>) {
    let old = noise(5_000_000 / width * width, width as u64);
    let mut new = old.clone();
    // Some blocks are unchanged.
    new[..3_000_000].iter_mut().step_by(width * every).for_each(|b| *b ^= 1);
    (old, new)
}

#[test]
fn changes_are_those_elements_that_differ() {
    for (dtype, width) in DTYPES {
        for every in [50, 1000, 10_000_000] {
            let (old, new) = pair(width, every);
            let file = delta(&new, &[&old], dtype, Level::Fast);
            let changed = lmc::changed_elements(&file, &old).unwrap().unwrap();
            assert_eq!(changed.width, width, "{dtype}");
            assert_eq!(lmc::changed_count(&file).unwrap(), Some(changed.indices.len() as u64));
            let differing = (0..old.len() / width).filter(|i| old[i * width..][..width] != new[i * width..][..width]);
            assert!(differing.eq(changed.indices.iter().map(|&i| i as usize)), "{dtype}, one of {every}");
            let values = changed.indices.iter().flat_map(|&i| &new[i as usize * width..][..width]);
            assert!(values.eq(&changed.values), "{dtype}, one of {every}");
        }
    }
    // Nothing changed.
    let (old, _) = pair(2, 50);
    let file = delta(&old, &[&old], Dtype::Bf16, Level::Fast);
    assert!(lmc::changed_elements(&file, &old).unwrap().is_none_or(|changed| changed.indices.is_empty()));
}

/// A base that is read by copies, and cannot be read from a byte on.
struct Copied<'a>(&'a [u8], u64);

impl lmc::ReadAt for Copied<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        if offset + buf.len() as u64 > self.1 {
            return Err(std::io::Error::other("interrupted"));
        }
        self.0.read_exact_at(buf, offset)
    }
    fn size(&self) -> std::io::Result<u64> {
        self.0.size()
    }
}

#[test]
fn lists_are_the_same_wherever_the_base_is() {
    let mut random = lmc_test_inputs::Random::new(26);
    for (dtype, width) in DTYPES {
        let n = 2_500_000 / width;
        let old = noise(n * width, width as u64);
        // Numbers of changes about that of the elements that are decoded at once; the first and the last element; and many.
        for changes in [1, 2, 255, 256, 257, 512, n / 1000, n / 40] {
            let mut new = old.clone();
            let places = (0..changes).map(|_| 1 + random.below(n as u64 - 2) as usize).chain([0, n - 1]);
            places.for_each(|i| new[i * width] ^= 1 + (i % 200) as u8);
            let file = delta(&new, &[&old], dtype, Level::Fast);
            let Some(changed) = lmc::changed_elements(&file, &old).unwrap() else {
                panic!("{dtype}, {changes} changes: no list");
            };
            let differing = (0..n).filter(|i| old[i * width..][..width] != new[i * width..][..width]);
            assert!(differing.eq(changed.indices.iter().map(|&i| i as usize)), "{dtype}, {changes} changes");
            let mut made = old.clone();
            for (&i, value) in changed.indices.iter().zip(changed.values.chunks(width)) {
                made[i as usize * width..][..width].copy_from_slice(value);
            }
            assert!(made == new, "{dtype}, {changes} changes");
            let mut applied = old.clone();
            changed.apply(&mut applied);
            assert!(applied == new, "{dtype}, {changes} changes");
            let whole = Copied(&old, old.len() as u64);
            assert_eq!(lmc::changed_elements(&file, &whole).unwrap().as_ref(), Some(&changed), "{dtype}");
            // The last element changed, and cannot be read.
            let e = lmc::changed_elements(&file, &Copied(&old, old.len() as u64 - 1)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Io);
            assert!(e.to_string().contains("cannot read the base"), "{e}");
        }
        // All of them: no list, or the right one.
        let new: Vec<u8> = old.iter().map(|b| b ^ 1).collect();
        let changed = lmc::changed_elements(&delta(&new, &[&old], dtype, Level::Fast), &old).unwrap();
        assert!(changed.is_none_or(|changed| changed.values == new && changed.indices.len() == n), "{dtype}");
    }
}

#[test]
fn what_is_more_than_a_list_is_none() {
    let (old, mut new) = pair(2, 50);
    let none = |file: &[u8], base: &Vec<u8>| assert!(lmc::changed_elements(&file, base).unwrap().is_none());
    none(&delta(&new, &[], Dtype::Bf16, Level::Fast), &old);
    none(&delta(&new, &[&old], Dtype::Bf16, Level::Fast), &old[..4000].to_vec());
    // Another length.
    none(&delta(&new[..4_000_000], &[&old], Dtype::Bf16, Level::Fast), &old);
    none(&delta(&[&new[..], &[1, 2]].concat(), &[&old], Dtype::Bf16, Level::Fast), &old);
    assert_eq!(lmc::changed_count(&delta(&new, &[], Dtype::Bf16, Level::Fast)).unwrap(), None);
    // Many changes in the last block alone.
    new[4_000_000..].iter_mut().zip(noise(1_000_000, 3)).for_each(|(b, n)| *b ^= n & 3);
    none(&delta(&new, &[&old], Dtype::Bf16, Level::Fast), &old);
    // They may be counted all the same.
    let differing = old.chunks(2).zip(new.chunks(2)).filter(|(a, b)| a != b).count() as u64;
    for level in [Level::Fast, Level::Default] {
        let count = lmc::changed_count(&delta(&new, &[&old], Dtype::Bf16, level)).unwrap();
        assert!(count.is_none_or(|n| n == differing), "{count:?} of {differing}");
    }
}

#[test]
fn damage_is_an_error_or_makes_no_difference() {
    let (old, new) = pair(2, 100);
    let (old, new) = (old[..100_000].to_vec(), new[..100_000].to_vec());
    let file = delta(&new, &[&old], Dtype::Bf16, Level::Fast);
    let right = lmc::changed_elements(&file, &old).unwrap().unwrap();
    for i in 0..file.len() {
        let mut bad = file.clone();
        bad[i] ^= 1 << (i % 8);
        _ = lmc::changed_count(&bad);
        match lmc::changed_elements(&bad, &old) {
            Ok(changed) => assert!(changed.is_none_or(|changed| changed == right), "byte {i}"),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Unsupported | ErrorKind::Limit), "{e}")
            }
        }
        assert!(lmc::changed_elements(&&file[..i], &old).is_err(), "{i} bytes");
        assert!(lmc::changed_count(&&file[..i]).is_err(), "{i} bytes");
    }
}
