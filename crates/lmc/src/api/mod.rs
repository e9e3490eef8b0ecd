//! The entry points: compress and restore files, read parts of them, compare them.

pub(crate) mod changes;
pub(crate) mod compress;
pub(crate) mod decoder;
pub(crate) mod decompress;
pub(crate) mod encoder;
pub(crate) mod estimate;
pub(crate) mod reader;
pub(crate) mod resolve;
pub(crate) mod sink;
pub(crate) mod source;
