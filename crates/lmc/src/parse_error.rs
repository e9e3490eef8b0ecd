//! The error of parsing a name, and `Display` and `FromStr` of enumerations with names.

use crate::error::Error;

/// The error of a name that is none of the possible ones.
pub(crate) fn unknown(what: &str, name: &str, possible: impl Iterator<Item = &'static str>) -> Error {
    let possible = possible.collect::<Vec<_>>().join(", ");
    Error::usage(format!("unknown {what} {name:?}: must be one of {possible}"))
}

/// `Display` and `FromStr` of an enumeration with names: `ALL`, and `name`.
macro_rules! with_names {
    ($enum:ident, $what:literal) => {
        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        /// The error is of kind `Usage`, and says which names there are.
        impl std::str::FromStr for $enum {
            type Err = $crate::error::Error;

            fn from_str(s: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().copied().find(|v| v.name() == s);
                found.ok_or_else(|| $crate::parse_error::unknown($what, s, Self::ALL.iter().map(|v| v.name())))
            }
        }
    };
}
pub(crate) use with_names;
