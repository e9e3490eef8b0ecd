//! zstd frames: of headers, tokenizers, pickles, of integers that repeat, and of the index.
//!
//! Headers with thousands of tensors say nearly the same again and again, a few dozen bytes apart. An encoder that remembers little, so
//! that its tables stay in the first-level cache, finds that sooner than one that remembers much, and writes less: nearer matches have
//! shorter offsets. On the 764,584 bytes of the header of 10,000 tensors, zstd's level 3 takes 0.86 ms and leaves 96,235 bytes, this
//! one 0.49 ms and 67,285.

use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound,
    find_frame_compressed_size, get_frame_content_size,
};

use crate::format::header::ZSTD;
use crate::settings::level::Level;
use lmc_layout::error::{Error, Result};

/// log2 of the positions that the encoder for near repeats remembers.
const NEAR_HASH_LOG: u32 = 10;
/// Frames of less than this part of the bytes are not tried a second time with a longer memory.
const NEAR_IS_ENOUGH: usize = 8;

/// zstd's level for a thorough search.
const THOROUGH: i32 = 19;

/// Makes frames, keeping its working memory, which it takes when it is needed: data without text goes without.
pub(crate) struct FrameEncoder {
    level: Level,
    near: Option<CCtx<'static>>,
    far: Option<CCtx<'static>>,
    /// For a search that takes much longer.
    thorough: Option<CCtx<'static>>,
    frame: Vec<u8>,
}

/// An encoder for bytes with repeats at distances of a few hundred bytes.
fn near() -> Result<CCtx<'static>> {
    let mut near = encoder(1)?;
    near.set_parameter(CParameter::HashLog(NEAR_HASH_LOG)).expect("zstd takes hashes of ten bits");
    Ok(near)
}

/// An encoder of one of zstd's levels.
fn encoder(level: i32) -> Result<CCtx<'static>> {
    let mut encoder = CCtx::try_create().ok_or_else(no_memory)?;
    encoder.set_parameter(CParameter::CompressionLevel(level)).expect("zstd accepts its own levels");
    Ok(encoder)
}

/// Made on first use; may fail for lack of memory.
fn made<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    match slot {
        Some(made) => Ok(made),
        None => Ok(slot.insert(make()?)),
    }
}

fn no_memory() -> Error {
    Error::limit("there is no memory for zstd: use fewer threads (each has its own), or give the process more")
}

impl FrameEncoder {
    pub(crate) fn new(level: Level) -> Self {
        Self { level, near: None, far: None, thorough: None, frame: Vec::new() }
    }

    /// A frame of bytes with repeats at distances of a few hundred bytes.
    ///
    /// # Errors
    /// `Limit` when there is no memory.
    pub(crate) fn encode_near(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        encode(made(&mut self.near, near)?, bytes, &mut self.frame)?;
        Ok(&self.frame)
    }

    /// A frame of bytes that may repeat at any distance.
    ///
    /// # Errors
    /// `Limit` when there is no memory.
    pub(crate) fn encode(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        self.encode_if_near(bytes, usize::MAX)
    }

    /// [`Self::encode`], or the frame of near repeats alone if that is longer than `most`.
    ///
    /// # Errors
    /// `Limit` when there is no memory.
    pub(crate) fn encode_if_near(&mut self, bytes: &[u8], most: usize) -> Result<&[u8]> {
        self.encode_near(bytes)?;
        if self.frame.len() * NEAR_IS_ENOUGH > bytes.len() && self.frame.len() <= most {
            let (near, level) = (std::mem::take(&mut self.frame), self.far_level());
            encode(made(&mut self.far, || encoder(level))?, bytes, &mut self.frame)?;
            if near.len() < self.frame.len() {
                self.frame = near;
            }
        }
        Ok(&self.frame)
    }

    /// A frame of bytes whose repeats may be as far apart as they are long.
    ///
    /// # Errors
    /// `Limit` when there is no memory.
    pub(crate) fn encode_whole(&mut self, bytes: &[u8], thorough: bool) -> Result<&[u8]> {
        let far_level = self.far_level();
        let (slot, level) = if thorough { (&mut self.thorough, THOROUGH) } else { (&mut self.far, far_level) };
        encode(made(slot, || encoder(level))?, bytes, &mut self.frame)?;
        Ok(&self.frame)
    }

    fn far_level(&self) -> i32 {
        match self.level {
            Level::Fast => 1,
            Level::Default => 3,
            Level::Max => 9,
        }
    }
}

