//! JSON as text, with keys in the order in which they are given.

use std::fmt::Write as _;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `true` or `false`.
    Bool(bool),
    /// Of up to 64 bits, which not every reader of JSON keeps.
    Number(u64),
    /// Any text.
    Text(String),
    /// `[…]`.
    List(Vec<Json>),
    /// `{…}`.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Bytes as hexadecimal digits.
    pub fn hex(bytes: &[u8]) -> Self {
        Self::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Numbers.
    pub fn numbers<T: Into<u64> + Copy>(numbers: &[T]) -> Self {
        Self::List(numbers.iter().map(|&number| Self::Number(number.into())).collect())
    }

    /// The text, indented by one blank a level; values without objects are in one line.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    fn has_objects(&self) -> bool {
        match self {
            Self::Object(_) => true,
            Self::List(items) => items.iter().any(Self::has_objects),
            _ => false,
        }
    }

    fn write(&self, out: &mut String, indent: usize) {
        let nested = match self {
            Self::List(items) => items.iter().any(Self::has_objects),
            Self::Object(fields) => fields.iter().any(|(_, value)| value.has_objects()),
            _ => false,
        };
        let separate = |out: &mut String, i: usize, indent: usize| {
            out.push_str(if i > 0 { "," } else { "" });
            match nested {
                true => _ = write!(out, "\n{:indent$}", ""),
                false => out.push_str(if i > 0 { " " } else { "" }),
            }
        };
        match self {
            Self::Bool(value) => _ = write!(out, "{value}"),
            Self::Number(value) => _ = write!(out, "{value}"),
            Self::Text(text) => quote(out, text),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    separate(out, i, indent + 1);
                    item.write(out, indent + 1);
                }
                out.push_str(if nested { "\n" } else { "" });
                _ = write!(out, "{:indent$}]", "", indent = if nested { indent } else { 0 });
            }
            Self::Object(fields) => {
                out.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    separate(out, i, indent + 1);
                    quote(out, key);
                    out.push_str(": ");
                    value.write(out, indent + 1);
                }
                out.push_str(if nested { "\n" } else { "" });
                _ = write!(out, "{:indent$}}}", "", indent = if nested { indent } else { 0 });
            }
        }
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => _ = write!(out, "\\{c}"),
            '\0'..='\x1f' | '\x7f' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out.push('"');
}
