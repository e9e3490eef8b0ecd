//! Describes how a block is coded, for display.

use std::fmt;

use lmc::internals::{
    BlockHead, Cluster, Column, Derivation, HEADER_LEN, Mask, Method, Operand, Predicted, Stream, block_head,
    coder_name, grid_format, ranges,
};
use lmc::{ReadAt, Reader};
use lmc_kernels::map::Map;
use lmc_kernels::predict::Conversion;
use serde::{Serialize, Serializer};

/// How a block is coded; serialized, as `lmc list --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BlockDescription {
    /// Length of the block's contents in bytes.
    #[serde(rename = "raw_size")]
    pub raw_len: u64,
    /// Number of lane sets of the entropy coder: 2, or 0 where nothing is coded with one.
    pub lane_sets: usize,
    /// Symbols that were too rare for a table.
    pub literals: u64,
    /// Stretches of bytes that alternate between the columns, in order; one if there is one column. There may be many:
    /// serialized, it is their number.
    #[serde(serialize_with = "number")]
    pub extents: Vec<ExtentDescription>,
    /// The columns of the block: one, or several in a pack of small tensors.
    pub columns: Vec<ColumnDescription>,
}

fn number<S: Serializer>(extents: &[ExtentDescription], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(extents.len() as u64)
}

/// A stretch of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtentDescription {
    /// Number of the column that the bytes are the next ones of.
    pub column: usize,
    /// Length in bytes.
    pub raw_len: u64,
}

/// How a column of a block is coded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ColumnDescription {
    /// Length of the column's contents in bytes.
    #[serde(rename = "raw_size")]
    pub raw_len: u64,
    /// Bytes of the block's record that stand for the column. Those of all columns add up to the record.
    ///
    /// A column has its own description, frame or bytes stored as they are, and list of patches. Clusters share lanes:
    /// the bytes of the lanes, the literals and the raw bits of all clusters are divided by the bits that the clusters
    /// code for their elements, which is an estimate. The rest, of no column (headers, extents, digests), is divided by
    /// raw length.
    #[serde(rename = "compressed_size")]
    pub coded_len: u64,
    /// "stored", "zstd", "zstd of byte planes", "plain", or "predicted".
    pub method: &'static str,
    /// Bytes of an element of a stream or predicted column.
    pub width: Option<usize>,
    /// How elements of a plain column are mapped: "identity", "rotate", "zigzag" or "palette".
    pub map: Option<&'static str>,
    /// How the elements of a predicted column are predicted.
    pub prediction: Option<PredictionDescription>,
    /// The clusters of a plain column, or those of all streams of a predicted one: of a grid, of contexts. Contexts whose elements are listed have none.
    pub clusters: Vec<ClusterDescription>,
    /// Elements that do not fit their cluster.
    pub patches: u64,
    /// Elements that are listed one by one.
    pub listed: u64,
    /// Whether a mask says which elements are coded, the others being 0 or as predicted.
    pub masked: bool,
}

/// The predictions of a column's elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PredictionDescription {
    /// What the prediction is made by: an "Adam step", a "multiple" of other data, terms of "rows and columns", "derived", or
    /// else "ulp": other data or a grid. The coded value of an element is its distance in representable numbers (ULP).
    pub predictor: &'static str,
    /// Whether the prediction is of another type, such as "F32 to BF16".
    pub conversion: Option<String>,
    /// What elements that are computed from others in another precision are: "F8_E4M3 128 × 128 of BF16", "F16 scales of BF16",
    /// "Q8_0 of BF16".
    pub derived: Option<String>,
    /// The grid that gives the predictions, if one does.
    pub grid: Option<GridDescription>,
    /// Where predictions come from, in order: 0 is the file itself, i its i-th base.
    pub sources: Vec<u32>,
    /// Number of contexts.
    pub contexts: usize,
}

/// Predictions that are products of a level and the scale of a group, perhaps with an offset of the group: dequantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GridDescription {
    /// The format that the weights had: "fp8 e4m3", "int4", "nf4" and the like, with offsets "uint4"; "levels" if none is known.
    pub format: &'static str,
    /// How many levels occur.
    pub levels: usize,
    /// Rows and columns of a group.
    pub group: [u64; 2],
    /// Elements of a row of the matrix.
    pub row: u64,
    /// Scales of the column.
    pub scales: u64,
    /// Whether an offset is added for each scale.
    pub offsets: bool,
}

impl GridDescription {
    /// Whether the levels are those of a known format.
    pub(crate) fn is_known(&self) -> bool {
        self.format != UNKNOWN
    }
}

/// The format and the groups: `fp8 e4m3 128 × 128`, `uint4 with offsets 1 × 32`.
impl fmt::Display for GridDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format)?;
        if self.offsets {
            f.write_str(" with offsets")?;
        }
        match self.group {
            _ if self.scales == 1 => f.write_str(", one scale"),
            [rows, 1] if rows >= ALL_ROWS => f.write_str(" by column"),
            [rows, columns] => write!(f, " {rows} × {columns}"),
        }
    }
}

