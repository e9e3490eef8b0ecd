//! Decoding a block.

use super::Origin;
use super::body::Body;
use super::by_leaf::{BlockOutput, Leaves};
use super::mask::{check_bits, expand};
use super::patches::NumberReader;
use super::ranges::BlockRanges;
use super::restore_sparse::{CHUNK, SparseChanges, other_contexts, restore_listed, restore_listed_by_leaf};
use crate::format::bases::SourceRange;
use crate::format::block_head::{BlockHead, Cluster, Grid, Mask, Method, Operand, Palette, Patches, Predicted, Stream};
use crate::format::checksum::{Digest, block_digest, leaves};
use crate::format::frames::FrameDecoder;
use crate::format::limits::MAX_COLUMNS;
use lmc_kernels::arch::decode_chunk;
use lmc_kernels::arch::job::DecodeJob;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::cluster::split::{Shape, lengthen_raw, merge_run};
use lmc_kernels::entropy::SETS;
use lmc_kernels::entropy::table::DecodeTable;
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_kernels::planes;
use lmc_kernels::predict::grid::{GridModel, is_finite};
use lmc_kernels::predict::job::{Model, Streams};
use lmc_kernels::predict::{Conversion, convert};
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Decodes blocks one after the other, keeping its working memory.
pub struct BlockDecoder {
    isa: Isa,
    frames: FrameDecoder,
    cluster_map: Vec<u8>,
    /// Runs of every cluster, one cluster after the other.
    runs: Vec<u32>,
    /// A column of several extents before it is scattered.
    gathered: Vec<u8>,
    streams: Streams,
    /// Byte planes; bytes of an operand, and the same converted; of a grid the scales, offsets and indices, and the predictions.
    bytes: [Vec<u8>; 2],
    mask: Vec<u8>,
    /// Elements that a mask selects.
    selected: Vec<u8>,
    sparse: SparseChanges,
}

/// The prediction of a block by bytes of bases, if it is all of the block, and its streams are sparse.
fn sparse_whole(head: &BlockHead) -> Option<(&Predicted, &[SourceRange])> {
    let [column] = &head.columns[..] else { return None };
    let Method::Predicted(p) = &column.method else { return None };
    let Operand::Ranges { conversion: Conversion::None, base } = &p.operand else { return None };
    let whole = head.extents.one_piece(0) == Some(0..head.raw_len);
    (whole && (p.sparse().is_some() || p.is_sparse_by_context())).then(|| (&**p, base.of(&head.ranges)))
}

impl Predicted {
    /// The model of `len` bytes of elements with this prediction.
    fn model<'a>(&'a self, len: usize, prediction: &'a [u8]) -> Model<'a> {
        let &Self { width, predictor, .. } = self;
        Model { width, len: len / width, predictor, prediction, contexts: self.contexts.as_ref() }
    }
}

impl BlockDecoder {
    /// Nothing decoded yet.
    pub fn new(isa: Isa) -> Self {
        Self {
            isa,
            frames: FrameDecoder::default(),
            cluster_map: Vec::new(),
            runs: Vec::new(),
            gathered: Vec::new(),
            streams: Streams::default(),
            bytes: Default::default(),
            mask: Vec::new(),
            selected: Vec::new(),
            sparse: SparseChanges::default(),
        }
    }

    /// Decodes a block into `out`, which has exactly `head.raw_len` bytes, and checks its digest. Returns the digests of its leaves.
    ///
    /// After an error the contents of `out` are unspecified.
    pub fn decode(
        &mut self,
        head: &BlockHead,
        body: &[u8],
        origin: &dyn Origin,
        out: &mut [u8],
    ) -> Result<Vec<Digest>> {
        self.decode_to(head, body, origin, BlockOutput::Memory(out))
    }

    /// [`Self::decode`], to memory or to a file.
    pub(crate) fn decode_to(
        &mut self,
        head: &BlockHead,
        body: &[u8],
        origin: &dyn Origin,
        out: BlockOutput<'_>,
    ) -> Result<Vec<Digest>> {
        let mut body = Body::new(head, body)?;
        let checked = |leaves: Vec<Digest>| {
            if block_digest(&leaves) != head.digest {
                return Err(Error::damaged("the checksum of a block does not match"));
            }
            Ok(leaves)
        };
        if let Some((p, ranges)) = sparse_whole(head)
            && ranges.iter().all(|r| origin.reads_pieces(r.source))
        {
            let mut leaves = Leaves::new(ranges, origin, head.raw_len, out)?;
            self.restore_by_leaf(p, &mut body, &mut leaves)?;
            body.finish()?;
            return checked(leaves.finish()?);
        }
        match out {
            BlockOutput::Memory(out) => {
                self.decode_whole(head, body, origin, out)?;
                checked(leaves(out))
            }
            BlockOutput::Written { buf, write } => {
                let out = scratch(buf, head.raw_len);
                self.decode_whole(head, body, origin, out)?;
                let leaves = checked(leaves(out))?;
                write(out, 0)?;
                Ok(leaves)
            }
        }
    }

