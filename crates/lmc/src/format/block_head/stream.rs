//! Streams in the head of a block: their clusters and patches (`docs/format.md` §3.3.1–3.3.3, §3.5).

use super::super::limits::{MAX_CLUSTERS, MAX_RAW};
use super::super::varint::{Cursor, put};
use crate::entropy::coder::Coder;
use crate::entropy::hybrid_uint::HybridUint;
use crate::error::{Error, Result};
use crate::map::Map;

/// An array of elements of one width; its runs are coded in clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// What elements become before they are split.
    pub map: Map,
    /// Corrections of single elements that do not fit their cluster.
    pub patches: Option<Patches>,
    /// How the cluster map is coded; `None` unless there are several clusters.
    pub(crate) cluster_map: Option<Cluster>,
    /// Without clusters all mapped values are 0 before the patches.
    pub clusters: Vec<Cluster>,
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
    /// Width of a symbol in an element of `width_bits`.
    pub fn symbol_bits(&self, width_bits: u32) -> u32 {
        width_bits - self.low - self.high - self.raw_bits
    }

    pub(super) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
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

    pub(super) fn put(&self, out: &mut Vec<u8>, width: usize) {
        let flags = u8::from(self.constant != 0) | u8::from(self.sign_plane) << 1;
        out.extend([flags, self.low as u8, self.high as u8, self.raw_bits as u8, self.coder.code()]);
        if self.constant != 0 {
            out.extend_from_slice(&self.constant.to_le_bytes()[..width]);
        }
        self.coder.put(out);
    }
}

impl Stream {
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let code = c.u8()?;
        let map = Map::from_code(code).ok_or_else(|| Error::unknown_code("map", code))?;
        let patches = match c.u8()? {
            0 => None,
            1 => Some(Patches::parse(c, width)?),
            kind => return Err(Error::unknown_code("kind of patches", kind)),
        };
        let n = c.size(MAX_CLUSTERS, "a stream's number of clusters")?;
        let cluster_map = if n > 1 { Some(Cluster::parse(c, 1)?) } else { None };
        let clusters = (0..n).map(|_| Cluster::parse(c, width)).collect::<Result<_>>()?;
        Ok(Self { width, map, patches, cluster_map, clusters })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.map as u8, u8::from(self.patches.is_some())]);
        if let Some(patches) = &self.patches {
            patches.put(out);
        }
        put(out, self.clusters.len() as u64);
        if let Some(g) = &self.cluster_map {
            g.put(out, 1);
        }
        self.clusters.iter().for_each(|g| g.put(out, self.width));
    }

    /// Number of elements in `len` bytes.
    pub fn elements(&self, len: usize) -> usize {
        len / self.width
    }

    pub(super) fn has_symbols(&self) -> bool {
        self.cluster_map.iter().chain(&self.clusters).any(|g| g.coder != Coder::None)
    }
}

impl Patches {
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
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

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.count as u64);
        out.push(self.low as u8);
        self.gaps.put(out);
        self.changes.put(out);
        put(out, self.len as u64);
    }
}
