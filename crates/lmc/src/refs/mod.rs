//! Finds earlier bytes that predict later ones: tensors of the bases (`matching`), earlier tensors of the same file
//! (`intra_file`), and parts of flat tensors (`flat`).

pub(crate) mod fingerprint;
pub(crate) mod flat;
pub(crate) mod intra_file;
pub(crate) mod matching;
pub(crate) mod names;
