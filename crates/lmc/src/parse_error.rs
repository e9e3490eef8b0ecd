//! The error of parsing a name.

use std::fmt;

/// A name that is none of those of a [`Level`](crate::Level) or a [`Dtype`](crate::Dtype).
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

/// `Display` and `FromStr` of an enumeration with names: `ALL`, and `name`.
macro_rules! with_names {
    ($enum:ident, $what:literal) => {
        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = $crate::parse_error::ParseNameError;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().copied().find(|v| v.name() == s);
                found.ok_or_else(|| Self::Err::new($what, s, Self::ALL.iter().map(|v| v.name())))
            }
        }
    };
}
pub(crate) use with_names;
