//! Decodes a block: each column by its method.

use super::Origin;
use super::by_leaf::{BlockOutput, Leaves};
use super::head::BlockHead;
use super::methods::predicted::Predicted;
use super::methods::predicted::decode::PredictedDecoder;
use super::methods::predicted::operand::Operand;
use super::methods::{Method, plain, zstd};
use super::ranges::BlockRanges;
use super::stream::body::Body;
use super::stream::decode::StreamDecoder;
use crate::format::bases::SourceRange;
use crate::format::checksum::{Digest, block_digest, leaves};
use crate::format::frames::FrameDecoder;
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::Conversion;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Decodes blocks one after the other, keeping its working memory.
pub struct BlockDecoder {
    streams: StreamDecoder,
    frames: FrameDecoder,
    predicted: PredictedDecoder,
    /// A column of several extents before it is scattered.
    gathered: Vec<u8>,
    /// Byte planes, or the prefix of a frame.
    bytes: Vec<u8>,
}

/// The prediction of a block by bytes of bases, if it is all of the block, and its streams are sparse.
fn sparse_whole(head: &BlockHead) -> Option<(&Predicted, &[SourceRange])> {
    let [column] = &head.columns[..] else { return None };
    let Method::Predicted(p) = &column.method else { return None };
    let Operand::Ranges { conversion: Conversion::None, base } = &p.operand else { return None };
    let whole = head.extents.one_piece(0) == Some(0..head.raw_len);
    (whole && p.terms.is_none() && (p.sparse().is_some() || p.is_sparse_by_context()))
        .then(|| (&**p, base.of(&head.ranges)))
}

impl BlockDecoder {
    /// Nothing decoded yet.
    pub fn new(isa: Isa) -> Self {
        Self {
            streams: StreamDecoder::new(isa),
            frames: FrameDecoder::default(),
            predicted: PredictedDecoder::default(),
            gathered: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Decodes a block into `out`, which has exactly `head.raw_len` bytes, and checks its digest. Returns the digests of its leaves.
    ///
    /// After an error the contents of `out` are unspecified.
    pub fn decode(
        &mut self,
        head: &BlockHead,
        body: &[u8],
        origin: &dyn Origin,
        out: &mut [u8],
    ) -> Result<Vec<Digest>> {
        self.decode_to(head, body, origin, BlockOutput::Memory(out))
    }

    /// [`Self::decode`], to memory or to a file.
    pub(crate) fn decode_to(
        &mut self,
        head: &BlockHead,
        body: &[u8],
        origin: &dyn Origin,
        out: BlockOutput<'_>,
    ) -> Result<Vec<Digest>> {
        let mut body = Body::new(head.lanes, body)?;
        let checked = |leaves: Vec<Digest>| {
            if block_digest(&leaves) != head.digest {
                return Err(Error::damaged("the checksum of a block does not match"));
            }
            Ok(leaves)
        };
        if let Some((p, ranges)) = sparse_whole(head)
            && ranges.iter().all(|r| origin.reads_pieces(r.source))
        {
            let mut leaves = Leaves::new(ranges, origin, head.raw_len, out)?;
            self.predicted.restore_by_leaf(p, self.streams.isa, &mut body, &mut leaves)?;
            body.finish()?;
            return checked(leaves.finish()?);
        }
        match out {
            BlockOutput::Memory(out) => {
                self.decode_whole(head, body, origin, out)?;
                checked(leaves(out))
            }
            BlockOutput::Written { buf, write } => {
                let out = scratch(buf, head.raw_len);
                self.decode_whole(head, body, origin, out)?;
                let leaves = checked(leaves(out))?;
                write(out, 0)?;
                Ok(leaves)
            }
        }
    }

    /// Decodes a block, and does not check it.
    fn decode_whole(
        &mut self,
        head: &BlockHead,
        mut body: Body<'_>,
        origin: &dyn Origin,
        out: &mut [u8],
    ) -> Result<()> {
        assert_eq!(out.len(), head.raw_len, "room for the block");
        let origin = BlockRanges { list: &head.ranges, origin };
        let mut gathered = std::mem::take(&mut self.gathered);
        let done = self.decode_columns(head, &mut body, &origin, &mut gathered, out);
        self.gathered = gathered;
        done?;
        body.finish()
    }

    /// Decodes a column of one piece in place, another one into `gathered`, from where its pieces are copied.
    fn decode_columns(
        &mut self,
        head: &BlockHead,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        gathered: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        for (i, column) in head.columns.iter().enumerate() {
            if let Some(place) = head.extents.one_piece(i as u8) {
                self.decode_column(&column.method, body, origin, &mut out[place])?;
                continue;
            }
            let bytes = scratch(gathered, column.len);
            self.decode_column(&column.method, body, origin, bytes)?;
            head.extents.scatter(i as u8, bytes, out);
        }
        Ok(())
    }

    fn decode_column(
        &mut self,
        method: &Method,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let Self { streams, frames, bytes, predicted, .. } = self;
        match method {
            Method::Stored => out.copy_from_slice(body.take_bulk(out.len())?),
            Method::Zstd(z) => zstd::decode::decode(z, frames, body, bytes, out)?,
            Method::Plain(g) => plain::decode::decode(g, streams, body, out)?,
            Method::Predicted(p) => predicted.decode(p, streams, body, origin, out)?,
        }
        Ok(())
    }
}
