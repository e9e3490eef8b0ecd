//! Linux features behind functions that exist on every platform.

#[cfg(target_os = "linux")]
mod linux;
// Also compiled for tests, so that it stays correct.
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    drop_from_cache, ending_signals, give_name, ignored_signals, open_descriptor, read_ahead, unnamed_file,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{
    drop_from_cache, ending_signals, give_name, ignored_signals, open_descriptor, read_ahead, unnamed_file,
};

/// The target of a path under `/dev/fd` or `/proc/self/fd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// An open file of this process, by descriptor.
    Ours(u32),
    /// One of another process.
    Foreign,
}
