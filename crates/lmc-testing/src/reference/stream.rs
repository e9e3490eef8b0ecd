//! A stream (§3.3.1): elements of one width, coded in clusters.

use super::bytes::Bytes;
use super::entropy::{Coder, Lanes, Table};
use super::faults::{Faults, must};
use super::numbers::{Bits, NumberCode};
use super::ranges::elements;
use std::collections::HashSet;

pub(super) struct Stream {
    /// Bits of an element.
    w: u32,
    map: Map,
    mask: Mask,
    patches: Option<Patches>,
    cluster_map: Option<Cluster>,
    clusters: Vec<Cluster>,
}

struct Patches {
    count: u64,
    /// Low bits that no patch changes.
    t: u32,
    gaps: NumberCode,
    changes: NumberCode,
    /// Bytes of the patches in the bulk.
    length: u64,
}

/// The elements that are coded (§3.3.2).
enum Mask {
    None,
    Bits { selected: u64, signs: bool, cluster: Cluster },
    List { selected: u64, gaps: Numbers, values: Numbers },
}

/// Numbers in the bulk, under one code.
struct Numbers {
    code: NumberCode,
    /// Bytes in the bulk.
    length: u64,
}

pub(super) struct Cluster {
    z: u32,
    k: u32,
    sign_plane: bool,
    constant: u64,
    table: Option<Table>,
}

enum Map {
    Identity,
    Rotate,
    Zigzag,
    /// The elements that values stand for.
    Palette(Vec<u64>),
}

/// The parts of a block's body that its streams are decoded from.
pub(super) struct Streams<'a> {
    pub(super) bulk: Bytes<'a>,
    pub(super) lanes: Lanes<'a>,
    /// The results of decoding each stream, step by step, if requested.
    pub(super) steps: Option<Vec<Steps>>,
}

/// The results of the steps of decoding a stream, by their names.
pub(super) type Steps = Vec<(&'static str, Vec<u64>)>;

impl Streams<'_> {
    /// Later steps are those of another stream, or of an operand without streams.
    pub(super) fn begin_steps(&mut self) {
        self.steps.iter_mut().for_each(|steps| steps.push(Vec::new()));
    }

    pub(super) fn step(&mut self, name: &'static str, result: impl FnOnce() -> Vec<u64>) {
        if let Some(steps) = self.steps.as_mut().and_then(|steps| steps.last_mut()) {
            steps.push((name, result()));
        }
    }
}

