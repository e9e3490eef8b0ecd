//! Failures, and the Python exceptions that they become.
//!
//! The classes are defined in `lmc/_errors.py`; this file maps Rust errors to them.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyException, PyUserWarning};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `Result` with a [`Failure`].
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With the path of the file concerned, if it has one.
    Codec(lmc::Error, Option<PathBuf>),
    Store(lmc_store::Error),
    /// An exception of Python code that was called.
    Python(PyErr),
    /// The name of a class in `lmc._errors`, and the message.
    Other(&'static str, String),
    /// The operating system refused a path: the operation, and the path.
    Path(String, PathBuf, io::Error),
}

impl Failure {
    /// The arguments are invalid or contradict each other.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Other("UsageError", message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::Other("NotFoundError", message.into())
    }

    pub(crate) fn closed(what: &str) -> Self {
        Self::usage(format!("the {what} is closed"))
    }

    /// A panic, which is a bug.
    pub(crate) fn internal(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Self::Other("InternalError", format!("{text}: this is a bug in lmc, please report it"))
    }

    /// Adds the file's path to an error of the codec, unless it has one, or the error is about the arguments.
    pub(crate) fn in_file(self, path: Option<&Path>) -> Self {
        match self {
            Self::Codec(e, None) if e.kind() != lmc::ErrorKind::Usage => Self::Codec(e, path.map(Into::into)),
            other => other,
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Codec(e, _) => class_of_codec(e.kind()),
            Self::Store(e) => class_of_store(e.kind()),
            Self::Python(_) => "InternalError",
            Self::Other(class, _) => class,
            Self::Path(_, _, e) => match e.kind() {
                io::ErrorKind::NotFound => "MissingFileError",
                io::ErrorKind::PermissionDenied => "PermissionDeniedError",
                io::ErrorKind::AlreadyExists => "ExistsError",
                _ => "IOError",
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Codec(e, None) => e.to_string(),
            Self::Codec(e, Some(path)) => format!("{}: {e}", path.display()),
            Self::Store(e) => e.to_string(),
            Self::Other(_, message) => message.clone(),
            Self::Path(..) | Self::Python(_) => String::new(),
        }
    }

    /// Creates the exception. The interpreter must be held.
    fn exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let (class, cause) = match &self {
            Self::Python(e) => return Ok(e.clone_ref(py)),
            Self::Codec(e, _) => (self.class(), e.source()),
            Self::Store(e) => (self.class(), e.source()),
            Self::Path(_, _, e) => (self.class(), Some(e as &dyn Error)),
            Self::Other(class, _) => (*class, None),
        };
        if let Some(raised) = cause.and_then(raised_by) {
            return Ok(raised.clone_ref(py));
        }
        let errno = cause.and_then(errno).filter(|_| OS_ERRORS.contains(&class));
        let class = classes(py)?.getattr(class)?;
        let exception = match (&self, errno) {
            (Self::Path(doing, path, e), Some(errno)) => {
                class.call1((errno, format!("{doing}: {}", strerror(e)), path.as_os_str()))?
            }
            (Self::Path(doing, path, e), None) => {
                class.call1((format!("{}: {doing}: {}", path.display(), strerror(e)),))?
            }
            (_, Some(errno)) => class.call1((errno, self.message()))?,
            (_, None) => class.call1((self.message(),))?,
        };
        if let Self::Codec(e, _) = &self {
            exception.setattr("tensor", e.tensor())?;
            exception.setattr("block", e.block())?;
            exception.setattr("offset", e.offset())?;
        }
        Ok(PyErr::from_value(exception))
    }
}

/// The class for errors of the codec.
pub(crate) fn class_of_codec(kind: lmc::ErrorKind) -> &'static str {
    use lmc::ErrorKind as C;
    match kind {
        C::Io => "IOError",
        C::Damaged => "DamagedError",
        C::Unsupported => "UnsupportedError",
        C::Limit => "LimitError",
        C::Usage => "UsageError",
        C::Base => "BaseMismatchError",
        _ => "InternalError",
    }
}

