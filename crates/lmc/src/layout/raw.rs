//! Data in no known format: one segment, of a type that the caller knows or of none.

use super::Layout;
use crate::dtype::Dtype;

pub(super) fn layout(dtype: Option<Dtype>) -> Layout {
    Layout { name: "raw", segments: vec![], tail: dtype }
}
