//! A block (§3).

use super::bytes::Bytes;
use super::digests::{LEAF, digest};
use super::entropy::Lanes;
use super::faults::{Faults, must};
use super::frames::zstd_frame;
use super::predicted::Predicted;
use super::ranges::{Ranges, Sources, bytes_of};
use super::stream::{Steps, Stream, Streams};

/// The head of a block, without the violations that did not stop the decoder: those are found when the body is decoded.
pub(super) struct Head {
    word_counts: Vec<u32>,
    literal_count: u32,
    /// Column and length of each extent.
    extents: Vec<(u8, usize)>,
    /// Length and method of each column.
    columns: Vec<(usize, Method)>,
    /// Whether it fits is for the caller to see; so is that of the body.
    pub(super) digest: [u8; 16],
    pub(super) body_check: Option<u64>,
    /// How many blocks may have to be decoded, one for the other, before this one (§3.6).
    pub(super) depth: u32,
    /// How many bytes of the file have to be decoded for this block, and for those that its ranges touch (§3.6).
    pub(super) cost: u64,
    /// The bits of the features that the block needs.
    pub(super) needs: u32,
    faults: Faults,
}

/// The contents of a block, with the first violation that did not stop the decoder.
pub(super) struct Block {
    pub(super) raw: Vec<u8>,
    /// The digests of the leaves.
    pub(super) leaves: Vec<[u8; 16]>,
    pub(super) fault: Option<String>,
    /// The steps of each stream, if they were wanted.
    pub(super) steps: Vec<Steps>,
}

#[expect(clippy::large_enum_variant, reason = "there are a few at a time")]
enum Method {
    Stored,
    Zstd { width: usize, frame_length: u64 },
    Plain { width: usize, stream: Stream },
    Predicted(Predicted),
}

impl Head {
    /// Reads the head of the block after those in `sources`, with which it has at most `limit` raw bytes.
    pub(super) fn parse(head: &[u8], sources: &Sources<'_>, limit: usize) -> Result<Self, String> {
        let mut faults = Faults::default();
        let mut head = Bytes::new(head);
        let raw_length = head.varint()?;
        must((1..=1 << 24).contains(&raw_length), "a block has an impossible length")?;
        must(raw_length <= (limit - sources.raw().len()) as u64, "the raw size exceeds the limit")?;
        let raw_length = raw_length as usize;

        let lane_sets = head.u8()?;
        must(lane_sets == 0 || lane_sets == 2, "a block has neither two lane sets nor none")?;
        let word_counts = (0..lane_sets).map(|_| head.u32()).collect::<Result<Vec<u32>, String>>()?;
        let literal_count = if lane_sets > 0 { head.u32()? } else { 0 };
        let few = word_counts.iter().chain([&literal_count]).all(|&count| count <= 1 << 24);
        must(few, "a block has more than 2^24 words or literals")?;

        let column_count = head.u8()?;
        must((1..=16).contains(&column_count), "a block has an impossible number of columns")?;
        let extents =
            if column_count > 1 { extents(&mut head, column_count, raw_length)? } else { vec![(0, raw_length)] };
        let mut ranges = sources.ranges();
        let mut columns = Vec::new();
        for column in 0..column_count {
            let length = extents.iter().filter(|&&(p, _)| p == column).map(|&(_, length)| length).sum::<usize>();
            must(length >= 1, "a column is empty")?;
            columns.push((length, method(&mut head, length, lane_sets, &mut ranges, &mut faults)?));
        }
        let digest = head.array()?;
        let names_ranges = ranges.needs & 1 != 0;
        let body_check = if names_ranges { Some(head.u64()?) } else { None };
        head.end("something follows the digest of a block")?;
        let cost = ranges.cost(raw_length);
        faults.must(cost <= 1 << 30, "the cost of a block exceeds 2^30");
        let Ranges { depth, needs, .. } = ranges;
        Ok(Self { word_counts, literal_count, extents, columns, digest, body_check, depth, cost, needs, faults })
    }

    /// Decodes the body.
    pub(super) fn decode(&self, body: &[u8]) -> Result<Block, String> {
        self.decode_in_steps(body, None)
    }

