//! Sources: buffers, files and file objects.

use std::fs::Metadata;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lmc::ReadAt;
use lmc_cli::{Guard, Handles, InputFile, Role};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::buffer::Buffer;
use crate::errors::{Failure, Result};
use crate::numbers::number;
use crate::process::PerProcess;
use crate::text;

/// A source for random access.
pub(crate) enum Source {
    Buffer(Buffer),
    /// A regular file.
    File(InputFile),
    Object(FileObject),
}

impl Source {
    /// Opens a regular file and keeps it open: its path may be replaced later.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let opened = InputFile::open(&path);
        opened.map(Self::File).map_err(|e| failed(path, e))
    }

    /// Opens one of many files, which are not all open at a time.
    pub(crate) fn open_one_of(path: PathBuf, handles: &Arc<Handles>) -> Result<Self> {
        let opened = InputFile::open_one_of(&path, handles);
        opened.map(Self::File).map_err(|e| failed(path, e))
    }

    /// The name of a file, without directories; empty for other sources.
    pub(crate) fn name(&self) -> String {
        let name = self.path().and_then(Path::file_name);
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file.path()),
            _ => None,
        }
    }

    /// The metadata of a file when it was opened.
    pub(crate) fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::File(file) => Some(file.metadata()),
            _ => None,
        }
    }

    /// Registers the source with `guard`, so that it is not overwritten.
    pub(crate) fn guard(&self, guard: &Guard, role: Role) {
        match self {
            Self::File(file) => guard.keep(role, file.path(), file.metadata()),
            Self::Object(FileObject { file: Some((path, id)), .. }) => guard.keep_known(role, path, *id),
            Self::Object(_) | Self::Buffer(_) => {}
        }
    }

    /// Fails if a file was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let Self::File(file) = self else { return Ok(()) };
        file.check_unchanged().map_err(|e| failed(file.path().to_owned(), e))
    }

    /// Why a file is not whole, or not the model that its name promises, with its path.
    pub(crate) fn no_model(&self) -> Result<Option<String>> {
        let Some(path) = self.path() else { return Ok(None) };
        Ok(lmc_cli::truncated(self)?.map(|why| format!("{}: {why}", path.display())))
    }

    /// A sequential reader.
    pub(crate) fn stream(&self) -> impl Read {
        Front { source: self, offset: 0 }
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Buffer(b) => Some(b),
            _ => None,
        }
    }
}

impl ReadAt for Source {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Buffer(b) => b.read_exact_at(buf, offset),
            Self::File(file) => file.read_exact_at(buf, offset),
            Self::Object(o) => o.read_exact_at(buf, offset),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(match self {
            Self::Buffer(b) => b.len() as u64,
            Self::File(file) => file.metadata().len(),
            Self::Object(o) => o.size,
        })
    }

    fn path(&self) -> Option<&Path> {
        self.path()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.buffer().and_then(Buffer::as_slice)
    }
}

fn failed(path: PathBuf, e: io::Error) -> Failure {
    Failure::Path("cannot read".to_owned(), path, e)
}

/// A sequential source.
struct Front<'s> {
    source: &'s Source,
    offset: u64,
}

impl Read for Front<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.size()?.saturating_sub(self.offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        self.source.read_exact_at(&mut buf[..n], self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

/// The path of an object, if it is a `str` or has `__fspath__`.
pub(crate) fn as_path(object: &Bound<'_, PyAny>) -> Result<Option<PathBuf>> {
    let is_path = object.is_instance_of::<PyString>() || object.hasattr("__fspath__")?;
    Ok(if is_path { Some(object.extract().map_err(|e| text::refused(object, e))?) } else { None })
}

/// The path of an argument that must be one.
pub(crate) fn path(object: &Bound<'_, PyAny>, name: &str) -> Result<PathBuf> {
    as_path(object)?.ok_or_else(|| {
        let class = object.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!("{name} must be a str or a path, not {class}")).into()
    })
}

/// A binary Python file object that can seek.
pub(crate) struct FileObject {
    object: Py<PyAny>,
    size: u64,
    /// Its name, device and inode, if it is a regular file.
    file: Option<(PathBuf, (u64, u64))>,
    /// Held while seeking and reading. Threads that wait for it release the interpreter, so one of the parent may hold its own at a fork.
    position: PerProcess<Mutex<()>>,
}

impl FileObject {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Result<Self> {
        const SEEK_END: i32 = 2;
        let size = number(&object.call_method1("seek", (0, SEEK_END))?, "result of seek() of a file object")?;
        let file = file_of(object);
        let position = PerProcess::new("file object", Mutex::default());
        Ok(Self { object: object.clone().unbind(), size, file, position })
    }

    fn read(&self, py: Python<'_>, buf: &mut [u8], offset: u64) -> Result<()> {
        let object = self.object.bind(py);
        object.call_method1("seek", (offset,))?;
        let mut done = 0;
        while done < buf.len() {
            let read = object.call_method1("read", (buf.len() - done,))?;
            let bytes = read_bytes(&read, buf.len() - done)?;
            if bytes.is_empty() {
                return Err(lmc::Error::io("", io::ErrorKind::UnexpectedEof.into()).into());
            }
            buf[done..][..bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        }
        Ok(())
    }
}

/// The name of a file object, and its device and inode; `None` unless it is a regular file of the operating system: a
/// terminal or a socket may be read and written at once.
pub(crate) fn file_of(object: &Bound<'_, PyAny>) -> Option<(PathBuf, (u64, u64))> {
    let descriptor = object.call_method0("fileno").ok()?;
    let stat = object.py().import("os").and_then(|os| os.call_method1("fstat", (descriptor,))).ok()?;
    let field = |name: &str| stat.getattr(name).and_then(|n| n.extract::<u64>()).ok();
    if field("st_mode")? & u64::from(libc::S_IFMT) != u64::from(libc::S_IFREG) {
        return None;
    }
    let id = (field("st_dev")?, field("st_ino")?);
    // The name of a file opened by descriptor is a number.
    let name = object.getattr("name").and_then(|name| name.extract::<PathBuf>());
    Some((name.unwrap_or_else(|_| "(file object)".into()), id))
}

/// Calls Python from work without the GIL; an exception passes through the codec as the cause of an I/O error.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> Result<T>) -> io::Result<T> {
    match Python::try_attach(call) {
        Some(done) => done.map_err(|e| io::Error::other(PyErr::from(e))),
        None => Err(io::Error::other("the interpreter is shutting down")),
    }
}

/// The result of a Python `read(size)`.
pub(crate) fn read_bytes<'a>(read: &'a Bound<'_, PyAny>, size: usize) -> Result<&'a [u8]> {
    let Ok(bytes) = read.cast::<PyBytes>() else {
        let class = read.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        let why = format!("read() of a binary file object must return bytes, not {class}");
        return Err(PyTypeError::new_err(why).into());
    };
    let bytes = bytes.as_bytes();
    if bytes.len() > size {
        let why = format!("read({size}) of a file object returned {} bytes", bytes.len());
        return Err(Failure::Other("IOError", why));
    }
    Ok(bytes)
}

impl ReadAt for FileObject {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let position = attached(|_| self.position.get(|_| Ok(Mutex::default())))?;
        let _held = position.lock().unwrap_or_else(PoisonError::into_inner);
        attached(|py| self.read(py, buf, offset))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}
