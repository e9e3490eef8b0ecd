//! Tensors saved from memory and read into it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use crate::support::{self, memory, new_store, noise, step};
use lmc::{Dtype, ReadAt};
use lmc_store::{ErrorKind, Input, SaveOptions, Snapshot, Store, Tensor, TensorBuffer, TensorSource, Tensors};
use safetensors::tensor::TensorView;

/// Name, dtype, shape, bytes.
type Owned = (String, Dtype, Vec<u64>, Vec<u8>);

fn tensor(name: &str, dtype: Dtype, shape: &[u64], seed: u64) -> Owned {
    let bits = shape.iter().product::<u64>() * u64::from(dtype.bits());
    (name.to_owned(), dtype, shape.to_vec(), noise(bits as usize / 8, seed))
}

/// Some of every dtype, including empty ones, a scalar and names that JSON escapes.
fn zoo() -> Vec<Owned> {
    let mut all: Vec<Owned> = (0..).zip(Dtype::ALL).map(|(i, &d)| tensor(&format!("of.{d}"), d, &[3, 8], i)).collect();
    all.push(tensor("a \"quoted\"\u{1}\\ ñame", Dtype::F32, &[5], 100));
    all.push(tensor("scalar", Dtype::I64, &[], 101));
    all.push(tensor("empty", Dtype::F32, &[7, 0], 102));
    all.push(tensor("zz.empty", Dtype::Bool, &[0], 103));
    all.push(tensor("large", Dtype::Bf16, &[3000, 1000], 104));
    all
}

fn views(tensors: &[Owned]) -> Vec<Tensor<'_>> {
    tensors.iter().map(|(name, dtype, shape, data)| Tensor { name, dtype: *dtype, shape, data }).collect()
}

/// The file as the crate `safetensors` writes it.
fn safetensors_of(tensors: &[Owned], metadata: Option<HashMap<String, String>>) -> Vec<u8> {
    let view = |(name, dtype, shape, data): &'_ Owned| {
        let dtype = serde_json::from_value(dtype.name().into()).unwrap();
        let shape = shape.iter().map(|&d| d as usize).collect();
        (name.clone(), TensorView::new(dtype, shape, Box::leak(data.clone().into_boxed_slice())).unwrap())
    };
    safetensors::serialize(tensors.iter().map(view), metadata).unwrap()
}

/// A source that can be read but not borrowed.
struct Unborrowed<'a>(&'a [u8]);

impl ReadAt for Unborrowed<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn size(&self) -> std::io::Result<u64> {
        self.0.size()
    }
}

