//! Reads a file's records front to back.

use std::io::Read;

use super::open::{block_record, too_many_skippable};
use crate::block::head::BlockHead;
use crate::format::bases::{Chains, Sources};
use crate::format::digests::{self, RawDigest};
use crate::format::header::{self, Features, ends_early};
use crate::format::index::{BlockLen, Index, whole_leaves_before};
use crate::format::record::{self, HEADER_LEN, RecordHeader};
use crate::format::trailer::{self, Trailer};
use crate::settings::limits::DecodeLimits;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{append, read_full};

/// The next record of a stream.
pub(crate) enum Next {
    Block(BlockHead),
    /// The index, which agrees with the records before it. Nothing follows the trailer.
    End(Index),
}

/// A stream of records.
pub(crate) struct Records<R> {
    src: R,
    limits: DecodeLimits,
    /// Bytes read so far.
    offset: u64,
    /// A record's header that was read ahead.
    ahead: Option<[u8; HEADER_LEN]>,
    sources: Sources,
    chains: Chains,
    blocks: Vec<BlockLen>,
    raw: u64,
    /// Number of skippable records read so far.
    skipped: u64,
    /// The features that the blocks so far need.
    needed: Features,
    /// Digests of raw bytes, once their record was read.
    digests: Vec<RawDigest>,
}

impl<R: Read> Records<R> {
    /// Reads and checks the header, and the names of the bases.
    pub(crate) fn open(mut src: R, limits: DecodeLimits) -> Result<Self> {
        let mut start = [0; header::LEN];
        let n = read_full(&mut src, &mut start).map_err(cannot_read)?;
        let header = header::check(&start[..n])?;
        header.check_hash()?;
        let features = header.features;
        features.check_known(None).map_err(|e| e.at_offset(12))?;
        let mut records = Self {
            src,
            limits,
            offset: n as u64,
            ahead: None,
            sources: Sources { features, bases: vec![] },
            chains: Chains::default(),
            blocks: vec![],
            raw: 0,
            skipped: 0,
            needed: Features::default(),
            digests: vec![],
        };
        if features.ranges {
            records.read_bases(features).map_err(|e| e.at_offset(n as u64))?;
        }
        Ok(records)
    }

    fn read_bases(&mut self, features: Features) -> Result<()> {
        let mut buf = Vec::new();
        self.take(&mut buf, HEADER_LEN)?;
        let bytes = buf[..].try_into().expect("24 bytes");
        let h = RecordHeader::parse(&bytes)?;
        if h.tag != record::BASES {
            self.ahead = Some(bytes);
            return Ok(());
        }
        Sources::check_head_len(h.head_len, &self.limits)?;
        self.take(&mut buf, h.head_len as usize)?;
        h.verify(&bytes, &buf[HEADER_LEN..])?;
        self.sources = Sources::parse(features, &buf[HEADER_LEN..])?;
        Ok(())
    }

    /// The sources of ranges.
    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Digests of raw bytes, after the end.
    pub(crate) fn digests(&self) -> &[RawDigest] {
        &self.digests
    }

    /// Bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of blocks read so far.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Reads up to and including the next block, whose record is left in `buf`, or up to the end.
    pub(crate) fn next(&mut self, buf: &mut Vec<u8>) -> Result<Next> {
        loop {
            buf.clear();
            match self.ahead.take() {
                Some(header) => buf.extend_from_slice(&header),
                None => self.take(buf, HEADER_LEN)?,
            }
            let at = self.offset - HEADER_LEN as u64;
            let bytes = buf[..].try_into().expect("24 bytes");
            let h = RecordHeader::parse(&bytes).map_err(|e| e.at_offset(at))?;
            if h.is_skippable() {
                self.skip(&h, &bytes, buf).map_err(|e| e.at_offset(at))?;
                continue;
            }
            if h.tag == record::BLOCK && self.skipped > 0 {
                return Err(Error::damaged("a block follows a skippable record; fetch the file again").at_offset(at));
            }
            if h.tag == record::BASES {
                let e = "the file names its bases elsewhere than behind its header; fetch it again";
                return Err(Error::damaged(e).at_offset(at));
            }
            if h.tag == record::INDEX {
                Index::check_head_len(h.head_len, &self.limits).map_err(|e| e.at_offset(at))?;
            }
            self.take(buf, (h.len() - HEADER_LEN as u64) as usize)?;
            return if h.tag == record::INDEX {
                h.verify(&bytes, &buf[HEADER_LEN..]).map_err(|e| e.at_offset(at))?;
                let index = Index::parse(&buf[HEADER_LEN..], &self.limits).map_err(|e| e.at_offset(at))?;
                self.end(index, at)
            } else {
                self.block(buf).map_err(|e| e.at_offset(at).in_block(self.blocks.len() as u64))
            };
        }
    }

