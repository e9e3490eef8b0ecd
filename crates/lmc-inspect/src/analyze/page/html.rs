//! Text in HTML.

use std::fmt::{self, Display, Formatter};

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
    // Only strings have any of these.
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_markup() {
        let text = escaped("<b a=\"1\" c='2'>&amp; é`").to_string();
        assert_eq!(text, "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp; é&#96;");
        let text = json(&["</script><!--", "\u{2028}"]);
        assert!(!text.contains(['<', '>', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), ["</script><!--", "\u{2028}"]);
    }
}
