//! Decodes streams.

use super::body::Body;
use super::mask::{check_bits, expand};
use super::{Cluster, Mask, Patches, Stream};
use crate::format::limits::MAX_CLUSTERS;
use lmc_kernels::arch::decode_chunk;
use lmc_kernels::arch::job::DecodeJob;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::cluster::split::{Shape, lengthen_raw, merge_run};
use lmc_kernels::entropy::SETS;
use lmc_kernels::entropy::table::DecodeTable;
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Decodes streams one after the other, keeping its working memory.
pub(in crate::block) struct StreamDecoder {
    pub(in crate::block) isa: Isa,
    cluster_map: Vec<u8>,
    /// Runs of every cluster, one cluster after the other.
    runs: Vec<u32>,
    mask: Vec<u8>,
    /// Elements that a mask selects.
    selected: Vec<u8>,
}

impl StreamDecoder {
    pub(in crate::block) fn new(isa: Isa) -> Self {
        Self { isa, cluster_map: vec![], runs: vec![], mask: vec![], selected: vec![] }
    }

    /// Decodes the elements of a stream: all that `out` has room for. Those of a stream with a palette are indices.
    pub(in crate::block) fn decode(&mut self, g: &Stream, body: &mut Body<'_>, out: &mut [u8]) -> Result<()> {
        if g.is_zero() {
            // Every map takes 0 to 0.
            out.fill(0);
            return Ok(());
        }
        let n = g.elements(out.len());
        let selected = g.mask.selected(n);
        if selected > n {
            return Err(Error::damaged(format!("a mask selects {selected} of {n} elements")));
        }
        let (mut bits, mut coded) = (std::mem::take(&mut self.mask), std::mem::take(&mut self.selected));
        let done = match &g.mask {
            Mask::None => self.decode_clusters(g, body, out),
            Mask::Bits { signs, bytes, .. } => (|| {
                let bits = scratch(&mut bits, n.div_ceil(8));
                decode_map(self.isa, bytes, body, &mut self.runs, bits)?;
                check_bits(bits, n, "mask")?;
                let ones: usize = bits.iter().map(|b| b.count_ones() as usize).sum();
                if ones != selected {
                    return Err(Error::damaged(format!(
                        "a mask selects {ones} elements, the head gives it {selected}"
                    )));
                }
                let signs = if *signs { Some(body.take_bulk(n.div_ceil(8))?) } else { None };
                signs.map_or(Ok(()), |signs| check_bits(signs, n, "signs"))?;
                let coded = scratch(&mut coded, (selected + 1) * g.width);
                let to = &mut coded[..selected * g.width];
                self.decode_clusters(g, body, to)?;
                with_element!(g.width, E => expand::<E>(bits, signs, g.map, coded, out));
                Ok(())
            })(),
            Mask::List { .. } => {
                out.fill(0);
                with_element!(g.width, E => g.each_listed(body, n, |i, v| {
                    E::cut(v).unmap(g.map).store(&mut out[i * E::BYTES..][..E::BYTES]);
                }))
            }
        };
        (self.mask, self.selected) = (bits, coded);
        done
    }

    fn decode_clusters(&mut self, g: &Stream, body: &mut Body<'_>, out: &mut [u8]) -> Result<()> {
        let n = g.elements(out.len());
        let t = n % RUN;
        let Self { isa, runs, cluster_map, .. } = self;
        match (&g.cluster_map, &g.clusters[..]) {
            (None, [cluster]) => {
                number(n / RUN, runs);
                decode_cluster(*isa, cluster, g.width, g.map, runs, t, body, out)?;
            }
            (Some(map_cluster), clusters) => {
                let cluster_map = scratch(cluster_map, n.div_ceil(RUN));
                decode_map(*isa, map_cluster, body, runs, cluster_map)?;
                // Counting sort of the runs by cluster. It counts every byte value, so that clusters are checked once, not per run.
                let mut count = [0u32; 256];
                cluster_map.iter().for_each(|&c| count[usize::from(c)] += 1);
                let largest = count.iter().rposition(|&n| n > 0).unwrap_or(0);
                if largest >= clusters.len() {
                    return Err(Error::damaged(format!("a cluster map has cluster {largest} of {}", clusters.len())));
                }
                let partial_in = if t > 0 { cluster_map.last().map(|&c| usize::from(c)) } else { None };
                let mut begin = [0usize; MAX_CLUSTERS + 1];
                let mut next = [0u32; 256];
                for i in 0..clusters.len() {
                    begin[i + 1] = begin[i] + count[i] as usize;
                    next[i] = begin[i] as u32;
                }
                runs.clear();
                runs.resize(cluster_map.len(), 0);
                for (r, &c) in cluster_map.iter().enumerate() {
                    let place = &mut next[usize::from(c)];
                    runs[*place as usize] = r as u32;
                    *place += 1;
                }
                for (i, cluster) in clusters.iter().enumerate() {
                    let (t, last) = if partial_in == Some(i) { (t, 1) } else { (0, 0) };
                    let runs = &runs[begin[i]..begin[i + 1] - last];
                    decode_cluster(*isa, cluster, g.width, g.map, runs, t, body, out)?;
                }
            }
            _ => unreachable!("several clusters have a map, and without clusters there is a list"),
        }
        if let Some(patches) = &g.patches {
            let bytes = body.take_bulk(patches.len)?;
            with_element!(g.width, E => apply_patches::<E>(patches, g.map, bytes, out))?;
        }
        Ok(())
    }
}

