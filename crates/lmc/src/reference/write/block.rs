//! Blocks from a description (§3), and their fields one by one.

use super::super::{LEAF, digest};
use super::entropy::{Chunk, Coder, Encoded, Pad, encode};
use super::{Record, varint, zstd_frame};

/// The bytes of a block and how to code them.
#[derive(Clone, Debug)]
pub struct Block {
    pub lane_sets: u8,
    pub parts: Vec<Part>,
    /// Part and length of each piece. Written only when there are several parts.
    pub pieces: Vec<(u8, u64)>,
    /// What every lane ends at: 2^16 in a valid block.
    pub final_state: u32,
}

#[derive(Clone, Debug)]
pub enum Part {
    Stored(Vec<u8>),
    Zstd(Vec<u8>),
    Grouped(Grouped),
}

/// A part of method 2.
#[derive(Clone, Debug)]
pub struct Grouped {
    pub raw: Vec<u8>,
    pub width_code: u8,
    pub map: u8,
    /// The group of each run; not used when there is one group.
    pub classes: Vec<u8>,
    /// How the classes are coded.
    pub class_map: Group,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, Default)]
pub struct Group {
    pub constant: Option<u64>,
    pub z: u8,
    pub h: u8,
    pub k: u8,
    /// Whether bit 0 of each element has a plane of its own.
    pub sign_plane: bool,
    pub coder: Coder,
    pub pad: Pad,
}

/// A block, field by field.
#[derive(Clone, Debug)]
pub struct BlockFields {
    pub features: u64,
    pub raw_length: u64,
    pub dependency_count: u64,
    pub dependencies: Vec<u8>,
    pub lane_sets: u8,
    pub word_counts: Vec<u32>,
    pub literal_count: u32,
    pub part_count: u8,
    pub piece_count: u64,
    pub pieces: Vec<(u8, u64)>,
    /// The heads of the parts.
    pub parts: Vec<Vec<u8>>,
    pub digests: Vec<[u8; 16]>,
    pub states: Vec<[u32; 64]>,
    pub words: Vec<Vec<u16>>,
    pub literals: Vec<u8>,
    /// The bulk bytes of the parts.
    pub bulk: Vec<Vec<u8>>,
}

impl Part {
    pub fn raw(&self) -> &[u8] {
        match self {
            Part::Stored(raw) | Part::Zstd(raw) => raw,
            Part::Grouped(grouped) => &grouped.raw,
        }
    }
}

impl Block {
    /// A block of one part.
    pub fn of(part: Part, lane_sets: u8) -> Self {
        Self { lane_sets, parts: vec![part], pieces: Vec::new(), final_state: 1 << 16 }
    }

    /// The raw bytes: the parts' as the pieces interleave them.
    pub fn raw(&self) -> Vec<u8> {
        if self.parts.len() == 1 {
            return self.parts[0].raw().to_vec();
        }
        let mut rests: Vec<&[u8]> = self.parts.iter().map(Part::raw).collect();
        let mut raw = Vec::new();
        for &(part, length) in &self.pieces {
            let (piece, rest) = rests[usize::from(part)].split_at(length as usize);
            raw.extend(piece);
            rests[usize::from(part)] = rest;
        }
        raw
    }

    /// Codes the block as described.
    ///
    /// # Errors
    /// When a group cannot hold its elements.
    pub fn encode(&self) -> Result<BlockFields, String> {
        let mut chunks = Vec::new();
        let mut parts = Vec::new();
        let mut bulk = Vec::new();
        for part in &self.parts {
            let (head, bytes) = part.encode(usize::from(self.lane_sets), &mut chunks)?;
            parts.push(head);
            bulk.push(bytes);
        }
        let raw = self.raw();
        let Encoded { states, words, literals } = encode(&chunks, usize::from(self.lane_sets), self.final_state)?;
        Ok(BlockFields {
            features: 0,
            raw_length: raw.len() as u64,
            dependency_count: 0,
            dependencies: Vec::new(),
            lane_sets: self.lane_sets,
            word_counts: words.iter().map(|words| words.len() as u32).collect(),
            literal_count: literals.len() as u32,
            part_count: self.parts.len() as u8,
            piece_count: self.pieces.len() as u64,
            pieces: self.pieces.clone(),
            parts,
            digests: raw.chunks(LEAF).map(digest).collect(),
            states,
            words,
            literals,
            bulk,
        })
    }

    /// The record of the block, coded as described.
    ///
    /// # Errors
    /// When a group cannot hold its elements.
    pub fn record(&self) -> Result<Record, String> {
        Ok(self.encode()?.record())
    }
}

impl BlockFields {
    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, self.features);
        varint(&mut out, self.raw_length);
        varint(&mut out, self.dependency_count);
        out.extend(&self.dependencies);
        out.push(self.lane_sets);
        self.word_counts.iter().for_each(|&count| out.extend(count.to_le_bytes()));
        if self.lane_sets > 0 {
            out.extend(self.literal_count.to_le_bytes());
        }
        out.push(self.part_count);
        if self.part_count > 1 {
            varint(&mut out, self.piece_count);
            for &(part, length) in &self.pieces {
                out.push(part);
                varint(&mut out, length);
            }
        }
        out.extend(self.parts.concat());
        out.extend(self.digests.concat());
        out
    }

    pub fn body(&self) -> Vec<u8> {
        let mut out = self.bulk.concat();
        out.extend(self.words.concat().iter().flat_map(|word| word.to_le_bytes()));
        out.extend(&self.literals);
        out.extend(self.states.concat().iter().flat_map(|state| state.to_le_bytes()));
        out
    }

    pub fn record(&self) -> Record {
        Record::block(self.head(), self.body())
    }
}