    /// Decodes the body, and appends the steps of each stream to `steps`.
    pub(super) fn decode_in_steps(&self, body: &[u8], steps: Option<Vec<Steps>>) -> Result<Block, String> {
        let mut faults = self.faults.clone();
        // How many bulk bytes there are depends on the cluster maps; everything after them has a known length.
        let lanes_length = Lanes::length(&self.word_counts, self.literal_count);
        must(lanes_length <= body.len(), "the body of a block is too short")?;
        let (bulk, lanes) = body.split_at(body.len() - lanes_length);
        let lanes = Lanes::parse(lanes, &self.word_counts, self.literal_count, &mut faults)?;
        let mut streams = Streams { bulk: Bytes::new(bulk), lanes, steps };
        let mut columns = Vec::new();
        for &(length, ref method) in &self.columns {
            let column = match method {
                Method::Stored => streams.bulk.take(length as u64)?.to_vec(),
                Method::Zstd { width, frame_length } => {
                    of_planes(zstd_frame(streams.bulk.take(*frame_length)?, length)?, *width)
                }
                Method::Plain { width, stream } => {
                    bytes_of(&stream.decode(length / width, &mut streams, &mut faults)?, *width)
                }
                Method::Predicted(predicted) => predicted.decode(&mut streams, &mut faults)?,
            };
            columns.push(column);
        }
        streams.lanes.finish(&mut faults);
        faults.must(streams.bulk.rest().is_empty(), "the body of a block is too long");

        let mut raw = Vec::with_capacity(self.columns.iter().map(|&(length, _)| length).sum());
        let mut rests: Vec<Bytes<'_>> = columns.iter().map(|column| Bytes::new(column)).collect();
        for &(column, length) in &self.extents {
            raw.extend(rests[usize::from(column)].take(length as u64)?);
        }
        let leaves = raw.chunks(LEAF).map(digest).collect();
        Ok(Block { raw, leaves, fault: faults.0, steps: streams.steps.unwrap_or_default() })
    }
}

/// The code in place of a column where extents are repeated.
const REPEAT: u8 = 255;

/// Column and length of each extent.
fn extents(head: &mut Bytes<'_>, column_count: u8, raw_length: usize) -> Result<Vec<(u8, usize)>, String> {
    let count = head.varint()?;
    must(count <= 1 << 20, "a block has too many extents")?;
    let mut extents: Vec<(u8, usize)> = Vec::new();
    let mut sum = 0usize;
    let mut after_repeat = 0;
    for _ in 0..count {
        let column = head.u8()?;
        if column == REPEAT {
            let repeated = head.varint()?;
            must(repeated >= 1, "a repeat of no extents")?;
            must(repeated <= (extents.len() - after_repeat) as u64, "a repeat goes back too far")?;
            let period = extents[extents.len() - repeated as usize..].to_vec();
            let period_length: usize = period.iter().map(|extent| extent.1).sum();
            let times = head.varint()?;
            must(times >= 1, "a repeat of no times")?;
            must(times <= ((raw_length - sum) / period_length) as u64, "the extents exceed the block")?;
            must(extents.len() as u64 + times * repeated <= 1 << 20, "a block has too many extents")?;
            (0..times).for_each(|_| extents.extend(&period));
            sum += times as usize * period_length;
            after_repeat = extents.len();
            continue;
        }
        must(column < column_count, "an extent belongs to no column")?;
        let length = head.varint()?;
        must(length >= 1, "an extent is empty")?;
        must(length <= (raw_length - sum) as u64, "the extents exceed the block")?;
        sum += length as usize;
        extents.push((column, length as usize));
    }
    must(extents.len() <= 1 << 20, "a block has too many extents")?;
    must(sum == raw_length, "the extents do not fill the block")?;
    Ok(extents)
}

/// The method of a column of `length` bytes.
fn method(
    head: &mut Bytes<'_>,
    length: usize,
    lane_sets: u8,
    ranges: &mut Ranges<'_>,
    faults: &mut Faults,
) -> Result<Method, String> {
    let method = head.u8()?;
    match method {
        0 => return Ok(Method::Stored),
        1..=3 => (),
        _ => return Err("a column has an unknown method".into()),
    }
    let width = width(head)?;
    must(length.is_multiple_of(width), "a column is no multiple of its width")?;
    Ok(match method {
        1 => Method::Zstd { width, frame_length: head.varint()? },
        2 => Method::Plain { width, stream: Stream::parse(head, width, true, lane_sets, faults)? },
        _ => Method::Predicted(Predicted::parse(head, width, length, lane_sets, ranges, faults)?),
    })
}

/// Reads a width code; the bytes of an element.
pub(super) fn width(head: &mut Bytes<'_>) -> Result<usize, String> {
    let code = head.u8()?;
    must(code <= 3, "a width code exceeds 3")?;
    Ok(1 << code)
}

/// The bytes whose byte planes these are: the first byte of each element of `width` bytes, then the second of each, ….
fn of_planes(planes: Vec<u8>, width: usize) -> Vec<u8> {
    if width == 1 {
        return planes;
    }
    let n = planes.len() / width;
    let mut bytes = Vec::with_capacity(planes.len());
    (0..n).for_each(|element| bytes.extend((0..width).map(|i| planes[i * n + element])));
    bytes
}
