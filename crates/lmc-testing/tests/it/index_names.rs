//! Names and shapes of tensors cost little of a file, or are left to its raw bytes, where readers find them.

use crate::support::noise;
use lmc::{Base, CompressOptions, Compressor, DecodeLimits, DecompressOptions, Dtype, Reader, Segment, compress};
use lmc_testing::input::Random;

/// A safetensors file of tensors of such names, shapes of 8-bit elements, and bytes.
fn safetensors(tensors: &[(String, Vec<u64>, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (String::from("{"), vec![]);
    for (i, (name, shape, bytes)) in tensors.iter().enumerate() {
        let (comma, begin) = (if i == 0 { "" } else { "," }, data.len());
        data.extend(bytes);
        let end = data.len();
        header += &format!(r#"{comma}"{name}":{{"dtype":"U8","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#);
    }
    header.push('}');
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// A name of random characters.
fn name(r: &mut Random, len: usize) -> String {
    (0..len).map(|_| char::from_u32(0xa1 + r.below(0x600) as u32).unwrap()).collect()
}

fn tensors(segments: &[Segment]) -> usize {
    segments.iter().filter(|s| s.name.is_some()).count()
}

/// Tensors of the index alone.
fn listed(file: &[u8]) -> usize {
    // A reader with less memory than the default for an index does not look for others.
    let limits = DecodeLimits::default().with_max_index_size((1 << 28) - 1);
    let reader = Reader::open(file, &DecompressOptions::default().with_limits(limits)).unwrap();
    reader.segments().iter().filter(|s| s.dtype.is_some()).count()
}

#[test]
fn no_header_makes_a_file_grow() {
    let mut r = Random::new(1);
    let long: Vec<_> = (0..20).map(|_| (name(&mut r, 20_000), vec![0], vec![])).collect();
    let twice: Vec<_> = (0..400).map(|i| (name(&mut Random::new(i / 2), 1000), vec![0], vec![])).collect();
    let shapes: Vec<_> = (0..300)
        .map(|i| {
            let dimensions =
                if i % 2 == 0 { vec![0; 64] } else { (0..64).map(|d| if d == 0 { 0 } else { r.u64() }).collect() };
            (format!("{i}"), dimensions, vec![])
        })
        .collect();
    let beside_noise: Vec<_> = (0..64).map(|i| (name(&mut r, 1000), vec![1 << 14], noise(1 << 14, i))).collect();
    for (what, tensors_of, found) in [
        ("long names", long, 20),
        ("names that occur twice", twice, 200),
        ("dimensions", shapes, 300),
        ("long names beside noise", beside_noise, 64),
    ] {
        let raw = safetensors(&tensors_of);
        let file = compress(&raw, &CompressOptions::default()).unwrap();
        assert!(file.len() <= raw.len() + raw.len() / 1000 + 700, "{what}: {} of {} bytes", file.len(), raw.len());
        assert!(lmc::decompress(&file, &DecompressOptions::default()).unwrap() == raw, "{what}");
        let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
        assert_eq!((reader.layout(), tensors(reader.segments())), ("safetensors", found), "{what}");
        assert_eq!(reader.segments(), Base::new(&raw[..]).unwrap().segments(), "{what}");
    }
}

#[test]
fn tensors_that_the_index_leaves_out_are_read_by_name() {
    let mut r = Random::new(2);
    let all: Vec<_> = (0..40).map(|i| (name(&mut r, 3000), vec![4000], noise(4000, i))).collect();
    let raw = safetensors(&all);
    let file = compress(&raw, &CompressOptions::default()).unwrap();
    assert_eq!(listed(&file), 0);
    let reader = Reader::open(&file[..], &DecompressOptions::default()).unwrap();
    for (name, _, bytes) in &all {
        assert_eq!(reader.read_tensor(name).unwrap(), *bytes);
    }
    // With less memory than a reader takes for any index, the file is restored, and nothing is looked for.
    let little = DecodeLimits::default().with_max_index_size(1 << 16);
    let reader = Reader::open(&file[..], &DecompressOptions::default().with_limits(little)).unwrap();
    assert_eq!((reader.segments().len(), tensors(reader.segments())), (1, 0));
    // It is the base of a delta, which finds its own tensors when it has its base.
    let mut new = raw.clone();
    *new.last_mut().unwrap() ^= 1;
    let base = || Base::lmc(Reader::open(&file[..], &DecompressOptions::default()).unwrap());
    let mut delta = vec![];
    Compressor::new(&CompressOptions::default()).unwrap().compress(&new, &[base()], &mut delta).unwrap();
    assert_eq!(listed(&delta), 0);
    let reader = Reader::open(&delta[..], &DecompressOptions::default()).unwrap();
    let reader = reader.with_bases(vec![base()]).unwrap();
    assert_eq!(tensors(reader.segments()), 40);
}

#[test]
fn indices_of_usual_files_list_all_tensors() {
    // Tiny tensors whose bytes do not compress, as far as their index takes least.
    let of = |i: u64| (format!("model.layers.{}.mlp.experts.{}.bias", i / 8, i % 8), vec![64], noise(64, i));
    let raw = safetensors(&(0..2000).map(of).collect::<Vec<_>>());
    let file = compress(&raw, &CompressOptions::default()).unwrap();
    assert_eq!(listed(&file), 2000);
    // Segments that the caller gives are in no bytes.
    let (data, mut r) = (noise(4096, 1), Random::new(3));
    let given: Vec<Segment> = (0..64)
        .map(|i| Segment::new(Some((&name(&mut r, 500)[..]).into()), Some(Dtype::U8), [64].into(), 64 * i, 64).unwrap())
        .collect();
    let mut file = vec![];
    let mut compressor = Compressor::new(&CompressOptions::default()).unwrap();
    compressor.compress(lmc::Source::segments(&data, &given), &[], &mut file).unwrap();
    assert_eq!(listed(&file), 64);
}
