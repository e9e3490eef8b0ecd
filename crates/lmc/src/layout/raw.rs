//! Data in no known format: one segment, of a type that the caller knows or of none.

use super::suggestion::{Layout, RAW};
use crate::dtype::Dtype;

pub(super) fn layout(dtype: Option<Dtype>) -> Layout {
    Layout { name: RAW, segments: vec![], tail: dtype }
}
