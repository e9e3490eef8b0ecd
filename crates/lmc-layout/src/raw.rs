//! Data of unknown format: one segment, of the caller's dtype if there is one.

use super::account::Account;
use super::suggestion::{Layout, RAW};
use crate::dtype::Dtype;

pub(super) fn layout(dtype: Option<Dtype>) -> Layout {
    Layout { tail: dtype, ..Layout::new(RAW, vec![], Account::default()) }
}
