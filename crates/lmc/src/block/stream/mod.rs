//! Streams: arrays of elements, in clusters, behind masks, with patches, or listed (`docs/format.md` §3.3.1–3.3.3, §3.5).
//! Their descriptions in the head of a block are here.

pub(crate) mod body;
mod byte_wide;
pub(super) mod decode;
pub(super) mod encode;
mod mask;
pub(super) mod patches;
pub(crate) mod plan;
pub(super) mod planned;
mod residual;
pub(super) mod sparse;

use crate::format::limits::{MAX_CLUSTERS, MAX_RAW};
use lmc_kernels::cluster::split::Shape;
use lmc_kernels::entropy::coder::Coder;
use lmc_kernels::entropy::hybrid_uint::HybridUint;
use lmc_kernels::map::Map;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// An array of elements of one width; its runs are coded in clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// The map of elements before they are split.
    pub map: Map,
    /// Values for which the mapped elements are indices; the map is then [`Map::Identity`].
    pub palette: Option<Palette>,
    /// The elements that are coded; the others are 0.
    pub mask: Mask,
    /// Corrections of single elements that do not fit their cluster.
    pub patches: Option<Patches>,
    /// How the cluster map is coded; `None` unless there are several clusters.
    pub(crate) cluster_map: Option<Cluster>,
    /// Empty if elements are listed.
    pub clusters: Vec<Cluster>,
}

/// Which elements of a stream are coded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All.
    None,
    /// The elements with a 1 in a string of bits, which a cluster codes, eight in an element.
    Bits {
        /// How many there are.
        selected: usize,
        /// Whether the signs of all elements are stored apart.
        signs: bool,
        /// How the bytes are coded.
        bytes: Box<Cluster>,
    },
    /// The elements of a list, which are in no cluster.
    List {
        /// How many there are.
        selected: usize,
        /// How the distances between them are coded.
        gaps: Numbers,
        /// How their values are coded.
        values: Numbers,
    },
}

/// Numbers in a string of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub(crate) code: HybridUint,
    /// Their length in bytes.
    pub(crate) len: usize,
}

impl Numbers {
    fn parse(c: &mut Cursor<'_>, what: &str) -> Result<Self> {
        Ok(Self { code: HybridUint::parse(c)?, len: c.size(2 * MAX_RAW, what)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.code.put(out);
        put(out, self.len as u64);
    }
}

impl Mask {
    fn parse(c: &mut Cursor<'_>) -> Result<Self> {
        let kind = c.u8()?;
        if kind == 0 {
            return Ok(Mask::None);
        }
        if kind > 3 {
            return Err(Error::unknown_code("mask", kind));
        }
        let selected = c.size(MAX_RAW, "a mask's number of elements")?;
        if selected == 0 {
            return Err(Error::damaged("a mask selects no element"));
        }
        Ok(if kind == 3 {
            let [gaps, values] = ["the length of a list's gaps", "the length of a list's values"];
            Mask::List { selected, gaps: Numbers::parse(c, gaps)?, values: Numbers::parse(c, values)? }
        } else {
            Mask::Bits { selected, signs: kind == 2, bytes: Box::new(Cluster::parse(c, 1)?) }
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Mask::None => out.push(0),
            Mask::Bits { selected, signs, bytes } => {
                out.push(1 + u8::from(*signs));
                put(out, *selected as u64);
                bytes.put(out, 1);
            }
            Mask::List { selected, gaps, values } => {
                out.push(3);
                put(out, *selected as u64);
                gaps.put(out);
                values.put(out);
            }
        }
    }

    /// How many elements of `n` are coded.
    pub fn selected(&self, n: usize) -> usize {
        match self {
            Mask::None => n,
            Mask::Bits { selected, .. } | Mask::List { selected, .. } => *selected,
        }
    }
}

/// The values of a stream that has few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Palette {
    pub(crate) values: Vec<u64>,
}

impl Palette {
    /// Its code among the maps.
    const CODE: u8 = 3;

    fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let count = usize::from(c.u8()?) + 1;
        let value = |b: &[u8]| b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        let values: Vec<u64> = c.bytes(count * width)?.chunks_exact(width).map(value).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(Self { values }),
            Some(pair) => Err(Error::damaged(format!("a palette of {count} values has {:#x} twice", pair[0]))),
        }
    }

