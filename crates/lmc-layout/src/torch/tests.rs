//! On files that torch wrote (`testdata/layouts/torch/make.py`), and on broken ones.

use std::fs;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use lmc_test_inputs::distcp::{Place, metadata, place};

use super::super::strided::{Elements, TensorView};
use super::super::suggestion::Start;
use super::*;
use crate::dtype::Dtype;
use crate::error::ErrorKind;
use crate::segment::Segment;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/layouts/torch");

fn sample(name: &str) -> Vec<u8> {
    fs::read(format!("{FOLDER}/{name}")).unwrap()
}

/// The layout of a file, whose segments have no gaps.
fn layout(file: &[u8]) -> Option<Layout> {
    let layout = match Torch.suggest(&mut &*file).unwrap() {
        Some(layout) => layout,
        None => Legacy.suggest(&mut &*file).unwrap()?,
    };
    let mut at = 0;
    for segment in &layout.segments {
        assert_eq!(segment.offset, at, "segments have no gaps");
        assert_eq!(segment.dtype.is_some(), segment.name.is_some());
        at = segment.end();
    }
    assert!(at <= file.len() as u64);
    Some(layout)
}

fn views(file: &mut dyn Prefix, segments: &[Segment], prefix: &str) -> Result<Option<Vec<TensorView>>> {
    Ok(super::declared(file, segments, prefix)?.map(|found| found.found))
}

/// Checks that the elements of all tensors are in the file.
fn check_views(file: &[u8], layout: &Layout) {
    if let Ok(views) = views(&mut &*file, &layout.segments, "") {
        for view in views.expect("it is a file of torch") {
            let Elements { offset, len, strides } = view.elements;
            assert!(offset.checked_add(len).is_some_and(|end| end <= file.len() as u64), "{}", view.name);
            assert!(strides.is_some() || len == view.len, "{}", view.name);
        }
    }
}

/// Name, dtype and shape of all tensors, under all of their names, that begin with a prefix.
fn names(file: &[u8], prefix: &str) -> Result<Vec<String>> {
    let found = views(&mut &*file, &[], prefix)?.expect("torch wrote it");
    Ok(found.iter().map(|t| format!("{} {} {:?}", t.name, t.dtype, t.shape)).collect())
}

/// Name, dtype and shape of all tensors.
fn tensors(file: &[u8]) -> Vec<String> {
    let layout = layout(file).expect("torch wrote it");
    let tensors = layout.segments.iter().filter_map(|s| s.name.as_ref().zip(s.dtype).map(|t| (t, s)));
    tensors.map(|((name, dtype), s)| format!("{name} {dtype} {:?}", &s.shape[..])).collect()
}

/// The elements of a tensor of fp32.
fn values(file: &[u8], name: &str) -> Vec<f32> {
    let layout = layout(file).unwrap();
    let tensor = layout.segments.iter().find(|s| s.name.as_deref() == Some(name)).unwrap();
    assert_eq!(tensor.dtype, Some(Dtype::F32));
    let bytes = &file[tensor.offset as usize..tensor.end() as usize];
    bytes.as_chunks().0.iter().map(|&e| f32::from_le_bytes(e)).collect()
}

#[test]
fn a_training_state() {
    let file = sample("state.pt");
    assert_eq!(layout(&file).unwrap().name, "torch");
    let found = tensors(&file);
    let of = |number: usize, shape: &str| {
        [
            format!("optimizer.state.{number}.step F32 []"),
            format!("optimizer.state.{number}.exp_avg BF16 {shape}"),
            format!("optimizer.state.{number}.exp_avg_sq BF16 {shape}"),
        ]
    };
    assert_eq!(
        found[..4],
        ["model.0.weight BF16 [2, 3]", "model.0.bias BF16 [2]", "model.1.weight BF16 [2, 2]", "model.1.bias BF16 [2]"]
    );
    assert_eq!(found[4..], [of(0, "[2, 3]"), of(1, "[2]"), of(2, "[2, 2]"), of(3, "[2]")].concat());
}

