//! Tests of the command as a user runs it: one program, because each one links the whole crate.

mod analyze;
#[cfg(feature = "buckets")]
mod bucket;
mod careless;
mod deltas;
mod diff;
mod estimate;
mod files;
mod follow;
mod hostile;
mod hub;
mod inspect;
mod interchange;
mod killed;
mod leftovers;
mod links;
mod many_tensors;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod mount;
mod not_models;
mod nothing_lost;
mod odd_places;
mod open_files;
mod other_versions;
mod pipes;
mod publish;
mod safety;
mod snapshot;
mod snapshot_lost;
mod snapshot_tag;
mod snapshot_threads;
mod snapshot_unlucky;
mod support;
mod tables;
mod unpack;
mod unpack_complete;
mod unpack_dcp;
