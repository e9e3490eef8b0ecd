//! Codecs other than zstd.

use std::io::{Read, Write};

use lmc::Result;

use crate::codec::{Codec, failed};
use crate::contender::Contender;

/// The codec of one of their names.
pub(crate) fn contender(name: &str) -> Contender {
    match name {
        "lz4" => Contender::new("lz4", "", Box::new(Lz4)),
        "gzip" => Contender::new("gzip", "6", Box::new(Gzip)),
        "bzip2" => Contender::new("bzip2", "9", Box::new(Bzip2)),
        "brotli" => Contender::new("brotli", "9", Box::new(Brotli)),
        "xz" => Contender::new("xz", "6", Box::new(Xz)),
        "snappy" => Contender::new("snappy", "", Box::new(Snappy { encoder: snap::raw::Encoder::new() })),
        _ => panic!("no codec {name}"),
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
