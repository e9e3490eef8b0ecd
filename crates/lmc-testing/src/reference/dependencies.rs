//! The bases that a file names (§2.6), and the dependencies of its blocks: ranges of bases and of the file itself (§3.6).

use super::bytes::Bytes;
use super::faults::{Faults, must};

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
        head.string()?;
    }
    head.end("something follows the last base")?;
    Ok(bases)
}

/// The sources of the next block's dependencies.
pub(super) struct Sources<'a> {
    /// The required features of the file.
    features: u32,
    bases: Vec<&'a [u8]>,
    /// The raw bytes decoded so far.
    raw: Vec<u8>,
    /// The end of each block in `raw`, and its depth.
    blocks: Vec<(usize, u32)>,
}

/// The dependencies of a block.
pub(super) struct Dependencies<'s> {
    ranges: Vec<&'s [u8]>,
    pub(super) depth: u32,
}

impl<'a> Sources<'a> {
    /// Those of the first block of a file.
    pub(super) fn new(features: u32, bases: Vec<&'a [u8]>) -> Self {
        Self { features, bases, raw: Vec::new(), blocks: Vec::new() }
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub(super) fn into_raw(self) -> Vec<u8> {
        self.raw
    }

    /// Adds a block, on which those after it may depend.
    pub(super) fn add(&mut self, raw: &[u8], depth: u32) {
        self.raw.extend(raw);
        self.blocks.push((self.raw.len(), depth));
    }

    /// Reads number and list of the dependencies in the head of a block.
    pub(super) fn dependencies(&self, head: &mut Bytes<'_>, faults: &mut Faults) -> Result<Dependencies<'_>, String> {
        let count = head.varint()?;
        faults.must(count <= 1 << 20, "a block has more than 2^20 dependencies");
        faults.must(count == 0 || self.features & 1 != 0, "dependencies need bit 0 of the features");
        let mut dependencies = Dependencies { ranges: Vec::new(), depth: 0 };
        let mut sum = 0u128;
        for _ in 0..count {
            let source = head.varint()?;
            let offset = head.varint()?;
            let length = head.varint()?;
            must(length >= 1, "a dependency is empty")?;
            sum += u128::from(length);
            let bytes = match source {
                0 => &self.raw[..],
                _ => usize::try_from(source - 1)
                    .ok()
                    .and_then(|base| self.bases.get(base))
                    .ok_or("a dependency has a source that is not named")?,
            };
            let fits = u128::from(offset) + u128::from(length) <= bytes.len() as u128;
            must(fits, "a dependency is not within its source")?;
            let range = offset as usize..(offset + length) as usize;
            dependencies.ranges.push(&bytes[range.clone()]);
            if source == 0 {
                faults.must(self.features & 2 != 0, "dependencies on the file itself need bit 1 of the features");
                let mut start = 0;
                for &(end, depth) in &self.blocks {
                    if start < range.end && end > range.start {
                        dependencies.depth = dependencies.depth.max(1 + depth);
                    }
                    start = end;
                }
            }
        }
        faults.must(sum <= 1 << 26, "the dependencies of a block exceed 2^26 bytes");
        faults.must(dependencies.depth <= 8, "the depth of a block exceeds 8");
        Ok(dependencies)
    }
}

impl Dependencies<'_> {
    /// Reads which dependencies are meant. Their bytes must be `n` elements of `width` bytes, which are returned.
    pub(super) fn elements(&self, head: &mut Bytes<'_>, width: usize, n: usize) -> Result<Vec<u64>, String> {
        let first = head.varint()?;
        let count = head.varint()?;
        must(count >= 1, "a column names no dependency")?;
        let exist = u128::from(first) + u128::from(count) <= self.ranges.len() as u128;
        must(exist, "a column names a dependency that does not exist")?;
        let ranges = &self.ranges[first as usize..(first + count) as usize];
        let length: u128 = ranges.iter().map(|range| range.len() as u128).sum();
        must(length == (n * width) as u128, "the dependencies of a column do not have its number of elements")?;
        Ok(elements(&ranges.concat(), width))
    }
}

/// Bytes as elements of `width` bytes each.
pub(super) fn elements(bytes: &[u8], width: usize) -> Vec<u64> {
    bytes.chunks(width).map(|bytes| bytes.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte))).collect()
}

/// Elements of `width` bytes each as bytes.
pub(super) fn bytes_of(elements: &[u64], width: usize) -> Vec<u8> {
    elements.iter().flat_map(|u| u.to_le_bytes()[..width].to_vec()).collect()
}
