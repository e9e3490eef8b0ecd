//! Inputs of tests: random numbers, files of tensors, and how many cases to try.

#![deny(unsafe_code)]

pub mod distcp;

/// Whether tests try all cases instead of a sample: `./test release` sets `LMC_TEST_DEPTH` to `release`.
pub fn exhaustive() -> bool {
    std::env::var_os("LMC_TEST_DEPTH").is_some_and(|depth| depth == "release")
}

/// Whether tests try what takes long, such as a kill at every moment: `LMC_TEST_DEPTH` is `full`, as in CI, or `release`.
pub fn thorough() -> bool {
    exhaustive() || std::env::var_os("LMC_TEST_DEPTH").is_some_and(|depth| depth == "full")
}

/// How many of `all` random cases a test tries: an eighth, unless it is to be thorough.
pub fn cases(all: usize) -> usize {
    if thorough() { all } else { all.div_ceil(8) }
}

/// The bits of some bytes that a test flips: one of each byte, unless it is to be thorough.
pub fn flipped_bits(bytes: usize) -> impl Iterator<Item = usize> {
    (0..8 * bytes).filter(|bit| thorough() || bit % 8 == (bit / 8 + bit / 64) % 8)
}

/// SplitMix64 (Steele et al. 2014): a few bytes of the fuzzer seed many elements.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 … n − 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.u64() % n
    }

    /// This many bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.u64() as u8).collect()
    }
}

/// Incompressible bytes, determined by a seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.u64().to_le_bytes()).take(len).collect()
}

/// A safetensors file of tensors by name, dtype, shape and data, which may have any length.
pub fn safetensors(tensors: &[(&str, &str, Vec<u64>, &[u8])]) -> Vec<u8> {
    let mut at = 0;
    let entry = |(name, dtype, shape, data): &(&str, &str, Vec<u64>, &[u8])| {
        let begin = at;
        at += data.len();
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{at}]}}"#)
    };
    let json = format!("{{{}}}", tensors.iter().map(entry).collect::<Vec<_>>().join(","));
    let data = tensors.iter().flat_map(|t| t.3).copied();
    (json.len() as u64).to_le_bytes().into_iter().chain(json.bytes()).chain(data).collect()
}
