//! Text in HTML.

use std::fmt::{self, Display, Formatter, Write};
use std::io;

use crate::text::grouped;

/// Text with all special characters of HTML escaped, in elements as in attributes.
pub(crate) struct Escaped<'a>(&'a str);

/// Untrusted text.
pub(crate) fn escaped(text: &str) -> Escaped<'_> {
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

/// A table that is folded under its caption: the heads of columns that are text, and of those that are numbers, and rows of cells.
pub(crate) fn table(
    caption: &str,
    text: &[&str],
    numbers: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    out: &mut String,
) {
    let _ = write!(out, "<details><summary>{}</summary><div class=t0><table><thead><tr>", escaped(caption));
    heads(text, numbers, out);
    out.push_str("</thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let _ = match i < text.len() {
                true => write!(out, "<td class=l>{}", escaped(cell)),
                false => write!(out, "<td>{}", escaped(&grouped(cell))),
            };
        }
    }
    out.push_str("</tbody></table></div></details>");
}

/// The heads of columns: those that are text, and those that are numbers.
pub(crate) fn heads(text: &[&str], numbers: &[&str], out: &mut String) {
    text.iter().for_each(|head| _ = write!(out, "<th scope=col class=l>{}", escaped(head)));
    numbers.iter().for_each(|head| _ = write!(out, "<th scope=col>{}", escaped(head)));
}

/// JSON for an element of its own: nothing in it ends the element or opens a comment.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    plain(&serde_json::to_string(value).unwrap_or_default())
}

/// The same if it has no more than `room` bytes; else `None`, and no more memory was taken.
pub(crate) fn json_within(value: &impl serde::Serialize, room: usize) -> Option<String> {
    let mut text = Bounded { text: Vec::new(), room };
    serde_json::to_writer(&mut text, value).ok()?;
    let text = plain(std::str::from_utf8(&text.text).ok()?);
    (text.len() <= room).then_some(text)
}

/// Text of at most `room` bytes.
struct Bounded {
    text: Vec<u8>,
    room: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room - self.text.len() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn plain(text: &str) -> String {
    // Only strings have any of these: characters that are not ASCII may hide or reorder the source that a reader sees.
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
        assert_eq!(json_within(&all, text.len()), Some(text.clone()));
        assert_eq!((json_within(&all, text.len() - 1), json_within(&all, 3)), (None, None));
    }
}