/// The name of levels that no known format has.
const UNKNOWN: &str = "levels";

/// Rows of a group that is a whole column.
const ALL_ROWS: u64 = 1 << 16;

/// How the elements of a cluster are split into bits, and how those are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// Bits of an element that are the same in the whole cluster.
    pub constant_bits: u32,
    /// Bits of an element that are stored as they are.
    pub raw_bits: u32,
    /// Bits of an element that are a symbol of the coder.
    pub symbol_bits: u32,
    /// "none", "huffman", "rans" or "fine-rans".
    pub coder: &'static str,
}

/// How a block of a file is coded. Reads its head only.
///
/// # Errors
/// `Usage` when there is no such block; otherwise those of [`Reader::read_range`].
pub fn describe_block<R: ReadAt>(reader: &Reader<'_, R>, block: u64) -> lmc::Result<BlockDescription> {
    let (info, head) = block_head(reader, block)?;
    Ok(BlockDescription::new(&head, info.record_len))
}

impl BlockDescription {
    pub(crate) fn new(h: &BlockHead, record_len: u64) -> Self {
        let shares = shares(h, record_len);
        let columns = h.columns.iter().zip(shares).map(|(p, coded)| ColumnDescription::new(p, coded, h));
        Self {
            raw_len: h.raw_len as u64,
            lane_sets: h.lanes.map_or(0, |l| l.words.len()),
            literals: h.lanes.map_or(0, |l| l.literals as u64),
            extents: h
                .extents
                .iter()
                .map(|(column, len)| ExtentDescription { column: column.into(), raw_len: len as u64 })
                .collect(),
            columns: columns.collect(),
        }
    }
}

/// Bytes of the record that stand for each column, as [`ColumnDescription::coded_len`] has it.
fn shares(h: &BlockHead, record_len: u64) -> Vec<u64> {
    let mut text = Vec::new();
    h.put(&mut text);
    // Nothing was compared with the body: lengths in a head are claims, so the record's length is divided.
    let mut body = record_len.saturating_sub((HEADER_LEN + text.len()) as u64);
    let mut rest = record_len - body;
    let take = |left: &mut u64, wanted: usize| {
        let taken = (*left).min(wanted as u64);
        *left -= taken;
        taken
    };
    let own = |p: &Column| {
        text.clear();
        p.method.put(h.ranges(), &mut text);
        take(&mut rest, text.len()) + take(&mut body, own_bulk(p))
    };
    let mut shares: Vec<u64> = h.columns.iter().map(own).collect();
    let coded: Vec<u64> = h.columns.iter().map(coded_bits).collect();
    if coded.iter().all(|&bits| bits == 0) {
        // Such a body is nearly empty: it is divided by raw length, like the rest.
        rest += std::mem::take(&mut body);
    }
    share_out(body, &coded, &mut shares);
    let raw: Vec<u64> = h.columns.iter().map(|p| p.len as u64).collect();
    share_out(rest, &raw, &mut shares);
    shares
}

/// Divides bytes by weight.
fn share_out(bytes: u64, weights: &[u64], to: &mut [u64]) {
    let all = u128::from(weights.iter().sum::<u64>().max(1));
    let share = |weight: u64| (u128::from(bytes) * u128::from(weight) / all) as u64;
    let mut before = 0;
    for (to, weight) in to.iter_mut().zip(weights) {
        *to += share(before + weight) - share(before);
        before += weight;
    }
}

/// Bytes of the body that are the column's alone, as far as its description has them.
fn own_bulk(p: &Column) -> usize {
    match &p.method {
        Method::Stored => p.len,
        Method::Zstd(z) => z.frame_len,
        Method::Plain(_) | Method::Predicted(_) => p.method.streams().map(Stream::numbers_len).sum(),
    }
}

/// The most bits that clusters code for their elements: only the body says which cluster an element is in.
fn coded_bits(p: &Column) -> u64 {
    let of = |elements: usize, g: &Stream| {
        let bits = |cluster: &Cluster| {
            cluster.raw_bits + u32::from(cluster.sign_plane) + cluster.symbol_bits(8 * g.width as u32)
        };
        g.mask.selected(elements) as u64 * u64::from(g.clusters.iter().map(bits).max().unwrap_or(0))
    };
    match &p.method {
        Method::Plain(g) => of(g.elements(p.len), g),
        Method::Predicted(predicted) => {
            let of_grid = predicted.operand.grid().map_or(0, |grid| {
                let n = p.len / predicted.width;
                let terms = [Some(&grid.scales), grid.offsets.as_ref()].into_iter().flatten();
                let groups = grid.groups.count(n as u64) as usize;
                terms.map(|stream| of(groups, stream)).sum::<u64>() + of(n, &grid.indices)
            });
            let n = p.len / predicted.width;
            let of_factored = if let Operand::Factored(f) = &predicted.operand {
                of(f.rows.count(n), &f.of_rows) + of((f.rows.len as usize).min(n), &f.of_columns)
            } else {
                0
            };
            let of_terms = predicted.terms.as_ref().map_or(0, |terms| of(terms.rows.count(n), &terms.stream));
            of_grid
                + of_factored
                + of_terms
                + predicted.streams.iter().map(|(n, g)| g.as_ref().map_or(0, |g| of(*n, g))).sum::<u64>()
        }
        Method::Stored | Method::Zstd(_) => 0,
    }
}

