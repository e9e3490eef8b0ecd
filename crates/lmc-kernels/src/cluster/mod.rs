//! The cluster stage: how elements are split into symbol and raw bits, and which runs share a cluster.

pub mod element;
pub mod runs;
pub mod split;

/// Elements of a run: the unit of a cluster map, and a chunk of the entropy coder.
pub const RUN: usize = crate::entropy::CHUNK;
