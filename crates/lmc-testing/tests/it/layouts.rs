//! Files of every host format as its own library writes them, intact and with each bit flipped: the tensors that are
//! recognised, and that every file is restored.

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Level};
use lmc_testing::input::Random;
use lmc_testing::{cases, flipped_bits, targets};
use std::fs;
use std::path::Path;

/// Files of `testdata/layouts`: the layout that each has, and its tensors as `name dtype shape`.
const FILES: &[(&str, &str, &[&str])] = &[
    ("f32.npy", "npy", &[" F32 [3, 4]"]),
    ("fortran-f64.npy", "npy", &[" F64 [4, 3]"]),
    ("scalar-i64.npy", "npy", &[" I64 []"]),
    ("empty-f16.npy", "npy", &[" F16 [0, 3]"]),
    ("bool.npy", "npy", &[" BOOL [17]"]),
    ("bf16.npy", "npy", &[" BF16 [4, 8]"]),
    ("complex64.npy", "npy", &[" C64 [5]"]),
    ("version2.npy", "npy", &[" F32 [2, 5]"]),
    ("version3.npy", "npy", &[" F32 [2, 5]"]),
    ("arrays.npz", "npz", &["weight F32 [3, 4]", "deep/bias F16 [5]", "columns F64 [3, 2]", "scalar I64 []"]),
    ("compressed.npz", "raw", &[]),
    ("torch/one.pt", "torch", &["0 F32 [5]"]),
    ("torch/module.pt", "torch", &["b I64 [4]", "a.weight F32 [2, 3]", "a.bias F32 [2]"]),
    ("torch/script.pt", "torch", &["b I64 [4]", "a.weight F32 [2, 3]", "a.bias F32 [2]"]),
    ("torch/evil.pt", "torch", &["weights F32 [5]"]),
    ("torch/dcp/__0_0.distcp", "distcp", &["1 F32 [3, 4]", "2 I64 [3]"]),
    ("torch/dcp-safetensors/__0_0.distcp", "safetensors", &["model.bias I64 [3]", "model.weight F32 [3, 4]"]),
    ("big-endian.npy", "raw", &[]),
    ("structured.npy", "raw", &[]),
    ("complex128.npy", "raw", &[]),
    (
        "types.gguf",
        "gguf",
        &[
            "plain.f32 F32 [2, 3]",
            "plain.f16 F16 [5]",
            "quantised.bf16 BF16 [2, 64]",
            "quantised.q8_0 Q8_0 [2, 2]",
            "quantised.q4_0 Q4_0 [2, 2]",
            "quantised.q5_1 Q5_1 [2, 2]",
            "quantised.q4_k Q4_K [1, 1]",
        ],
    ),
    ("version2.gguf", "gguf", &["w F32 [3, 4]"]),
    (
        "model.onnx",
        "onnx",
        &[
            "condition BOOL []",
            "else_out F32 [3]",
            "else_unused F32 [2]",
            "then_out F32 [3]",
            "then_unused F32 [2]",
            "weight F32 [4, 3]",
            "half F16 [4]",
            "shape I64 [5]",
            "bf16 BF16 [2, 4]",
            "int4 INT4 [6]",
            "float_data F32 [4]",
            "sparse.values F32 [2]",
            "sparse.indices I64 [2]",
        ],
    ),
    // Most of its tensors have no bytes of their own.
    ("lost.onnx", "onnx", &["of.float16 F16 [2, 3]", "sparse F32 [2]", "indices I64 [2]"]),
    ("external.onnx", "raw", &[]),
    // Where only the bytes are known, its model beside it cannot be searched for.
    ("external.onnx.data", "raw", &[]),
];

fn read(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/layouts");
    fs::read(folder.join(name)).expect("the file can be read")
}

/// Compresses and restores with kept buffers.
struct Codec(Compressor, Decompressor, Vec<u8>, Vec<u8>);

