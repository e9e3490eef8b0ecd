use super::message::{MAX_DEPTH, MAX_NAME};
use super::wire::MAX_READ;
use super::*;
use crate::io::ReadAt;
use crate::segment::{MAX_RANK, Segment};
use crate::suggestion::Start;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

fn varint(mut v: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while v >= 0x80 {
        bytes.push(v as u8 | 0x80);
        v >>= 7;
    }
    bytes.push(v as u8);
    bytes
}

/// A field whose value is an integer.
fn int(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// A field whose value is bytes.
fn bytes(number: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(number << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn tensor(name: &str, dims: &[u64], data_type: u64, data: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&d| int(1, d)).collect();
    [dims, int(2, data_type), bytes(8, name), bytes(9, data)].concat()
}

/// A model with these fields in its graph.
fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    [int(1, 8), bytes(2, "producer"), bytes(7, graph.concat()), bytes(8, int(2, 17))].concat()
}

/// Name, dtype, shape and bytes of a tensor.
type Tensor = (String, String, Vec<u64>, Vec<u8>);

fn tensors(file: &[u8]) -> Option<Vec<Tensor>> {
    let layout = Onnx.suggest(&mut &file[..]).expect("memory can be read")?;
    let tensor = |s: &Segment| {
        let bytes = file[s.offset as usize..s.end() as usize].to_vec();
        Some((s.name.as_deref()?.into(), s.dtype?.to_string(), s.shape.to_vec(), bytes))
    };
    Some(layout.segments.iter().filter_map(tensor).collect())
}

fn names(file: &[u8]) -> Option<Vec<String>> {
    Some(tensors(file)?.into_iter().map(|t| t.0).collect())
}

#[test]
fn initialisers_of_any_kind() {
    let packed = [bytes(1, [2, 3]), int(2, 6), bytes(8, "packed"), bytes(9, [1; 24])].concat();
    let sparse = [bytes(1, tensor("values", &[2], 1, &[2; 8])), bytes(2, tensor("indices", &[2], 7, &[3; 16]))];
    let file = model(&[
        bytes(5, tensor("a", &[2, 1], 1, &[9; 8])),
        bytes(2, "the graph's name"),
        bytes(5, packed),
        bytes(15, [&sparse.concat()[..], &int(3, 100)].concat()),
        bytes(5, tensor("", &[], 9, &[1])),
    ]);
    let expected = [
        ("a".into(), "F32".into(), vec![2, 1], vec![9; 8]),
        ("packed".into(), "I32".into(), vec![2, 3], vec![1; 24]),
        ("values".into(), "F32".into(), vec![2], vec![2; 8]),
        ("indices".into(), "I64".into(), vec![2], vec![3; 16]),
        (String::new(), "BOOL".into(), vec![], vec![1]),
    ];
    assert_eq!(tensors(&file).as_deref(), Some(&expected[..]));
}

#[test]
fn attributes_functions_and_graphs_inside() {
    let constant = |output: &str, tensor: Vec<u8>| {
        let attribute = [bytes(1, "value"), bytes(5, tensor), int(20, 4)].concat();
        [bytes(1, "in"), bytes(2, output), bytes(2, "other"), bytes(4, "Constant"), bytes(5, attribute)].concat()
    };
    let inner = bytes(1, constant("inner", tensor("", &[1], 3, &[5])));
    let branch = |number| bytes(5, [bytes(1, "then_branch"), bytes(number, &inner)].concat());
    let with_graphs = [branch(6), branch(11)].concat();
    let graph = bytes(7, [bytes(1, constant("own", tensor("t", &[1], 3, &[4]))), bytes(1, with_graphs)].concat());
    let function =
        bytes(25, [bytes(1, "f"), bytes(7, constant("of a function", tensor("", &[2], 2, &[6, 7])))].concat());
    let training = bytes(20, bytes(1, bytes(5, tensor("trained", &[1], 2, &[8]))));
    let file = [int(1, 8), graph, training, function].concat();
    assert_eq!(names(&file).unwrap(), ["t", "inner", "inner", "trained", "of a function"]);
}

#[test]
fn tensors_that_do_not_fit_are_opaque() {
    let long = "n".repeat(MAX_NAME as usize);
    let fits = bytes(5, tensor(&long, &[1], 2, &[0]));
    let floats = |data_type, len| [int(1, 1), int(2, data_type), bytes(4, vec![0; len]), bytes(8, "typed")].concat();
    let values = [int(1, 2), int(2, 1), [4 << 3 | 5, 0, 0, 0, 0].repeat(2), bytes(8, "not packed")].concat();
    let external = [int(1, 1), int(2, 1), bytes(8, "external"), bytes(13, bytes(1, "location")), int(14, 1)].concat();
    for odd in [
        tensor("short", &[2], 1, &[0; 7]),
        tensor("long", &[2], 1, &[0; 9]),
        tensor("half a byte", &[3], 22, &[0; 2]),
        tensor("strings", &[1], 8, &[0; 8]),
        tensor("complex128", &[1], 15, &[0; 16]),
        tensor("no dtype", &[1], 0, &[0]),
        tensor("hostile", &[1 << 63, 1 << 63], 1, &[0; 8]),
        tensor("negative", &[u64::MAX], 2, &[0; 8]),
        tensor("rank", &[1; MAX_RANK + 1], 2, &[0]),
        floats(1, 5),
        floats(6, 4),
        values,
        external,
    ] {
        let file = model(&[bytes(5, odd), fits.clone()]);
        assert_eq!(names(&file), Some(vec![long.clone()]));
    }
    let longer = format!("{long}n");
    for unnamed in [longer.as_bytes(), &[0xff]] {
        let file = model(&[bytes(5, [int(1, 1), int(2, 2), bytes(8, unnamed), bytes(9, [0])].concat())]);
        assert_eq!(names(&file), Some(vec![String::new()]));
    }
}

#[test]
fn packed_fields_of_floats() {
    let typed = |field, data_type, len| {
        bytes(5, [int(1, 2), int(2, data_type), bytes(field, vec![7; len]), bytes(8, "t")].concat())
    };
    for (field, data_type, len, dtype) in [(4, 1, 8, "F32"), (4, 14, 16, "C64"), (10, 11, 16, "F64")] {
        let found = tensors(&model(&[typed(field, data_type, len)])).unwrap();
        assert_eq!(found, [("t".into(), dtype.into(), vec![2], vec![7; len])]);
    }
}

/// A tensor in another file.
fn external_tensor(name: &str, dims: &[u64], facts: &[(&str, &str)]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&d| int(1, d)).collect();
    let fact = |(key, value): &(&str, &str)| bytes(13, [bytes(1, key), bytes(2, value)].concat());
    let facts: Vec<u8> = facts.iter().flat_map(fact).collect();
    bytes(5, [dims, int(2, 1), bytes(8, name), facts, int(14, 1)].concat())
}

