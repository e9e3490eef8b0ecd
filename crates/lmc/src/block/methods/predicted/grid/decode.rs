//! The predictions of a grid.

use super::Grid;
use crate::block::stream::Stream;
use crate::block::stream::body::Body;
use crate::block::stream::decode::StreamDecoder;
use lmc_kernels::predict::grid::{GridModel, is_finite};
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

impl Grid {
    /// Replaces `out` by the predictions; `buf` is working memory.
    pub(in crate::block) fn predict(
        &self,
        streams: &mut StreamDecoder,
        body: &mut Body<'_>,
        buf: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let n = out.len() / self.width();
        let terms = 4 * self.groups.count(n as u64) as usize;
        let of_offsets = if self.offsets.is_some() { terms } else { 0 };
        let (scales, rest) = scratch(buf, terms + of_offsets + n).split_at_mut(terms);
        let (offsets, indices) = rest.split_at_mut(of_offsets);
        let mut decode = |name: &str, stream: &Stream, to: &mut [u8]| {
            streams.decode(stream, body, to)?;
            let bits = |b: &[u8; 4]| u32::from_le_bytes(*b);
            match to.as_chunks::<4>().0.iter().map(bits).find(|&bits| !is_finite(bits)) {
                Some(bits) => Err(Error::damaged(format!("a grid has {name} {bits:#010x}, which is not finite"))),
                None => Ok(()),
            }
        };
        decode("scale", &self.scales, scales)?;
        if let Some(stream) = &self.offsets {
            decode("offset", stream, offsets)?;
        }
        streams.decode(&self.indices, body, indices)?;
        let (largest, count) = (indices.iter().fold(0, |a, &b| a.max(b)), self.levels.len());
        if usize::from(largest) >= count {
            return Err(Error::damaged(format!("an element has level {largest} of a grid that has {count}")));
        }
        let &Self { conversion, ref levels, groups, .. } = self;
        GridModel { conversion, levels, groups, scales, offsets, indices }.predict(out);
        Ok(())
    }
}
