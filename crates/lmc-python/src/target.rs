//! Output files.

use std::fs::Metadata;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lmc::WriteAt;
use lmc_cli::{DurableFile, Guard, Refusal, Unfinished, finish_in_order};

use crate::errors::{Failure, Result};
use crate::work::Signals;

/// A file being written: complete and on disk under its name, or absent. A signal ends the writing.
pub(crate) struct Target<'s> {
    file: DurableFile,
    path: PathBuf,
    overwrite: bool,
    guard: Guard,
    signals: &'s Signals,
}

impl<'s> Target<'s> {
    /// `guard`: the files that it must not replace. With `private`, other users cannot read it while it is written.
    pub(crate) fn create(
        path: &Path,
        overwrite: bool,
        private: bool,
        guard: Guard,
        signals: &'s Signals,
    ) -> Result<Self> {
        let failed = |e| Failure::Path("cannot write".to_owned(), path.to_owned(), e);
        match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(there) if !there.is_file() => {
                return Err(Failure::usage(format!(
                    "{}: is a FIFO, a device or a socket, and a file would take its place: write to a file",
                    path.display()
                )));
            }
            Ok(_) if !overwrite => return Err(failed(io::ErrorKind::AlreadyExists.into())),
            _ => {}
        }
        guard.check_replace(path).map_err(refused)?;
        let file = DurableFile::create(path, private).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), overwrite, guard, signals })
    }

    /// [`DurableFile::set_size`].
    pub(crate) fn set_size(&self, size: u64) -> Result<bool> {
        self.file.set_size(size).map_err(|e| Failure::Path("cannot write".to_owned(), self.path.clone(), e))
    }

    /// Replaces the header of a compressed file by the one that it needs.
    pub(crate) fn replace_header(&self, summary: &lmc::Summary) -> Result<()> {
        let replaced = self.file.replace_header(&summary.header());
        replaced.map_err(|e| Failure::Path("cannot write".to_owned(), self.path.clone(), e))
    }

    /// Gives it its name, unless a signal came before. Mode and times are copied from the source.
    pub(crate) fn finish(self, like: Option<&Metadata>) -> Result<()> {
        // Names may have changed since the file was created.
        self.guard.check_replace(&self.path).map_err(refused)?;
        let finished = self.file.finish_unless(self.overwrite, like, || self.signals.settle());
        finished.map_err(|Unfinished(doing, e)| Failure::Path(doing.to_owned(), self.path, e))
    }
}

/// [`finish_in_order`], unless a signal came before; all are on disk by then.
pub(crate) fn finish_all(targets: Vec<Target<'_>>) -> Result<()> {
    let failed = |doing: String, path: &Path, e| Failure::Path(doing, path.to_owned(), e);
    for t in &targets {
        t.guard.check_replace(&t.path).map_err(refused)?;
        t.file.sync().map_err(|e| failed("cannot write".to_owned(), &t.path, e))?;
    }
    if let Some(last) = targets.last() {
        last.signals.settle().map_err(|e| failed("cannot write".to_owned(), &last.path, e))?;
    }
    let finish = |t: Target<'_>| t.file.finish(t.overwrite, None).map_err(|why| (why, t.path));
    finish_in_order(targets, |t| &t.path, finish).map_err(|((Unfinished(doing, e), path), replaced)| {
        let doing = match replaced {
            0 => doing.to_owned(),
            n => format!("{n} of the files were replaced, so restore all again; {doing}"),
        };
        failed(doing, &path, e)
    })
}

fn refused(why: Refusal) -> Failure {
    Failure::usage(why.to_string())
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
