//! Output files: complete and on disk under their name, or absent.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lmc_store::files::{is_missing, parent};
use rustix::fs::Access;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fs::durable::{self, DurableFile, Unfinished, finish_in_order, leads_to_open_file};
use crate::fs::guard::{Guard, Role};
use crate::fs::input::same_file;
use crate::fs::names::is_dash;
use crate::platform::{Descriptor, open_descriptor};
use crate::ui::failure::{Failure, Result, both};
use crate::ui::format::Name;
use crate::ui::interrupt;
use crate::ui::progress::Progress;

/// Where output goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
    /// What is written is discarded.
    Nowhere,
}

impl Target {
    /// The target's name in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Target::Stdout => Path::new("(stdout)"),
            Target::File(path) => path,
            Target::Nowhere => Path::new("(nowhere)"),
        }
    }
}

/// The source of an output.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// Another form of this file: mode, owner and times are copied from it.
    File(&'a Metadata),
    /// Part of this file: the output is a new file.
    PartOf(&'a Metadata),
    /// Standard input, which may be a file.
    Stdin(Option<&'a Metadata>),
}

impl<'a> Origin<'a> {
    fn metadata(self) -> Option<&'a Metadata> {
        match self {
            Origin::File(m) | Origin::PartOf(m) => Some(m),
            Origin::Stdin(m) => m,
        }
    }
}

/// An output being written. Unless [`Output::finish`] succeeds, dropping it removes it.
pub(crate) struct Output {
    target: Target,
    kind: Kind,
    overwrite: bool,
    /// The file to copy mode, owner and times from.
    like: Option<Metadata>,
    /// The first write error, which distinguishes failures of the target from those of the source.
    error: Mutex<Option<io::Error>>,
}

enum Kind {
    /// Standard output, a pipe or a device: written sequentially, and cannot be undone.
    Stream(File),
    /// A file under a temporary name in the target's directory.
    Temporary(DurableFile),
    Nowhere,
}

impl Output {
    /// Opens the output before the work begins, so that a target that cannot be written is reported early.
    ///
    /// Output onto its own source is refused.
    pub(crate) fn create(target: &Target, overwrite: bool, origin: Origin<'_>, guard: &Guard) -> Result<Self> {
        let kind = match target {
            Target::Stdout => Kind::Stream(open_stdout(overwrite, origin, guard)?),
            Target::File(path) => open_file(path, overwrite, origin, guard)?,
            Target::Nowhere => Kind::Nowhere,
        };
        let like = match origin {
            Origin::File(metadata) => Some(metadata.clone()),
            _ => None,
        };
        Ok(Output { target: target.clone(), kind, overwrite, like, error: Mutex::new(None) })
    }

    /// Fails if [`Self::create`] would, as far as that can be seen without writing: the output of a source that is to
    /// be removed if `remove_input`. `creates`: whether the directory is created, too.
    pub(crate) fn check(
        target: &Target,
        overwrite: bool,
        origin: Origin<'_>,
        guard: &Guard,
        (creates, remove_input): (bool, bool),
    ) -> Result {
        let Target::File(path) = target else { return Ok(()) };
        let way = way_to(path, overwrite, origin, guard)?;
        check_stays(path, way == Way::File, remove_input)?;
        if way != Way::File {
            return Ok(());
        }
        let mut dir = parent(path);
        while creates && !dir.exists() {
            dir = parent(dir);
        }
        let access = rustix::fs::access(dir.join("."), Access::WRITE_OK | Access::EXEC_OK);
        access.map_err(|e| no_place(path, e.into()))
    }

    /// Fails if the input is to be removed and the output is not a regular file.
    pub(crate) fn check_stays(&self, remove_input: bool) -> Result {
        check_stays(self.target.path(), self.is_file(), remove_input)
    }

    /// Whether it is a regular file.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::Temporary(_))
    }

    /// [`DurableFile::set_size`]; a stream is written from front to end, too.
    pub(crate) fn set_size(&self, size: u64) -> Result<bool> {
        match &self.kind {
            Kind::Temporary(t) => t.set_size(size).map_err(|e| self.failure("cannot write", &e)),
            Kind::Stream(_) => Ok(false),
            Kind::Nowhere => Ok(true),
        }
    }

    /// Replaces the header of a compressed file by the one that it needs, if it is a regular file.
    pub(crate) fn replace_header(&self, summary: &lmc::Summary) -> Result {
        let Kind::Temporary(file) = &self.kind else { return Ok(()) };
        file.replace_header(&summary.header()).map_err(|e| self.failure("cannot write", &e))
    }

    /// Writes bytes after those before.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result {
        self.write_all(bytes).map_err(|e| self.take_failure().unwrap_or_else(|| self.failure("cannot write", &e)))
    }

    /// Writes a range of bytes in pieces: `end` says where the one ends that begins at a byte, and `read` fills it.
    pub(crate) fn copy(
        &mut self,
        range: Range<u64>,
        end: impl Fn(u64) -> u64,
        read: impl Fn(u64, &mut [u8]) -> Result,
        progress: &Progress,
    ) -> Result {
        let (mut buf, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let next = end(at);
            buf.resize(usize::try_from(next - at).expect("a piece fits in memory"), 0);
            read(at, &mut buf)?;
            self.put(&buf)?;
            at = next;
            progress.at(at - range.start);
        }
        Ok(())
    }

    /// The first write error, if there was one.
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map(|e| self.failure("cannot write", &e))
    }

    /// The bytes written so far, read back from disk before the file has its name; `None` unless it is a regular file.
    pub(crate) fn written(&self) -> Result<Option<&DurableFile>> {
        let Kind::Temporary(file) = &self.kind else { return Ok(None) };
        file.sync_uncached().map_err(|e| self.failure("cannot write", &e))?;
        Ok(Some(file))
    }

    /// Makes the output durable, and gives it its name and attributes. From then on the run must not replace it.
    pub(crate) fn finish(self, guard: &Guard) -> Result {
        if let Kind::Stream(stream) = &self.kind
            && stream.metadata().is_ok_and(|m| m.is_file())
        {
            // Some file systems report only now that there is no space. Others cannot sync.
            let synced = stream.sync_all().or_else(|e| if is_missing(&e) { Ok(()) } else { Err(e) });
            return synced.map_err(|e| self.failure("cannot write", &e));
        }
        let (Kind::Temporary(file), Target::File(path)) = (self.kind, &self.target) else { return Ok(()) };
        // Names may have changed since the output was opened.
        guard.check_replace(path)?;
        guard.keep(Role::Output, path, &file.metadata().map_err(|e| Failure::io(path, "cannot write", &e))?);
        file.finish(self.overwrite, self.like.as_ref()).map_err(|Unfinished(doing, e)| match e.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => Failure::io(path, doing, &e),
        })
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::io(self.target.path(), doing, error),
        }
    }

    /// Keeps the first error, and gives the codec one of the same kind.
    fn keep_error(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        kind.into()
    }
}

