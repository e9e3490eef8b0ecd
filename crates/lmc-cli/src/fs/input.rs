//! Input files: only regular ones, and only as long as they do not change.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::guard::{self, Guard};
use crate::fs::handles::{Handles, InputFile};
use crate::fs::links;
use crate::fs::names::SUFFIX;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;

/// A regular input file, with the command's error messages.
pub(crate) struct Source(InputFile);

impl Source {
    /// Opens a regular file, or the one that a symbolic link leads to, also if that was compressed since; anything else is refused with the
    /// reason.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::with(path, InputFile::open)
    }

    /// [`Self::open`] for one of many files, which are not all open at a time.
    pub(crate) fn open_one_of(path: &Path, handles: &Arc<Handles>) -> Result<Self> {
        Self::with(path, |path| InputFile::open_one_of(path, handles))
    }

    fn with(path: &Path, open: impl FnOnce(&Path) -> io::Result<InputFile>) -> Result<Self> {
        let compressed = links::compressed_since(path);
        let path = compressed.as_deref().unwrap_or(path);
        regular_file(path)?;
        open(path).map(Self).map_err(|e| failure(path, &e))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        self.0.metadata()
    }

    /// The first bytes, up to the length of `buf`.
    pub(crate) fn start<'a>(&self, buf: &'a mut [u8]) -> Result<&'a [u8]> {
        let len = buf.len().min(usize::try_from(self.metadata().len()).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        lmc::ReadAt::read_exact_at(self, buf, 0).map_err(|e| failure(self.path(), &e))?;
        Ok(buf)
    }

    /// Why the file is not whole, or not the model that its name promises.
    pub(crate) fn truncated(&self) -> Result<Option<String>> {
        lmc_inspect::truncated(self).map_err(|e| Failure::codec(self.path(), &e))
    }

    /// A sequential reader.
    pub(crate) fn stream(&self) -> impl Read {
        self.0.stream()
    }

    /// Fails if the file was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.0.check_unchanged().map_err(|e| failure(self.path(), &e))
    }

    /// Removes the file, unless its name now leads to another one. Says so if its bytes stay on disk.
    pub(crate) fn remove(self, guard: &Guard, ui: &Ui) -> Result {
        let path = self.path();
        guard.check_remove(path, self.metadata())?;
        let now = std::fs::symlink_metadata(path);
        let named = now.map_err(|e| Failure::io(path, "cannot remove", &e))?;
        if !same_file(&named, self.metadata()) {
            return Err(Failure::at(
                path,
                "is another file now, which is kept: what was written restores the one before it",
            ));
        }
        self.check_unchanged()?;
        std::fs::remove_file(path).map_err(|e| Failure::io(path, "cannot remove", &e))?;
        if let Some(note) = guard::note_names_left(path, &named) {
            ui.warn(note);
        }
        Ok(())
    }
}

/// The failure of a file. Messages of [`InputFile`] are complete; those of the system need a prefix.
fn failure(path: &Path, e: &io::Error) -> Failure {
    match e.raw_os_error() {
        None if e.get_ref().is_some() => Failure::at(path, e),
        _ => Failure::io(path, "cannot read", e),
    }
}

impl lmc::ReadAt for Source {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn path(&self) -> Option<&Path> {
        Some(self.0.path())
    }

    fn beside(&self, name: &str) -> Option<Box<dyn lmc::ReadAt>> {
        beside(self.0.path(), name)
    }
}

/// A file of the same directory, also if it was compressed since.
fn beside(path: &Path, name: &str) -> Option<Box<dyn lmc::ReadAt>> {
    if let Ok(file) = InputFile::open(&path.with_file_name(name)) {
        return Some(Box::new(file));
    }
    let compressed = InputFile::open(&path.with_file_name(format!("{name}.{SUFFIX}"))).ok()?;
    let options = lmc::DecompressOptions::default().with_threads(1);
    Some(Box::new(lmc::Reader::open(compressed, &options).ok()?))
}

/// The raw bytes of a compressed file, at the place in the file system that they came from: files beside it may name its tensors.
pub(crate) struct Original<'r> {
    raw: &'r dyn lmc::ReadAt,
    path: PathBuf,
}

impl<'r> Original<'r> {
    pub(crate) fn of(raw: &'r dyn lmc::ReadAt, compressed: &Path) -> Self {
        let path = match compressed.extension() {
            Some(suffix) if suffix == SUFFIX => compressed.with_extension(""),
            _ => compressed.to_owned(),
        };
        Self { raw, path }
    }
}

impl lmc::ReadAt for Original<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.raw.read_exact_at(buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.raw.size()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn beside(&self, name: &str) -> Option<Box<dyn lmc::ReadAt>> {
        beside(&self.path, name)
    }
}

/// Fails with the reason unless a path leads to a regular file.
pub(crate) fn regular_file(path: &Path) -> Result {
    let metadata = std::fs::metadata(path).map_err(|e| match std::fs::read_link(path) {
        Ok(target) if e.kind() == io::ErrorKind::NotFound => {
            Failure::at(path, format_args!("is a symbolic link to {}, which is not there", Name::path(&target)))
        }
        _ => Failure::io(path, "cannot read", &e),
    })?;
    refusal(&metadata).map_or(Ok(()), |reason| Err(Failure::at(path, reason)))
}

/// Why a file of this type is not read; `None` if it is.
fn refusal(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    Some(if kind.is_file() {
        return None;
    } else if kind.is_dir() {
        "is a directory, and not a file; compress, decompress and test take directories with -r"
    } else if kind.is_fifo() {
        "is a named pipe; give it as standard input: lmc … - < PIPE"
    } else if kind.is_socket() {
        "is a socket, not a file"
    } else if kind.is_block_device() || kind.is_char_device() {
        "is a device; give it as standard input: lmc … - < DEVICE"
    } else {
        "is not a regular file"
    })
}

/// Whether two metadata describe the same file.
pub(crate) fn same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Standard input, unbuffered.
pub(crate) struct Stdin(File);

impl Stdin {
    /// Fails if standard input is a terminal.
    pub(crate) fn open() -> Result<Self> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(Failure::Usage("standard input is a terminal: name a file, or pipe something in".to_owned()));
        }
        let file = stdin.as_fd().try_clone_to_owned().map(File::from);
        let file = file.map_err(|e| Failure::io(Path::new(STDIN), "cannot read", &e))?;
        Ok(Stdin(file))
    }

    pub(crate) fn metadata(&self) -> Option<Metadata> {
        self.0.metadata().ok()
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

/// The name of standard input in messages.
pub(crate) const STDIN: &str = "(stdin)";