impl Stream {
    /// Reads the head of the stream, which is a `whole_column` or a part of a predicted one; its elements have `width` bytes.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        whole_column: bool,
        lane_sets: u8,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let map = match head.u8()? {
            0 => Map::Identity,
            1 => Map::Rotate,
            2 => Map::Zigzag,
            3 => {
                faults.must(whole_column, "a palette is in a predicted column");
                Map::palette(head, width, faults)?
            }
            _ => return Err("a stream has an unknown map".into()),
        };
        let mask = Mask::parse(head, lane_sets, faults)?;
        if matches!(mask, Mask::List { .. }) {
            let (patches, cluster_map, clusters) = (None, None, Vec::new());
            return Ok(Self { w: 8 * width as u32, map, mask, patches, cluster_map, clusters });
        }
        let cluster_count = head.varint()?;
        must((1..=16).contains(&cluster_count), "a stream has an impossible number of clusters")?;
        let patches = match head.u8()? {
            0 => None,
            1 => {
                let count = head.varint()?;
                faults.must(count >= 1, "a stream has patches, but none of them");
                let t = u32::from(head.u8()?);
                must(t < 8 * width as u32, "patches change no bit of their elements")?;
                let (gaps, changes) = (NumberCode::parse(head)?, NumberCode::parse(head)?);
                Some(Patches { count, t, gaps, changes, length: head.varint()? })
            }
            _ => return Err("a stream has patches of an unknown kind".into()),
        };
        let cluster_map = if cluster_count > 1 { Some(Cluster::parse(head, 1, lane_sets)?) } else { None };
        let clusters =
            (0..cluster_count).map(|_| Cluster::parse(head, width, lane_sets)).collect::<Result<_, String>>()?;
        Ok(Self { w: 8 * width as u32, map, mask, patches, cluster_map, clusters })
    }

    /// Decodes its `n` elements.
    pub(super) fn decode(&self, n: usize, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        streams.begin_steps();
        let (selected, signs) = self.mask.decode(n, streams, faults)?;
        if !matches!(self.mask, Mask::None) {
            streams.step("selected elements", || selected.iter().map(|&element| element as u64).collect());
        }
        if !signs.is_empty() {
            streams.step("signs", || signs.iter().map(|&sign| u64::from(sign)).collect());
        }
        let mut values = self.decode_selected(selected.len(), streams, faults)?;
        if !matches!(self.mask, Mask::None) {
            let coded = std::mem::replace(&mut values, vec![0; n]);
            for (element, value) in selected.into_iter().zip(coded) {
                values[element] = value;
            }
        }
        for (value, sign) in values.iter_mut().zip(signs) {
            *value ^= u64::from(sign);
        }
        streams.step("mapped values", || values.clone());
        let elements: Vec<u64> = values.into_iter().map(|v| self.map.back(v, self.w, faults)).collect();
        streams.step("elements", || elements.clone());
        Ok(elements)
    }

    /// The mapped values of the selected elements.
    fn decode_selected(
        &self,
        count: usize,
        streams: &mut Streams<'_>,
        faults: &mut Faults,
    ) -> Result<Vec<u64>, String> {
        if let Mask::List { values, .. } = &self.mask {
            let numbers = values.decode(count as u64, &mut streams.bulk, faults)?;
            streams.step("listed numbers", || numbers.clone());
            faults.must(numbers.iter().all(|&y| y < ones(self.w)), "a listed value is wider than its element");
            return Ok(numbers.into_iter().map(|y| y.wrapping_add(1) & ones(self.w)).collect());
        }
        let mut values = self.decode_clusters(&run_lengths(count), streams, faults)?;
        streams.step("values of clusters", || values.clone());
        if let Some(patches) = &self.patches {
            let unpatched = values.clone();
            patches.apply(&mut values, self.w, &mut streams.bulk, faults)?;
            let patched = |&i: &usize| values[i] != unpatched[i];
            streams.step("patched elements", || (0..values.len()).filter(patched).map(|i| i as u64).collect());
        }
        Ok(values)
    }

    /// The mapped values before patches.
    fn decode_clusters(
        &self,
        runs: &[usize],
        streams: &mut Streams<'_>,
        faults: &mut Faults,
    ) -> Result<Vec<u64>, String> {
        let cluster_of = match &self.cluster_map {
            None => vec![0; runs.len()],
            Some(cluster) => cluster.decode(&run_lengths(runs.len()), 8, streams, faults)?,
        };
        let known = cluster_of.iter().all(|&number| number < self.clusters.len() as u64);
        must(known, "a run is of no cluster")?;
        if self.cluster_map.is_some() {
            streams.step("cluster map", || cluster_of.clone());
        }

        let mut values = vec![Vec::new(); runs.len()];
        for (number, cluster) in (0..).zip(&self.clusters) {
            let mine: Vec<usize> = (0..runs.len()).filter(|&run| cluster_of[run] == number).collect();
            let lengths: Vec<usize> = mine.iter().map(|&run| runs[run]).collect();
            let mut decoded = cluster.decode(&lengths, self.w, streams, faults)?.into_iter();
            for run in mine {
                values[run] = decoded.by_ref().take(runs[run]).collect();
            }
        }
        Ok(values.concat())
    }
}

impl Mask {
    fn parse(head: &mut Bytes<'_>, lane_sets: u8, faults: &mut Faults) -> Result<Self, String> {
        let kind = head.u8()?;
        must(kind <= 3, "a stream has an unknown mask")?;
        if kind == 0 {
            return Ok(Mask::None);
        }
        let selected = head.varint()?;
        faults.must(selected >= 1, "a mask selects nothing");
        Ok(match kind {
            3 => Mask::List { selected, gaps: Numbers::parse(head)?, values: Numbers::parse(head)? },
            _ => Mask::Bits { selected, signs: kind == 2, cluster: Cluster::parse(head, 1, lane_sets)? },
        })
    }

    /// The selected elements of `n`, and a sign of each element; no signs if there are none apart.
    fn decode(
        &self,
        n: usize,
        streams: &mut Streams<'_>,
        faults: &mut Faults,
    ) -> Result<(Vec<usize>, Vec<bool>), String> {
        match self {
            Mask::None => Ok(((0..n).collect(), Vec::new())),
            Mask::Bits { selected, signs, cluster } => {
                must(*selected <= n as u64, "a mask selects more elements than its stream has")?;
                let bytes = cluster.decode(&run_lengths(n.div_ceil(8)), 8, streams, faults)?;
                let mask = one_each(&bytes.into_iter().map(|byte| byte as u8).collect::<Vec<_>>(), n, faults);
                let elements: Vec<usize> = (0..n).filter(|&e| mask[e]).collect();
                must(elements.len() as u64 == *selected, "a mask selects another number of elements")?;
                let signs = match signs {
                    true => one_each(streams.bulk.take(n.div_ceil(8) as u64)?, n, faults),
                    false => Vec::new(),
                };
                Ok((elements, signs))
            }
            Mask::List { selected, gaps, .. } => {
                must(*selected <= n as u64, "a mask selects more elements than its stream has")?;
                let mut next = 0u128;
                let mut elements = Vec::new();
                for gap in gaps.decode(*selected, &mut streams.bulk, faults)? {
                    let element = next + u128::from(gap);
                    must(element < n as u128, "a selected element is not in its stream")?;
                    elements.push(element as usize);
                    next = element + 1;
                }
                Ok((elements, Vec::new()))
            }
        }
    }
}

