//! The bases of a delta (`docs/format.md` §2.6).

pub(crate) const MAX_BASES: usize = 1 << 16;
