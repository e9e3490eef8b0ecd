//! Which earlier bytes predict which: tensors of the bases (`matching`), earlier ones of the same file (`intra_file`), and parts of flat
//! ones (`flat`).

pub(crate) mod fingerprint;
pub(crate) mod flat;
pub(crate) mod intra_file;
pub(crate) mod matching;
pub(crate) mod names;
