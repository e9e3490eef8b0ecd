//! On checkpoints that torch wrote (`testdata/layouts/dcp/make.py`), and on broken ones.

use std::fs;

use lmc_test_inputs::distcp::{Entry, metadata, place, whole};

use super::*;
use crate::error::ErrorKind;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/layouts/dcp");

fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{FOLDER}/{name}")).unwrap()
}

fn tensor<'m>(metadata: &'m Metadata, name: &str) -> &'m Tensor {
    metadata.tensors.iter().find(|t| t.name == name).unwrap()
}

#[test]
fn what_two_ranks_saved() {
    let metadata = Metadata::parse(&sample("fsdp/.metadata")).unwrap();
    assert_eq!((metadata.tensors.len(), metadata.others.len(), metadata.files.len()), (37, 15, 2));
    assert!(["step", "note.text"].iter().all(|name| metadata.others.iter().any(|n| n == name)));
    metadata.tensors.iter().for_each(|t| t.check().unwrap());
    let columns = tensor(&metadata, "columns");
    assert_eq!((&*columns.torch_dtype, columns.element_len, &columns.shape[..]), ("bfloat16", Some(2), &[3, 7][..]));
    let chunks: Vec<_> = columns.chunks.iter().map(|c| (&c.offsets[..], &c.sizes[..])).collect();
    assert_eq!(chunks, [(&[0, 0][..], &[3, 4][..]), (&[0, 4], &[3, 3])]);
    let file = |chunk: &Chunk| metadata.files[chunk.place.as_ref().unwrap().file].clone();
    assert_eq!(file(&columns.chunks[0]), "__0_0.distcp");
    assert_eq!(file(&columns.chunks[1]), "__1_0.distcp");
    // One row for two ranks.
    let single = tensor(&metadata, "model.2.bias");
    assert_eq!(single.chunks.iter().map(|c| c.sizes[0]).collect::<Vec<_>>(), [1, 0]);
}

/// The elements of a chunk, in the file where they are.
fn located(metadata: &Metadata, name: &str, number: usize) -> (Elements, Vec<u8>) {
    let tensor = tensor(metadata, name);
    let chunk = &tensor.chunks[number];
    let place = chunk.place.as_ref().unwrap();
    let Stored::Plain { offset, len } = place.stored else { panic!("{place:?}") };
    let file = sample(&format!("fsdp/{}", metadata.files[place.file]));
    let found = tensor.locate(chunk, &file, offset, len).unwrap();
    let bytes = file[found.offset as usize..][..found.len as usize].to_vec();
    (found, bytes)
}

#[test]
fn elements_are_found() {
    let metadata = Metadata::parse(&sample("fsdp/.metadata")).unwrap();
    let (found, bytes) = located(&metadata, "middle", 1);
    let expected = [8, 9, 10, 11, 20, 21, 22, 23].map(i32::to_le_bytes).concat();
    assert_eq!((found.strides, bytes), (None, expected));
    let (found, bytes) = located(&metadata, "transposed", 0);
    let expected: Vec<u8> = (0..12u16).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    assert_eq!((found.strides, bytes), (Some([1, 4].into()), expected));
    let (found, bytes) = located(&metadata, "scalar", 0);
    assert_eq!((found.strides, &bytes[..]), (None, &7.5f32.to_le_bytes()[..]));
    // The request must match the contents.
    let wrong = |change: &dyn Fn(&mut Tensor, &mut u64, &mut u64)| {
        let mut tensor = tensor(&metadata, "model.0.weight").clone();
        let (mut offset, mut len) = (0, 1577);
        change(&mut tensor, &mut offset, &mut len);
        let e = tensor.locate(&tensor.chunks[0], &sample("fsdp/__0_0.distcp"), offset, len).unwrap_err();
        assert_eq!((e.kind(), e.tensor()), (ErrorKind::Damaged, Some("model.0.weight")));
        e.to_string()
    };
    assert!(
        wrong(&|t, _, _| t.torch_dtype = "int32".to_owned())
            .contains("[0..3, 0..4] is of F32, and should be of torch.int32")
    );
    assert!(wrong(&|t, _, _| t.chunks[0].sizes = [4, 3].into()).contains("has the sizes [3, 4] in the data file"));
    assert!(wrong(&|_, _, len| *len -= 1).contains("at byte 0 torch.save did not write a tensor"));
    assert!(wrong(&|_, offset, len| (*offset, *len) = (1, 1576)).contains("at byte 1 "));
    assert!(wrong(&|_, _, len| *len = 0).contains("at byte 0 "));
    // End records of zip and zip64, and nothing in front of them.
    let tensor = tensor(&metadata, "model.0.weight");
    for before in [&b""[..], b"PK\x06\x06", &[&b"PK\x06\x06"[..], &[0; 52], b"PK\x06\x07"].concat()] {
        let file = [before, b"PK\x05\x06", &[0; 18]].concat();
        let e = tensor.locate(&tensor.chunks[0], &file, 0, file.len() as u64).unwrap_err();
        assert!(e.to_string().contains("at byte 0 torch.save did not write a tensor"), "{e}");
    }
    assert!(wrong(&|_, offset, _| *offset = u64::MAX).contains("but the data file has 34822 bytes"));
    assert!(wrong(&|_, _, len| *len = 34823).contains("should be 34823 bytes from byte 0 on"));
}

