//! Errors: few kinds, by what the caller should do next; the detail is in the message.

use std::fmt;
use std::io;

/// Kinds of [`Error`], by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused; look at the source.
    Io,
    /// The compressed bytes are not what a writer produced: fetch the file again.
    Damaged,
    /// The file is well-formed but needs a newer `lmc`, or is no `.lmc` file.
    Unsupported,
    /// Decoding would exceed a limit that the caller set (`lmc::DecodeLimits`), or there is no memory for the work.
    Limit,
    /// The arguments do not fit together.
    Usage,
    /// A base of a delta is missing, is another file than the one that the delta was made from, or cannot be read.
    Base,
}

/// An error of this crate: a kind, a message, and the place in the file.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    block: Option<u64>,
    offset: Option<u64>,
    tensor: Option<String>,
    source: Option<io::Error>,
}

/// The source of [`Error::changed`], which identifies it.
#[derive(Debug)]
struct Changed;

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("try again when nothing writes to it")
    }
}

impl std::error::Error for Changed {}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), block: None, offset: None, tensor: None, source: None }))
    }
    /// A `Damaged` error.
    #[doc(hidden)]
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }
    /// An `Unsupported` error.
    #[doc(hidden)]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }
    /// A code that a newer version of the format may define.
    #[doc(hidden)]
    pub fn unknown_code(what: &str, code: u8) -> Self {
        Self::unsupported(format!("unsupported {what} {code}; a newer lmc may read this file"))
    }
    /// A name that is none of the possible ones.
    #[doc(hidden)]
    pub fn unknown_name<'n>(what: &str, name: &str, possible: impl Iterator<Item = &'n str>) -> Self {
        let possible = possible.collect::<Vec<_>>().join(", ");
        Self::usage(format!("unknown {what} {name:?}: must be one of {possible}"))
    }
    /// A `Limit` error.
    #[doc(hidden)]
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, message)
    }
    /// A `Base` error.
    #[doc(hidden)]
    pub fn base(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Base, message)
    }
    /// A `Usage` error.
    #[doc(hidden)]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }
    /// Prepends to the message.
    #[doc(hidden)]
    pub fn after(mut self, before: &str) -> Self {
        self.0.message.insert_str(0, before);
        self
    }
    /// Appends to the message.
    #[doc(hidden)]
    pub fn adding(mut self, more: &str) -> Self {
        self.0.message.push_str(more);
        self
    }
    /// The error of bytes that changed between two reads.
    #[doc(hidden)]
    pub fn changed() -> Self {
        Self::io("the input changed while it was read", io::Error::other(Changed))
    }
    /// Whether it is [`Self::changed`].
    #[doc(hidden)]
    pub fn is_changed(&self) -> bool {
        self.0.source.as_ref().and_then(io::Error::get_ref).is_some_and(|e| e.is::<Changed>())
    }
    /// The error of writing the output.
    #[doc(hidden)]
    pub fn cannot_write(source: io::Error) -> Self {
        Self::io("cannot write the output", source)
    }
    /// An operating-system error; `doing` names the operation that failed.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let mut e = Self::new(ErrorKind::Io, doing);
        e.0.source = Some(source);
        e
    }
    /// Sets the index of the block with the error, unless one is set.
    #[must_use]
    pub fn in_block(mut self, block: u64) -> Self {
        self.0.block.get_or_insert(block);
        self
    }
    /// Sets the byte offset of the error in the file being read, unless one is set.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }
    /// Sets the name of the tensor with the damaged bytes, unless one is set.
    #[must_use]
    pub fn in_tensor(mut self, name: impl Into<String>) -> Self {
        self.0.tensor.get_or_insert(name.into());
        self
    }
    /// Its kind: what the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Index of the block concerned.
    pub fn block(&self) -> Option<u64> {
        self.0.block
    }
    /// Byte offset in the compressed file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
    /// Name of the tensor concerned.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let i = &self.0;
        f.write_str(&i.message)?;
        let mut sep = " (";
        if let Some(t) = &i.tensor {
            write!(f, "{sep}tensor {t:?}")?;
            sep = ", ";
        }
        if let Some(b) = i.block {
            write!(f, "{sep}block {b}")?;
            sep = ", ";
        }
        if let Some(o) = i.offset {
            write!(f, "{sep}byte {o}")?;
            sep = ", ";
        }
        if sep == ", " {
            f.write_str(")")?;
        }
        if let Some(s) = &i.source {
            write!(f, ": {s}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

/// For the `io` traits of `lmc::Encoder` and `lmc::Decoder`: [`io::Error::downcast`] returns the [`Error`].
impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        let kind = match (e.kind(), &e.0.source) {
            // Callers retry `Interrupted`, but the state of the work is lost.
            (ErrorKind::Io, Some(source)) if source.kind() != io::ErrorKind::Interrupted => source.kind(),
            (ErrorKind::Io, _) => io::ErrorKind::Other,
            (ErrorKind::Damaged, _) => io::ErrorKind::InvalidData,
            (ErrorKind::Unsupported, _) => io::ErrorKind::Unsupported,
            (ErrorKind::Limit, _) => io::ErrorKind::QuotaExceeded,
            (ErrorKind::Usage | ErrorKind::Base, _) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, e)
    }
}