/// One bit for each of `n` elements.
fn one_each(bytes: &[u8], n: usize, faults: &mut Faults) -> Vec<bool> {
    let bits: Vec<bool> = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect();
    faults.must(!bits[n..].contains(&true), "unused bits of a mask or its signs are not 0");
    bits[..n].to_vec()
}

impl Numbers {
    fn parse(head: &mut Bytes<'_>) -> Result<Self, String> {
        Ok(Self { code: NumberCode::parse(head)?, length: head.varint()? })
    }

    fn decode(&self, count: u64, bulk: &mut Bytes<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        let mut bits = Bits::new(bulk.take(self.length)?);
        let numbers = (0..count).map(|_| self.code.number(&mut bits)).collect::<Result<Vec<u64>, String>>()?;
        faults.must(bits.end(), "the bits of numbers do not end where their length says");
        Ok(numbers)
    }
}

impl Patches {
    /// Applies the patches to mapped values of `w` bits (§3.3.3).
    fn apply(&self, values: &mut [u64], w: u32, bulk: &mut Bytes<'_>, faults: &mut Faults) -> Result<(), String> {
        let mut bits = Bits::new(bulk.take(self.length)?);
        // The element after the one of the last patch.
        let mut next = 0u128;
        for _ in 0..self.count {
            let element = next + u128::from(self.gaps.number(&mut bits)?);
            let x = (u128::from(self.changes.number(&mut bits)?) + 1) << self.t;
            faults.must(x <= u128::from(ones(w)), "a patch is wider than its element");
            let value = usize::try_from(element).ok().and_then(|element| values.get_mut(element));
            *value.ok_or("a patch is not in its stream")? ^= x as u64 & ones(w);
            next = element + 1;
        }
        faults.must(bits.end(), "the bits of patches do not end where their length says");
        Ok(())
    }
}

/// Lengths of the runs of `elements` elements (§3.4).
pub(super) fn run_lengths(elements: usize) -> Vec<usize> {
    let mut runs = vec![128; elements / 128];
    if !elements.is_multiple_of(128) {
        runs.push(elements % 128);
    }
    runs
}

impl Cluster {
    pub(super) fn parse(head: &mut Bytes<'_>, width: usize, lane_sets: u8) -> Result<Self, String> {
        let w = 8 * width as u32;
        let flags = head.u8()?;
        must(flags <= 3, "a cluster has an unknown flag")?;
        let z = u32::from(head.u8()?);
        let h = u32::from(head.u8()?);
        let k = u32::from(head.u8()?);
        must(z + h + k <= w, "a cluster has more bits than its elements")?;
        let sign_plane = flags & 2 != 0;
        must(!sign_plane || z >= 1, "a sign plane needs bit 0 to be dropped")?;
        let s = w - z - h - k;
        let coder = match head.u8()? {
            0 => Coder::None,
            1 => Coder::Huffman,
            log_slots @ (7 | 12) => Coder::Rans { log_slots },
            _ => return Err("a cluster has an unknown coder".into()),
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
            must(lane_sets == 2, "a cluster has a coder, but the block has no lanes")?;
            Some(Table::parse(head, coder, s)?)
        };
        Ok(Self { z, k, sign_plane, constant, table })
    }

    /// The values v of all elements (§3.5), `w` bits wide.
    pub(super) fn decode(
        &self,
        runs: &[usize],
        w: u32,
        streams: &mut Streams<'_>,
        faults: &mut Faults,
    ) -> Result<Vec<u64>, String> {
        let mut values = Vec::with_capacity(runs.iter().sum());
        for (i, &t) in runs.iter().enumerate() {
            let raw_values = raw_bits(&mut streams.bulk, self.k, t, faults)?;
            let signs = raw_bits(&mut streams.bulk, u32::from(self.sign_plane), t, faults)?;
            let symbols = match &self.table {
                None => vec![0; t],
                Some(table) => streams.lanes.chunk(i, table, t, faults)?,
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

/// All bits of an element of `w` bits.
pub(super) fn ones(w: u32) -> u64 {
    u64::MAX >> (64 - w)
}

impl Map {
    /// Reads the palette of elements of `width` bytes.
    fn palette(head: &mut Bytes<'_>, width: usize, faults: &mut Faults) -> Result<Self, String> {
        let count = u64::from(head.u8()?) + 1;
        let palette = elements(head.take(count * width as u64)?, width);
        let distinct: HashSet<&u64> = palette.iter().collect();
        faults.must(distinct.len() == palette.len(), "a palette has a value twice");
        Ok(Map::Palette(palette))
    }

    /// From the mapped value of `w` bits to the element (§4.1).
    fn back(&self, v: u64, w: u32, faults: &mut Faults) -> u64 {
        match self {
            Map::Identity => v,
            Map::Rotate => (v >> 1) | (v & 1) << (w - 1),
            Map::Zigzag => (v >> 1) ^ if v & 1 == 1 { ones(w) } else { 0 },
            Map::Palette(palette) => {
                let value = usize::try_from(v).ok().and_then(|v| palette.get(v));
                faults.must(value.is_some(), "an index is not in its palette");
                value.copied().unwrap_or(0)
            }
        }
    }
}