impl Part {
    fn encode(&self, lane_sets: usize, chunks: &mut Vec<Chunk>) -> Result<(Vec<u8>, Vec<u8>), String> {
        match self {
            Part::Stored(raw) => Ok((vec![0], raw.clone())),
            Part::Zstd(raw) => {
                let frame = zstd_frame(raw);
                let mut head = vec![1];
                varint(&mut head, frame.len() as u64);
                Ok((head, frame))
            }
            Part::Grouped(grouped) => grouped.encode(lane_sets, chunks),
        }
    }
}

impl Grouped {
    fn encode(&self, lane_sets: usize, chunks: &mut Vec<Chunk>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let width = 1 << self.width_code;
        let w = 8 * width as u32;
        let elements: Vec<u64> = self
            .raw
            .chunks(width)
            .map(|bytes| mapped(bytes.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte)), w, self.map))
            .collect();

        let mut head = vec![2, self.width_code, self.map, 0];
        varint(&mut head, self.groups.len() as u64);
        let mut bulk = Vec::new();
        if self.groups.len() > 1 {
            self.class_map.write_head(&mut head, 1);
            let classes: Vec<u64> = self.classes.iter().map(|&class| u64::from(class)).collect();
            let runs: Vec<&[u64]> = classes.chunks(128).collect();
            self.class_map.encode(&runs, 8, lane_sets, chunks, &mut bulk)?;
        }
        for (class, group) in self.groups.iter().enumerate() {
            group.write_head(&mut head, width);
            let mine = |run: &usize| self.groups.len() == 1 || usize::from(self.classes[*run]) == class;
            let runs: Vec<&[u64]> =
                elements.chunks(128).enumerate().filter(|(run, _)| mine(run)).map(|(_, run)| run).collect();
            group.encode(&runs, w, lane_sets, chunks, &mut bulk)?;
        }
        Ok((head, bulk))
    }
}

impl Group {
    fn write_head(&self, head: &mut Vec<u8>, width: usize) {
        let coder = match self.coder {
            Coder::None => 0,
            Coder::Huffman(_) => 1,
            Coder::Rans(_) => 2,
            Coder::FineRans(_) => 3,
        };
        let flags = u8::from(self.constant.is_some()) | u8::from(self.sign_plane) << 1;
        head.extend([flags, self.z, self.h, self.k, coder]);
        if let Some(constant) = self.constant {
            head.extend(&constant.to_le_bytes()[..width]);
        }
        head.extend(self.coder.table());
    }

    fn encode(
        &self,
        runs: &[&[u64]],
        w: u32,
        lane_sets: usize,
        chunks: &mut Vec<Chunk>,
        bulk: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (z, k) = (u32::from(self.z), u32::from(self.k));
        for (i, run) in runs.iter().enumerate() {
            let mut symbols = Vec::new();
            let mut raws = Vec::new();
            let mut signs = Vec::new();
            for &v in *run {
                let v = u128::from((v ^ self.constant.unwrap_or(0)) & (u64::MAX >> (64 - w)));
                let symbol = u8::try_from(v >> (k + z)).map_err(|_| "an element does not fit its group")?;
                let low = v % (1 << z);
                if low > u128::from(self.sign_plane) || self.coder == Coder::None && symbol != 0 {
                    return Err("an element does not fit its group".into());
                }
                symbols.push(symbol);
                signs.push(low as u64);
                raws.push((v >> z) as u64 & ((1u128 << k) - 1) as u64);
            }
            write_raw_bits(&raws, k, bulk);
            if self.sign_plane {
                write_bit_plane(&signs, 0, bulk);
            }
            if self.coder != Coder::None {
                if lane_sets == 0 {
                    return Err("a coder needs lanes".into());
                }
                chunks.push(Chunk { lane_set: i % lane_sets, coder: self.coder.clone(), symbols, pad: self.pad });
            }
        }
        Ok(())
    }
}

/// Byte planes, then bit planes, of the raw values of a run (§3.5).
fn write_raw_bits(raws: &[u64], k: u32, bulk: &mut Vec<u8>) {
    for i in 0..k / 8 {
        bulk.extend(raws.iter().map(|raw| (raw >> (8 * i)) as u8));
    }
    for bit in 8 * (k / 8)..k {
        write_bit_plane(raws, bit, bulk);
    }
}

/// The given bit of each value.
fn write_bit_plane(values: &[u64], bit: u32, bulk: &mut Vec<u8>) {
    for eight in values.chunks(8) {
        bulk.push(eight.iter().rev().fold(0, |byte, value| byte << 1 | (value >> bit & 1) as u8));
    }
}

/// The mapped value of an element of `w` bits (§4.1).
pub fn mapped(u: u64, w: u32, map: u8) -> u64 {
    let mask = u64::MAX >> (64 - w);
    let sign = u >> (w - 1) & 1;
    match map {
        1 => (u << 1 | sign) & mask,
        2 => ((u << 1) ^ if sign == 1 { u64::MAX } else { 0 }) & mask,
        _ => u,
    }
}

/// The element of a mapped value of `w` bits (§4.1).
pub fn unmapped(v: u64, w: u32, map: u8) -> u64 {
    let mask = u64::MAX >> (64 - w);
    match map {
        1 => v >> 1 | (v & 1) << (w - 1),
        2 => (v >> 1) ^ if v & 1 == 1 { mask } else { 0 },
        _ => v,
    }
}