#[test]
fn external_data() {
    let found = |file: &[u8], size| {
        let whole = (&file).whole().expect("memory is read anywhere");
        let Layout { segments, .. } = external(whole, "w.data", size).expect("memory can be read")?;
        let tensor = |s: &Segment| Some((s.name.as_deref()?.to_owned(), s.offset, s.len));
        Some(segments.iter().filter_map(tensor).collect::<Vec<_>>())
    };
    let here = ("location", "w.data");
    let graph = |extra: Vec<u8>| {
        model(&[
            bytes(5, tensor("inside", &[1], 1, &[0; 4])),
            external_tensor("second", &[4], &[("offset", "64"), here, ("length", "16"), ("checksum", "x")]),
            external_tensor("first", &[2, 2], &[here]),
            external_tensor("elsewhere", &[2], &[("location", "other.data")]),
            extra,
        ])
    };
    let both = vec![("first".to_owned(), 0, 16), ("second".to_owned(), 64, 16)];
    assert_eq!(found(&graph(vec![]), 80), Some(both.clone()));
    let odd = [
        external_tensor("tied", &[2], &[here, ("offset", "64")]),
        external_tensor("overlaps", &[4], &[here, ("offset", "72")]),
        external_tensor("beyond", &[4], &[here, ("offset", "80")]),
        external_tensor("hostile", &[4], &[here, ("offset", "18446744073709551615")]),
        external_tensor("short", &[4], &[here, ("offset", "20"), ("length", "15")]),
        external_tensor("long", &[4], &[here, ("offset", "20"), ("length", "17")]),
        external_tensor("nowhere", &[4], &[("offset", "20")]),
    ];
    assert_eq!(found(&graph(odd.concat()), 80), Some(both.clone()));
    assert_eq!(found(&graph(vec![]), 79), Some(both[..1].to_vec()));
    assert_eq!(found(&graph(vec![]), 15), None);
    for bad in ["-1", "x", "18446744073709551616", ""] {
        assert_eq!(found(&graph(external_tensor("t", &[4], &[here, ("offset", bad)])), 80), None, "{bad}");
    }
    assert_eq!(found(&model(&[bytes(5, tensor("inside", &[1], 1, &[0; 4]))]), 80), None);
}

