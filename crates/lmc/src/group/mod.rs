//! The group stage: how elements are split into symbol and raw bits, and which runs share a group.

pub(crate) mod classes;
pub(crate) mod element;
pub(crate) mod split;

/// Elements of a run: what a class map assigns as a whole, and the chunk of the entropy coder.
pub(crate) const RUN: usize = crate::entropy::CHUNK;