impl ColumnDescription {
    fn new(p: &Column, coded_len: u64, head: &BlockHead) -> Self {
        let raw_len = p.len as u64;
        let (width, map, prediction, clusters) = (None, None, None, vec![]);
        let (patches, listed, masked) = (0, 0, false);
        let plain =
            |method| Self { raw_len, coded_len, method, width, map, prediction, clusters, patches, listed, masked };
        let patches = p.method.streams().filter_map(|g| g.patches.as_ref()).map(|p| p.count as u64).sum();
        let listed = p.method.streams().map(|g| g.listed() as u64).sum();
        let masked = p.method.streams().any(|g| matches!(g.mask, Mask::Bits { .. }));
        let of_streams =
            p.method.streams().flat_map(|g| g.clusters.iter().map(|cluster| ClusterDescription::new(g, cluster)));
        match &p.method {
            Method::Stored => plain("stored"),
            Method::Zstd(z) if z.width == 1 => plain("zstd"),
            Method::Zstd(_) => plain("zstd of byte planes"),
            Method::Predicted(p) => Self {
                raw_len,
                coded_len,
                method: "predicted",
                width: Some(p.width),
                map: None,
                prediction: Some(PredictionDescription::new(p, raw_len / p.width as u64, head)),
                clusters: of_streams.collect(),
                patches,
                listed,
                masked,
            },
            Method::Plain(g) => Self {
                raw_len,
                coded_len,
                method: "plain",
                width: Some(g.width),
                map: Some(match g.map {
                    _ if g.palette.is_some() => "palette",
                    Map::Identity => "identity",
                    Map::Rotate => "rotate",
                    Map::Zigzag => "zigzag",
                }),
                prediction: None,
                clusters: g.clusters.iter().map(|cluster| ClusterDescription::new(g, cluster)).collect(),
                patches,
                listed,
                masked,
            },
        }
    }
}

impl PredictionDescription {
    /// Of a column of that many elements.
    fn new(p: &Predicted, elements: u64, head: &BlockHead) -> Self {
        let mut sources: Vec<u32> = ranges(head, p).iter().map(|d| d.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let predictor = match &p.operand {
            Operand::Moment(_) | Operand::Weight(_) => "Adam step",
            Operand::Scaled(_) => "multiple",
            Operand::Factored(_) => "rows and columns",
            Operand::Derived(_) => "derived",
            Operand::Ranges { .. } | Operand::Grid(_) => "ulp",
        };
        let conversion = match &p.operand {
            Operand::Ranges { conversion: Conversion::NarrowBf16, .. } => Some("F32 to BF16".to_owned()),
            Operand::Ranges { conversion: Conversion::WidenBf16, .. } => Some("BF16 to F32".to_owned()),
            Operand::Ranges { conversion: Conversion::NarrowF16, .. } => Some("F32 to F16".to_owned()),
            Operand::Ranges { conversion: Conversion::Cast(from, to), .. } => {
                Some(format!("{} to {}", from.dtype(), to.dtype()))
            }
            _ => None,
        };
        let derived = if let Operand::Derived(derived) = &p.operand {
            Some(derivation(&derived.derivation, elements))
        } else {
            None
        };
        let grid = p.operand.grid().map(|g| GridDescription {
            format: grid_format(&g.levels, g.offsets.is_some()).unwrap_or(UNKNOWN),
            levels: g.levels.len(),
            group: [g.groups.rows, g.groups.columns],
            row: g.groups.row,
            scales: g.groups.count(elements),
            offsets: g.offsets.is_some(),
        });
        Self { predictor, conversion, derived, grid, sources, contexts: p.streams.len() }
    }
}

/// What derived elements are.
fn derivation(derivation: &Derivation, elements: u64) -> String {
    match derivation {
        Derivation::Codes(codes, groups, _) => {
            let (from, to) = (codes.from.dtype(), codes.to.dtype());
            match groups.count(elements * codes.of_byte() as u64) {
                1 => format!("{to} of {from}"),
                _ if groups.columns == groups.row => format!("{to} by row of {from}"),
                _ if groups.columns == 1 => format!("{to} by column of {from}"),
                _ => format!("{to} {} × {} of {from}", groups.rows, groups.columns),
            }
        }
        Derivation::Scales(scales) => format!("{} scales of {}", scales.to.dtype(), scales.from.dtype()),
        Derivation::Field(blocks, _, from) => format!("{} of {}", blocks.name(), from.dtype()),
    }
}

impl ClusterDescription {
    fn new(column: &Stream, g: &Cluster) -> Self {
        Self {
            constant_bits: g.low + g.high,
            raw_bits: g.raw_bits,
            symbol_bits: g.symbol_bits(8 * column.width as u32),
            coder: coder_name(g),
        }
    }
}
