//! Files that are written.

use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::WriteAt;
use lmc_cli::{DurableFile, Unfinished};

use crate::errors::{Failure, Result};
use crate::work::Signals;

/// A file being written, complete and on disk under its name or not there at all. A signal ends the writing.
pub(crate) struct Target<'s> {
    file: DurableFile,
    path: PathBuf,
    overwrite: bool,
    signals: &'s Signals,
}

impl<'s> Target<'s> {
    /// `source`: what it is made from, which it may not be.
    pub(crate) fn create(
        path: &Path,
        overwrite: bool,
        source: Option<&Metadata>,
        signals: &'s Signals,
    ) -> Result<Self> {
        let failed = |e| Failure::Path("cannot write".to_owned(), path.to_owned(), e);
        match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(there) if source.is_some_and(|s| (s.dev(), s.ino()) == (there.dev(), there.ino())) => {
                return Err(Failure::usage(format!("{}: is the file that is read", path.display())));
            }
            Ok(_) if !overwrite => return Err(failed(io::ErrorKind::AlreadyExists.into())),
            _ => {}
        }
        let file = DurableFile::create(path, source.is_some()).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), overwrite, signals })
    }

    pub(crate) fn set_size(&self, size: u64) -> Result<()> {
        self.file.set_size(size).map_err(|e| Failure::Path("cannot write".to_owned(), self.path.clone(), e))
    }

    /// Gives it its name. It takes over mode and times of what it is another form of.
    pub(crate) fn finish(self, like: Option<&Metadata>) -> Result<()> {
        let finished = self.file.finish(self.overwrite, like);
        finished.map_err(|Unfinished(doing, e)| Failure::Path(doing.to_owned(), self.path, e))
    }
}

impl Write for Target<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.signals.check()?;
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteAt for Target<'_> {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.signals.check()?;
        self.file.write_all_at(buf, offset)
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_back(buf, offset)
    }
}