/// A damaged file is an error, or has some contents: nothing panics.
#[test]
fn damage() {
    let mut read = 0;
    for name in ["grid", "named"] {
        let file = sample(&format!("{name}/.metadata"));
        for len in 0..file.len() {
            assert_eq!(Metadata::parse(&file[..len]).unwrap_err().kind(), ErrorKind::Damaged, "{name} {len}");
        }
        for bit in 0..8 * file.len() {
            let mut broken = file.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            if let Ok(metadata) = Metadata::parse(&broken) {
                read += metadata.tensors.iter().filter(|t| t.check().is_ok()).count();
            }
        }
    }
    assert!(read > 1_000, "{read} tensors are sound");
    let metadata = Metadata::parse(&sample("fsdp/.metadata")).unwrap();
    let weight = tensor(&metadata, "model.0.weight");
    let blob = sample("fsdp/__0_0.distcp")[..1577].to_vec();
    for bit in 0..8 * blob.len() {
        let mut broken = blob.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = weight.locate(&weight.chunks[0], &broken, 0, 1577) {
            assert!(found.offset + found.len <= 1577);
        }
        if bit % 8 == 0 {
            weight.locate(&weight.chunks[0], &&blob[..bit / 8], 0, 1577).unwrap_err();
        }
    }
}

/// Checks a tensor of these chunks; each is stored somewhere.
fn check(shape: &[i128], chunks: &[(&[i128], &[i128])]) -> Result<(), String> {
    let chunks: Vec<_> = chunks.iter().map(|(offsets, sizes)| (offsets.to_vec(), sizes.to_vec())).collect();
    let places: Vec<_> = chunks
        .iter()
        .map(|(o, _)| lmc_test_inputs::distcp::Place { offsets: o.clone(), ..place("t", 0, "f", 0, 1) })
        .collect();
    let entry = Entry { chunks, ..whole("t", shape) };
    let metadata = Metadata::parse(&metadata(&[entry], &places)).map_err(|e| e.to_string())?;
    metadata.tensors[0].check().map_err(|e| e.to_string())
}

#[test]
fn chunks_make_a_tensor() {
    let ok = |shape: &[i128], chunks: &[(&[i128], &[i128])]| check(shape, chunks).unwrap();
    ok(&[], &[(&[], &[])]);
    ok(&[0, 3], &[]);
    ok(&[0, 3], &[(&[0, 0], &[0, 3])]);
    ok(&[4], &[(&[0], &[3]), (&[3], &[1]), (&[4], &[0]), (&[9], &[0])]);
    // Twice the same; a pinwheel, which no plane divides.
    ok(&[2], &[(&[0], &[2]), (&[0], &[2])]);
    ok(&[3, 3], &[(&[0, 0], &[1, 2]), (&[0, 2], &[2, 1]), (&[2, 1], &[1, 2]), (&[1, 0], &[2, 1]), (&[1, 1], &[1, 1])]);
    let fails = |shape: &[i128], chunks: &[(&[i128], &[i128])], why: &str| {
        let e = check(shape, chunks).unwrap_err();
        assert!(e.contains(why), "{e}");
    };
    fails(&[4], &[(&[0], &[3])], "its chunks do not cover its shape [4]: 1 of 4 elements are missing (tensor \"t\")");
    fails(&[4], &[], "4 of 4 elements are missing");
    fails(&[4], &[(&[0], &[3]), (&[2], &[2])], "its chunk [2..4] overlaps another one");
    // As many elements as there should be.
    fails(&[2, 2], &[(&[0, 0], &[2, 1]), (&[0, 0], &[1, 2])], "its chunk [0..1, 0..2] overlaps another one");
    fails(&[4], &[(&[0], &[5])], "its chunk [0..5] is not inside of its shape [4]");
    fails(&[4], &[(&[0, 0], &[4, 1])], "is not inside of its shape [4]");
    fails(&[4], &[(&[0], &[2, 2])], "has an impossible size");
    let most = i128::from(i64::MAX);
    fails(&[4], &[(&[most], &[most])], "is not inside");
    fails(&[4], &[(&[1], &[most])], "is not inside");
    fails(
        &[most, most],
        &[(&[0, 0], &[most, most])],
        "its shape [9223372036854775807, 9223372036854775807] is that of no",
    );
    fails(&[most], &[(&[0], &[most])], "is that of no tensor");
    fails(&[4, most], &[(&[0, 0], &[4, most])], "is that of no tensor");
    fails(&[1 << 61], &[(&[0], &[1 << 61])], "is that of no tensor");
    for bad in [-1, most + 1, 1 << 64, i128::MAX] {
        fails(&[bad], &[(&[0], &[4])], "its entry is not that of a tensor (tensor \"t\")");
        fails(&[4], &[(&[0], &[bad])], "its entry is not that of a tensor");
    }
    // No file stores it.
    let metadata = Metadata::parse(&metadata(&[whole("t", &[4])], &[])).unwrap();
    let e = metadata.tensors[0].check().unwrap_err().to_string();
    assert_eq!(e, "nothing says where its chunk [0..4] is stored (tensor \"t\")");
}

