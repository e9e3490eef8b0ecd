//! Other compressors on a sample of the last checkpoint.

use lmc::ErrorKind;
use lmc_inspect::{Checkpoints, Engines, Failed, sample};

use super::input::Input;
use crate::cmd::bench::engines;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Measures the compressors with these names on about so many bytes.
pub(super) fn measure(input: &Input, names: &[String], bytes: u64, ui: &Ui) -> Result<Engines> {
    let last = input.count() - 1;
    let failure = |f: Failed| input.failure(&f);
    let new = input.open(last).map_err(failure)?;
    let old = if last > 0 { input.open(last - 1).map_err(failure)? } else { vec![] };
    let taken = match sample(&new, &old, bytes).map_err(|e| failure(Failed::new(last, None, e)))? {
        // The checkpoint before has none of the tensors.
        None => sample(&new, &[], bytes).map_err(|e| failure(Failed::new(last, None, e)))?,
        some => some,
    };
    let Some(taken) = taken.filter(|s| !s.new.is_empty()) else {
        return Err(Failure::Usage("--engines and --sample leave nothing to measure: give more bytes".to_owned()));
    };
    let bar = ui.progress("engines", None);
    let measured = engines(&taken, names, &mut |_| bar.at(0)).map_err(|e| match e.kind() {
        ErrorKind::Usage => Failure::Usage(e.to_string()),
        _ => Failure::Failed(e.to_string()),
    })?;
    Ok(Engines {
        of: format!("{} elements of {}", taken.dtype, input.name(last)),
        sample_size: taken.new.len() as u64,
        pieces: taken.pieces,
        engines: measured,
    })
}
