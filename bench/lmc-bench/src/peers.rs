//! The general-purpose codecs that `lmc` is compared with, each through its own in-memory interface.

use lmc::{Error, Result};

use crate::codec::{Codec, failed};
use crate::contender::Contender;
use crate::others;

/// All of them.
pub(crate) const NAMES: &[&str] = &["zstd-1", "zstd-3", "zstd-19", "lz4", "gzip", "bzip2", "brotli", "xz", "snappy"];

/// Further names for `--peers` with `--base`: `lmc` without the base, `lmc` on the exclusive or, zstd with a prefix.
pub(crate) const OF_DELTAS: &[&str] = &[ALONE, LMC_XOR, PATCH];
pub(crate) const ALONE: &str = "lmc-alone";
pub(crate) const LMC_XOR: &str = "lmc-xor";
pub(crate) const PATCH: &str = "zstd-patch";

/// Whether a codec is so slow that it only gets a sample.
pub(crate) fn is_slow(name: &str) -> bool {
    matches!(name, "zstd-19" | "bzip2" | "brotli" | "xz")
}

/// The codec of one of [`NAMES`].
///
/// # Panics
/// For another name.
pub(crate) fn contender(name: &str) -> Result<Contender> {
    Ok(match name {
        "zstd-1" => Contender::new("zstd", "1", Box::new(Zstd::new(1)?)),
        "zstd-3" => Contender::new("zstd", "3", Box::new(Zstd::new(3)?)),
        "zstd-19" => Contender::new("zstd", "19", Box::new(Zstd::new(19)?)),
        _ => others::contender(name),
    })
}

struct Zstd {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Zstd {
    fn new(level: i32) -> Result<Self> {
        let e = |e| Error::io("zstd cannot start", e);
        Ok(Self {
            compressor: zstd::bulk::Compressor::new(level).map_err(e)?,
            decompressor: zstd::bulk::Decompressor::new().map_err(e)?,
        })
    }
}

impl Codec for Zstd {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        self.compressor.compress_to_buffer(raw, packed).map(drop).map_err(|e| failed("zstd", e))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.decompressor.decompress_to_buffer(packed, out).map(drop).map_err(|e| failed("zstd", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::room_for;

    #[test]
    fn every_peer_restores() {
        let raw: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        for name in NAMES {
            let mut c = contender(name).unwrap();
            let mut packed = room_for(raw.len());
            c.codec.compress(&raw, &mut packed).unwrap();
            assert!(packed.len() < raw.len() * 9 / 10, "{name} did not compress");
            let mut out = vec![0; raw.len()];
            c.codec.decompress(&packed, &mut out).unwrap();
            assert_eq!(out, raw, "{name}");
        }
    }
}