/// The class for errors of stores.
pub(crate) fn class_of_store(kind: lmc_store::ErrorKind) -> &'static str {
    use lmc_store::ErrorKind as S;
    match kind {
        S::Store => "StoreError",
        S::Io => "IOError",
        S::Damaged => "DamagedError",
        S::Unsupported => "UnsupportedError",
        S::NotFound => "NotFoundError",
        S::Exists => "ExistsError",
        S::Expired => "ExpiredError",
        S::Limit => "LimitError",
        S::Usage => "UsageError",
        _ => "InternalError",
    }
}

/// Classes that are also an `OSError`, and so have an `errno`.
const OS_ERRORS: [&str; 5] = ["IOError", "MissingFileError", "PermissionDeniedError", "ExistsError", "StoreError"];

/// The operating system's message without the error number, which Python adds itself.
fn strerror(e: &io::Error) -> String {
    let text = e.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Gives warnings, after work that is done: where they are turned into exceptions, these are reported like those of `__del__`, so that the
/// result is not lost. An interrupt is passed on.
pub(crate) fn warn(py: Python<'_>, notes: &[String]) -> PyResult<()> {
    for note in notes {
        let warned = py
            .import("warnings")
            .and_then(|warnings| warnings.call_method1("warn", (note, py.get_type::<PyUserWarning>())));
        match warned {
            Err(e) if e.is_instance_of::<PyException>(py) => e.write_unraisable(py, None),
            other => _ = other?,
        }
    }
    Ok(())
}

/// Tells the logger `lmc` what was done.
pub(crate) fn log(py: Python<'_>, message: impl FnOnce() -> String) -> PyResult<()> {
    const INFO: u32 = 20;
    let logger = py.import("logging")?.call_method1("getLogger", ("lmc",))?;
    if logger.call_method1("isEnabledFor", (INFO,))?.is_truthy()? {
        logger.call_method1("info", ("%s", message()))?;
    }
    Ok(())
}

/// The module of the classes.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE.get_or_try_init(py, || Ok(py.import("lmc._errors")?.unbind())).map(|m| m.bind(py))
}

/// An error and its chain of causes, including errors wrapped in an [`io::Error`].
fn chain<'e>(e: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(e), |&e| match e.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as _),
        None => e.source(),
    })
}

/// The Python exception that caused an error.
fn raised_by<'e>(e: &'e (dyn Error + 'static)) -> Option<&'e PyErr> {
    chain(e).find_map(|e| e.downcast_ref::<PyErr>())
}

/// The operating system's error number, or the one that matches the kind if only that was kept.
fn errno(e: &(dyn Error + 'static)) -> Option<i32> {
    let e = chain(e).find_map(|e| e.downcast_ref::<io::Error>())?;
    e.raw_os_error().or(Some(match e.kind() {
        io::ErrorKind::NotFound => 2,
        io::ErrorKind::PermissionDenied => 13,
        io::ErrorKind::AlreadyExists => 17,
        io::ErrorKind::IsADirectory => 21,
        io::ErrorKind::StorageFull => 28,
        io::ErrorKind::ReadOnlyFilesystem => 30,
        _ => return None,
    }))
}

impl From<lmc::Error> for Failure {
    fn from(e: lmc::Error) -> Self {
        Self::Codec(e, None)
    }
}

impl From<lmc_store::Error> for Failure {
    fn from(e: lmc_store::Error) -> Self {
        Self::Store(e)
    }
}

impl From<PyErr> for Failure {
    fn from(e: PyErr) -> Self {
        Self::Python(e)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        if let Failure::Python(e) = failure {
            return e;
        }
        let made = Python::try_attach(|py| failure.exception(py).unwrap_or_else(|e| e));
        made.unwrap_or_else(|| PyException::new_err("the interpreter is shutting down"))
    }
}
