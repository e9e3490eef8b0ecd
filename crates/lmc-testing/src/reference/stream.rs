//! A stream (§3.3.1): elements of one width, coded in clusters.

use super::bytes::Bytes;
use super::entropy::{Coder, Lanes, Table};
use super::faults::{Faults, must};
use super::numbers::{Bits, NumberCode};

pub(super) struct Stream {
    /// Bits of an element.
    w: u32,
    map: Map,
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

pub(super) struct Cluster {
    z: u32,
    k: u32,
    sign_plane: bool,
    constant: u64,
    table: Option<Table>,
}

#[derive(Clone, Copy)]
enum Map {
    Identity,
    Rotate,
    Zigzag,
}

/// The parts of a block's body that its streams are decoded from.
pub(super) struct Streams<'a> {
    pub(super) bulk: Bytes<'a>,
    pub(super) lanes: Lanes<'a>,
}

impl Stream {
    /// Reads the stream's head; its elements have `width` bytes.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        lane_sets: u8,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let map = match head.u8()? {
            0 => Map::Identity,
            1 => Map::Rotate,
            2 => Map::Zigzag,
            _ => return Err("a stream has an unknown map".into()),
        };
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
        let cluster_count = head.varint()?;
        must(cluster_count <= 16, "a stream has an impossible number of clusters")?;
        let cluster_map = if cluster_count > 1 { Some(Cluster::parse(head, 1, lane_sets)?) } else { None };
        let clusters =
            (0..cluster_count).map(|_| Cluster::parse(head, width, lane_sets)).collect::<Result<_, String>>()?;
        Ok(Self { w: 8 * width as u32, map, patches, cluster_map, clusters })
    }

    /// Decodes its `n` elements.
    pub(super) fn decode(&self, n: usize, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        let runs = run_lengths(n);
        let mut values = match self.clusters.is_empty() {
            true => vec![0; n],
            false => self.decode_clusters(&runs, streams, faults)?,
        };
        if let Some(patches) = &self.patches {
            patches.apply(&mut values, self.w, &mut streams.bulk, faults)?;
        }
        Ok(values.into_iter().map(|v| self.map.back(v, self.w)).collect())
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

impl Patches {
    /// Applies the patches to mapped values of `w` bits (§3.3.2).
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
        let mut values = Vec::new();
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
    /// From the mapped value of `w` bits to the element (§4.1).
    fn back(self, v: u64, w: u32) -> u64 {
        match self {
            Map::Identity => v,
            Map::Rotate => (v >> 1) | (v & 1) << (w - 1),
            Map::Zigzag => (v >> 1) ^ if v & 1 == 1 { ones(w) } else { 0 },
        }
    }
}