    /// Decodes a block, and does not check it.
    fn decode_whole(
        &mut self,
        head: &BlockHead,
        mut body: Body<'_>,
        origin: &dyn Origin,
        out: &mut [u8],
    ) -> Result<()> {
        assert_eq!(out.len(), head.raw_len, "room for the block");
        let origin = BlockRanges { list: &head.ranges, origin };
        let mut gathered = std::mem::take(&mut self.gathered);
        let done = self.decode_columns(head, &mut body, &origin, &mut gathered, out);
        self.gathered = gathered;
        done?;
        body.finish()
    }

    /// Restores the sparse column of a whole block.
    fn restore_by_leaf(&mut self, p: &Predicted, body: &mut Body<'_>, leaves: &mut Leaves<'_, '_>) -> Result<()> {
        if let Some(g) = p.sparse() {
            return with_element!(p.width, E => restore_listed_by_leaf::<E>(g, p.predictor, body, leaves));
        }
        self.sparse.read(p, body)?;
        let model = p.model(leaves.len(), &[]);
        self.sparse.restore(self.isa, p, &model, |restore| {
            while !leaves.place().is_empty() {
                restore(leaves.leaf())?;
                leaves.next()?;
            }
            Ok(())
        })
    }

    /// Decodes a column of one piece in place, another one into `gathered`, from where its pieces are copied.
    fn decode_columns(
        &mut self,
        head: &BlockHead,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        gathered: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let mut distances = [None; MAX_COLUMNS];
        for (i, column) in head.columns.iter().enumerate() {
            if let Method::Copied { distance } = column.method {
                distances[i] = Some(distance);
                continue;
            }
            if let Some(place) = head.extents.one_piece(i as u8) {
                self.decode_column(&column.method, body, origin, &mut out[place])?;
                continue;
            }
            let bytes = scratch(gathered, column.len);
            self.decode_column(&column.method, body, origin, bytes)?;
            head.extents.scatter(i as u8, bytes, out);
        }
        if distances != [None; MAX_COLUMNS] {
            head.extents.copy(&distances, out);
        }
        Ok(())
    }

    fn decode_column(
        &mut self,
        method: &Method,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        match method {
            Method::Stored => out.copy_from_slice(body.take_bulk(out.len())?),
            &Method::Zstd { width, prefix, frame_len } => {
                let (frame, buf) = (body.take_bulk(frame_len)?, &mut self.bytes[0]);
                let done = if prefix.count > 0 {
                    self.frames.decode_after(origin.get(&prefix, buf)?, frame, out)?
                } else if width == 1 {
                    self.frames.decode(frame, out)?
                } else {
                    let planes = scratch(buf, out.len());
                    let done = self.frames.decode(frame, planes)?;
                    planes::merge(width, planes, out);
                    done
                };
                if !done {
                    return Err(Error::damaged(format!(
                        "a zstd frame of {frame_len} bytes does not decode to the {} bytes that the head gives it",
                        out.len()
                    )));
                }
            }
            Method::Plain(g) => {
                self.decode_stream(g, body, out)?;
                if let Some(palette) = &g.palette {
                    with_element!(g.width, E => look_up::<E>(palette, out))?;
                }
            }
            Method::Predicted(p) => self.decode_predicted(p, body, origin, out)?,
            Method::Copied { .. } => unreachable!("copies are made when all else is decoded"),
        }
        Ok(())
    }