#[test]
fn every_type() {
    let file = sample("kinds.pt");
    let expected = [
        "float64 F64 [4]",
        "float16 F16 [4]",
        "int64 I64 [4]",
        "int32 I32 [4]",
        "int16 I16 [4]",
        "int8 I8 [4]",
        "uint8 U8 [4]",
        "uint16 U16 [4]",
        "uint32 U32 [4]",
        "uint64 U64 [4]",
        "bool BOOL [4]",
        "complex64 C64 [4]",
        "complex128 F64 [4, 2]",
        "float8_e4m3fn F8_E4M3 [4]",
        "float8_e5m2 F8_E5M2 [4]",
        "float8_e8m0fnu F8_E8M0 [4]",
        "parameter F32 [3, 3]",
        "scalar F32 []",
    ];
    assert_eq!(tensors(&file), expected);
    assert_eq!(values(&file, "scalar"), [7.0]);
}

#[test]
fn views_of_storages() {
    for name in ["views.pt", "protocol5.pt", "legacy.pt"] {
        let file = sample(name);
        let mut found = tensors(&file);
        // The old format sorts storages by address.
        found.sort();
        let unnamed = |what: &str| found.iter().filter(|t| t.starts_with("data/") && t.ends_with(what)).count();
        assert_eq!((unnamed("@16 F32 [8]"), unnamed(" F32 [6]"), unnamed(" F32 [2]")), (1, 1, 1), "{name}: {found:?}");
        let named: Vec<_> = found.iter().filter(|t| !t.starts_with("data/")).collect();
        let expected = [
            "7 F32 [2]",
            "a.b F32 [2]",
            "empty F32 [0, 5]",
            "first F32 [4]",
            "list.0 F32 [2]",
            "list.1.0 F32 [2]",
            "second F32 [3, 4]",
            "tied F32 [6]",
        ];
        assert_eq!(named, expected.iter().collect::<Vec<_>>(), "{name}");
        assert_eq!(values(&file, "second"), (4..16).map(|n| n as f32).collect::<Vec<_>>());
        assert_eq!((values(&file, "7"), values(&file, "list.1.0")), (vec![7.0; 2], vec![6.0; 2]));
    }
}

/// `lmc-cli` compares the elements with those that torch loads.
#[test]
fn names_of_views() {
    for name in ["shared.pt", "shared-legacy.pt"] {
        let file = sample(name);
        let all = names(&file, "").unwrap();
        assert_eq!(all.len(), 23, "{all:?}");
        assert!(all.iter().all(|name| !name.starts_with("data/")), "{all:?}");
        assert_eq!(names(&file, "c").unwrap(), ["column F32 [4]", "cycle.t F32 [2]", "complex C64 [3, 2]"]);
    }
    // A file that is one tensor has the name that a compressed one keeps.
    let file = sample("one.pt");
    let mut segments = layout(&file).unwrap().segments;
    segments.iter_mut().filter(|s| s.name.is_some()).for_each(|s| s.name = Some("kept".into()));
    let found = views(&mut &file[..], &segments, "").unwrap().unwrap();
    assert_eq!((found.len(), &found[0].name[..]), (1, "kept"));
    assert_eq!(names(&sample("dcp/__0_0.distcp"), "").unwrap(), ["1 F32 [3, 4]", "2 I64 [3]"]);
    for other in [&b"PK\x03\x04"[..], b"", &sample("shared.safetensors")] {
        assert_eq!(views(&mut &*other, &[], "").unwrap(), None);
    }
}

