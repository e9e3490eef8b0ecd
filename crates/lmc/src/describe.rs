//! How a block is coded, for people who want to see.

use crate::block::head::{BlockHead, Group, Grouped, Method, Part};
use crate::map::Map;

/// How a block is coded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockDescription {
    /// Length of the block's contents in bytes.
    pub raw_len: u64,
    /// Number of lane sets of the entropy coder.
    pub lane_sets: usize,
    /// Symbols that were too rare for a table.
    pub literals: u64,
    /// Stretches of bytes that alternate between the parts; 1 if there is one part.
    pub pieces: usize,
    /// What the block is made of: one part, or several in a pack of small tensors.
    pub parts: Vec<PartDescription>,
}

/// How a part of a block is coded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartDescription {
    /// Length of the part's contents in bytes.
    pub raw_len: u64,
    /// "stored", "zstd" or "grouped".
    pub method: &'static str,
    /// Bytes of an element of a grouped part.
    pub width: Option<usize>,
    /// How elements of a grouped part are mapped: "identity", "rotate" or "zigzag".
    pub map: Option<&'static str>,
    /// The groups of a grouped part.
    pub groups: Vec<GroupDescription>,
}

/// How the elements of a group are split into bits, and how those are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Bits of an element that are the same in the whole group.
    pub constant_bits: u32,
    /// Bits of an element that are stored as they are.
    pub raw_bits: u32,
    /// Bits of an element that are a symbol of the coder.
    pub symbol_bits: u32,
    /// "none", "huffman", "rans" or "fine-rans".
    pub coder: &'static str,
}

impl BlockDescription {
    pub(crate) fn new(h: &BlockHead) -> Self {
        Self {
            raw_len: h.raw_len as u64,
            lane_sets: h.words.len(),
            literals: h.literals as u64,
            pieces: h.pieces.len(),
            parts: h.parts.iter().map(PartDescription::new).collect(),
        }
    }
}

impl PartDescription {
    fn new(p: &Part) -> Self {
        let raw_len = p.len as u64;
        let plain = |method| Self { raw_len, method, width: None, map: None, groups: vec![] };
        match &p.method {
            Method::Stored => plain("stored"),
            Method::Zstd { .. } => plain("zstd"),
            Method::Predicted(p) => Self {
                raw_len,
                method: "predicted",
                width: Some(p.width),
                map: None,
                groups: p
                    .sections
                    .iter()
                    .filter_map(|s| s.1.as_ref())
                    .flat_map(|g| g.groups.iter().map(|group| GroupDescription::new(g, group)))
                    .collect(),
            },
            Method::Grouped(g) => Self {
                raw_len,
                method: "grouped",
                width: Some(g.width),
                map: Some(match g.map {
                    Map::Identity => "identity",
                    Map::Rotate => "rotate",
                    Map::Zigzag => "zigzag",
                }),
                groups: g.groups.iter().map(|group| GroupDescription::new(g, group)).collect(),
            },
        }
    }
}

impl GroupDescription {
    fn new(part: &Grouped, g: &Group) -> Self {
        Self {
            constant_bits: g.low + g.high,
            raw_bits: g.raw_bits,
            symbol_bits: g.symbol_bits(8 * part.width as u32),
            coder: g.coder.name(),
        }
    }
}
