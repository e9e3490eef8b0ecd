//! Where a store is: a directory, a bucket, memory or an archive; requests to it, and what writers leave there.

pub(crate) mod archive;
#[cfg(feature = "buckets")]
pub(crate) mod bucket;
pub(crate) mod buffer;
pub(crate) mod clock;
pub(crate) mod directory;
pub mod files;
pub(crate) mod identity;
pub(crate) mod leftovers;
pub(crate) mod location;
pub(crate) mod ordered;
#[cfg(feature = "buckets")]
pub(crate) mod profile;
pub(crate) mod remote;
pub(crate) mod staged;
#[cfg(feature = "buckets")]
pub(crate) mod uploads;
pub(crate) mod walk;
