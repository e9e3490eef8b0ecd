//! What callers choose: levels, limits and options.

pub(crate) mod level;
pub(crate) mod limits;
pub(crate) mod options;