/// Replaces what `frame` holds. It keeps memory for the longest frame there may be, so that it is taken once.
///
/// # Errors
/// `Limit` when there is no memory.
fn encode(encoder: &mut CCtx<'_>, bytes: &[u8], frame: &mut Vec<u8>) -> Result<()> {
    // The window holds all bytes, so that the frame has a single segment.
    let log = bytes.len().next_power_of_two().trailing_zeros().max(10);
    encoder.set_parameter(CParameter::WindowLog(log)).expect("zstd takes windows of 2^10 to 2^30 bytes");
    frame.clear();
    frame.try_reserve(compress_bound(bytes.len())).map_err(|_| no_memory())?;
    // There is room for the longest frame: nothing else can go wrong.
    encoder.compress2(frame, bytes).map_err(|_| no_memory())?;
    Ok(())
}

/// log2 of the longest frame's contents, the table of an index.
const MAX_WINDOW_LOG: u32 = 28;

/// Single_Segment_flag in the descriptor of a frame, its fifth byte (RFC 8878, section 3.1.1.1.1): the window is as long as the contents.
const SINGLE_SEGMENT: u8 = 0x20;

/// Whether `bytes` are one frame of a single segment that states `len` bytes of contents.
fn is_one(bytes: &[u8], len: usize) -> bool {
    // Where a program links a zstd that also takes older formats, those begin with other numbers.
    let whole = bytes.starts_with(ZSTD) && find_frame_compressed_size(bytes).is_ok_and(|n| n == bytes.len());
    let states_length = matches!(get_frame_content_size(bytes), Ok(Some(n)) if n == len as u64);
    whole && states_length && bytes[ZSTD.len()] & SINGLE_SEGMENT != 0
}

/// A decoder of frames of any length to where their contents go, without a window of its own.
fn decoder() -> Result<DCtx<'static>> {
    let mut decoder = DCtx::try_create().ok_or_else(no_memory)?;
    decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).expect("zstd takes windows of that size");
    decoder.set_parameter(DParameter::StableOutBuffer(true)).expect("zstd knows the parameter");
    Ok(decoder)
}

/// Unpacks frames, keeping its working memory.
#[derive(Default)]
pub(crate) struct FrameDecoder(Option<DCtx<'static>>);

impl FrameDecoder {
    /// Unpacks `bytes`, exactly one frame, into `out`; false unless it fills `out` exactly.
    ///
    /// # Errors
    /// `Limit` when there is no memory.
    pub(crate) fn decode(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<bool> {
        if !is_one(bytes, out.len()) {
            return Ok(false);
        }
        let decoder = made(&mut self.0, decoder)?;
        decoder.reset(ResetDirective::SessionOnly).expect("a session can be ended at any time");
        // As a stream, of all bytes but one, and of that one: only so does zstd refuse blocks that decode to more than RFC 8878 allows. Where
        // it has the whole frame, it takes them.
        let (most, last) = bytes.split_at(bytes.len() - 1);
        let mut out = OutBuffer::around(out);
        let mut step = |bytes| decoder.decompress_stream(&mut out, &mut InBuffer::around(bytes));
        Ok(step(most).is_ok() && step(last).is_ok_and(|hint| hint == 0) && out.pos() == out.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_magic_number() {
        let frame = FrameEncoder::new(Level::Default).encode(b"lmc").unwrap().to_vec();
        assert!(is_one(&frame, 3));
        // Of format 0.7, and of a skippable frame, which zstd says has no contents.
        assert!(!is_one(&[&[0x27, 0xb5, 0x2f, 0xfd], &frame[4..]].concat(), 3));
        assert!(!is_one(&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7], 0));
    }

    #[test]
    fn all_frames_have_a_single_segment() {
        let bytes: Vec<u8> = (0..300_000u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
        let mut encoder = FrameEncoder::new(Level::Max);
        for len in [1, 255, 256, 70_000, 1 << 20] {
            let bytes = &bytes[..len];
            assert!(is_one(encoder.encode_near(bytes).unwrap(), len));
            assert!(is_one(encoder.encode(bytes).unwrap(), len));
        }
        // The same with a window of 1 KiB in place of the flag.
        let mut frame = encoder.encode(&bytes[..300]).unwrap().to_vec();
        assert_eq!(frame[4] & 0xe0, 0x60, "the size has two bytes");
        frame[4] &= !SINGLE_SEGMENT;
        frame.insert(5, 0);
        assert!(!is_one(&frame, 300));
    }
}
