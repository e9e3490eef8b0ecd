//! Tests of stores through what is public of them: one program, because each links the whole of the crate.

mod cache;
mod concurrency;
mod contract;
mod copy;
mod cost;
mod damage;
mod faults;
mod hostile;
mod housekeeping;
mod races;
mod records;
mod servers;
mod siblings;
mod snapshots;
mod support;
mod tensors;
