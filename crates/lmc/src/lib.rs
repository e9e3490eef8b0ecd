//! Lossless compression of language model checkpoints.

#![deny(unsafe_code)]
#![expect(dead_code, reason = "the container is being built on the block codec")]

mod arch;
#[cfg(feature = "bench-hooks")]
#[doc(hidden)]
pub mod bench_hooks;
mod block;
mod checksum;
mod container;
mod dtype;
mod entropy;
mod error;
mod group;
mod map;
mod options;
#[cfg(feature = "reference")]
#[doc(hidden)]
pub mod reference;
mod varint;

pub use arch::Isa;
pub use dtype::Dtype;
pub use error::{Error, ErrorKind, Result};
pub use options::{CompressOptions, DecodeLimits, DecompressOptions, Level};
