//! What the command prints, and how it ends: messages, failures, tables, progress, signals.

pub(crate) mod failure;
pub(crate) mod format;
pub(crate) mod interrupt;
pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod time;
