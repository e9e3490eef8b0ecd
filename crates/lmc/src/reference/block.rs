//! A block (§3).

use super::bytes::Bytes;
use super::entropy::{Coder, Lanes, Table};
use super::{Faults, LEAF, must, zstd_frame};

/// What a block holds, with the first violation that did not stop the decoder.
pub(super) struct Block {
    pub(super) raw: Vec<u8>,
    /// As the head has them; whether they fit is for the caller to see.
    pub(super) digests: Vec<u8>,
    pub(super) fault: Option<String>,
}

enum Method {
    Stored,
    Zstd { frame_length: u64 },
    Grouped(Grouped),
}

struct Grouped {
    width: usize,
    map: Map,
    class_map: Option<Group>,
    groups: Vec<Group>,
}

struct Group {
    z: u32,
    k: u32,
    sign_plane: bool,
    constant: u64,
    table: Option<Table>,
}

#[derive(Clone, Copy)]
enum Map {
    Identity,
    Rotate,
    Zigzag,
}

/// Decodes a block of at most `limit` raw bytes.
pub(super) fn decode(head: &[u8], body: &[u8], limit: usize) -> Result<Block, String> {
    let mut head = Bytes::new(head);
    must(head.varint()? == 0, "a block needs a feature that does not exist")?;
    let raw_length = head.varint()?;
    must((1..=1 << 24).contains(&raw_length), "a block has an impossible length")?;
    must(raw_length <= limit as u64, "the raw size exceeds the limit")?;
    let raw_length = raw_length as usize;
    must(head.varint()? == 0, "dependencies are not supported")?;

    let lane_sets = head.u8()?;
    must(lane_sets <= 2, "a block has more than two lane sets")?;
    let word_counts = (0..lane_sets).map(|_| head.u32()).collect::<Result<Vec<u32>, String>>()?;
    let literal_count = if lane_sets > 0 { head.u32()? } else { 0 };
    let few = word_counts.iter().chain([&literal_count]).all(|&count| count <= 1 << 24);
    must(few, "a block has more than 2^24 words or literals")?;

    let part_count = head.u8()?;
    must((1..=64).contains(&part_count), "a block has an impossible number of parts")?;
    let pieces = if part_count > 1 { pieces(&mut head, part_count, raw_length)? } else { vec![(0, raw_length)] };
    let mut methods = Vec::new();
    for part in 0..part_count {
        let length = pieces.iter().filter(|&&(p, _)| p == part).map(|&(_, length)| length).sum::<usize>();
        must(length >= 1, "a part is empty")?;
        methods.push((length, method(&mut head, length, lane_sets)?));
    }
    let digests = head.take(16 * raw_length.div_ceil(LEAF) as u64)?.to_vec();
    head.end("something follows the digests of a block")?;

    // How many bulk bytes there are depends on the class maps; everything after them has a known length.
    let lanes_length = Lanes::length(&word_counts, literal_count);
    must(lanes_length <= body.len(), "the body of a block is too short")?;
    let (bulk, lanes) = body.split_at(body.len() - lanes_length);
    let mut bulk = Bytes::new(bulk);
    let mut faults = Faults::default();
    let mut lanes = Lanes::parse(lanes, &word_counts, literal_count, &mut faults)?;
    let mut parts = Vec::new();
    for (length, method) in methods {
        let part = match method {
            Method::Stored => bulk.take(length as u64)?.to_vec(),
            Method::Zstd { frame_length } => zstd_frame(bulk.take(frame_length)?, length)?,
            Method::Grouped(grouped) => grouped.decode(length, &mut lanes, &mut bulk, &mut faults)?,
        };
        parts.push(part);
    }
    lanes.finish(&mut faults);
    faults.must(bulk.rest().is_empty(), "the body of a block is too long");

    let mut raw = Vec::new();
    let mut rests: Vec<Bytes<'_>> = parts.iter().map(|part| Bytes::new(part)).collect();
    for (part, length) in pieces {
        raw.extend(rests[usize::from(part)].take(length as u64)?);
    }
    Ok(Block { raw, digests, fault: faults.0 })
}

/// Part and length of each piece.
fn pieces(head: &mut Bytes<'_>, part_count: u8, raw_length: usize) -> Result<Vec<(u8, usize)>, String> {
    let count = head.varint()?;
    must(count <= 1 << 20, "a block has too many pieces")?;
    let mut pieces = Vec::new();
    let mut sum = 0usize;
    for _ in 0..count {
        let part = head.u8()?;
        must(part < part_count, "a piece belongs to no part")?;
        let length = head.varint()?;
        must(length >= 1, "a piece is empty")?;
        must(length <= (raw_length - sum) as u64, "the pieces exceed the block")?;
        sum += length as usize;
        pieces.push((part, length as usize));
    }
    must(sum == raw_length, "the pieces do not fill the block")?;
    Ok(pieces)
}

fn method(head: &mut Bytes<'_>, length: usize, lane_sets: u8) -> Result<Method, String> {
    match head.u8()? {
        0 => return Ok(Method::Stored),
        1 => return Ok(Method::Zstd { frame_length: head.varint()? }),
        2 => (),
        _ => return Err("a part has an unknown method".into()),
    }
    let width_code = head.u8()?;
    must(width_code <= 3, "a width code exceeds 3")?;
    let width = 1 << width_code;
    must(length.is_multiple_of(width), "a part is no multiple of its width")?;
    let map = match head.u8()? {
        0 => Map::Identity,
        1 => Map::Rotate,
        2 => Map::Zigzag,
        _ => return Err("a part has an unknown map".into()),
    };
    must(head.u8()? == 0, "predictors are not supported")?;
    let group_count = head.varint()?;
    must((1..=64).contains(&group_count), "a part has an impossible number of groups")?;
    let class_map = if group_count > 1 { Some(group(head, 1, lane_sets)?) } else { None };
    let groups = (0..group_count).map(|_| group(head, width, lane_sets)).collect::<Result<_, String>>()?;
    Ok(Method::Grouped(Grouped { width, map, class_map, groups }))
}