    fn decode_predicted(
        &mut self,
        p: &Predicted,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut streams, mut bytes) = (std::mem::take(&mut self.streams), std::mem::take(&mut self.bytes));
        let result = (|| {
            let [base, converted] = &mut bytes;
            let sparse = p.is_sparse_by_context();
            // Of sparse columns nearly all elements are those of the prediction. Where it is empty, `out` has it.
            let in_place = sparse || p.sparse().is_some();
            let prediction = match &p.operand {
                Operand::Ranges { conversion: Conversion::None, base: named } if in_place => {
                    origin.get_in_place(named, out)?
                }
                Operand::Ranges { conversion, base: named } => {
                    let prediction = origin.get(named, base)?;
                    if *conversion == Conversion::None {
                        prediction
                    } else {
                        convert(*conversion, prediction, converted);
                        converted
                    }
                }
                Operand::Grid(grid) if p.sparse().is_some() => {
                    self.decode_grid(grid, body, base, out)?;
                    &[]
                }
                Operand::Grid(grid) => {
                    let prediction = scratch(converted, out.len());
                    self.decode_grid(grid, body, base, prediction)?;
                    prediction
                }
            };
            if let Some(g) = p.sparse() {
                if !prediction.is_empty() {
                    out.copy_from_slice(prediction);
                }
                if g.is_zero() {
                    return Ok(());
                }
                return with_element!(p.width, E => restore_listed::<E>(g, p.predictor, body, out));
            }
            if sparse {
                self.sparse.read(p, body)?;
            } else if let [(_, only)] = &p.streams[..] {
                // Residuals become elements in place.
                only.iter().try_for_each(|g| self.decode_stream(g, body, out))?;
            } else {
                let byte_wide: Vec<_> = p.streams.iter().map(|(_, g)| g.as_ref().and_then(Stream::byte_wide)).collect();
                let widths = byte_wide.iter().map(|g| g.as_ref().map_or(p.width, |g| g.width));
                streams.reset(p.streams.iter().map(|s| s.0).zip(widths));
                for (context, ((_, stream), byte_wide)) in p.streams.iter().zip(&byte_wide).enumerate() {
                    if let Some(g) = byte_wide.as_ref().or(stream.as_ref()) {
                        self.decode_stream(g, body, streams.get_mut(context))?;
                    }
                }
            }
            let model = p.model(out.len(), prediction);
            if sparse {
                return self.sparse.restore(self.isa, p, &model, |restore| {
                    for (i, piece) in out.chunks_mut(CHUNK * p.width).enumerate() {
                        if !prediction.is_empty() {
                            piece.copy_from_slice(&prediction[i * CHUNK * p.width..][..piece.len()]);
                        }
                        restore(piece)?;
                    }
                    Ok(())
                });
            }
            if model.contexts.is_none() {
                self.isa.restore_in_place(&model, out);
            } else if !self.isa.restore(&model, &streams, out) {
                return Err(other_contexts());
            }
            Ok(())
        })();
        (self.streams, self.bytes) = (streams, bytes);
        result
    }

    /// Replaces `out` by the predictions of a grid.
    fn decode_grid(&mut self, grid: &Grid, body: &mut Body<'_>, buf: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let n = out.len() / grid.width();
        let terms = 4 * grid.groups.count(n as u64) as usize;
        let of_offsets = if grid.offsets.is_some() { terms } else { 0 };
        let (scales, rest) = scratch(buf, terms + of_offsets + n).split_at_mut(terms);
        let (offsets, indices) = rest.split_at_mut(of_offsets);
        let mut decode = |name: &str, stream: &Stream, to: &mut [u8]| {
            self.decode_stream(stream, body, to)?;
            let bits = |b: &[u8; 4]| u32::from_le_bytes(*b);
            match to.as_chunks::<4>().0.iter().map(bits).find(|&bits| !is_finite(bits)) {
                Some(bits) => Err(Error::damaged(format!("a grid has {name} {bits:#010x}, which is not finite"))),
                None => Ok(()),
            }
        };
        decode("scale", &grid.scales, scales)?;
        if let Some(stream) = &grid.offsets {
            decode("offset", stream, offsets)?;
        }
        self.decode_stream(&grid.indices, body, indices)?;
        let (largest, count) = (indices.iter().fold(0, |a, &b| a.max(b)), grid.levels.len());
        if usize::from(largest) >= count {
            return Err(Error::damaged(format!("an element has level {largest} of a grid that has {count}")));
        }
        let &Grid { conversion, ref levels, groups, .. } = grid;
        GridModel { conversion, levels, groups, scales, offsets, indices }.predict(out);
        Ok(())
    }

    fn decode_stream(&mut self, g: &Stream, body: &mut Body<'_>, out: &mut [u8]) -> Result<()> {
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
                match &g.listed {
                    None => self.decode_clusters(g, body, to)?,
                    Some(listed) => {
                        let values = NumberReader::new(listed, body)?;
                        with_element!(g.width, E => values.each_value(selected, g.width, |i, v| {
                            E::cut(v).unmap(g.map).store(&mut to[i * E::BYTES..][..E::BYTES]);
                        }))?;
                    }
                }
                with_element!(g.width, E => expand::<E>(bits, signs, g.map, coded, out));
                Ok(())
            })(),
            Mask::Gaps { .. } if g.listed.is_some() => {
                out.fill(0);
                with_element!(g.width, E => g.each_listed(body, n, |i, v| {
                    E::cut(v).unmap(g.map).store(&mut out[i * E::BYTES..][..E::BYTES]);
                }))
            }
            Mask::Gaps { gaps, .. } => (|| {
                let gaps = NumberReader::new(gaps, body)?;
                let coded = scratch(&mut coded, selected * g.width);
                self.decode_clusters(g, body, coded)?;
                out.fill(0);
                let mut elements = coded.chunks_exact(g.width);
                gaps.each_place(selected, n, |i| {
                    let element = elements.next().expect("an element for each place");
                    out[i * g.width..][..g.width].copy_from_slice(element);
                })
            })(),
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
                let mut begin = [0usize; crate::format::limits::MAX_CLUSTERS + 1];
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

/// Replaces indices by the values of a palette.
fn look_up<E: Element>(palette: &Palette, out: &mut [u8]) -> Result<()> {
    let count = palette.values.len();
    let mut values = [E::default(); 256];
    palette.values.iter().zip(&mut values).for_each(|(&v, to)| *to = E::cut(v));
    let mut largest = 0;
    for e in E::all_mut(out) {
        let index = E::from_bytes(*e).wide();
        largest = largest.max(index);
        *e = values[(index & 255) as usize].to_bytes();
    }
    if largest < count as u64 {
        return Ok(());
    }
    Err(Error::damaged(format!("an element has index {largest} in a palette of {count} values")))
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
