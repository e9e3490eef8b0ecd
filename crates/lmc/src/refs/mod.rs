//! Which earlier bytes predict which: tensors of the bases (`matching`), and earlier ones of the same file (`intra_file`).

pub(crate) mod fingerprint;
pub(crate) mod intra_file;
pub(crate) mod matching;
pub(crate) mod names;
