//! Formatting of names, sizes and errors.

use std::fmt::{self, Display, Write};
use std::io;
use std::path::Path;

use lmc_inspect::text::Plain;
pub(crate) use lmc_inspect::text::{bytes, count};

/// An untrusted name, as [`Plain`] spells it.
pub(crate) struct Name<'a>(std::borrow::Cow<'a, str>);

impl<'a> Name<'a> {
    pub(crate) fn path(path: &'a Path) -> Self {
        Name(path.to_string_lossy())
    }

    pub(crate) fn text(text: &'a str) -> Self {
        Name(text.into())
    }
}

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(&self.0).fmt(f)
    }
}

/// A path quoted for a shell's command line.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    Name::text(&format!("'{}'", text.replace('\'', "'\\''"))).to_string()
}

/// Compressed over raw size, as a percentage.
pub(crate) fn percent(compressed: u64, raw: u64) -> String {
    if raw == 0 { "-".to_owned() } else { format!("{:.2} %", 100.0 * compressed as f64 / raw as f64) }
}

/// Compressed over raw size for JSON; null if the raw size is zero.
pub(crate) fn ratio(compressed: u64, raw: u64) -> Option<f64> {
    (raw != 0).then(|| compressed as f64 / raw as f64)
}

/// A hash in hexadecimal.
pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// An operating system's error without its number, with advice where there is some.
pub(crate) fn io_error(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    let text = match chars.next() {
        // No abbreviation, such as NFS.
        Some(first) if !chars.as_str().starts_with(char::is_uppercase) => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    };
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space, or write elsewhere",
        io::ErrorKind::ReadOnlyFilesystem => "; write elsewhere",
        io::ErrorKind::FileTooLarge => "; raise the limit (ulimit -f), or write elsewhere",
        _ => "",
    };
    text + advice
}

/// Parses a number of bytes: digits, and `k`, `M` or `G` (powers of 1000, with or without `B`) or `Ki`, `Mi`, `Gi`.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim().trim_end_matches(['B', 'b']) {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("unknown unit {unit:?}; use k, M, G, Ki, Mi or Gi")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a number of bytes"))?;
    let bytes = number * factor;
    if bytes > (1u64 << 48) as f64 { Err(format!("{text} exceeds the limit of 256 TiB")) } else { Ok(bytes as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system() {
        assert_eq!(io_error(&io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(io_error(&io::Error::other("NFS server is gone")), "NFS server is gone");
        let full = io_error(&io::ErrorKind::StorageFull.into());
        assert!(full.ends_with("; free some space, or write elsewhere"), "{full}");
    }

    #[test]
    fn words_of_a_command_line() {
        for (path, word) in [("a/b-1.lmc", "a/b-1.lmc"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''")] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }

    #[test]
    fn ratios_of_nothing() {
        assert_eq!((percent(64, 0), ratio(64, 0)), ("-".to_owned(), None));
        assert_eq!((percent(1, 3), ratio(1, 2)), ("33.33 %".to_owned(), Some(0.5)));
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("17"), Ok(17));
        assert_eq!(parse_size("90MB"), Ok(90_000_000));
        assert_eq!(parse_size("1.5G"), Ok(1_500_000_000));
        assert_eq!(parse_size("256KiB"), Ok(1 << 18));
        for bad in ["", "MB", "1X", "1.2.3", "-1", "9999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
