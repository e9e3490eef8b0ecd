//! What the tests and the fuzz targets of `lmc` share: files of every valid shape, damaged ones, and the comparison of
//! all decoders with the reference.

#![deny(unsafe_code)]

pub mod blocks;
pub mod damage;
pub mod data;
pub mod decoders;
pub mod deltas;
pub mod handmade;
pub mod input;
pub mod samples;
pub mod snapshots;
pub mod targets;
