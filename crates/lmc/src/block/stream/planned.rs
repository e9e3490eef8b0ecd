//! The plan of a stream: its description in the head, and its items in the body.

use super::patches::PatchList;
use super::{Cluster, Mask, Stream};
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::split::Shape;
use lmc_kernels::entropy::table::EncodeTable;
use lmc_kernels::map::Map;
use std::rc::Rc;

/// A stream, ready to be encoded.
pub(crate) struct StreamPlan {
    pub(crate) stream: Stream,
    pub(crate) body: Vec<Item>,
    /// Estimated bytes without lane states.
    pub(crate) estimate: u64,
}

/// Bytes of a column in the body. The items of a column are in the order in which the head describes them.
pub(crate) enum Item {
    /// A zstd frame, or coded numbers.
    Bytes(Vec<u8>),
    Cluster(Box<PlannedCluster>),
}

/// A cluster of runs, with the table that codes them.
pub(crate) struct PlannedCluster {
    pub(crate) elements: Elements,
    /// Bytes of an element.
    pub(crate) width: usize,
    pub(crate) shape: Shape,
    pub(crate) table: Option<EncodeTable>,
    /// Whole runs.
    pub(crate) runs: Vec<u32>,
    /// Elements of the partial run that follows them; 0 if the cluster has none.
    pub(crate) tail: usize,
    /// Coded elements of the stream.
    pub(crate) n: usize,
}

/// The elements whose runs a cluster codes.
#[derive(Clone)]
pub(crate) enum Elements {
    /// The elements of the column.
    Column,
    /// The residuals of a context.
    Context(usize),
    /// Elements of a cluster map, of a mask, of a grid, or that stand for those of the column.
    Own(Rc<Vec<u8>>),
}

impl PlannedCluster {
    /// The cluster of these runs of `n` elements.
    pub(in crate::block) fn new(
        cluster: &Cluster,
        elements: Elements,
        (width, map): (usize, Map),
        mut runs: Vec<u32>,
        n: usize,
    ) -> Self {
        let mut tail = 0;
        if !n.is_multiple_of(RUN) && runs.last() == Some(&((n / RUN) as u32)) {
            tail = n % RUN;
            runs.pop();
        }
        Self { elements, width, shape: cluster.shape(map), table: EncodeTable::new(&cluster.coder), runs, tail, n }
    }
}

impl Item {
    /// Bulk bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Item::Bytes(bytes) => bytes.len(),
            Item::Cluster(g) => g.runs.len() * g.shape.raw_len(RUN) + g.shape.raw_len(g.tail),
        }
    }

    /// Chunks that the lanes will code.
    pub(crate) fn chunks(&self) -> usize {
        match self {
            Item::Cluster(g) if g.table.is_some() => g.runs.len() + usize::from(g.tail > 0),
            _ => 0,
        }
    }
}

impl StreamPlan {
    pub(in crate::block) fn empty(width: usize, map: Map) -> Self {
        StreamPlan { stream: Stream::empty(width, map), body: Vec::new(), estimate: 0 }
    }

    /// A stream whose elements other than 0 are listed.
    pub(in crate::block) fn sparse(width: usize, map: Map, list: &mut PatchList) -> Self {
        let mut plan = Self::empty(width, map);
        match list.list() {
            None => plan.stream.clusters.push(Cluster::zero(8 * width as u32)),
            Some((list, bytes)) => {
                plan.stream.mask = list;
                plan.body.extend(bytes.map(Item::Bytes));
            }
        }
        plan.estimate = plan.stream.head_len() + plan.body.iter().map(|item| item.len() as u64).sum::<u64>();
        plan
    }

    /// Chunks that the lanes will code.
    pub(in crate::block) fn chunks(&self) -> usize {
        self.body.iter().map(Item::chunks).sum()
    }

    /// Puts a mask before everything else, with its items in the body.
    pub(in crate::block) fn set_mask(&mut self, mask: Mask, items: impl IntoIterator<Item = Item>) {
        self.stream.mask = mask;
        self.body.splice(..0, items);
    }

    /// Appends a cluster of these runs, in a stream of `n` elements.
    pub(in crate::block) fn push(&mut self, cluster: Cluster, runs: Vec<u32>, n: usize) {
        let coding = (self.stream.width, self.stream.map);
        self.body.push(Item::Cluster(Box::new(PlannedCluster::new(&cluster, Elements::Column, coding, runs, n))));
        self.stream.clusters.push(cluster);
    }

    /// Sets the cluster map, which precedes all clusters in the body.
    pub(in crate::block) fn set_cluster_map(&mut self, (cluster, item): (Cluster, Item)) {
        self.stream.cluster_map = Some(cluster);
        self.body.insert(0, item);
    }

    /// Appends patches, after all clusters; returns their length in the body in bytes.
    pub(in crate::block) fn set_patches(&mut self, patches: &mut PatchList, low: u32) -> u64 {
        let (head, bits) = patches.encode(low);
        self.stream.patches = head;
        let len = bits.len() as u64;
        self.body.push(Item::Bytes(bits));
        len
    }

    /// The stream of other elements than those of the column.
    pub(in crate::block) fn of(mut self, elements: &Elements) -> Self {
        for item in &mut self.body {
            if let Item::Cluster(g) = item
                && matches!(g.elements, Elements::Column)
            {
                g.elements = elements.clone();
            }
        }
        self
    }

    /// [`Self::of`] elements that it owns.
    pub(in crate::block) fn owning(self, elements: Vec<u8>) -> Self {
        self.of(&Elements::Own(Rc::new(elements)))
    }
}
