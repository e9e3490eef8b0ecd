//! A predicted column in three contexts (§3.7), and its head byte by byte, to be changed.

use crate::handmade::encoded;
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Operand, Predicted, Range, Stream};

/// A base, and a column of 2-byte elements predicted from its F32, in three contexts; the second one is empty.
pub fn column() -> (Vec<u8>, Predicted) {
    let base: Vec<u8> = [0x3f80_0000u32, 0, 0x3f80_0000, 0x7f00_0000].iter().flat_map(|x| x.to_le_bytes()).collect();
    let range = |offset: usize, length: usize| {
        let bytes = base[offset..][..length].to_vec();
        Range { source: 1, offset: offset as u64, bytes }
    };
    let column = Predicted {
        raw: (1..9).collect(),
        width_code: 1,
        operand: Operand::Ranges { conversion: 1, ranges: vec![range(0, 6), range(6, 10)] },
        row_terms: None,
        boundaries: vec![100, 120],
        streams: vec![Stream::of(0, Cluster { k: 16, ..Cluster::default() }); 3],
    };
    (base, column)
}

/// Method, width code.
pub const START: [u8; 2] = [3, 1];
/// Operand: conversion, two ranges.
pub const OPERAND: [u8; 8] = [1, 2, 1, 0, 6, 1, 6, 10];
/// The rest of the head of [`column()`], byte by byte.
pub const REST: [u8; 24] = [
    2, 100, 120, // boundaries
    1, 0, 0, 1, 0, 0, 0, 0, 16, 0, // one element in context 0: map, mask, clusters, patches, cluster
    0, // none in context 1
    3, 0, 0, 1, 0, 0, 0, 0, 16, 0, // three in context 2
];

/// The base, and a block of [`column()`] with another head.
pub fn with_head(head: &[u8]) -> (Vec<u8>, BlockFields) {
    let (base, column) = column();
    let mut fields = encoded(&Block::of(Column::Predicted(column), 0));
    fields.columns[0] = head.to_vec();
    (base, fields)
}
