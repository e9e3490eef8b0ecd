//! The cluster stage: how elements are split into symbol and raw bits, and which runs share a cluster.

pub(crate) mod element;
pub(crate) mod runs;
pub(crate) mod split;

/// Elements of a run: the unit of a cluster map, and a chunk of the entropy coder.
pub(crate) const RUN: usize = crate::entropy::CHUNK;
