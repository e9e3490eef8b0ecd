//! Decodes plain columns.

use super::palette::look_up;
use crate::block::stream::Stream;
use crate::block::stream::body::Body;
use crate::block::stream::decode::StreamDecoder;
use lmc_kernels::cluster::element::with_element;
use lmc_layout::error::Result;

/// Decodes a column to `out`.
pub(in crate::block) fn decode(
    stream: &Stream,
    streams: &mut StreamDecoder,
    body: &mut Body<'_>,
    out: &mut [u8],
) -> Result<()> {
    streams.decode(stream, body, out)?;
    match &stream.palette {
        Some(palette) => with_element!(stream.width, E => look_up::<E>(palette, out)),
        None => Ok(()),
    }
}
