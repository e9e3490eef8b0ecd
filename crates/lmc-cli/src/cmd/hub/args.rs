//! Arguments of every command on a cache.

use std::path::PathBuf;

use clap::Args;

use super::cache::{Cache, default_directory};
use crate::ui::failure::Result;
use crate::ui::messages::Ui;

/// The models that a command works on, and their cache.
#[derive(Args)]
pub(super) struct HubArgs {
    /// Models by their names on the hub, such as ORG/NAME; by default all.
    #[arg(value_name = "MODEL")]
    pub(super) models: Vec<String>,

    /// The cache. By default it is found as huggingface_hub finds it: HF_HUB_CACHE, HF_HOME/hub,
    /// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl HubArgs {
    pub(super) fn open(&self, ui: &Ui) -> Result<Cache> {
        let dir = self.cache_dir.clone().map_or_else(default_directory, Ok)?;
        Cache::open(&dir, ui)
    }
}