impl Codec {
    fn new() -> Self {
        let compressor = Compressor::new(&CompressOptions::default().with_level(Level::Fast).with_threads(1)).unwrap();
        let decompressor = Decompressor::new(&DecompressOptions::default().with_threads(1)).unwrap();
        Self(compressor, decompressor, vec![], vec![])
    }

    #[track_caller]
    fn restores(&mut self, raw: &[u8]) {
        let Self(compressor, decompressor, file, restored) = self;
        file.clear();
        compressor.compress(raw, &[], &mut *file).unwrap();
        restored.clear();
        decompressor.decompress(&file[..], &[], &mut *restored).unwrap();
        assert!(restored == raw, "{} bytes are not restored", raw.len());
    }
}

#[test]
fn tensors_of_every_format_are_found() {
    for &(name, layout, expected) in FILES {
        let raw = read(name);
        let base = Base::new(&raw[..]).unwrap();
        let tensors = base.segments().iter().filter(|s| s.dtype.is_some() && layout != "raw");
        let described = tensors.map(|s| format!("{} {} {:?}", s.name.as_deref().unwrap(), s.dtype.unwrap(), s.shape));
        assert_eq!(
            (base.layout(), described.collect::<Vec<_>>()),
            (layout, expected.iter().map(|s| s.to_string()).collect()),
            "{name}"
        );
    }
}

#[test]
fn every_truncation_is_restored() {
    let mut codec = Codec::new();
    for (name, ..) in FILES {
        let raw = read(name);
        for length in 0..=raw.len() {
            codec.restores(&raw[..length]);
        }
    }
}

/// Restores the files of this suffix with every bit flipped.
#[track_caller]
fn restores_flipped(suffix: &str) {
    let mut codec = Codec::new();
    let files: Vec<_> = FILES.iter().filter(|f| f.0.ends_with(suffix)).collect();
    assert!(!files.is_empty());
    for (name, ..) in files {
        let mut raw = read(name);
        for bit in flipped_bits(raw.len()) {
            raw[bit / 8] ^= 1 << (bit % 8);
            codec.restores(&raw);
            raw[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_flipped_bit_of_npy_is_restored() {
    restores_flipped(".npy");
}

#[test]
fn every_flipped_bit_of_npz_is_restored() {
    restores_flipped(".npz");
}

#[test]
fn every_flipped_bit_of_torch_files_is_restored() {
    restores_flipped(".pt");
}

#[test]
fn every_flipped_bit_of_distcp_is_restored() {
    restores_flipped(".distcp");
}

#[test]
fn every_flipped_bit_of_gguf_is_restored() {
    restores_flipped(".gguf");
}

#[test]
fn every_flipped_bit_of_onnx_is_restored() {
    restores_flipped(".onnx");
}

/// The promises of the fuzz target `layout`, without compression.
#[test]
fn mutations_are_laid_out() {
    const LAYOUT_ALONE: u8 = 12;
    let mut random = Random::new(8);
    let files: Vec<Vec<u8>> = FILES.iter().map(|(name, ..)| [&[LAYOUT_ALONE][..], &read(name)].concat()).collect();
    for i in 0..cases(100_000) {
        let mut file = files[i % files.len()].clone();
        for _ in 0..=random.below(4) {
            let at = 1 + random.below(file.len() as u64 - 1) as usize;
            match random.below(4) {
                0 => file[at] = random.u64() as u8,
                1 => file[at] ^= 1 << random.below(8),
                // Lengths and counts near their limits.
                2 => {
                    let n = (file.len() - at).min(8);
                    let value = [u64::MAX, 1 << 63, u64::from(u32::MAX), 1 << 31][random.below(4) as usize];
                    file[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
                }
                _ => {
                    let n = (random.below(16) as usize).min(file.len() - at).min(file.len() - 2);
                    file.drain(at..at + n);
                }
            }
        }
        targets::layout(&file);
    }
}