fn save(store: &Store, n: u64, tensors: &Tensors<'_>) -> Snapshot {
    let inputs = [Input::new("model.safetensors", tensors)];
    store.save(&inputs, Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap()
}

#[test]
fn the_file_is_the_one_that_safetensors_writes() {
    let zoo = zoo();
    let one = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    for (tensors, metadata) in [(&zoo[..], None), (&zoo, Some(&one)), (&zoo[..1], Some(&BTreeMap::new())), (&[], None)]
    {
        let sources: Vec<_> = tensors.iter().map(|t| (t, Unborrowed(&t.3))).collect();
        let sources =
            sources.iter().map(|((name, dtype, shape, _), data)| TensorSource { name, dtype: *dtype, shape, data });
        let theirs = safetensors_of(tensors, metadata.map(|m| m.clone().into_iter().collect()));
        for ours in [
            Tensors::new(&views(tensors), metadata).unwrap(),
            Tensors::of_sources(&sources.collect::<Vec<_>>(), metadata).unwrap(),
        ] {
            assert_eq!(ours.size().unwrap(), theirs.len() as u64);
            let mut whole = vec![0; theirs.len()];
            ours.read_exact_at(&mut whole, 0).unwrap();
            assert!(whole == theirs);
            // Also across borders of tensors.
            for (at, len) in (0..theirs.len().min(3000)).step_by(37).map(|at| (at, 301.min(theirs.len() - at))) {
                let mut part = vec![0; len];
                ours.read_exact_at(&mut part, at as u64).unwrap();
                assert!(part == theirs[at..at + len]);
                assert!(ours.slice_at(at as u64, len).is_none_or(|s| s == part));
            }
            for (at, len) in [(0, theirs.len() + 1), (theirs.len(), 1), (usize::MAX, 1)] {
                let e = ours.read_exact_at(&mut vec![0; len], at as u64).unwrap_err();
                assert_eq!(e.kind(), std::io::ErrorKind::UnexpectedEof);
            }
        }
    }
}

#[test]
fn tensors_of_memory_come_back_into_memory() {
    let store = new_store(&memory());
    let mut zoo = zoo();
    for n in 0..3 {
        zoo.last_mut().unwrap().3[n as usize] ^= 1;
        save(&store, n, &Tensors::new(&views(&zoo), None).unwrap());
    }
    let reader = support::reader(&store, 2);
    let mut file = vec![];
    reader.read_file("model.safetensors", &mut file).unwrap();
    assert!(file == safetensors_of(&zoo, None));
    assert_eq!(reader.files()[0].layout, "safetensors");
    // All at once, and in any order.
    let mut out: Vec<Vec<u8>> = zoo.iter().map(|t| vec![0xaa; t.3.len()]).collect();
    let buffers = zoo.iter().zip(&mut out).rev();
    reader.read_tensors(buffers.map(|(t, out)| TensorBuffer { name: &t.0, rows: None, out })).unwrap();
    for (t, out) in zoo.iter().zip(&out) {
        assert!(t.3 == *out, "{}", t.0);
    }
    let large = &zoo.last().unwrap().3;
    let (mut rows, mut others) = ([0; 4000], vec![1; 2000 * 2900]);
    reader
        .read_tensors([
            TensorBuffer { name: "large", rows: Some(7..9), out: &mut rows },
            TensorBuffer { name: "large", rows: Some(100..3000), out: &mut others },
            TensorBuffer { name: "large", rows: Some(50..50), out: &mut [] },
        ])
        .unwrap();
    assert!(rows == large[14_000..18_000] && others == large[200_000..]);
    let mut scalar = [0; 8];
    reader.read_tensors([TensorBuffer { name: "scalar", rows: None, out: &mut scalar }]).unwrap();
    assert_eq!(scalar, zoo[zoo.len() - 4].3[..]);
    for (name, rows, len, kind) in [
        ("scalar", None, 7, ErrorKind::Usage),
        ("scalar", Some(0..1), 8, ErrorKind::Usage),
        ("large", Some(2999..3001), 4000, ErrorKind::Usage),
        ("large", Some(0..1), 4000, ErrorKind::Usage),
        ("none", None, 0, ErrorKind::NotFound),
    ] {
        let e = reader.read_tensors([TensorBuffer { name, rows, out: &mut vec![0; len] }]).unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
    }
    let (mut start, mut end) = ([0; 100], [0; 7]);
    let at = file.len() as u64 - 7;
    let name = "model.safetensors";
    reader.read_ranges([(name, at, &mut end[..]), (name, 3, &mut start), (name, 9, &mut [])]).unwrap();
    assert!(start == file[3..103] && end == file[at as usize..]);
    for (name, offset, kind) in
        [(name, at + 1, ErrorKind::Usage), (name, u64::MAX, ErrorKind::Usage), ("none", 0, ErrorKind::NotFound)]
    {
        assert_eq!(reader.read_ranges([(name, offset, &mut end[..])]).unwrap_err().kind(), kind);
    }
}

#[test]
fn tensors_that_fit_no_file_are_refused() {
    let data = [0; 8];
    let t = |name, shape| Tensor { name, dtype: Dtype::F32, shape, data: &data };
    for (tensors, part) in [
        (&[t("a", &[2]), t("a", &[2])][..], "tensor \"a\""),
        (&[t("__metadata__", &[2])], "__metadata__"),
        (&[t("a", &[3])], "8 bytes"),
        (&[t("a", &[u64::MAX, 3])], "8 bytes"),
    ] {
        let e = Tensors::new(tensors, None).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(part), "{e}");
    }
}

#[test]
fn a_tensor_in_memory_is_compressed_where_it_is() {
    /// Records how many bytes were copied.
    struct Watched<'a>(Tensors<'a>, Mutex<u64>);
    impl ReadAt for Watched<'_> {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            *self.1.lock().unwrap() += buf.len() as u64;
            self.0.read_exact_at(buf, offset)
        }
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
        fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
            self.0.slice_at(offset, len)
        }
    }
    let zoo = zoo();
    let watched = Watched(Tensors::new(&views(&zoo), None).unwrap(), Mutex::new(0));
    let store = new_store(&memory());
    for n in 0..2 {
        let inputs = [Input::new("m", &watched)];
        store.save(&inputs, Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap();
    }
    // The header, and the set of small tensors.
    let small: usize = zoo.iter().map(|t| t.3.len()).filter(|&n| n < 1 << 18).sum();
    let header = watched.size().unwrap() - zoo.iter().map(|t| t.3.len() as u64).sum::<u64>();
    assert!(*watched.1.lock().unwrap() <= 2 * (small as u64 + 3 * header), "{:?}", watched.1);
}
