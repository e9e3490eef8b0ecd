//! Files of all writers: of stores, of directories that follow, of the command, and of Python.
//!
//! File systems differ: some have no links, no modes, no rename, no locks. Each operation is done in the strongest way that there is, and
//! [`notes`] says which promise is weaker for that.

mod attributes;
mod contents;
mod directories;
mod lock;
mod naming;
mod removal;
pub mod unfinished;
mod weaker;

pub use attributes::copy_attributes;
pub use contents::{create_new, set_len, start_writeback, sync_file};
pub use directories::{create_all, parent, sync};
pub use lock::lock;
pub use naming::give_name;
pub use removal::remove_closed;
pub use weaker::{is_missing, notes};

pub use crate::objects::identity::{Identities, Identity};
pub use crate::ops::target::check_targets;

pub(crate) use directories::sync_tree;
pub(crate) use naming::replace;
pub(crate) use removal::{if_there, remove_if_there};
