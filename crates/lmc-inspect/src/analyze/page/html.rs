//! Text in HTML.

use std::fmt::{self, Display, Formatter, Write};

/// Text with everything escaped that means something in HTML, in elements as in attributes.
pub(super) struct Escaped<'a>(&'a str);

/// Text that anyone may have written.
pub(super) fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'', '`']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                b'`' => "&#96;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// JSON for an element of its own: nothing in it ends the element or opens a comment.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    // Only strings have any of these: what is not ASCII may hide or reorder what a reader of the source sees.
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '\u{7f}'.. => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(plain, "\\u{unit:04x}");
                }
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_markup() {
        let text = escaped("<b a=\"1\" c='2'>&amp; é`").to_string();
        assert_eq!(text, "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp; é&#96;");
        let all = ["</script><!--", "\u{2028}\u{202e}", "\u{1f40c} ü\n"];
        let text = json(&all);
        assert!(text.is_ascii() && !text.contains(['<', '>']), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), all);
    }
}