    fn block(&mut self, buf: &[u8]) -> Result<Next> {
        let (head, _) = block_record(buf)?;
        whole_leaves_before(self.raw)?;
        self.sources.check(&head.ranges, head.features(), self.raw)?;
        self.needed = self.needed | head.features();
        self.raw += head.raw_len as u64;
        if self.raw > self.limits.max_raw_size {
            let max = self.limits.max_raw_size;
            return Err(Error::limit(format!("the file restores to more bytes than the limit of {max}")));
        }
        let own = self.sources.features.own;
        let cost = Index::BLOCK_COST + if own { Chains::BLOCK_COST } else { 0 };
        if (self.blocks.len() + 1) * cost > self.limits.max_index_size {
            let max = self.limits.max_index_size;
            return Err(Error::limit(format!("the index takes more memory than the limit of {max} bytes")));
        }
        if own {
            self.chains.push(head.raw_len as u64, &head.ranges)?;
        }
        self.blocks.push(BlockLen { record: buf.len() as u32, raw: head.raw_len as u32 });
        Ok(Next::Block(head))
    }

    /// Checks the index against the blocks, and the rest of the file.
    fn end(&mut self, index: Index, at: u64) -> Result<Next> {
        if index.blocks != self.blocks {
            let e = Error::damaged("the records of the file are not those of its index; fetch it again");
            return Err(e.at_offset(at));
        }
        index
            .check_features(self.sources.features)
            .and_then(|()| index.check_exact(self.needed))
            .map_err(|e| e.at_offset(at))?;
        let index_len = self.offset - at;
        let mut end = Vec::new();
        self.take(&mut end, trailer::LEN)?;
        let t = Trailer::parse(end[..].try_into().expect("32 bytes"), self.offset)?;
        if t != (Trailer { index_offset: at, index_len }) {
            let e = Error::damaged("the trailer does not point at the index; fetch the file again");
            return Err(e.at_offset(at + index_len));
        }
        if read_full(&mut self.src, &mut [0]).map_err(cannot_read)? != 0 {
            return Err(Error::damaged("bytes follow the end of the file: remove them").at_offset(self.offset));
        }
        Ok(Next::End(index))
    }

    fn take(&mut self, buf: &mut Vec<u8>, n: usize) -> Result<()> {
        let got = append(&mut self.src, buf, n).map_err(cannot_read)?;
        self.offset += got as u64;
        if got < n { Err(ends_early(self.offset)) } else { Ok(()) }
    }

    /// Reads the head of a skippable record, and checks it.
    fn skip(&mut self, h: &RecordHeader, bytes: &[u8; HEADER_LEN], buf: &mut Vec<u8>) -> Result<()> {
        self.skipped += 1;
        if self.skipped > record::MAX_SKIPPABLE {
            return Err(too_many_skippable());
        }
        self.take(buf, h.head_len as usize)?;
        h.verify(bytes, &buf[HEADER_LEN..])?;
        digests::collect(&mut self.digests, h.tag, &buf[HEADER_LEN..], self.sources.bases.len())
    }
}

fn cannot_read(e: std::io::Error) -> Error {
    Error::io("cannot read the file", e)
}