/// [`finish_in_order`]; all are on disk before, and a signal waits until this is done.
pub(crate) fn finish_all(outputs: Vec<Output>, guard: &Guard) -> Result {
    for output in &outputs {
        if let Kind::Temporary(file) = &output.kind {
            file.sync().map_err(|e| output.failure("cannot write", &e))?;
        }
    }
    let _uninterrupted = interrupt::hold();
    finish_in_order(outputs, |output| output.target.path(), |output| output.finish(guard)).or_else(
        |(failure, replaced)| {
            let others = match replaced {
                0 => Ok(()),
                n => Err(Failure::Failed(format!("{n} of the files were replaced before: do it again"))),
            };
            both(Err(failure), others)
        },
    )
}

/// Open files beside outputs: a store's, and those of the process.
const OTHER_FILES: u64 = 128;

/// Lets the process have as many open files as the system permits: outputs that are to be finished together are open until then. Fails if so
/// `many` are too many; `done` and `instead` are words of the message.
///
/// # Errors
/// `Failed`: how many are permitted, and what to do.
pub fn allow_open(many: usize, done: &str, instead: &str) -> Result {
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|most| many as u64 + OTHER_FILES <= most) {
        return Ok(());
    }
    // Where this is refused, the limit is as before.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    match getrlimit(Resource::Nofile).current {
        Some(most) if many as u64 + OTHER_FILES > most => Err(Failure::Failed(format!(
            "{many} files are to be {done} together, and a process can have {most} open files here: raise the limit (ulimit -n), or {instead}"
        ))),
        _ => Ok(()),
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let result = match &mut self.kind {
            Kind::Stream(file) => file.write(buf),
            Kind::Temporary(t) => t.write(buf),
            Kind::Nowhere => return Ok(buf.len()),
        };
        match result {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(self.keep_error(e)),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl lmc::WriteAt for Output {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match &self.kind {
            Kind::Stream(_) => Err(io::ErrorKind::NotSeekable.into()),
            Kind::Temporary(t) => t.write_all_at(buf, offset).map_err(|e| self.keep_error(e)),
            Kind::Nowhere => Ok(()),
        }
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let Kind::Temporary(t) = &self.kind else { return Err(io::ErrorKind::Unsupported.into()) };
        t.read_back(buf, offset)
    }
}

/// Standard output, if it may be written to.
fn open_stdout(force: bool, origin: Origin<'_>, guard: &Guard) -> Result<File> {
    let stdout = io::stdout();
    let this = Target::Stdout;
    if stdout.is_terminal() && !force {
        return Err(Failure::Usage(
            "standard output is a terminal, and the output is binary: redirect it, or use -o FILE".to_owned(),
        ));
    }
    let file = stdout.as_fd().try_clone_to_owned().map(File::from);
    let file = file.map_err(|e| Failure::io(this.path(), "cannot write", &e))?;
    if let Ok(metadata) = file.metadata()
        && metadata.is_file()
    {
        if origin.metadata().is_some_and(|source| same_file(source, &metadata)) {
            return Err(Failure::usage(this.path(), "is the input file: redirect it to another one"));
        }
        guard.check_write(this.path(), &metadata)?;
    }
    Ok(file)
}

