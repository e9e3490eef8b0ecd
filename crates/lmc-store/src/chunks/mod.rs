//! Block sets: how files are cut into them, and how they are found, fetched, decoded and kept.

pub(crate) mod alternatives;
pub(crate) mod cache;
pub(crate) mod catalog;
pub(crate) mod chain;
pub(crate) mod cut;
pub(crate) mod gather;
pub(crate) mod held;
pub(crate) mod presence;
pub(crate) mod reach;
pub(crate) mod segments;
pub(crate) mod tensors;
