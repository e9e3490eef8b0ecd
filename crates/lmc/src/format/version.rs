//! Versions of the file format.

use super::header::Features;
use crate::parse_error::with_names;

/// Declares the versions, so that a new one is one line.
macro_rules! versions {
    ($($(#[$doc:meta])* $version:ident = $name:literal,)*) => {
        /// The version of the file format that a writer uses, and which of its features.
        ///
        /// ```
        /// use lmc::{CompressOptions, FormatVersion};
        /// let o = CompressOptions::default().with_format("1.0".parse()?);
        /// assert_eq!((o.format, o.format.number()), (FormatVersion::V1_0, 1));
        /// let e = "2".parse::<FormatVersion>().unwrap_err();
        /// assert_eq!(e.to_string(), r#"unknown format version "2": must be one of 1.0, 1.1"#);
        /// # Ok::<(), lmc::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FormatVersion {
            $($(#[$doc])* $version,)*
        }

        impl FormatVersion {
            /// Every version that is read and written, the oldest first.
            pub const ALL: &[FormatVersion] = &[$(FormatVersion::$version),*];

            /// The name used on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FormatVersion::$version => $name,)*
                }
            }
        }
    };
}

versions! {
    /// Version 1 without what 1.1 added.
    V1_0 = "1.0",
    /// Version 1 with grids (`docs/format.md` §3.8) and copies (§3.3).
    #[default]
    V1_1 = "1.1",
}

impl FormatVersion {
    /// The number that the header of a file has: that of the page that defines the format.
    pub const fn number(self) -> u16 {
        super::header::VERSION
    }

    /// Whether files have these features.
    pub(crate) fn has(self, features: Features) -> bool {
        self >= FormatVersion::V1_1 || !features.v1_1
    }

    /// Whether files have all features.
    pub(crate) fn has_all(self) -> bool {
        self.has(Features { ranges: true, own: true, v1_1: true })
    }

    /// The first version that has these features.
    pub(crate) fn with(features: Features) -> Self {
        Self::ALL.iter().copied().find(|v| v.has(features)).unwrap_or_default()
    }
}

with_names!(FormatVersion, "format version");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_name_one_version() {
        for &v in FormatVersion::ALL {
            assert_eq!((v.name().parse::<FormatVersion>().unwrap(), v.number()), (v, 1));
        }
        for other in ["", " 1.0", "01.0", "1", "v1.0", "1.2"] {
            assert!(other.parse::<FormatVersion>().unwrap_err().message().ends_with(": must be one of 1.0, 1.1"));
        }
    }

    #[test]
    fn the_first_version_with_a_feature_is_found() {
        let v1_1 = Features { v1_1: true, ..Features::default() };
        let ranges = Features { ranges: true, own: true, v1_1: false };
        assert_eq!(FormatVersion::with(Features::default()), FormatVersion::V1_0);
        assert_eq!(FormatVersion::with(ranges), FormatVersion::V1_0);
        assert_eq!(FormatVersion::with(v1_1), FormatVersion::V1_1);
        assert!(!FormatVersion::V1_0.has(v1_1) && FormatVersion::V1_1.has(v1_1));
    }
}
