//! Stands in for other compressors where they are not built in.

use lmc::Level;
use lmc_inspect::{Analysis, Engines};

use super::input::Input;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Says that there are none.
pub(super) fn check(_: &[String], _: usize) -> Result {
    let why = "--engines: this lmc was built without other compressors, as wheels are: leave it out, or use the program of a \
               release, or one built with the feature bench (cargo install --path crates/lmc-cli)";
    Err(Failure::Usage(why.to_owned()))
}

/// What would be measured.
#[expect(dead_code, reason = "as where there are some")]
pub(super) struct Wanted<'a> {
    pub(super) names: &'a [String],
    pub(super) level: Level,
    pub(super) bytes: u64,
    pub(super) pairs: usize,
}

/// There is nothing to measure.
pub(super) fn measure(_: &Input, _: &Analysis, _: &Wanted<'_>, _: &Ui) -> Result<Option<Engines>> {
    Ok(None)
}
