//! Failures: a one-line message, and the exit code.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use lmc::ErrorKind;

use crate::ui::format::{Name, io_error};

/// An error as shown to the user: `FILE: what (where): what to do`.
#[derive(Debug)]
pub enum Failure {
    /// The work failed: exit code 1.
    Failed(String),
    /// The codec failed, by the kind of its error: exit code 1.
    Codec(ErrorKind, String),
    /// A store failed, by the kind of its error: exit code 1.
    Store(lmc_store::ErrorKind, String),
    /// The command line is invalid or contradicts itself: exit code 2.
    Usage(String),
    /// The reader of standard output is gone. Nothing is reported.
    BrokenPipe,
}

/// `Result` with a [`Failure`].
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// The results of two steps that both ran. If both failed, one line has both failures.
pub(crate) fn both(first: Result, second: Result) -> Result {
    match (first, second) {
        (Err(failure), Err(other)) => Err(failure.and(&format!("; and {other}"))),
        (first, second) => first.and(second),
    }
}

impl Failure {
    /// Appends to the message.
    pub(crate) fn and(mut self, more: &str) -> Self {
        match &mut self {
            Failure::Failed(text) | Failure::Codec(_, text) | Failure::Store(_, text) | Failure::Usage(text) => {
                *text += more;
            }
            Failure::BrokenPipe => {}
        }
        self
    }

    /// A failure about one file.
    pub(crate) fn at(path: &Path, what: impl Display) -> Self {
        Failure::Failed(format!("{}: {what}", Name::path(path)))
    }

    /// A path that is not what the command takes.
    pub(crate) fn usage(path: &Path, what: impl Display) -> Self {
        Failure::Usage(format!("{}: {what}", Name::path(path)))
    }

    /// An error of the operating system about one file.
    pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> Self {
        Self::at(path, format_args!("{doing}: {}", io_error(error)))
    }

    /// An error of the codec about one file.
    pub(crate) fn codec(path: &Path, error: &lmc::Error) -> Self {
        let text = format!("{}: {error}", Name::path(path));
        match error.kind() {
            ErrorKind::Usage => Failure::Usage(text),
            // The codec's message contains advice where it has some.
            kind @ ErrorKind::Damaged if !error.message().contains("again") => {
                Failure::Codec(kind, format!("{text}: the file is damaged, fetch it again"))
            }
            kind => Failure::Codec(kind, text),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::Codec(_, text) | Failure::Store(_, text) => {
                f.write_str(text)
            }
            Failure::BrokenPipe => f.write_str("the reader of the output is gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_hides_another() {
        let failed = |text: &str| Err(Failure::Failed(text.to_owned()));
        let shown = |r: Result| r.err().map(|e| e.to_string());
        assert_eq!(shown(both(Ok(()), Ok(()))), None);
        assert_eq!(shown(both(failed("a"), Ok(()))).as_deref(), Some("a"));
        assert_eq!(shown(both(Ok(()), failed("b"))).as_deref(), Some("b"));
        let together = both(Err(Failure::Usage("a".to_owned())), failed("b")).unwrap_err();
        assert!(matches!(&together, Failure::Usage(text) if text == "a; and b"), "{together}");
    }
}