fn group(head: &mut Bytes<'_>, width: usize, lane_sets: u8) -> Result<Group, String> {
    let w = 8 * width as u32;
    let flags = head.u8()?;
    must(flags <= 3, "a group has an unknown flag")?;
    let z = u32::from(head.u8()?);
    let h = u32::from(head.u8()?);
    let k = u32::from(head.u8()?);
    must(z + h + k <= w, "a group has more bits than its elements")?;
    let sign_plane = flags & 2 != 0;
    must(!sign_plane || z >= 1, "a sign plane needs bit 0 to be dropped")?;
    let s = w - z - h - k;
    let coder = match head.u8()? {
        0 => Coder::None,
        1 => Coder::Huffman,
        2 => Coder::Rans,
        3 => Coder::FineRans,
        _ => return Err("a group has an unknown coder".into()),
    };
    let mut constant = 0;
    if flags & 1 != 0 {
        for (i, &byte) in head.take(width as u64)?.iter().enumerate() {
            constant |= u64::from(byte) << (8 * i);
        }
    }
    let table = if coder == Coder::None {
        must(s == 0, "symbols have no coder")?;
        None
    } else {
        must((1..=8).contains(&s), "symbols have an impossible width")?;
        must(lane_sets >= 1, "a group has a coder, but the block has no lanes")?;
        Some(Table::parse(head, coder, s)?)
    };
    Ok(Group { z, k, sign_plane, constant, table })
}

impl Grouped {
    fn decode(
        &self,
        length: usize,
        lanes: &mut Lanes<'_>,
        bulk: &mut Bytes<'_>,
        faults: &mut Faults,
    ) -> Result<Vec<u8>, String> {
        let w = 8 * self.width as u32;
        let runs = run_lengths(length / self.width);
        let classes = match &self.class_map {
            None => vec![0; runs.len()],
            Some(group) => group.decode(&run_lengths(runs.len()), 8, lanes, bulk, faults)?,
        };
        let known = classes.iter().all(|&class| class < self.groups.len() as u64);
        must(known, "a class is no group")?;

        let mut values = vec![Vec::new(); runs.len()];
        for (class, group) in (0..).zip(&self.groups) {
            let mine: Vec<usize> = (0..runs.len()).filter(|&run| classes[run] == class).collect();
            let lengths: Vec<usize> = mine.iter().map(|&run| runs[run]).collect();
            let mut decoded = group.decode(&lengths, w, lanes, bulk, faults)?.into_iter();
            for run in mine {
                values[run] = decoded.by_ref().take(runs[run]).collect();
            }
        }
        let element = |&v: &u64| self.map.back(v, w).to_le_bytes()[..self.width].to_vec();
        Ok(values.concat().iter().flat_map(element).collect())
    }
}

/// Lengths of the runs of so many elements (§3.4).
fn run_lengths(elements: usize) -> Vec<usize> {
    let mut runs = vec![128; elements / 128];
    if !elements.is_multiple_of(128) {
        runs.push(elements % 128);
    }
    runs
}

impl Group {
    /// The values v of all elements (§3.5), `w` bits wide.
    fn decode(
        &self,
        runs: &[usize],
        w: u32,
        lanes: &mut Lanes<'_>,
        bulk: &mut Bytes<'_>,
        faults: &mut Faults,
    ) -> Result<Vec<u64>, String> {
        let mut values = Vec::new();
        for (i, &t) in runs.iter().enumerate() {
            let raw_values = raw_bits(bulk, self.k, t, faults)?;
            let signs = raw_bits(bulk, u32::from(self.sign_plane), t, faults)?;
            let symbols = match &self.table {
                None => vec![0; t],
                Some(table) => lanes.chunk(i, table, t, faults)?,
            };
            for ((raw, sign), symbol) in raw_values.into_iter().zip(signs).zip(symbols) {
                let v = (u128::from(symbol) << (self.k + self.z)) | (u128::from(raw) << self.z) | u128::from(sign);
                values.push((v as u64 ^ self.constant) & ones(w));
            }
        }
        Ok(values)
    }
}

/// The raw bits of a run of `t` elements, `k` each: byte planes, then bit planes.
fn raw_bits(bulk: &mut Bytes<'_>, k: u32, t: usize, faults: &mut Faults) -> Result<Vec<u64>, String> {
    let mut values = vec![0u64; t];
    for i in 0..k / 8 {
        for (value, &byte) in values.iter_mut().zip(bulk.take(t as u64)?) {
            *value |= u64::from(byte) << (8 * i);
        }
    }
    for bit in 8 * (k / 8)..k {
        let plane = bulk.take(t.div_ceil(8) as u64)?;
        for (e, value) in values.iter_mut().enumerate() {
            *value |= u64::from(plane[e / 8] >> (e % 8) & 1) << bit;
        }
        let unused = plane.len() * 8 - t;
        faults.must(u32::from(plane[plane.len() - 1]) >> (8 - unused) == 0, "unused bits of a bit plane are not 0");
    }
    Ok(values)
}

fn ones(w: u32) -> u64 {
    u64::MAX >> (64 - w)
}

impl Map {
    /// From the mapped value of `w` bits to the element (§4.1).
    fn back(self, v: u64, w: u32) -> u64 {
        match self {
            Map::Identity => v,
            Map::Rotate => (v >> 1) | (v & 1) << (w - 1),
            Map::Zigzag => (v >> 1) ^ if v & 1 == 1 { ones(w) } else { 0 },
        }
    }
}
