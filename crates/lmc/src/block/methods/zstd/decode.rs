//! Decodes columns in a zstd frame.

use super::Zstd;
use crate::block::stream::body::Body;
use crate::format::frames::FrameDecoder;
use lmc_kernels::planes;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Decodes a column to `out`; `buf` is working memory.
pub(in crate::block) fn decode(
    &Zstd { width, frame_len }: &Zstd,
    frames: &mut FrameDecoder,
    body: &mut Body<'_>,
    buf: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<()> {
    let frame = body.take_bulk(frame_len)?;
    let done = if width == 1 {
        frames.decode(frame, out)?
    } else {
        let planes = scratch(buf, out.len());
        let done = frames.decode(frame, planes)?;
        planes::merge(width, planes, out);
        done
    };
    if done {
        return Ok(());
    }
    Err(Error::damaged(format!(
        "a zstd frame of {frame_len} bytes does not decode to the {} bytes that the head gives it",
        out.len()
    )))
}
