//! Decoding a block.

use super::head::{BlockHead, Group, Grouped, Method};
use crate::arch::job::{DecodeJob, set_of};
use crate::arch::{Isa, decode_chunk};
use crate::checksum::{LEAF, digest};
use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::entropy::table::DecodeTable;
use crate::error::{Error, Result};
use crate::group::RUN;
use crate::group::element::{Element, with_element};
use crate::group::split::{Shape, lengthen_raw, merge_run};
use crate::map::Map;

/// Bytes of a lane set's states.
const STATES: usize = 4 * crate::entropy::LANES;

/// Decodes blocks one after the other, keeping its working memory.
pub(crate) struct BlockDecoder {
    isa: Isa,
    class_map: Vec<u8>,
    /// Runs of every group, one group after the other.
    runs: Vec<u32>,
    /// A part of several pieces before it is dealt out.
    gathered: Vec<u8>,
}

/// What the groups of a block share.
struct Streams<'a> {
    lanes: Vec<LaneReader<'a>>,
    literals: LiteralReader<'a>,
    bulk: &'a [u8],
}

impl<'a> Streams<'a> {
    fn new(head: &BlockHead, body: &'a [u8]) -> Result<Self> {
        let words: usize = head.words.iter().map(|w| 2 * w).sum();
        let tail = words + head.literals + STATES * head.words.len();
        let Some(bulk_len) = body.len().checked_sub(tail) else {
            return Err(Error::damaged("a block's body is shorter than its head says"));
        };
        let (bulk, rest) = body.split_at(bulk_len);
        let states = &rest[words + head.literals..];
        let mut at = 0;
        let mut lanes = Vec::with_capacity(2);
        for (&n, states) in head.words.iter().zip(states.chunks_exact(STATES)) {
            lanes.push(LaneReader::new(states, &rest[at..], n)?);
            at += 2 * n;
        }
        Ok(Self { lanes, literals: LiteralReader::new(&rest[at..], head.literals), bulk })
    }

    fn take_bulk(&mut self, n: usize) -> Result<&'a [u8]> {
        let (a, b) = self
            .bulk
            .split_at_checked(n)
            .ok_or_else(|| Error::damaged("a block's body is shorter than its head says"))?;
        self.bulk = b;
        Ok(a)
    }

    fn finish(self) -> Result<()> {
        if !self.bulk.is_empty() {
            return Err(Error::damaged("a block's body is longer than its head says"));
        }
        self.lanes.iter().try_for_each(LaneReader::finish)?;
        self.literals.finish()
    }
}

impl BlockDecoder {
    pub(crate) fn new(isa: Isa) -> Self {
        Self { isa, class_map: Vec::new(), runs: Vec::new(), gathered: Vec::new() }
    }

    /// Decodes a block into `out`, which has exactly `head.raw_len` bytes, and checks it.
    ///
    /// After an error `out` holds nothing of use.
    pub(crate) fn decode(&mut self, head: &BlockHead, body: &[u8], out: &mut [u8]) -> Result<()> {
        assert_eq!(out.len(), head.raw_len, "room for the block");
        let mut streams = Streams::new(head, body)?;
        if let [part] = &head.parts[..] {
            self.decode_part(&part.method, &mut streams, out)?;
        } else {
            let mut gathered = std::mem::take(&mut self.gathered);
            gathered.resize(head.raw_len, 0);
            let done = self.decode_parts(head, &mut streams, &mut gathered, out);
            self.gathered = gathered;
            done?;
        }
        streams.finish()?;
        for (leaf, want) in out.chunks(LEAF).zip(&head.leaves) {
            if digest(leaf) != *want {
                return Err(Error::damaged("the checksum of a block does not match"));
            }
        }
        Ok(())
    }

    fn decode_parts(
        &mut self,
        head: &BlockHead,
        streams: &mut Streams<'_>,
        gathered: &mut [u8],
        out: &mut [u8],
    ) -> Result<()> {
        let mut next = Vec::with_capacity(head.parts.len());
        let mut at = 0;
        for part in &head.parts {
            self.decode_part(&part.method, streams, &mut gathered[at..at + part.len])?;
            next.push(at);
            at += part.len;
        }
        let mut to = 0;
        for &(part, len) in &head.pieces {
            let from = &mut next[usize::from(part)];
            out[to..to + len].copy_from_slice(&gathered[*from..*from + len]);
            *from += len;
            to += len;
        }
        Ok(())
    }

    fn decode_part(&mut self, method: &Method, streams: &mut Streams<'_>, out: &mut [u8]) -> Result<()> {
        match method {
            Method::Stored => out.copy_from_slice(streams.take_bulk(out.len())?),
            Method::Zstd { frame_len } => {
                let frame = streams.take_bulk(*frame_len)?;
                let one = zstd::zstd_safe::find_frame_compressed_size(frame).is_ok_and(|n| n == frame.len());
                let n = zstd::bulk::decompress_to_buffer(frame, out).unwrap_or(0);
                if !one || n != out.len() {
                    return Err(Error::damaged("a zstd frame does not decode to the length of its part"));
                }
            }
            Method::Grouped(g) => self.decode_grouped(g, streams, out)?,
        }
        Ok(())
    }

