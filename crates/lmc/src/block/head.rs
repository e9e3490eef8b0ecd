//! The head of a block: what its body holds and how (`docs/format.md` §3).

use crate::checksum::{Digest, leaves};
use crate::entropy::coder::Coder;
use crate::error::{Error, Result};
use crate::map::Map;
use crate::varint::{Cursor, put};

pub(crate) const MAX_RAW: usize = 1 << 24;
pub(crate) const MAX_PARTS: usize = 64;
pub(crate) const MAX_PIECES: usize = 1 << 20;
pub(crate) const MAX_GROUPS: usize = 64;

/// One block's head, parsed and checked as far as it can be without the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) raw_len: usize,
    /// Words of each lane set; its length is the number of lane sets.
    pub(crate) words: Vec<usize>,
    pub(crate) literals: usize,
    /// `(part, bytes)` in raw order. One entry if there is one part.
    pub(crate) pieces: Vec<(u8, usize)>,
    pub(crate) parts: Vec<Part>,
    pub(crate) leaves: Vec<Digest>,
}

/// What one method codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Raw bytes: the sum of the part's pieces. Not stored.
    pub(crate) len: usize,
    pub(crate) method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Zstd { frame_len: usize },
    Grouped(Grouped),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grouped {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub(crate) width: usize,
    pub(crate) map: Map,
    /// The class map's group; there when there are several groups.
    pub(crate) class_map: Option<Group>,
    pub(crate) groups: Vec<Group>,
}

/// How the elements of one group are split into symbol and raw bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) low: u32,
    pub(crate) high: u32,
    pub(crate) raw_bits: u32,
    /// Whether bit 0 of the mapped element has a bit plane of its own, although low bits are dropped.
    pub(crate) sign_plane: bool,
    /// XORed to every mapped element.
    pub(crate) constant: u64,
    pub(crate) coder: Coder,
}

impl Group {
    /// Width of a symbol in an element of `width_bits`.
    pub(crate) fn symbol_bits(&self, width_bits: u32) -> u32 {
        width_bits - self.low - self.high - self.raw_bits
    }

    fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let bits = 8 * width as u32;
        let [flags, low, high, raw_bits, coder] = c.array()?;
        let (low, high, raw_bits) = (u32::from(low), u32::from(high), u32::from(raw_bits));
        if flags > 3 || low + high + raw_bits > bits || (flags & 2 != 0 && low == 0) {
            return Err(Error::damaged("a group's bits are out of range"));
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
            return Err(Error::damaged("a group's symbols have an impossible width"));
        }
        let coder = Coder::parse(coder, c, symbol_bits)?;
        Ok(Group { low, high, raw_bits, sign_plane: flags & 2 != 0, constant, coder })
    }

    fn put(&self, out: &mut Vec<u8>, width: usize) {
        let flags = u8::from(self.constant != 0) | u8::from(self.sign_plane) << 1;
        out.extend([flags, self.low as u8, self.high as u8, self.raw_bits as u8, self.coder.code()]);
        if self.constant != 0 {
            out.extend_from_slice(&self.constant.to_le_bytes()[..width]);
        }
        self.coder.put(out);
    }
}

impl Grouped {
    fn parse(c: &mut Cursor<'_>, len: usize) -> Result<Self> {
        let [width, map, predictor] = c.array()?;
        if width > 3 || !len.is_multiple_of(1 << width) {
            return Err(Error::damaged("a part's element width does not fit its length"));
        }
        let width = 1 << width;
        let map = Map::from_code(map)
            .ok_or_else(|| Error::unsupported("a part has a map that this lmc does not know; a newer one may"))?;
        if predictor != 0 {
            return Err(Error::unsupported(
                "a part is predicted from other data, which this lmc cannot do; a newer one may",
            ));
        }
        let n = c.size(MAX_GROUPS, "a part's number of groups")?;
        if n == 0 {
            return Err(Error::damaged("a part without groups"));
        }
        let class_map = if n > 1 { Some(Group::parse(c, 1)?) } else { None };
        let groups = (0..n).map(|_| Group::parse(c, width)).collect::<Result<_>>()?;
        Ok(Self { width, map, class_map, groups })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.width.trailing_zeros() as u8, self.map as u8, 0]);
        put(out, self.groups.len() as u64);
        if let Some(g) = &self.class_map {
            g.put(out, 1);
        }
        self.groups.iter().for_each(|g| g.put(out, self.width));
    }

    /// Number of elements of a part of `len` bytes.
    pub(crate) fn elements(&self, len: usize) -> usize {
        len / self.width
    }

    fn has_symbols(&self) -> bool {
        self.class_map.iter().chain(&self.groups).any(|g| g.coder != Coder::None)
    }
}

