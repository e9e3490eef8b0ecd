//! The contents of a header, for both parsers.

use crate::dtype::{Dtype, NamedDtype};
use crate::segment::{Name, Segment, Shape};

/// The description of one tensor: its offset counts from the end of the header, and dtype, shape and length are not
/// checked against each other yet. Of too many dimensions, only one more than the limit is kept.
pub(in super::super) type Entry = Segment;

/// Strings by name, in the order of the header.
pub(in super::super) type Pairs = Vec<(String, String)>;

/// The contents of a header.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Parsed {
    /// The tensors, in the order of the header.
    pub(in super::super) entries: Vec<Entry>,
    /// Whether they are known to be sorted by name, without duplicates.
    pub(in super::super) sorted: bool,
    /// The metadata, if there are any: empty unless they were asked for.
    pub(in super::super) metadata: Option<Pairs>,
}

/// Bytes of memory that a pair of strings takes.
pub(super) fn cost_of_pair(key: &str, value: &str) -> usize {
    size_of::<(String, String)>() + key.len() + value.len() + 32
}

/// An entry. One that ends before it begins reaches beyond all files.
pub(super) fn entry(name: Name, dtype: Option<Dtype>, shape: Shape, (begin, end): (u64, u64)) -> Entry {
    Segment { name: Some(name), dtype, shape, offset: begin, len: end.checked_sub(begin).unwrap_or(u64::MAX) }
}

/// The dtype that a header calls by this name. One that the format has no code for gets its bits later, from the tensor's length; until
/// then it has one.
pub(super) fn dtype_of(name: &str) -> Option<Dtype> {
    Dtype::from_name(name).or_else(|| NamedDtype::new(name, 1).map(Dtype::Named))
}
