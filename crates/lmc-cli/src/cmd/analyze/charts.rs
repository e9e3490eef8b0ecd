//! The charts of a study as files.

use std::io::Write;
use std::path::{Path, PathBuf};

use lmc_inspect::{Analysis, FIRST_CHART, vega};

use crate::failure::{Failure, Result};
use crate::guard::Guard;
use crate::names::is_dash;
use crate::output::{Origin, Output, Target, create_directories};

/// A directory for charts.
pub(super) struct Charts {
    dir: PathBuf,
    force: bool,
}

impl Charts {
    /// Creates the directory before the work, so that failures are reported at once.
    pub(super) fn create(dir: &Path, force: bool, guard: &Guard) -> Result<Self> {
        if is_dash(dir) {
            return Err(Failure::Usage("--vega writes several files: name a directory for them".to_owned()));
        }
        guard.check_replace(&dir.join(FIRST_CHART))?;
        create_directories(dir)?;
        let charts = Self { dir: dir.to_owned(), force };
        charts.open(FIRST_CHART, guard).map(|_| charts)
    }

    /// Writes the charts, each of them whole or not at all.
    pub(super) fn write(&self, analysis: &Analysis, guard: &Guard) -> Result {
        for (name, specification) in vega(analysis) {
            let mut output = self.open(&name, guard)?;
            if output.write_all(specification.as_bytes()).is_err()
                && let Some(failure) = output.take_failure()
            {
                return Err(failure);
            }
            output.finish(guard)?;
        }
        Ok(())
    }

    fn open(&self, name: &str, guard: &Guard) -> Result<Output> {
        Output::create(&Target::File(self.dir.join(name)), self.force, Origin::Stdin(None), guard)
    }
}
