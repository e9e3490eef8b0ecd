//! The safetensors header: <https://github.com/huggingface/safetensors>.

use super::{Format, Layout, Prefix};
use crate::error::Result;

pub(super) struct Safetensors;

impl Format for Safetensors {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let _ = file.get(8)?;
        Ok(None)
    }
}
