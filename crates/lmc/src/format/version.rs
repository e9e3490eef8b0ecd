//! Versions of the file format.

use std::fmt;

use crate::parse_error::ParseNameError;

/// Declares the versions, so that a new one is one line.
macro_rules! versions {
    ($($(#[$doc:meta])* $version:ident = $number:literal,)*) => {
        /// A version of the file format.
        ///
        /// ```
        /// use lmc::{CompressOptions, FormatVersion};
        /// let o = CompressOptions::default().with_format("1".parse()?);
        /// assert_eq!((o.format, o.format.number()), (FormatVersion::V1, 1));
        /// let e = "2".parse::<FormatVersion>().unwrap_err();
        /// assert_eq!(e.to_string(), r#"unknown format version "2": must be one of 1"#);
        /// # Ok::<(), lmc::ParseNameError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FormatVersion {
            $($(#[$doc])* $version = $number,)*
        }

        impl FormatVersion {
            /// Every version that is read and written, the oldest first.
            pub const ALL: &[FormatVersion] = &[$(FormatVersion::$version),*];

            /// The number as text: the name used on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FormatVersion::$version => stringify!($number),)*
                }
            }
        }
    };
}

versions! {
    /// That of lmc 1.0.
    V1 = 1,
}

impl FormatVersion {
    /// The number that the header of a file has.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The version with this number, if it is one that is read and written.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|v| v.number() == number)
    }
}

/// The version that every release since 1.0 reads.
impl Default for FormatVersion {
    fn default() -> Self {
        FormatVersion::V1
    }
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for FormatVersion {
    type Err = ParseNameError;

    fn from_str(s: &str) -> Result<Self, ParseNameError> {
        let found = Self::ALL.iter().copied().find(|v| v.name() == s);
        found.ok_or_else(|| ParseNameError::new("format version", s, Self::ALL.iter().map(|v| v.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_name_one_version() {
        for &v in FormatVersion::ALL {
            assert_eq!(v.name().parse(), Ok(v));
            assert_eq!(v.name(), v.number().to_string());
            assert_eq!(FormatVersion::from_number(v.number()), Some(v));
        }
        for number in [0, 2, 0x8001, u16::MAX] {
            assert_eq!(FormatVersion::from_number(number), None);
            number.to_string().parse::<FormatVersion>().unwrap_err();
        }
        for other in ["", " 1", "01", "1.0", "v1"] {
            assert_eq!(other.parse::<FormatVersion>().unwrap_err().possible(), "1");
        }
    }
}