    fn decode_grouped(&mut self, g: &Grouped, streams: &mut Streams<'_>, out: &mut [u8]) -> Result<()> {
        let n = g.elements(out.len());
        let (whole, t) = (n / RUN, n % RUN);
        let mut runs = std::mem::take(&mut self.runs);
        let mut class_map = std::mem::take(&mut self.class_map);
        runs.clear();
        let result = (|| {
            let Some(map_group) = &g.class_map else {
                runs.extend(0..whole as u32);
                return self.decode_group(&g.groups[0], g.width, g.map, &runs, t, streams, out);
            };
            class_map.resize(n.div_ceil(RUN), 0);
            runs.extend(0..(class_map.len() / RUN) as u32);
            let map_t = class_map.len() % RUN;
            self.decode_group(map_group, 1, Map::Identity, &runs, map_t, streams, &mut class_map)?;
            // Counting sort: the runs of each group, in order. A count for every byte value, so that one check does for all.
            let mut count = [0u32; 256];
            class_map.iter().for_each(|&c| count[usize::from(c)] += 1);
            if count[g.groups.len()..].iter().any(|&n| n > 0) {
                return Err(Error::damaged("a class map names a group that is not there"));
            }
            let partial_in = if t > 0 { class_map.last().map(|&c| usize::from(c)) } else { None };
            let mut begin = [0usize; super::head::MAX_GROUPS + 1];
            let mut next = [0u32; 256];
            for i in 0..g.groups.len() {
                begin[i + 1] = begin[i] + count[i] as usize;
                next[i] = begin[i] as u32;
            }
            runs.clear();
            runs.resize(class_map.len(), 0);
            for (r, &c) in class_map.iter().enumerate() {
                let place = &mut next[usize::from(c)];
                runs[*place as usize] = r as u32;
                *place += 1;
            }
            for (i, group) in g.groups.iter().enumerate() {
                let (t, last) = if partial_in == Some(i) { (t, 1) } else { (0, 0) };
                let runs = &runs[begin[i]..begin[i + 1] - last];
                self.decode_group(group, g.width, g.map, runs, t, streams, out)?;
            }
            Ok(())
        })();
        self.runs = runs;
        self.class_map = class_map;
        result
    }

    /// Decodes the whole runs of a group, and then the partial run of `t` elements if `t` is not 0.
    #[expect(clippy::too_many_arguments, reason = "one call for class maps and groups")]
    fn decode_group(
        &self,
        group: &Group,
        width: usize,
        map: Map,
        runs: &[u32],
        t: usize,
        streams: &mut Streams<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let shape = Shape::of(group, map);
        let table = DecodeTable::new(&group.coder)?;
        let raw = streams.take_bulk(runs.len() * shape.raw_len(RUN))?;
        self.isa.decode_group(DecodeJob {
            table: table.as_ref(),
            shape,
            width,
            lanes: &mut streams.lanes,
            literals: &mut streams.literals,
            runs,
            raw,
            out,
        })?;
        if t > 0 {
            let raw = streams.take_bulk(shape.raw_len(t))?;
            let chunk = runs.len();
            with_element!(width, E => decode_partial::<E>(&shape, table.as_ref(), raw, chunk, t, streams, out))?;
        }
        Ok(())
    }
}

/// The last run of a part, of which a chunk holds more than there is.
fn decode_partial<E: Element>(
    shape: &Shape,
    table: Option<&DecodeTable>,
    raw: &[u8],
    chunk: usize,
    t: usize,
    streams: &mut Streams<'_>,
    out: &mut [u8],
) -> Result<()> {
    let mut symbols = [0; RUN];
    if let Some(table) = table {
        let set = set_of(chunk, streams.lanes.len());
        decode_chunk(table, &mut streams.lanes[set], &mut streams.literals, &mut symbols)?;
        if symbols[t..].iter().any(|&s| s != table.pad()) {
            return Err(Error::damaged("the padding of a group is not what it must be"));
        }
    }
    let mut whole = vec![0; shape.raw_len(RUN)];
    if !lengthen_raw(shape, t, raw, &mut whole) {
        return Err(Error::damaged("a group has bits left over"));
    }
    let mut run = vec![0; RUN * E::BYTES];
    merge_run::<E>(shape, &symbols, &whole, &mut run);
    let at = out.len() / E::BYTES - t;
    out[at * E::BYTES..(at + t) * E::BYTES].copy_from_slice(&run[..t * E::BYTES]);
    Ok(())
}