#[test]
fn types() {
    let of = |dtype: &str| {
        let entry = Entry { dtype: Some(dtype), ..whole("t", &[2, 3]) };
        let metadata = Metadata::parse(&metadata(&[entry], &[place("t", 2, "f", 0, 1)])).unwrap();
        let tensor = &metadata.tensors[0];
        (tensor.in_safetensors(), tensor.element_len, tensor.check().map_err(|e| e.kind()))
    };
    assert_eq!(of("bfloat16"), (Some((Dtype::Bf16, [2, 3].into())), Some(2), Ok(())));
    assert_eq!(of("float4_e2m1fn_x2"), (Some((Dtype::F4, [2, 6].into())), Some(1), Ok(())));
    assert_eq!(of("complex128"), (None, Some(16), Ok(())));
    assert_eq!(of("qint8"), (None, None, Err(ErrorKind::Unsupported)));
}

#[test]
fn what_is_stored_in_other_ways() {
    let stored = |transform| {
        let entries = [whole("t", &[4])];
        let places = [lmc_test_inputs::distcp::Place { transform, ..place("t", 1, "f", 3, 4) }];
        let metadata = Metadata::parse(&metadata(&entries, &places)).unwrap();
        metadata.tensors[0].chunks[0].place.as_ref().unwrap().stored.clone()
    };
    assert_eq!(stored(None), Stored::Plain { offset: 3, len: 4 });
    assert_eq!(stored(Some("stream.zstd")), Stored::Transformed("stream.zstd".into()));
}

/// None takes longer, or more memory, than its bytes allow.
#[test]
fn hostile_sizes() {
    // A long name, and a long shape, that many entries share.
    let long = [&b"X\x40\x42\x0f\0"[..], &b"n".repeat(1_000_000), b"\x94"].concat();
    let one = metadata(&[], &[place("X", 1, "Y", 0, 1)]);
    let at = |what: &[u8]| one.windows(what.len()).position(|w| w == what).unwrap();
    let (from, to) = (at(b"storage_data") + b"storage_data".len() + 2, one.len() - 4);
    let item = |name: &[u8]| {
        let short = [&b"X\x01\0\0\0"[..], name].concat();
        let item = &one[from..to];
        let at = item.windows(6).position(|w| w == short).unwrap();
        [&item[..at], b"h\0", &item[at + 6..]].concat()
    };
    for name in [b"X", b"Y"] {
        let broken = [&one[..2], &long, b"0", &one[2..from], &item(name).repeat(20_000), &one[to..]].concat();
        let pickle = Pickle::with_at_most(MAX_VALUES, &broken).unwrap();
        let mut parser = Parser::new(&pickle);
        let metadata = parser.metadata().unwrap();
        assert_eq!(metadata.files.len(), 1);
        // Short strings were hashed once for every entry, the long one was not.
        let of_long = if name == b"X" { &parser.names } else { &parser.files };
        assert!(of_long.by_id.len() < 10, "{}", of_long.by_id.len());
    }
    // Irregular chunks: a diagonal in many dimensions.
    let diagonal: Vec<_> = (0..2_000).map(|i| (vec![i; 4], vec![1; 4])).collect();
    let places: Vec<_> = diagonal
        .iter()
        .map(|(o, _)| lmc_test_inputs::distcp::Place { offsets: o.clone(), ..place("t", 0, "f", 0, 1) })
        .collect();
    let entry = Entry { chunks: diagonal, ..whole("t", &[2_000; 4]) };
    let metadata = Metadata::parse(&metadata(&[entry], &places)).unwrap();
    assert_eq!(metadata.tensors[0].check().unwrap_err().kind(), ErrorKind::Limit);
    let e = Metadata::parse(&vec![b'N'; 1 + MAX_LEN as usize]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
}
