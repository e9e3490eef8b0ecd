//! The general-purpose codecs that `lmc` is compared with, each through its own in-memory interface.

use std::io::{Read, Write};

use lmc::{Error, ErrorKind, Result};

use super::codec::Codec;
use super::contender::Contender;

/// Names that `--peers` takes, in the order of the table.
pub(super) const NAMES: &[&str] = &["zstd-1", "zstd-3", "zstd-19", "lz4", "gzip", "bzip2", "brotli", "xz", "snappy"];

/// Further names for `--peers` with `--base`: `lmc` without the base, `lmc` on the exclusive or, zstd with a prefix.
pub(super) const OF_DELTAS: &[&str] = &[ALONE, LMC_XOR, PATCH];
pub(super) const ALONE: &str = "lmc-alone";
pub(super) const LMC_XOR: &str = "lmc-xor";
pub(super) const PATCH: &str = "zstd-patch";

/// Whether a codec is so slow that it only gets a sample.
pub(super) fn is_slow(name: &str) -> bool {
    matches!(name, "zstd-19" | "bzip2" | "brotli" | "xz")
}

/// The codec of one of [`NAMES`].
pub(super) fn contender(name: &str) -> Result<Contender> {
    Ok(match name {
        "zstd-1" => Contender::new("zstd", "1", Box::new(Zstd::new(1)?)),
        "zstd-3" => Contender::new("zstd", "3", Box::new(Zstd::new(3)?)),
        "zstd-19" => Contender::new("zstd", "19", Box::new(Zstd::new(19)?)),
        "lz4" => Contender::new("lz4", "", Box::new(Lz4)),
        "gzip" => Contender::new("gzip", "6", Box::new(Gzip)),
        "bzip2" => Contender::new("bzip2", "9", Box::new(Bzip2)),
        "brotli" => Contender::new("brotli", "9", Box::new(Brotli)),
        "xz" => Contender::new("xz", "6", Box::new(Xz)),
        "snappy" => Contender::new("snappy", "", Box::new(Snappy { encoder: snap::raw::Encoder::new() })),
        _ => {
            let why = match name {
                "all" | "none" => format!("peer {name:?} cannot be combined with others"),
                _ if OF_DELTAS.contains(&name) => format!("peer {name:?} needs --base"),
                _ => format!("unknown peer {name:?}; use none, all or some of {}", NAMES.join(", ")),
            };
            return Err(Error::new(ErrorKind::Usage, why));
        }
    })
}

fn failed(codec: &str, e: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("{codec} failed: {e}"))
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

struct Lz4;

impl Codec for Lz4 {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        let n = lz4_flex::block::compress_into(raw, packed).map_err(|e| failed("lz4", e))?;
        packed.truncate(n);
        Ok(())
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        lz4_flex::block::decompress_into(packed, out).map(drop).map_err(|e| failed("lz4", e))
    }
}

struct Gzip;

impl Codec for Gzip {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
        encoder.write_all(raw).and_then(|()| encoder.finish().map(drop)).map_err(|e| failed("gzip", e))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        flate2::read::GzDecoder::new(packed).read_exact(out).map_err(|e| failed("gzip", e))
    }
}

struct Bzip2;

impl Codec for Bzip2 {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        let mut encoder = bzip2::write::BzEncoder::new(packed, bzip2::Compression::best());
        encoder.write_all(raw).and_then(|()| encoder.finish().map(drop)).map_err(|e| failed("bzip2", e))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        bzip2::read::BzDecoder::new(packed).read_exact(out).map_err(|e| failed("bzip2", e))
    }
}

struct Brotli;

impl Codec for Brotli {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        // A window of 4 MiB, the library's default.
        let mut encoder = brotli::CompressorWriter::new(packed, 1 << 16, 9, 22);
        encoder.write_all(raw).map_err(|e| failed("brotli", e))?;
        // Ends the stream.
        encoder.into_inner();
        Ok(())
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        brotli::Decompressor::new(packed, 1 << 16).read_exact(out).map_err(|e| failed("brotli", e))
    }
}

struct Xz;

impl Codec for Xz {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        let mut encoder = liblzma::write::XzEncoder::new(packed, 6);
        encoder.write_all(raw).and_then(|()| encoder.finish().map(drop)).map_err(|e| failed("xz", e))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        liblzma::read::XzDecoder::new(packed).read_exact(out).map_err(|e| failed("xz", e))
    }
}

struct Snappy {
    encoder: snap::raw::Encoder,
}

impl Codec for Snappy {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        let n = self.encoder.compress(raw, packed).map_err(|e| failed("snappy", e))?;
        packed.truncate(n);
        Ok(())
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        snap::raw::Decoder::new().decompress(packed, out).map(drop).map_err(|e| failed("snappy", e))
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::room_for;
    use super::*;

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
        assert!(contender("zip").is_err());
    }
}
