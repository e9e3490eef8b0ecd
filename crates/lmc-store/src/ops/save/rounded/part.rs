//! A part of a tensor.

/// Elements of a 16-bit tensor that are those of a part of a flat 32-bit one, rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct RoundedPart {
    /// Index of the 16-bit tensor.
    pub(in super::super) tensor: usize,
    /// The first of its elements.
    pub(in super::super) first: u64,
    /// How many they are.
    pub(in super::super) elements: u64,
    /// Index of the flat tensor.
    pub(in super::super) flat: usize,
    /// The element there that the first one is rounded from.
    pub(in super::super) at: u64,
    /// Parts of tensors of one group and dtype overlap in no flat tensor unless their layers differ: those of copies.
    pub(in super::super) layer: usize,
}

/// Fewest elements of a 16-bit tensor that are searched for.
pub(super) const LEAST: u64 = 64;
