//! The error of parsing a name.

use std::fmt;

/// A name that is none of those of a [`Level`](crate::Level), a [`Dtype`](crate::Dtype) or a [`FormatVersion`](crate::FormatVersion).
///
/// ```
/// let e = "best".parse::<lmc::Level>().unwrap_err();
/// assert_eq!(e.to_string(), r#"unknown level "best": must be one of fast, default, max"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseNameError {
    what: &'static str,
    name: String,
    possible: String,
}

impl ParseNameError {
    pub(crate) fn new(what: &'static str, name: &str, possible: impl Iterator<Item = &'static str>) -> Self {
        let possible = possible.collect::<Vec<_>>().join(", ");
        Self { what, name: name.to_owned(), possible }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The valid names, separated by commas.
    pub fn possible(&self) -> &str {
        &self.possible
    }
}

impl fmt::Display for ParseNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}: must be one of {}", self.what, self.name, self.possible)
    }
}

impl std::error::Error for ParseNameError {}