    fn put(&self, out: &mut Vec<u8>, width: usize) {
        out.push((self.values.len() - 1) as u8);
        self.values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()[..width]));
    }
}

/// How a stream's patches are coded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    /// How many there are.
    pub count: usize,
    /// Number of low bits that patches leave unchanged.
    pub(crate) low: u32,
    pub(crate) gaps: HybridUint,
    pub(crate) changes: HybridUint,
    /// Length of the coded patches in bytes.
    pub len: usize,
}

/// How the elements of one cluster are split into symbol and raw bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Bits below the others that no element has.
    pub low: u32,
    /// Bits above the others that no element has.
    pub high: u32,
    /// Bits below the symbol, which are stored as they are.
    pub raw_bits: u32,
    /// Whether bit 0 of the mapped element has a bit plane of its own, although low bits are dropped.
    pub sign_plane: bool,
    /// XORed to every mapped element.
    pub(crate) constant: u64,
    pub(crate) coder: Coder,
}

impl Cluster {
    /// Elements of `bits` bits that are all 0.
    pub(crate) fn zero(bits: u32) -> Self {
        Self { low: bits, high: 0, raw_bits: 0, sign_plane: false, constant: 0, coder: Coder::None }
    }

    /// The split of its elements.
    pub(crate) fn shape(&self, map: Map) -> Shape {
        let Self { low, raw_bits, sign_plane, constant, .. } = *self;
        Shape { map, low, raw_bits, sign_plane, constant }
    }

    /// Width of a symbol in an element of `width_bits`.
    pub fn symbol_bits(&self, width_bits: u32) -> u32 {
        width_bits - self.low - self.high - self.raw_bits
    }

    pub(in crate::block) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let bits = 8 * width as u32;
        let [flags, low, high, raw_bits, coder] = c.array()?;
        let (low, high, raw_bits) = (u32::from(low), u32::from(high), u32::from(raw_bits));
        if flags > 3 || low + high + raw_bits > bits || (flags & 2 != 0 && low == 0) {
            return Err(Error::damaged(format!(
                "a cluster of {bits}-bit elements has flags {flags}, {low} low, {high} high and {raw_bits} raw bits"
            )));
        }
        let constant = if flags & 1 != 0 {
            let mut b = [0; 8];
            b[..width].copy_from_slice(c.bytes(width)?);
            u64::from_le_bytes(b)
        } else {
            0
        };
        let symbol_bits = bits - low - high - raw_bits;
        if (coder == 0) != (symbol_bits == 0) || symbol_bits > 8 {
            return Err(Error::damaged(format!("a cluster with coder {coder} has symbols of {symbol_bits} bits")));
        }
        let coder = Coder::parse(coder, c, symbol_bits)?;
        Ok(Cluster { low, high, raw_bits, sign_plane: flags & 2 != 0, constant, coder })
    }

    pub(in crate::block) fn put(&self, out: &mut Vec<u8>, width: usize) {
        let flags = u8::from(self.constant != 0) | u8::from(self.sign_plane) << 1;
        out.extend([flags, self.low as u8, self.high as u8, self.raw_bits as u8, self.coder.code()]);
        if self.constant != 0 {
            out.extend_from_slice(&self.constant.to_le_bytes()[..width]);
        }
        self.coder.put(out);
    }
}

impl Stream {
    /// A stream of a plain column, which may have a palette.
    pub(in crate::block) fn parse_plain(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        match c.u8()? {
            Palette::CODE => {
                let palette = Palette::parse(c, width)?;
                Ok(Self { palette: Some(palette), ..Self::parse_mapped(c, width, Map::Identity as u8)? })
            }
            code => Self::parse_mapped(c, width, code),
        }
    }

