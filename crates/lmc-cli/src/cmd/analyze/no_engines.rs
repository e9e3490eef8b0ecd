//! What stands for other compressors where they are not built in.

use lmc_inspect::Engines;

use super::input::Input;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Says that there are none.
pub(super) fn measure(_: &Input, _: &[String], _: u64, _: &Ui) -> Result<Engines> {
    let why = "--engines: this lmc was built without other compressors (the feature bench): leave it out, or use the program of a release";
    Err(Failure::Usage(why.to_owned()))
}