fn count(c: &mut Cursor<'_>, what: &str) -> Result<usize> {
    match u32::from_le_bytes(c.array()?) as usize {
        n if n <= MAX_RAW => Ok(n),
        _ => Err(Error::damaged(format!("{what} is out of range"))),
    }
}

impl BlockHead {
    pub(crate) fn parse(head: &[u8]) -> Result<Self> {
        let mut c = Cursor::new(head);
        if c.varint()? != 0 {
            return Err(Error::unsupported("a block needs a feature that this lmc does not have; a newer one may"));
        }
        let raw_len = c.size(MAX_RAW, "a block's raw length")?;
        if raw_len == 0 {
            return Err(Error::damaged("an empty block"));
        }
        if c.varint()? != 0 {
            return Err(Error::unsupported(
                "a block depends on other data, which this lmc cannot use; a newer one may",
            ));
        }
        let lane_sets = c.u8()?;
        if lane_sets > 2 {
            return Err(Error::damaged("a block has too many lane sets"));
        }
        let words = (0..lane_sets).map(|_| count(&mut c, "a block's number of words")).collect::<Result<Vec<_>>>()?;
        let literals = if lane_sets > 0 { count(&mut c, "a block's number of literals")? } else { 0 };
        let n_parts = usize::from(c.u8()?);
        if n_parts == 0 || n_parts > MAX_PARTS {
            return Err(Error::damaged("a block's number of parts is out of range"));
        }
        let mut len_of = [0usize; MAX_PARTS];
        let mut pieces = Vec::new();
        if n_parts == 1 {
            pieces.push((0, raw_len));
            len_of[0] = raw_len;
        } else {
            // A piece takes two bytes at least: the head's own length bounds the allocation.
            let n = c.size(MAX_PIECES.min(c.remaining() / 2), "a block's number of pieces")?;
            pieces.reserve_exact(n);
            let mut left = raw_len;
            for _ in 0..n {
                let part = c.u8()?;
                let len = c.size(left, "a piece's length")?;
                if usize::from(part) >= n_parts || len == 0 {
                    return Err(Error::damaged("a piece is out of range"));
                }
                left -= len;
                len_of[usize::from(part)] += len;
                pieces.push((part, len));
            }
            if left != 0 || len_of[..n_parts].contains(&0) {
                return Err(Error::damaged("a block's pieces do not cover it"));
            }
        }
        let mut parts = Vec::with_capacity(n_parts);
        for &len in &len_of[..n_parts] {
            let method = match c.u8()? {
                0 => Method::Stored,
                1 => Method::Zstd { frame_len: c.size(2 * MAX_RAW, "a frame's length")? },
                2 => Method::Grouped(Grouped::parse(&mut c, len)?),
                _ => {
                    return Err(Error::unsupported(
                        "a block has a method that this lmc does not know; a newer one may",
                    ));
                }
            };
            parts.push(Part { len, method });
        }
        if lane_sets == 0 && parts.iter().any(|p| matches!(&p.method, Method::Grouped(g) if g.has_symbols())) {
            return Err(Error::damaged("a block has symbols but no lanes"));
        }
        let leaves = (0..leaves(raw_len)).map(|_| c.array()).collect::<Result<_>>()?;
        c.finish()?;
        Ok(Self { raw_len, words, literals, pieces, parts, leaves })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, 0);
        put(out, self.raw_len as u64);
        put(out, 0);
        out.push(self.words.len() as u8);
        // Fixed width: an encoder knows the length of a head before it knows these.
        self.words.iter().for_each(|&w| out.extend_from_slice(&(w as u32).to_le_bytes()));
        if !self.words.is_empty() {
            out.extend_from_slice(&(self.literals as u32).to_le_bytes());
        }
        out.push(self.parts.len() as u8);
        if self.parts.len() > 1 {
            put(out, self.pieces.len() as u64);
            for &(part, len) in &self.pieces {
                out.push(part);
                put(out, len as u64);
            }
        }
        for p in &self.parts {
            match &p.method {
                Method::Stored => out.push(0),
                Method::Zstd { frame_len } => {
                    out.push(1);
                    put(out, *frame_len as u64);
                }
                Method::Grouped(g) => {
                    out.push(2);
                    g.put(out);
                }
            }
        }
        self.leaves.iter().for_each(|l| out.extend_from_slice(l));
    }
}