/// Types that have no class of storages: the old format counts bytes.
#[test]
fn storages_without_a_type() {
    let file = sample("untyped-legacy.pt");
    for mut found in [tensors(&file), names(&file, "").unwrap()] {
        found.sort();
        assert_eq!(found, ["u U16 [4]", "w F32 [6]"]);
    }
    assert_eq!(values(&file, "w"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

/// Empty tensors without a name are not compared with each other.
#[test]
fn many_segments_at_one_place() {
    let file = sample("one.pt");
    let mut segments = layout(&file).unwrap().segments;
    let at = segments.iter().position(|s| s.name.is_some()).unwrap();
    let empty = Segment { len: 0, shape: [0][..].into(), name: Some("empty".into()), ..segments[at].clone() };
    segments.splice(at..at, [empty.clone(), empty]);
    segments[at + 2].name = Some("kept".into());
    assert_eq!(views(&mut &file[..], &segments, "").unwrap().unwrap()[0].name, "kept");
}

#[test]
fn modules_and_scripts() {
    for name in ["module.pt", "script.pt"] {
        for mut found in [tensors(&sample(name)), names(&sample(name), "").unwrap()] {
            found.sort();
            assert_eq!(found, ["a.bias F32 [2]", "a.weight F32 [2, 3]", "b I64 [4]"], "{name}");
        }
    }
    assert_eq!(tensors(&sample("one.pt")), ["0 F32 [5]"]);
}

#[test]
fn distributed_checkpoints() {
    let file = sample("dcp/__0_0.distcp");
    assert_eq!(layout(&file).unwrap().name, "distcp");
    assert_eq!(tensors(&file), ["1 F32 [3, 4]", "2 I64 [3]"]);
    assert_eq!(values(&file, "1"), (0..12).map(|n| n as f32).collect::<Vec<_>>());
    let file = sample("dcp-safetensors/__0_0.distcp");
    assert!(layout(&file).is_none(), "it is a file of safetensors");
}

/// The file whose names are in `.metadata` beside it.
#[test]
fn names_of_distributed_checkpoints() {
    let path = std::path::PathBuf::from(format!("{FOLDER}/dcp/__0_0.distcp"));
    struct At(Vec<u8>, std::path::PathBuf);
    impl crate::io::ReadAt for At {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.0.read_exact_at(buf, offset)
        }
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
        fn path(&self) -> Option<&std::path::Path> {
            Some(&self.1)
        }
    }
    let names = |path| {
        let file = At(sample("dcp/__0_0.distcp"), path);
        let layout = Torch.suggest(&mut Start::new(&file, file.0.len() as u64, "the input")).unwrap().unwrap();
        layout.segments.iter().filter_map(|s| s.name.as_deref().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(names(path.clone()), ["model.weight", "model.bias"]);
    assert_eq!(names(path.with_file_name("other.distcp")), ["1", "2"], "the metadata does not know that file");
    assert_eq!(names(path.with_file_name("absent/__0_0.distcp")), ["1", "2"]);
    // A FIFO in its place would be waited for.
    let folder = std::env::temp_dir().join(format!("lmc-distcp-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.join(".metadata")).status().unwrap().success());
    let numbered = names(folder.join("__0_0.distcp"));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(numbered, ["1", "2"]);
    let metadata = sample("dcp/.metadata");
    let all = checkpoint::names_in(&metadata, "__0_0.distcp").unwrap();
    assert_eq!(all.len(), 3, "two tensors and a number: {all:?}");
    (0..metadata.len()).for_each(|len| assert_eq!(checkpoint::names_in(&metadata[..len], "__0_0.distcp"), None));
    for bit in 0..8 * metadata.len() {
        let mut broken = metadata.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        checkpoint::names_in(&broken, "__0_0.distcp");
    }
}

#[test]
fn names_of_chunks() {
    let (long, longer) = ("n".repeat(1024), "n".repeat(1025));
    let chunk = |name, first: i128, file, offset| Place { offsets: vec![first], ..place(name, 1, file, offset, 8) };
    let places = [
        chunk("two", 0, "a.distcp", 0),
        chunk("two", 2, "a.distcp", 8),
        chunk("two", 4, "b.distcp", 0),
        chunk(&long, 0, "a.distcp", 16),
        chunk(&longer, 0, "a.distcp", 24),
        Place { transform: Some("zstd"), ..chunk("packed", 0, "a.distcp", 32) },
    ];
    let names = |places: &[Place<'_>], file| checkpoint::names_in(&metadata(&[], places), file);
    let in_a = names(&places, "a.distcp").unwrap();
    assert_eq!(in_a, [(0, "two@0".to_owned()), (8, "two@2".to_owned()), (16, long.clone())].into());
    assert_eq!(names(&places, "b.distcp").unwrap(), [(0, "two".to_owned())].into());
    let deep = Place { offsets: vec![0; 17], ..chunk("deep", 0, "a.distcp", 0) };
    assert_eq!(names(&[deep], "a.distcp"), None, "more dimensions than a tensor has");
}

/// The pickle names a function that would run a command; it is a name.
#[test]
fn nothing_runs() {
    assert_eq!(tensors(&sample("evil.pt")), ["weights F32 [5]"]);
}

#[test]
fn only_files_that_are_read_anywhere() {
    struct Stream(Vec<u8>);
    impl Prefix for Stream {
        fn get(&mut self, n: usize) -> Result<&[u8]> {
            Ok(&self.0[..n.min(self.0.len())])
        }
    }
    for name in ["state.pt", "legacy.pt"] {
        let mut stream = Stream(sample(name));
        let found = (Torch.suggest(&mut stream).unwrap(), Legacy.suggest(&mut stream).unwrap());
        assert_eq!(found, (None, None), "{name}");
    }
}

/// A damaged file has a layout that covers it, or none.
#[test]
fn damage() {
    let names = ["state.pt", "views.pt", "protocol5.pt", "legacy.pt", "script.pt", "dcp/__0_0.distcp"];
    let mut recognised = 0;
    for name in names {
        let file = sample(name);
        for len in 0..file.len() {
            layout(&file[..len]);
        }
        for bit in 0..8 * file.len() {
            let mut broken = file.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let Some(layout) = layout(&broken) else { continue };
            recognised += 1;
            // Any bit of some bytes.
            if bit % 7 == 0 {
                check_views(&broken, &layout);
            }
        }
    }
    assert!(recognised > 50_000, "{recognised} of the flips were in bytes that matter to no layout");
}

/// Bytes that are read to find a layout.
#[test]
fn storages_are_not_read() {
    struct Counted<'a>(&'a [u8], [AtomicUsize; 2]);
    impl crate::io::ReadAt for Counted<'_> {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.1[0].fetch_add(1, Relaxed);
            self.1[1].fetch_add(buf.len(), Relaxed);
            self.0.read_exact_at(buf, offset)
        }
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
    }
    let read = |file: &[u8]| {
        let counted = Counted(file, Default::default());
        let found = Torch.suggest(&mut Start::new(&counted, file.len() as u64, "the input")).unwrap().unwrap();
        assert_eq!(found.segments.iter().filter(|s| s.dtype.is_some()).count(), 1);
        counted.1.map(AtomicUsize::into_inner)
    };
    let n = 1 << 18;
    let tensor = one_tensor(n);
    let storage = vec![7; 4 * n as usize];
    let [_, bytes] = read(&archive(&[("a/data.pkl", &tensor), ("a/data/0", &storage)]));
    assert!(bytes < 2000, "{bytes} bytes were read");
    // Headers of small entries are read together.
    let names: Vec<String> = (0..1000).map(|i| format!("a/extra/{i}")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![("a/data.pkl", &tensor), ("a/data/0", &storage)];
    entries.extend(names.iter().map(|name| (&name[..], &[1; 100][..])));
    let [reads, _] = read(&archive(&entries));
    assert!(reads < 20, "{reads} reads");
    // Also if the directory alternates between two places of the file.
    let far = vec![0; 1 << 20];
    entries.insert(500, ("a/far", &far));
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order[2..].sort_by_key(|&i| (i - 2) % 500);
    let [reads, bytes] = read(&archive_listed(&entries, &order));
    assert!(reads < 20 && bytes < 1 << 19, "{reads} reads of {bytes} bytes");
}

/// A pickle of one tensor of fp32 with the storage `0` of `n` elements.
fn one_tensor(n: u32) -> Vec<u8> {
    let mut p =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuJ".to_vec();
    p.extend(n.to_le_bytes());
    p.extend(b"tQK\0J");
    p.extend(n.to_le_bytes());
    p.extend(b"\x85K\x01\x85\x89NtR.");
    p
}

/// A zip archive with these entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    archive_listed(entries, &(0..entries.len()).collect::<Vec<_>>())
}

/// A zip archive with these entries, which its directory lists in another order.
fn archive_listed(entries: &[(&str, &[u8])], order: &[usize]) -> Vec<u8> {
    let (mut file, mut headers) = (vec![], vec![]);
    for (name, data) in entries {
        let sizes = [&(data.len() as u32).to_le_bytes()[..], &(data.len() as u32).to_le_bytes()].concat();
        let names = [&(name.len() as u16).to_le_bytes()[..], &[0, 0]].concat();
        let offset = file.len() as u32;
        file.extend([b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0", &sizes[..], &names, name.as_bytes(), data].concat());
        let header = [b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0", &sizes[..], &names].concat();
        headers.push([&header, &[0; 10][..], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let directory = order.iter().map(|&i| &headers[i][..]).collect::<Vec<_>>().concat();
    let (count, at) = ((entries.len() as u16).to_le_bytes(), file.len() as u32);
    file.extend(&directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &(directory.len() as u32).to_le_bytes()].concat());
    file.extend([&at.to_le_bytes()[..], &[0, 0]].concat());
    file
}

/// Finds a layout of a file with this pickle and a storage of 40 bytes.
fn with_pickle(pickle: &[u8]) -> Option<Vec<String>> {
    let file = archive(&[("a/data.pkl", pickle), ("a/data/0", &[1; 40])]);
    layout(&file).map(|_| tensors(&file))
}

#[test]
fn hostile_pickles() {
    assert_eq!(with_pickle(&one_tensor(10)), Some(vec!["0 F32 [10]".to_owned()]));
    // It has fewer elements than the tensor.
    assert_eq!(with_pickle(&one_tensor(11)), Some(vec!["data/0 F32 [10]".to_owned()]));
    assert_eq!(with_pickle(&one_tensor(u32::MAX / 2)), Some(vec!["data/0 F32 [10]".to_owned()]));
    // A negative number.
    assert_eq!(with_pickle(&one_tensor(u32::MAX)), None);
    let tensor = &one_tensor(10)[2..];
    let tensor = &tensor[..tensor.len() - 1];
    let some = |pickle: Vec<u8>| with_pickle(&pickle).map(|t| t.len());
    // A list that holds itself and the tensor; depth of 100,000; a list that holds the one before twice, 60 times.
    assert_eq!(some([b"]q\0h\0a", tensor, b"a."].concat()), Some(1));
    assert_eq!(some([&b"]".repeat(100_000)[..], tensor, &b"a".repeat(100_000), b"."].concat()), Some(1));
    let twice: Vec<u8> = (1..60).flat_map(|i| [b']', b'q', i, b'h', i - 1, b'a', b'h', i - 1, b'a']).collect();
    assert_eq!(some([b"]q\0", tensor, b"a", &twice, b"."].concat()), Some(1));
    // All names of that are too many; of ten times twice they are not.
    let names_of = |pickle: &[u8]| names(&archive(&[("a/data.pkl", pickle), ("a/data/0", &[1; 40])]), "");
    let times = |n: usize| names_of(&[b"]q\0", tensor, b"a", &twice[..9 * n], b"."].concat());
    assert_eq!(times(0).unwrap(), ["0 F32 [10]"]);
    assert_eq!(times(10).unwrap().len(), 1 << 10);
    assert_eq!(times(59).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(names_of(&[b"]q\0h\0a", tensor, b"a."].concat()).unwrap(), ["1 F32 [10]"]);
    // A tensor whose storage is itself, and one that is its own argument.
    assert_eq!(some(b"ctorch._utils\n_rebuild_tensor_v2\n](K\0K\0))tR.".to_vec()), None);
    assert_eq!(some(b"ctorch._utils\n_rebuild_parameter\n]q\0h\0ah\0R.".to_vec()), None);
    // Lengths beyond the end, an empty stack, unknown opcodes, extension codes, buffers elsewhere, no end.
    for broken in [
        &b"X\xff\xff\xff\xff."[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\xff.",
        b"t.",
        b"R.",
        b"a.",
        b"(.",
        b"((\x86.",
        b"h\0.",
        b"\xff.",
        b"\x82\x01.",
        b"\x97.",
        b"N",
        b"",
    ] {
        assert_eq!(some(broken.to_vec()), None, "{broken:?}");
    }
    // Many objects with the same million arguments, a thousand tensors below a key of a million bytes, and with one shape of as many
    // dimensions: none takes longer than its bytes.
    let arguments = [b"(", &b"N".repeat(1_000_000)[..], b"tq\0", tensor, b"]("].concat();
    let objects = b"ca\nb\nh\0R".repeat(100_000);
    assert_eq!(some([&arguments[..], &objects, b"e\x86."].concat()), Some(1));
    let key = [&b"}X\x40\x42\x0f\0"[..], &b"k".repeat(1_000_000)].concat();
    let below = [&key[..], b"](", &tensor.repeat(1000), b"es."].concat();
    assert_eq!(with_pickle(&below).map(|t| t[0].clone()), Some("data/0 F32 [10]".to_owned()));
    let shape = [&b"(("[..], &b"K\x01".repeat(1_000_000), b"tq\0"].concat();
    let of_shape = &b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x0atQK\0h\0h\0\x89NtR"[..];
    assert_eq!(some([&shape[..], &of_shape.repeat(10_000), tensor, b"t."].concat()), Some(1));
    // As many tensors as such a pickle may have: they have the same arguments.
    let arguments = [&tensor[..tensor.len() - 1], b"q\x05"].concat();
    let many =
        |n| some([&b"]("[..], &arguments, &b"ctorch._utils\n_rebuild_tensor_v2\nh\x05R".repeat(n)[..], b"e."].concat());
    assert_eq!((many(10), many(600_000)), (Some(1), Some(1)));
    let file = archive(&[
        ("a/data.pkl", &[&shape[..], &of_shape.repeat(10_000), tensor, b"t."].concat()),
        ("a/data/0", &[1; 40]),
    ]);
    let declared = super::declared(&mut &file[..], &[], "").unwrap().unwrap();
    assert_eq!((declared.found.len(), declared.missing.len()), (1, 10_001), "those without a shape, and no version");
    let empty_lists = [&b"("[..], &b"]".repeat(1_000_000), b"tq\0", tensor, b"]("].concat();
    assert_eq!(names_of(&[&empty_lists[..], &objects, b"e\x86."].concat()).unwrap_err().kind(), ErrorKind::Limit);
    let expanded = |n: u32| {
        let mut p = one_tensor(1);
        let at = p.windows(4).position(|w| w == b"\x85K\x01\x85").unwrap();
        p[at - 4..at].copy_from_slice(&n.to_le_bytes());
        p[at + 2] = 0;
        views(&mut &archive(&[("a/data.pkl", &p), ("a/data/0", &[1; 4])])[..], &[], "")
    };
    let found = expanded(1 << 30).unwrap().unwrap();
    assert_eq!(
        (found[0].len, found[0].elements.len, found[0].elements.strides.as_deref()),
        (1 << 32, 4, Some(&[0][..]))
    );
    // More values than there may be.
    assert_eq!(some([&b"N".repeat((1 << 22) + 1)[..], tensor, b"."].concat()), None);
}

#[test]
fn hostile_archives() {
    let pickle = one_tensor(10);
    let good = archive(&[("a/data.pkl", &pickle), ("a/data/0", &[1; 40])]);
    assert!(layout(&good).is_some());
    let at = |pattern: &[u8], nth: usize| {
        good.windows(pattern.len()).enumerate().filter(|(_, w)| *w == pattern).nth(nth).unwrap().0
    };
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        layout(&file)
    };
    let (first, second, end) = (at(b"PK\x01\x02", 0), at(b"PK\x01\x02", 1), at(b"PK\x05\x06", 0));
    // Sizes beyond the archive, offsets that are none, one entry at the place of the other.
    assert!(changed(second + 20, &[0xff; 8]).is_none());
    assert!(changed(second + 20, &10_000u32.to_le_bytes()).is_none());
    assert!(changed(second + 42, &[0xfe; 4]).is_none());
    assert!(changed(second + 42, &[0; 4]).is_none());
    // Compressed, encrypted.
    assert!(changed(second + 10, &[8]).is_none());
    assert!(changed(second + 8, &[1]).is_none());
    assert!(changed(first + 10, &[8]).is_none());
    // Counts and lengths of the directory.
    assert!(changed(end + 10, &[0xff; 2]).is_none());
    assert!(changed(end + 10, &[1, 0]).is_none());
    assert!(changed(end + 12, &[0xff; 4]).is_none());
    assert!(changed(end + 16, &[0xff; 4]).is_none());
    assert!(changed(end + 20, &[1, 0]).is_none());
    // Bytes after the archive, and before it.
    assert!(layout(&[&good[..], b"\0"].concat()).is_none());
    assert!(layout(&[b"\0", &good[..]].concat()).is_none());
    // Big-endian storages.
    let big = archive(&[("a/data.pkl", &pickle), ("a/byteorder", b"big"), ("a/data/0", &[1; 40])]);
    assert!(layout(&big).is_none());
    // Zip64 numbers that are absent.
    let mut file = good.clone();
    file[second + 24..second + 28].fill(0xff);
    assert!(layout(&file).is_none());
    // Ten thousand entries without a pickle.
    let names: Vec<String> = (0..10_000).map(|n| format!("a/data/{n}")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|n| (&n[..], &b"x"[..])).collect();
    assert!(layout(&archive(&many)).is_none());
}
