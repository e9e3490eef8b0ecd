//! Tests of the public API: one program, because each one links the whole crate.

mod cache;
mod concurrency;
mod contract;
mod copy;
mod cost;
mod damage;
mod directories;
mod documents;
mod faults;
mod flat;
mod follow;
mod follow_ended;
mod follow_repair;
mod follow_rows;
mod follow_tensors;
mod hostile;
mod housekeeping;
mod interchange;
mod lost;
mod races;
mod records;
mod servers;
mod siblings;
mod snapshots;
mod support;
mod tensors;
