//! Receives the versions of `docs/interchange.md` as other programs do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;

/// Tensors by name: type, shape, bytes.
pub type Tensors = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

/// The tensors of a version, from the full version that its deltas lead to.
///
/// # Panics
/// When the version or one that leads to it is missing or damaged.
pub fn received(versions: &Path, version: u64) -> Tensors {
    let directory = versions.join(format!("weight_v{version:06}"));
    let index = fs::read(directory.join("model.safetensors.index.json")).expect("the version is finished");
    let index: Value = serde_json::from_slice(&index).expect("an index is JSON");
    let text = |key: &str| index["metadata"][key].as_str();
    let base = text("base_version").map(|base| base.parse().expect("a base is a number"));
    let mut tensors = base.map_or_else(Tensors::new, |base| received(versions, base));
    let map = index["weight_map"].as_object().expect("an index has a weight_map");
    let files: BTreeSet<&str> = map.values().map(|file| file.as_str().expect("a file has a name")).collect();
    let mut names = 0;
    for file in files {
        let bytes = fs::read(directory.join(file)).expect("the file of a tensor is beside the index");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("it is a safetensors file");
        let sums = header.metadata().clone().unwrap_or_default();
        for (name, t) in SafeTensors::deserialize(&bytes).expect("it is a safetensors file").tensors() {
            assert_eq!(map[&name], file, "{name}");
            names += 1;
            match text("delta_encoding") {
                None => {
                    let tensor = (format!("{:?}", t.dtype()), t.shape().to_vec(), t.data().to_vec());
                    tensors.insert(name.clone(), tensor);
                }
                Some(encoding) => {
                    assert_eq!(encoding, "xor");
                    let (.., tensor) = tensors.get_mut(&name).expect("a delta changes a tensor of its base");
                    let delta = zstd::decode_all(t.data()).expect("a delta is a frame of zstd");
                    assert_eq!(delta.len(), tensor.len());
                    tensor.iter_mut().zip(delta).for_each(|(t, x)| *t ^= x);
                }
            }
            assert_eq!(text("checksum_format"), Some("adler32"));
            assert_eq!(sums[&name], format!("{:08x}", adler32(&tensors[&name].2)), "{name}");
        }
    }
    assert_eq!(names, map.len(), "tensors of {}", directory.display());
    tensors
}

/// The checksum of RFC 1950, in its own words.
fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}
