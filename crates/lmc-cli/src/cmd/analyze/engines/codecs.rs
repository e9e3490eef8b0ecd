//! `lmc` and zstd on the bytes of a sample.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Dtype, Error, ErrorKind, Level, Result};

/// Fast codecs run for so long, slow ones once.
const LEAST: Duration = Duration::from_millis(200);

/// Compresses memory to memory, by one thread.
pub(super) trait Codec {
    /// Replaces `packed` by the compressed data.
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()>;
    /// Fills `out`, which has the length of the data that was compressed.
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()>;
}

pub(super) struct Lmc<'a> {
    compressor: Compressor,
    decompressor: Decompressor,
    bases: Vec<Base<'a>>,
}

impl<'a> Lmc<'a> {
    /// `lmc` on elements of `dtype`, given the earlier ones in `old`.
    pub(super) fn new(level: Level, dtype: Dtype, old: Option<&'a [u8]>) -> Result<Self> {
        let options = CompressOptions::default().with_level(level).with_threads(1).with_dtype(Some(dtype));
        let mut bases = Vec::new();
        if let Some(old) = old {
            let base = Base::new(old)?;
            let hash = base.content_hash(1)?;
            bases.push(base.with_hash(hash).optional());
        }
        let decompressor = Decompressor::new(&DecompressOptions::default().with_threads(1))?;
        Ok(Self { compressor: Compressor::new(&options)?, decompressor, bases })
    }
}

impl Codec for Lmc<'_> {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.compressor.compress(raw, &self.bases, packed).map(drop)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.decompressor.decompress(packed, &self.bases, out).map(drop)
    }
}

pub(super) struct Zstd<'a> {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
    /// The bytes whose exclusive or with the data is compressed.
    old: Option<&'a [u8]>,
    /// First the first bytes of all elements of so many bytes are compressed, then the second ones, and so on.
    width: usize,
    arranged: Vec<u8>,
}

impl<'a> Zstd<'a> {
    pub(super) fn new(level: i32, old: Option<&'a [u8]>, width: usize) -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(level).map_err(failed)?;
        let decompressor = zstd::bulk::Decompressor::new().map_err(failed)?;
        Ok(Self { compressor, decompressor, old, width, arranged: Vec::new() })
    }
}

impl Codec for Zstd<'_> {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.arranged.resize(raw.len(), 0);
        for (p, plane) in self.arranged.chunks_exact_mut(raw.len() / self.width).enumerate() {
            let bytes = raw.iter().skip(p).step_by(self.width);
            match self.old {
                Some(old) => {
                    let olds = old.iter().skip(p).step_by(self.width);
                    plane.iter_mut().zip(bytes.zip(olds)).for_each(|(to, (new, old))| *to = new ^ old);
                }
                None => plane.iter_mut().zip(bytes).for_each(|(to, new)| *to = *new),
            }
        }
        packed.clear();
        self.compressor.compress_to_buffer(&self.arranged, packed).map(drop).map_err(failed)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.arranged.resize(out.len(), 0);
        self.decompressor.decompress_to_buffer(packed, &mut self.arranged).map_err(failed)?;
        for (p, plane) in self.arranged.chunks_exact(out.len() / self.width).enumerate() {
            let bytes = out.iter_mut().skip(p).step_by(self.width);
            bytes.zip(plane).for_each(|(to, byte)| *to = *byte);
        }
        if let Some(old) = self.old {
            out.iter_mut().zip(old).for_each(|(to, old)| *to ^= old);
        }
        Ok(())
    }
}

fn failed(e: std::io::Error) -> Error {
    Error::io("zstd failed", e)
}

/// Memory for the output of any codec for `len` bytes; written to, so that its pages exist.
pub(super) fn room_for(len: usize) -> Vec<u8> {
    vec![1; len + len / 4 + (1 << 20)]
}

/// The median of some speeds, and how far a half of them is from it, as a part of it; `None` of less than four.
type Speed = (f64, Option<f64>);

/// The size of whole elements as a codec makes them, and the speeds of compression and decompression over that of
/// copying the same bytes just before; medians over rounds of [`LEAST`]. Each round trip is checked.
pub(super) fn measured(raw: &[u8], codec: &mut dyn Codec) -> Result<(usize, [Speed; 2])> {
    let mut packed = room_for(raw.len());
    let mut out = vec![1; raw.len()];
    let mut speeds = [vec![], vec![]];
    let start = Instant::now();
    loop {
        let (copied, ()) = timed(|| black_box(&mut out[..]).copy_from_slice(black_box(raw)));
        let (compress, result) = timed(|| codec.compress(raw, &mut packed));
        result?;
        // Bytes that a codec fails to write must not be mistaken for its output.
        out.fill(0xa5);
        let (decompress, result) = timed(|| codec.decompress(&packed, &mut out));
        result?;
        if out != raw {
            return Err(Error::new(ErrorKind::Damaged, "a compressor did not restore the sample; this is a bug"));
        }
        speeds[0].push(copied / compress);
        speeds[1].push(copied / decompress);
        if start.elapsed() >= LEAST {
            break;
        }
    }
    Ok((packed.len(), speeds.map(middle)))
}

/// Seconds of one call, more than none.
fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let out = f();
    (start.elapsed().as_secs_f64().max(1e-9), out)
}

/// The middle one of some values, and how far a half of them is from it.
fn middle(mut values: Vec<f64>) -> Speed {
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let speed = median(&mut values);
    let mut apart: Vec<f64> = values.iter().map(|v| (v - speed).abs() / speed).collect();
    (speed, (apart.len() >= 4).then(|| (1e4 * median(&mut apart)).round() / 1e4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_restores() {
        let new: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let old: Vec<u8> = (0..100_000u32).flat_map(|i| ((i / 7) ^ u32::from(i % 90 == 0)).to_le_bytes()).collect();
        let mut sizes = Vec::new();
        for before in [None, Some(&old[..])] {
            let lmc = measured(&new, &mut Lmc::new(Level::Default, Dtype::U32, before).unwrap());
            let zstd = |width| measured(&new, &mut Zstd::new(1, before, width).unwrap());
            sizes.extend([lmc, zstd(1), zstd(4)].map(|m| m.unwrap().0));
        }
        assert!(sizes.iter().all(|s| *s < new.len() / 4), "{sizes:?}");
        assert!((0..3).all(|i| sizes[i + 3] < sizes[i]) && sizes[2] < sizes[1], "{sizes:?}");
    }

    #[test]
    fn planes_hold_the_exclusive_or() {
        let mut zstd = Zstd::new(1, Some(&[1, 0, 1, 0, 1, 0]), 2).unwrap();
        zstd.compress(&[1, 2, 3, 4, 5, 6], &mut Vec::with_capacity(100)).unwrap();
        assert_eq!(zstd.arranged, [0, 2, 4, 2, 4, 6]);
    }
}