/// The file descriptor of standard output.
const STDOUT: u32 = 1;

/// Whether a path on the command line means standard output: `-`, or `/dev/stdout` and the like.
pub(crate) fn is_stdout(path: &Path) -> bool {
    is_dash(path) || open_descriptor(path) == Some(Descriptor::Ours(STDOUT))
}

/// A file is there that is not to be overwritten.
pub(crate) fn exists(path: &Path) -> Failure {
    Failure::at(path, "exists; -f overwrites it")
}

fn is_directory(path: &Path) -> Failure {
    Failure::at(path, "is a directory: name a file in it")
}

fn check_stays(output: &Path, is_file: bool, remove_input: bool) -> Result {
    if remove_input && !is_file {
        return Err(Failure::usage(output, "is not a regular file: leave out --rm"));
    }
    Ok(())
}

/// How a path is written to.
#[derive(PartialEq, Eq)]
enum Way {
    Stdout,
    /// A pipe or a device.
    Stream,
    /// A new file takes the name.
    File,
}

/// How a path is to be written to, if it may be.
fn way_to(path: &Path, overwrite: bool, origin: Origin<'_>, guard: &Guard) -> Result<Way> {
    match open_descriptor(path) {
        Some(Descriptor::Ours(STDOUT)) => return Ok(Way::Stdout),
        Some(_) => return Err(Failure::at(path, leads_to_open_file())),
        None => {}
    }
    match std::fs::symlink_metadata(path) {
        Ok(link) => {
            // A dangling link is taken as itself.
            let metadata = std::fs::metadata(path).unwrap_or(link);
            let kind = metadata.file_type();
            if kind.is_dir() {
                return Err(is_directory(path));
            }
            if kind.is_char_device() || kind.is_fifo() {
                return Ok(Way::Stream);
            }
            if kind.is_block_device() || kind.is_socket() {
                return Err(Failure::at(path, "is a device or a socket: write to standard output and redirect it"));
            }
            if origin.metadata().is_some_and(|source| same_file(source, &metadata)) {
                return Err(Failure::usage(path, "is the input file: choose another name with -o"));
            }
            if !overwrite {
                return Err(exists(path));
            }
            guard.check_replace(path)?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(Failure::io(path, "cannot write", &e)),
    }
    if path.file_name().is_none() { Err(is_directory(path)) } else { Ok(Way::File) }
}

/// An error of the operating system about where an output is to be.
fn no_place(path: &Path, e: io::Error) -> Failure {
    let (dir, failure) = (parent(path), Failure::io(path, "cannot write", &e));
    match e.kind() == io::ErrorKind::NotFound && !dir.exists() {
        true => failure.and(&format!("; make the directory {} first", Name::path(dir))),
        false => failure,
    }
}

fn open_file(path: &Path, overwrite: bool, origin: Origin<'_>, guard: &Guard) -> Result<Kind> {
    let cannot = |e: io::Error| no_place(path, e);
    match way_to(path, overwrite, origin, guard)? {
        Way::Stdout => return open_stdout(overwrite, origin, guard).map(Kind::Stream),
        Way::Stream => {
            let file = File::options().write(true).open(path).map_err(cannot)?;
            if file.is_terminal() && !overwrite {
                return Err(Failure::at(path, "is a terminal, and the output is binary; -f writes it all the same"));
            }
            return Ok(Kind::Stream(file));
        }
        Way::File => {}
    }
    // While it is written, users who cannot read the source must not read the output.
    let private = matches!(origin, Origin::File(_));
    DurableFile::create(path, private).map(Kind::Temporary).map_err(cannot)
}

/// Creates a directory and its missing parents durably.
pub(crate) fn create_directories(dir: &Path) -> Result {
    durable::create_directories(dir).map_err(|e| Failure::io(dir, "cannot create the directory", &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_failure_takes_back_what_is_new_and_keeps_what_replaced() {
        // With `overwrite`, too, a file is new if none was there.
        for (overwrite, replaces) in [(true, true), (true, false), (false, false)] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            if replaces {
                fs::write(at("first"), "old").unwrap();
            }
            let guard = Guard::default();
            let outputs = ["first", "second"].map(|name| {
                let target = Target::File(at(name));
                let mut output = Output::create(&target, overwrite, Origin::Stdin(None), &guard).unwrap();
                output.write_all(b"new").unwrap();
                output
            });
            // Nothing can be given this name any more.
            fs::create_dir_all(at("second/sub")).unwrap();
            let failure = finish_all(outputs.into(), &guard).unwrap_err().to_string();
            assert_eq!(failure.contains("1 of the files were replaced before"), replaces, "{failure}");
            let there = fs::read_to_string(at("first")).ok();
            assert_eq!(there.as_deref(), replaces.then_some("new"));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + usize::from(replaces));
        }
    }
}
