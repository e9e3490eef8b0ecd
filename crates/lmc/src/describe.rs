//! How a block is coded, for people who want to see.

use crate::block::head::{BlockHead, ContextSource, Dependency, Group, Grouped, Method, Part, Predicted};
use crate::map::Map;
use crate::predict::Predictor;

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
    /// "stored", "zstd", "grouped", "predicted", or "tensor list": a header of which the tensors are told.
    pub method: &'static str,
    /// Bytes of an element of a grouped or predicted part.
    pub width: Option<usize>,
    /// How elements of a grouped part are mapped: "identity", "rotate" or "zigzag".
    pub map: Option<&'static str>,
    /// How the elements of a predicted part are predicted.
    pub prediction: Option<PredictionDescription>,
    /// The groups of a grouped part, or those of all classes of a predicted one. Classes of which few elements changed have none.
    pub groups: Vec<GroupDescription>,
    /// Elements that are listed one by one, with what changes them.
    pub listed: u64,
}

/// What the elements of a part are predicted from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PredictionDescription {
    /// What is coded of an element: "xor" with what was expected, the distance to it in representable numbers ("ulp"), the
    /// "difference" of integers, or "none": the element itself, by the class of other data.
    pub predictor: &'static str,
    /// Whether the prediction is of another type: "F32 to BF16", "BF16 to F32" or "F32 to F16".
    pub conversion: Option<&'static str>,
    /// Where predictions and classes come from, in order: 0 is the file itself, i its i-th base.
    pub sources: Vec<u32>,
    /// Number of classes.
    pub classes: usize,
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
            parts: h.parts.iter().map(|p| PartDescription::new(p, &h.dependencies)).collect(),
        }
    }
}

impl PartDescription {
    fn new(p: &Part, dependencies: &[Dependency]) -> Self {
        let raw_len = p.len as u64;
        let plain =
            |method| Self { raw_len, method, width: None, map: None, prediction: None, groups: vec![], listed: 0 };
        let listed = p.method.sections().filter_map(|g| g.patches.as_ref()).map(|p| p.count as u64).sum();
        match &p.method {
            Method::Stored => plain("stored"),
            Method::Zstd { .. } => plain("zstd"),
            Method::TensorList { .. } => plain("tensor list"),
            Method::Predicted(p) => Self {
                raw_len,
                method: "predicted",
                width: Some(p.width),
                map: None,
                prediction: Some(PredictionDescription::new(p, dependencies)),
                groups: p
                    .sections
                    .iter()
                    .filter_map(|s| s.1.as_ref())
                    .flat_map(|g| g.groups.iter().map(|group| GroupDescription::new(g, group)))
                    .collect(),
                listed,
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
                prediction: None,
                groups: g.groups.iter().map(|group| GroupDescription::new(g, group)).collect(),
                listed,
            },
        }
    }
}

impl PredictionDescription {
    fn new(p: &Predicted, dependencies: &[Dependency]) -> Self {
        let context = if let ContextSource::Other { named, .. } = &p.context { Some(named) } else { None };
        let named = p.base.iter().chain(context).flat_map(|n| &dependencies[n.first..n.first + n.count]);
        let mut sources: Vec<u32> = named.map(|d| d.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let predictor = match p.predictor {
            Predictor::None => "none",
            Predictor::Xor => "xor",
            Predictor::Float => "ulp",
            Predictor::Integer => "difference",
        };
        Self { predictor, conversion: p.conversion.name(), sources, classes: p.sections.len() }
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
