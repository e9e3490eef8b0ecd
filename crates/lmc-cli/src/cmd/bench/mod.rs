//! `lmc` beside general-purpose codecs, in one run and in memory: for `lmc bench`, and for `lmc analyze --engines`.
//! Without the feature `bench` only zstd is there, and no command.
#![cfg_attr(not(feature = "bench"), expect(dead_code, reason = "what only the command uses"))]

#[cfg(feature = "bench")]
mod breakdown;
mod codec;
#[cfg(feature = "bench")]
mod command;
mod contender;
#[cfg(feature = "bench")]
mod delta;
mod engines;
#[cfg(feature = "bench")]
mod input;
#[cfg(feature = "bench")]
mod machine;
mod measure;
mod memory;
mod peers;
mod planes;
#[cfg(feature = "bench")]
mod report;
mod timing;
mod xor;

#[cfg(feature = "bench")]
pub(crate) use command::{BenchArgs, run};
pub(in crate::cmd) use engines::{chosen, delta_sizes, engines, of_distances};
