//! What a store holds: keys, ids and JSON documents (`docs/store.md` §1–4).

pub(crate) mod ids;
pub(crate) mod keys;
pub(crate) mod manifest;