/// Replaces `runs` by the numbers of the first `n`.
fn number(n: usize, runs: &mut Vec<u32>) {
    runs.clear();
    runs.extend(0..n as u32);
}

/// Decodes a map with one byte per run; overwrites `runs`.
fn decode_map(isa: Isa, cluster: &Cluster, body: &mut Body<'_>, runs: &mut Vec<u32>, map: &mut [u8]) -> Result<()> {
    number(map.len() / RUN, runs);
    decode_cluster(isa, cluster, 1, Map::Identity, runs, map.len() % RUN, body, map)
}

/// Decodes the whole runs of a cluster, and then the partial run of `t` elements if `t` is not 0.
#[expect(clippy::too_many_arguments, reason = "one call for cluster maps and clusters")]
fn decode_cluster(
    isa: Isa,
    cluster: &Cluster,
    width: usize,
    map: Map,
    runs: &[u32],
    t: usize,
    body: &mut Body<'_>,
    out: &mut [u8],
) -> Result<()> {
    if runs.is_empty() && t == 0 {
        // A block may have thousands of these: their tables would take longer than all else.
        return Ok(());
    }
    let shape = cluster.shape(map);
    let table = DecodeTable::new(&cluster.coder);
    let raw = body.take_bulk(runs.len() * shape.raw_len(RUN))?;
    let position = body.literals.position();
    isa.decode_cluster(DecodeJob {
        table: table.as_ref(),
        shape,
        width,
        lanes: &mut body.lanes,
        literals: &mut body.literals,
        runs,
        raw,
        out,
    })?;
    if t > 0 {
        let raw = body.take_bulk(shape.raw_len(t))?;
        let chunk = runs.len();
        with_element!(width, E => decode_partial::<E>(&shape, table.as_ref(), raw, chunk, t, body, out))?;
    }
    let bits = cluster.symbol_bits(8 * width as u32);
    if bits < 8 && body.literals.since(position).iter().any(|l| l >> bits != 0) {
        return Err(Error::damaged(format!("a literal of a cluster has more than its symbols' {bits} bits")));
    }
    Ok(())
}

/// Corrects the elements that do not fit their cluster.
fn apply_patches<E: Element>(patches: &Patches, map: Map, bytes: &[u8], out: &mut [u8]) -> Result<()> {
    patches.each(bytes, out.len() / E::BYTES, E::BYTES, |i, x| {
        let e = &mut out[i * E::BYTES..][..E::BYTES];
        E::load(e).map(map).xor(E::cut(x)).unmap(map).store(e);
    })
}

/// Decodes the last run of a stream, of `t` elements, from a whole chunk.
fn decode_partial<E: Element>(
    shape: &Shape,
    table: Option<&DecodeTable>,
    raw: &[u8],
    chunk: usize,
    t: usize,
    body: &mut Body<'_>,
    out: &mut [u8],
) -> Result<()> {
    let mut symbols = [0; RUN];
    if let Some(table) = table {
        decode_chunk(table, &mut body.lanes[chunk % SETS], &mut body.literals, &mut symbols)?;
        if symbols[t..].iter().any(|&s| s != table.pad()) {
            return Err(Error::damaged(format!(
                "a symbol of a cluster's padding is not the pad symbol {}",
                table.pad()
            )));
        }
    }
    let mut whole = vec![0; shape.raw_len(RUN)];
    if !lengthen_raw(shape, t, raw, &mut whole) {
        return Err(Error::damaged("unused bits of a cluster's last bit plane are not 0"));
    }
    let mut run = vec![0; RUN * E::BYTES];
    merge_run::<E>(shape, &symbols, &whole, &mut run);
    let at = out.len() / E::BYTES - t;
    out[at * E::BYTES..(at + t) * E::BYTES].copy_from_slice(&run[..t * E::BYTES]);
    Ok(())
}
