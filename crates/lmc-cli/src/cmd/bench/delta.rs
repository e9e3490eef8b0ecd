//! Deltas: the bases in memory, and codecs that are given them.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use lmc::bench_hooks::{Entropy, Expected, raw_bytes};
use lmc::{Base, Compressor, Decompressor, Dtype, Error, ErrorKind, Isa, Level, Result};

use super::contender::{Codec, Contender, compress_options, decompress_options};
use super::planes::{self, Run};
use crate::bases::Bases;
use crate::failure::Failure;

/// What deltas are made from.
pub(super) struct Old {
    bases: Rc<[Base<'static>]>,
    raw: Vec<Arc<Vec<u8>>>,
}

/// What the bases have for a file.
pub(super) struct Delta {
    /// Names of the bases.
    pub(super) bases: Vec<String>,
    pub(super) entropies: Vec<Entropy>,
    pub(super) expected: Rc<[u8]>,
}

impl Old {
    /// Reads the bases, whole, and hashes them; `None` if there is none.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Option<Self>, Failure> {
        if paths.is_empty() {
            return Ok(None);
        }
        let failed = |e: Error| Failure::Failed(e.to_string());
        let files = Bases::open(paths, true, 0)?;
        let (mut bases, mut raw) = (Vec::new(), Vec::new());
        for file in files.all() {
            let bytes = Arc::new(raw_bytes(file).map_err(failed)?);
            let hash = file.content_hash(0).map_err(failed)?;
            let base = Base::new(bytes.clone()).map_err(failed)?.with_hash(hash).with_name(file.name()).optional();
            bases.push(base);
            raw.push(bytes);
        }
        files.check_unchanged()?;
        Ok(Some(Self { bases: bases.into(), raw }))
    }

    /// What they have for a file.
    pub(super) fn expect(&self, raw: &[u8], dtype: Option<Dtype>) -> Result<Delta> {
        let expected = Expected::new(raw, dtype, &self.bases)?;
        Ok(Delta {
            bases: self.bases.iter().map(|b| b.name().to_owned()).collect(),
            entropies: expected.entropies(raw),
            expected: expected.bytes.into(),
        })
    }

    /// `lmc` with the bases.
    pub(super) fn lmc(&self, level: Level, isa: Isa, threads: usize, dtype: Option<Dtype>) -> Result<Contender> {
        let codec = Lmc {
            compressor: Compressor::new(&compress_options(level, isa, threads, dtype))?,
            decompressor: Decompressor::new(&decompress_options(isa, threads))?,
            bases: self.bases.clone(),
        };
        let mut c = Contender::new("lmc", level.name(), Box::new(codec));
        c.isa = Some(isa.name());
        c.threads = threads;
        Ok(c)
    }

    /// zstd with the bases as what came before the data: `zstd --patch-from`.
    pub(super) fn patch(&self, raw_len: usize) -> Contender {
        let prefix = self.raw.iter().flat_map(|r| r.iter()).copied().collect::<Vec<u8>>();
        // The window reaches from the last byte of the data to the first one of the prefix, if any does.
        let window_log = (prefix.len() + raw_len).max(1 << 10).next_power_of_two().ilog2().min(31);
        Contender::new("zstd patch", PATCH_LEVEL.to_string(), Box::new(Patch { prefix, window_log }))
    }
}

struct Lmc {
    compressor: Compressor,
    decompressor: Decompressor,
    bases: Rc<[Base<'static>]>,
}

impl Codec for Lmc {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.compressor.compress_delta_into(raw, &self.bases, packed).map(drop)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.decompressor.decompress_delta_into(packed, &self.bases, out).map(drop)
    }
}

/// A codec that gets the difference from what is expected, bit by bit.
pub(super) struct Xor {
    codec: Box<dyn Codec>,
    expected: Rc<[u8]>,
    buffer: Vec<u8>,
}

impl Xor {
    pub(super) fn new(codec: Box<dyn Codec>, expected: Rc<[u8]>) -> Self {
        Self { codec, expected, buffer: Vec::new() }
    }
}

impl Codec for Xor {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.buffer.resize(raw.len(), 0);
        let each = self.buffer.iter_mut().zip(raw).zip(&self.expected[..]);
        each.for_each(|((to, a), b)| *to = a ^ b);
        self.codec.compress(&self.buffer, packed)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.codec.decompress(packed, out)?;
        out.iter_mut().zip(&self.expected[..]).for_each(|(to, b)| *to ^= b);
        Ok(())
    }
}

/// Level of `zstd --patch-from`: its default one.
const PATCH_LEVEL: i32 = 3;

struct Patch {
    prefix: Vec<u8>,
    window_log: u32,
}

impl Codec for Patch {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        let done = (|| {
            let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(packed, PATCH_LEVEL, &self.prefix)?;
            encoder.long_distance_matching(true)?;
            encoder.window_log(self.window_log)?;
            encoder.set_pledged_src_size(Some(raw.len() as u64))?;
            encoder.write_all(raw)?;
            encoder.finish().map(drop)
        })();
        done.map_err(|e| Error::new(ErrorKind::Io, format!("zstd with a prefix failed: {e}")))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        let done = (|| {
            let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(packed, &self.prefix)?;
            decoder.window_log_max(self.window_log)?;
            decoder.read_exact(out)
        })();
        done.map_err(|e| Error::new(ErrorKind::Io, format!("zstd with a prefix failed: {e}")))
    }
}

/// The part of what is expected that belongs to [`planes::sample`] of the data.
pub(super) fn sample(expected: &[u8], runs: &[Run], len: usize, pieces: usize) -> Rc<[u8]> {
    planes::sample(expected, runs, len, pieces).0.into()
}

#[cfg(test)]
mod tests {
    use super::super::contender::room_for;
    use super::*;

    #[test]
    fn every_delta_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let old: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut new = old.clone();
        new.iter_mut().step_by(1000).for_each(|b| *b ^= 1);
        let path = dir.path().join("old");
        std::fs::write(&path, &old).unwrap();
        let bases = Old::load(&[path]).unwrap().unwrap();
        let dtype = Some(Dtype::U8);
        let delta = bases.expect(&new, dtype).unwrap();
        assert_eq!((&delta.bases[..], &delta.expected[..]), (&["old".to_owned()][..], &old[..]));
        let mut zstd = super::super::peers::contender("zstd-1").unwrap();
        zstd = zstd.xored(delta.expected.clone());
        let lmc = bases.lmc(Level::Default, Isa::detect().unwrap(), 1, dtype).unwrap();
        for mut c in [zstd, lmc, bases.patch(new.len())] {
            let mut packed = room_for(new.len());
            c.codec.compress(&new, &mut packed).unwrap();
            assert!(packed.len() < new.len() / 50, "{}: {}", c.label(), packed.len());
            let mut out = vec![0; new.len()];
            c.codec.decompress(&packed, &mut out).unwrap();
            assert!(out == new, "{}", c.label());
        }
        assert!(Old::load(&[]).unwrap().is_none());
        assert!(Old::load(&[dir.path().join("none")]).is_err());
    }
}
