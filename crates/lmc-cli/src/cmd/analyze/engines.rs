//! Other compressors on a sample of the last checkpoint.

use lmc::{Error, ErrorKind, Level};
use lmc_inspect::{Checkpoints, Engines, Failed, sample};

use super::input::Input;
use crate::cmd::bench::{chosen, engines};
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Fails if there are no such compressors, or nothing is to be measured: reported before a study.
pub(super) fn check(names: &[String], bytes: usize) -> Result {
    if bytes == 0 {
        return Err(Failure::Usage("--sample 0 leaves nothing to measure: give more bytes".to_owned()));
    }
    chosen(names).map(|_| ()).map_err(|e| failure(&e))
}

/// Measures the compressors with these names, and `lmc` at a level, on about `bytes` bytes; `None` if the checkpoint
/// has no elements of a known type.
pub(super) fn measure(input: &Input, names: &[String], level: Level, bytes: u64, ui: &Ui) -> Result<Option<Engines>> {
    let last = input.count() - 1;
    let new = input.open(last).map_err(|f| input.failure(&f))?;
    let old = if last > 0 { input.open(last - 1).map_err(|f| input.failure(&f))? } else { vec![] };
    let unreadable = |e| input.failure(&Failed::new(last, None, e));
    let taken = match sample(&new, &old, bytes).map_err(unreadable)? {
        // The checkpoint before has none of the tensors.
        None => sample(&new, &[], bytes).map_err(unreadable)?,
        some => some,
    };
    let Some(taken) = taken.filter(|s| !s.new.is_empty()) else {
        ui.warn("--engines: the last checkpoint has no elements of a known type: there is nothing to measure");
        return Ok(None);
    };
    let bar = ui.progress("engines", None);
    let measured = engines(&taken, names, level, &mut |_| bar.at(0)).map_err(|e| failure(&e))?;
    Ok(Some(Engines {
        of: format!("{} elements of {}", taken.dtype, input.name(last)),
        sample_size: taken.new.len() as u64,
        pieces: taken.pieces,
        engines: measured,
    }))
}

fn failure(e: &Error) -> Failure {
    match e.kind() {
        ErrorKind::Usage => Failure::Usage(e.to_string()),
        _ => Failure::Failed(e.to_string()),
    }
}
