//! Finds earlier bytes that predict later ones: tensors of the bases (`matching`), earlier tensors of the same
//! file (`intra_file`), the steps of an optimizer that lead from both to a tensor (`steps`), and tensors in another precision
//! (`derived`).

pub(crate) mod base;
pub(crate) mod budget;
pub(crate) mod derived;
pub(crate) mod fingerprint;
pub(crate) mod intra_file;
pub(crate) mod matching;
pub(crate) mod reread;
pub(crate) mod steps;
pub(crate) mod work;
pub(crate) mod workers;