#[test]
fn names_of_models() {
    for (location, expected) in
        [("m.onnx.data", Some("m.onnx")), ("m.onnx_data", Some("m.onnx")), ("m.data", Some("m.onnx")), ("m.onnx", None)]
    {
        assert_eq!(model_of(location).as_deref(), expected, "{location}");
    }
}

/// Memory with the path of a file.
struct At(Vec<u8>, PathBuf);

impl ReadAt for At {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn path(&self) -> Option<&Path> {
        Some(&self.1)
    }
}

#[test]
fn the_model_beside_a_file_names_its_tensors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/layouts");
    let data = std::fs::read(folder.join("external.onnx.data")).expect("the file can be read");
    let found = |name: &str| {
        let file = At(data.clone(), folder.join(name));
        let layout = External.suggest(&mut Start::new(&file, data.len() as u64, "the input")).unwrap()?;
        let tensor = |s: &Segment| Some(format!("{} {:?} {:?}", s.name.as_deref()?, s.dtype?, &s.shape[..]));
        Some((layout.name, layout.segments.iter().filter_map(tensor).collect::<Vec<_>>()))
    };
    let expected = ["weight F32 [6, 5]", "half F16 [7]"].map(str::to_owned).to_vec();
    assert_eq!(found("external.onnx.data"), Some(("onnx", expected)));
    for name in ["external.onnx_data", "external.data", "external.onnx", "none.onnx.data", "torch.onnx.data"] {
        assert_eq!(found(name), None, "{name}");
    }
    assert_eq!(External.suggest(&mut &data[..]).unwrap(), None);
}

