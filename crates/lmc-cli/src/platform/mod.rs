//! What Linux has and other systems have not, behind functions that are there everywhere.

#[cfg(target_os = "linux")]
mod linux;
// Compiled for the tests, too, so that it stays in step.
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    drop_from_cache, give_name, ignored_signals, open_descriptor, read_ahead, start_writeback, unnamed_file,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{
    drop_from_cache, give_name, ignored_signals, open_descriptor, read_ahead, start_writeback, unnamed_file,
};

/// What a path under `/dev/fd` or `/proc/self/fd` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// An open file of this process, by its number.
    Ours(u32),
    /// One of another process.
    Foreign,
}