    pub(in crate::block) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        match c.u8()? {
            Palette::CODE => Err(Error::damaged("a stream's map is 3, a palette, which only a plain column can have")),
            code => Self::parse_mapped(c, width, code),
        }
    }

    fn parse_mapped(c: &mut Cursor<'_>, width: usize, code: u8) -> Result<Self> {
        let map = Map::from_code(code).ok_or_else(|| Error::unknown_code("map", code))?;
        let mask = Mask::parse(c)?;
        if let Mask::List { .. } = mask {
            return Ok(Self { mask, ..Self::empty(width, map) });
        }
        let n = c.size(MAX_CLUSTERS, "a stream's number of clusters")?;
        if n == 0 {
            return Err(Error::damaged("a stream has no clusters"));
        }
        let patches = match c.u8()? {
            0 => None,
            1 => Some(Patches::parse(c, width)?),
            kind => return Err(Error::unknown_code("kind of patches", kind)),
        };
        let cluster_map = if n > 1 { Some(Cluster::parse(c, 1)?) } else { None };
        let clusters = (0..n).map(|_| Cluster::parse(c, width)).collect::<Result<_>>()?;
        Ok(Self { mask, patches, cluster_map, clusters, ..Self::empty(width, map) })
    }

    /// A stream that is not filled yet.
    pub(crate) fn empty(width: usize, map: Map) -> Self {
        let (mask, clusters) = (Mask::None, vec![]);
        Self { width, map, palette: None, mask, patches: None, cluster_map: None, clusters }
    }

    /// Whether all elements are 0.
    pub(crate) fn is_zero(&self) -> bool {
        let zero = |g: &Cluster| g.coder == Coder::None && g.raw_bits == 0 && g.constant == 0 && !g.sign_plane;
        let whole = self.mask == Mask::None && self.patches.is_none() && self.cluster_map.is_none();
        whole && self.clusters.iter().all(zero)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match &self.palette {
            None => out.push(self.map as u8),
            Some(palette) => {
                out.push(Palette::CODE);
                palette.put(out, self.width);
            }
        }
        self.mask.put(out);
        if let Mask::List { .. } = self.mask {
            return;
        }
        put(out, self.clusters.len() as u64);
        out.push(u8::from(self.patches.is_some()));
        if let Some(patches) = &self.patches {
            patches.put(out);
        }
        if let Some(g) = &self.cluster_map {
            g.put(out, 1);
        }
        self.clusters.iter().for_each(|g| g.put(out, self.width));
    }

    /// Length of its description in bytes.
    pub(crate) fn head_len(&self) -> u64 {
        let mut out = Vec::new();
        self.put(&mut out);
        out.len() as u64
    }

    /// Elements that are listed.
    pub fn listed(&self) -> usize {
        if let Mask::List { selected, .. } = self.mask { selected } else { 0 }
    }

    /// Bytes of its bit strings in the body.
    pub fn numbers_len(&self) -> usize {
        let list = if let Mask::List { gaps, values, .. } = &self.mask { gaps.len + values.len } else { 0 };
        list + self.patches.as_ref().map_or(0, |p| p.len)
    }

    /// Number of elements in `len` bytes.
    pub fn elements(&self, len: usize) -> usize {
        len / self.width
    }

    pub(in crate::block) fn has_symbols(&self) -> bool {
        let mask = if let Mask::Bits { bytes, .. } = &self.mask { Some(&**bytes) } else { None };
        mask.into_iter().chain(&self.cluster_map).chain(&self.clusters).any(|g| g.coder != Coder::None)
    }
}

impl Patches {
    pub(in crate::block) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let count = c.size(MAX_RAW, "a stream's number of patches")?;
        let low = u32::from(c.u8()?);
        if count == 0 || low >= 8 * width as u32 {
            return Err(Error::damaged(format!(
                "a stream of {}-bit elements has {count} patches above {low} low bits",
                8 * width
            )));
        }
        let (gaps, changes) = (HybridUint::parse(c)?, HybridUint::parse(c)?);
        Ok(Self { count, low, gaps, changes, len: c.size(2 * MAX_RAW, "the length of a stream's patches")? })
    }

    /// The bits that a patch of an element of `width` bytes can change.
    pub(crate) fn ones(width: usize, low: u32) -> u64 {
        u64::MAX >> (64 - 8 * width) >> low
    }

    pub(in crate::block) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.count as u64);
        out.push(self.low as u8);
        self.gaps.put(out);
        self.changes.put(out);
        put(out, self.len as u64);
    }
}
