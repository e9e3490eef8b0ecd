//! The charts of a study as files.

use std::path::{Path, PathBuf};

use lmc_inspect::{Analysis, vega, vega_names};

use crate::failure::{Failure, Result};
use crate::guard::Guard;
use crate::names::is_dash;
use crate::output::{Origin, Output, Target, create_directories, exists};

/// A directory for charts.
pub(super) struct Charts {
    dir: PathBuf,
    force: bool,
}

impl Charts {
    /// Creates the directory before the work, so that failures are reported at once: existing files, too, whichever of
    /// the charts the study will have.
    pub(super) fn create(dir: &Path, force: bool, guard: &Guard) -> Result<Self> {
        if is_dash(dir) {
            return Err(Failure::Usage("--vega writes several files: name a directory for them".to_owned()));
        }
        let charts = Self { dir: dir.to_owned(), force };
        for path in charts.paths() {
            guard.check_replace(&path)?;
            if !force && path.symlink_metadata().is_ok() {
                return Err(exists(&path));
            }
        }
        create_directories(dir)?;
        // Whether a file can be written there.
        charts.paths().take(1).try_for_each(|path| charts.open(path, guard).map(drop))?;
        Ok(charts)
    }

    /// The files of all charts that a study may have.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        vega_names().map(|name| self.dir.join(name))
    }

    /// Writes the charts, each of them whole or not at all, and removes those of an earlier study that this one lacks.
    pub(super) fn write(&self, analysis: &Analysis, guard: &Guard) -> Result {
        let mut left: Vec<PathBuf> = self.paths().collect();
        for (name, specification) in vega(analysis) {
            let path = self.dir.join(name);
            left.retain(|l| *l != path);
            let mut output = self.open(path, guard)?;
            output.put(specification.as_bytes())?;
            output.finish(guard)?;
        }
        for path in left.iter().filter(|path| self.force && path.is_file()) {
            guard.check_replace(path)?;
            std::fs::remove_file(path).map_err(|e| Failure::io(path, "cannot remove", &e))?;
        }
        Ok(())
    }

    fn open(&self, path: PathBuf, guard: &Guard) -> Result<Output> {
        Output::create(&Target::File(path), self.force, Origin::Stdin(None), guard)
    }
}
