//! The bases that a file names (§2.6), and the ranges of bases and of the file itself that its blocks name (§3.6).

use super::bytes::Bytes;
use super::faults::{Faults, must};
use super::index::is_shown;
use std::collections::BTreeSet;

/// A base in the bases record.
pub(super) struct NamedBase {
    pub(super) content_hash: [u8; 16],
    pub(super) raw_length: u64,
}

/// Parses the head of a bases record.
pub(super) fn parse_bases(head: &[u8]) -> Result<Vec<NamedBase>, String> {
    let mut head = Bytes::new(head);
    let count = head.varint()?;
    must((1..=1 << 16).contains(&count), "a file has an impossible number of bases")?;
    let mut bases = Vec::new();
    for _ in 0..count {
        bases.push(NamedBase { content_hash: head.array()?, raw_length: head.varint()? });
        let name = head.string()?;
        must(name.len() <= 255, "the name of a base has more than 255 bytes")?;
        must(is_shown(name) && !name.contains(['/', '\\']), "the name of a base has characters that it may not have")?;
    }
    head.end("something follows the last base")?;
    Ok(bases)
}

/// The sources of the ranges of the next block.
pub(super) struct Sources<'a> {
    /// The required features of the file.
    features: u32,
    bases: Vec<&'a [u8]>,
    /// The raw bytes decoded so far.
    raw: Vec<u8>,
    blocks: Vec<Decoded>,
}

/// A block of the file itself.
struct Decoded {
    /// Its end in the raw bytes.
    end: usize,
    depth: u32,
    cost: u64,
}

/// The ranges that one block names, while they are read.
pub(super) struct Ranges<'s> {
    sources: &'s Sources<'s>,
    count: u64,
    /// In bytes.
    sum: u128,
    /// The numbers of the blocks that they touch.
    touched: BTreeSet<usize>,
    /// How many blocks may have to be decoded, one for the other, before this one.
    pub(super) depth: u32,
    /// The bits of the features that the block needs.
    pub(super) needs: u32,
}

impl<'a> Sources<'a> {
    /// The sources of the first block of a file.
    pub(super) fn new(features: u32, bases: Vec<&'a [u8]>) -> Self {
        Self { features, bases, raw: Vec::new(), blocks: Vec::new() }
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn into_raw(self) -> Vec<u8> {
        self.raw
    }

    /// Adds a block; later blocks may name ranges of it.
    pub(super) fn add(&mut self, raw: Vec<u8>, depth: u32, cost: u64) {
        if self.raw.is_empty() {
            self.raw = raw;
        } else {
            self.raw.extend(raw);
        }
        self.blocks.push(Decoded { end: self.raw.len(), depth, cost });
    }

    /// For the next block, which has named none so far.
    pub(super) fn ranges(&self) -> Ranges<'_> {
        Ranges { sources: self, count: 0, sum: 0, touched: BTreeSet::new(), depth: 0, needs: 0 }
    }
}

impl<'s> Ranges<'s> {
    /// Reads that many ranges; the bytes of each.
    pub(super) fn read(
        &mut self,
        head: &mut Bytes<'_>,
        count: u64,
        faults: &mut Faults,
    ) -> Result<Vec<&'s [u8]>, String> {
        (0..count).map(|_| self.next(head, faults)).collect()
    }

    /// Notes that the block has what needs a bit of the features.
    pub(super) fn need(&mut self, bit: u32, what: &str, faults: &mut Faults) {
        self.needs |= 1 << bit;
        faults.must(self.sources.features >> bit & 1 == 1, &format!("{what} need bit {bit} of the features"));
    }

    /// The cost of the block, which has `raw_length` bytes.
    pub(super) fn cost(&self, raw_length: usize) -> u64 {
        raw_length as u64 + self.touched.iter().map(|&number| self.sources.blocks[number].cost).sum::<u64>()
    }

    fn next(&mut self, head: &mut Bytes<'_>, faults: &mut Faults) -> Result<&'s [u8], String> {
        let Sources { features, bases, raw, blocks } = self.sources;
        let source = head.varint()?;
        let offset = head.varint()?;
        let length = head.varint()?;
        let bytes = match source {
            0 => &raw[..],
            _ => usize::try_from(source - 1)
                .ok()
                .and_then(|base| bases.get(base))
                .ok_or("a range has a source that is not named")?,
        };
        must(length >= 1, "a range is empty")?;
        let fits = u128::from(offset) + u128::from(length) <= bytes.len() as u128;
        must(fits, "a range is not within its source")?;
        let range = offset as usize..(offset + length) as usize;

        self.count += 1;
        faults.must(self.count <= 1 << 20, "a block names more than 2^20 ranges");
        // Not a fault, but an error at once: a decoder need not join more bytes.
        self.sum += u128::from(length);
        must(self.sum <= 1 << 28, "the ranges of a block exceed 2^28 bytes")?;
        self.needs |= 1;
        faults.must(features & 1 != 0, "ranges need bit 0 of the features");
        if source == 0 {
            self.needs |= 2;
            faults.must(features & 2 != 0, "ranges of the file itself need bit 1 of the features");
            let mut start = 0;
            for (number, block) in blocks.iter().enumerate() {
                if start < range.end && block.end > range.start {
                    self.depth = self.depth.max(1 + block.depth);
                    self.touched.insert(number);
                }
                start = block.end;
            }
            faults.must(self.depth <= 8, "the depth of a block exceeds 8");
        }
        Ok(&bytes[range])
    }
}

/// Bytes as elements of `width` bytes each.
pub(super) fn elements(bytes: &[u8], width: usize) -> Vec<u64> {
    bytes.chunks(width).map(|bytes| bytes.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte))).collect()
}

/// Elements of `width` bytes each as bytes.
pub(super) fn bytes_of(elements: &[u64], width: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(elements.len() * width);
    elements.iter().for_each(|u| bytes.extend(&u.to_le_bytes()[..width]));
    bytes
}