#[test]
fn what_is_no_model_is_raw() {
    let one = bytes(5, tensor("a", &[1], 2, &[0]));
    let graph = bytes(7, &one);
    assert!(names(&[int(1, 8), graph.clone()].concat()).is_some());
    let twice = [tensor("a", &[1], 2, &[0]), bytes(9, [0])].concat();
    for (what, file) in [
        ("nothing", vec![]),
        ("no graph", int(1, 8)),
        ("no tensor", model(&[])),
        ("no version", graph.clone()),
        ("version 0", [int(1, 0), graph.clone()].concat()),
        ("version of two bytes", [int(1, 128), graph.clone()].concat()),
        ("two graphs", [int(1, 8), graph.clone(), graph.clone()].concat()),
        ("a graph that is a number", [int(1, 8), int(7, 1)].concat()),
        ("an unknown field", [int(1, 8), graph.clone(), bytes(9, "x")].concat()),
        ("field 0", [int(1, 8), graph.clone(), vec![0, 0]].concat()),
        ("a group", [int(1, 8), graph.clone(), vec![8 << 3 | 3]].concat()),
        ("cut", [int(1, 8), graph[..graph.len() - 1].to_vec()].concat()),
        ("longer", [int(1, 8), graph.clone(), vec![0x42]].concat()),
        ("a varint without end", [int(1, 8), graph.clone(), vec![5 << 3], vec![0xff; 10], vec![0]].concat()),
        ("a varint of 65 bits", [int(1, 8), graph.clone(), vec![5 << 3], vec![0xff; 9], vec![2]].concat()),
        ("a hostile length", [int(1, 8), graph.clone(), vec![0x42], varint(u64::MAX)].concat()),
        ("a fixed number beyond the end", model(&[vec![30 << 3 | 1], vec![0; 7]])),
        ("an initialiser that is a number", model(&[int(5, 1), one])),
        ("two raw_data", model(&[bytes(5, twice)])),
        ("a cut dimension", model(&[bytes(5, bytes(1, [0x80]))])),
    ] {
        assert_eq!(names(&file), None, "{what}");
    }
}

#[test]
fn graphs_nest_to_a_depth() {
    let nested = |depth: u32| {
        let innermost = bytes(5, tensor("deep", &[1], 2, &[0]));
        let graph = (0..depth).fold(innermost, |graph, _| bytes(1, bytes(5, bytes(6, graph))));
        names(&model(&[bytes(5, tensor("a", &[1], 2, &[0])), graph]))
    };
    assert_eq!(nested(MAX_DEPTH).unwrap(), ["a", "deep"]);
    assert_eq!(nested(MAX_DEPTH + 1).unwrap(), ["a"]);
    assert_eq!(nested(3000).unwrap(), ["a"]);
}

#[test]
fn tensors_take_bounded_memory() {
    let n = MAX_COST / Segment::cost(0, 0) + 1;
    let graph = |n| bytes(5, tensor("", &[], 9, &[0])).repeat(n);
    assert_eq!(names(&model(&[graph(n - 1)])).map(|names| names.len()), Some(n - 1));
    assert_eq!(names(&model(&[graph(n)])), None);
}

/// Counts the bytes that are read.
struct Counted<'a>(&'a [u8], AtomicU64);

impl ReadAt for Counted<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buf, offset)
    }
}

#[test]
fn data_are_skipped_and_reading_is_bounded() {
    let read = |file: &[u8]| {
        let counted = Counted(file, AtomicU64::new(0));
        let layout =
            Onnx.suggest(&mut Start::new(&counted, file.len() as u64, "the input")).expect("memory can be read");
        (layout.is_some(), counted.1.into_inner())
    };
    let large = tensor("large", &[1 << 20], 1, &vec![0; 4 << 20]);
    let (found, bytes_read) = read(&model(&vec![bytes(5, large); 3]));
    assert!(found && bytes_read < 20_000, "{bytes_read}");
    let empty_nodes = [10, 0].repeat(MAX_READ as usize / 2 + 1000);
    let (found, bytes_read) = read(&model(&[bytes(5, tensor("a", &[1], 2, &[0])), empty_nodes]));
    assert!(!found && bytes_read <= MAX_READ + 2, "{bytes_read}");
}

#[test]
fn streams_are_raw() {
    struct Stream(Vec<u8>);
    impl Prefix for Stream {
        fn get(&mut self, n: usize) -> Result<&[u8]> {
            Ok(&self.0[..n.min(self.0.len())])
        }
    }
    let file = model(&[bytes(5, tensor("a", &[1], 2, &[0]))]);
    assert!(names(&file).is_some());
    assert_eq!(Onnx.suggest(&mut Stream(file)).unwrap(), None);
}
