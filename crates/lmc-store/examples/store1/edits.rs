//! Changes of documents as texts that are replaced: what is to be replaced is found by a JSON pointer.

use std::ops::Range;

/// The end of the value that begins here, in JSON without blanks.
fn end(json: &[u8], start: usize) -> usize {
    let (mut at, mut depth, mut quoted) = (start, 0, false);
    loop {
        match (json[at], quoted) {
            (b'\\', true) => at += 1,
            (b'"', _) => quoted = !quoted,
            (b'{' | b'[', false) => depth += 1,
            (b'}' | b']', false) => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 && !quoted && (at == json.len() || b",:]}".contains(&json[at])) {
            return at;
        }
    }
}

/// Where the value of a pointer is, with its name and the comma before if it is a field.
fn find(json: &str, pointer: &str) -> (Range<usize>, usize) {
    let text = json.as_bytes();
    let (mut at, mut field) = (0, 0);
    for part in pointer.split('/').skip(1) {
        let is_object = text[at] == b'{';
        at += 1;
        field = at;
        let mut number = 0;
        loop {
            let value = if is_object { end(text, at) + 1 } else { at };
            let found = match is_object {
                true => json[at + 1..value - 2] == *part,
                false => number.to_string() == part,
            };
            if found {
                at = value;
                break;
            }
            field = end(text, value);
            at = field + 1;
            number += 1;
        }
    }
    (at..end(text, at), field)
}

/// The texts to replace, and to replace it by, that give the value of a pointer another text; an empty one removes the field. The first text
/// is there once.
pub(crate) fn edit(json: &str, pointer: &str, new: &str) -> [String; 2] {
    let (Range { mut start, end }, field) = find(json, pointer);
    if new.is_empty() {
        start = field;
    }
    let mut first = start;
    while json.matches(&json[first..end]).count() > 1 || first == end {
        first = json[..first].char_indices().next_back().expect("the whole is there once").0;
    }
    [json[first..end].to_owned(), format!("{}{new}", &json[first..start])]
}
