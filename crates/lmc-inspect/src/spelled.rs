//! Names, sizes and shares for people.

use std::fmt::Write;

/// Characters of a name that are shown.
const SHOWN: usize = 160;

/// An untrusted name in one line: characters that control, hide or reorder text are spelled out, and long names are
/// cut.
pub(crate) fn name(text: &str) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == SHOWN {
            shown.push('…');
            break;
        }
        let hides = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
        if c.is_control() || hides {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A number of bytes.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.*} {}", if value < 9.995 { 2 } else { 1 }, UNITS[unit])
}

/// A number with two decimals at most.
pub(crate) fn two_decimals(n: f64) -> f64 {
    (n * 100.0).round() / 100.0
}

/// A part of a whole, in percent; small ones with more digits.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { share(part as f64 / whole as f64) }
}

/// A part of one, in percent.
pub(crate) fn share(part: f64) -> String {
    // A share that is a little more than 0 or less than 1 is shown as neither.
    let p = 100.0 * part;
    let (p, digits) = match p {
        0.0 => (p, 0),
        p if p > 0.0 && p < 0.0001 => return "< 0.0001 %".to_owned(),
        p if p < 0.01 => (p, 4),
        p if p < 1.0 => (p, 2),
        p if p < 99.95 => (p, 1),
        p if p < 100.0 => (p.min(99.99), 2),
        _ => (p, 0),
    };
    format!("{p:.digits$} %")
}

/// A count, its noun, and the verb in singular and plural: "1 tensor never changes", "2 tensors never change".
pub(crate) fn agreeing(n: u64, thing: &str, one: &str, more: &str) -> String {
    format!("{} {}", count(n, thing), if n == 1 { one } else { more })
}

/// A count with its noun: "1 tensor", "2 tensors".
pub(crate) fn count(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A name whose numbers are left out: those of layers.
pub(crate) fn pattern(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' if out.ends_with('*') => {}
            '0'..='9' => out.push('*'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_one_line() {
        assert_eq!(name("a\nb\u{202e}c\0"), "a\\u{a}b\\u{202e}c\\u{0}");
        assert_eq!(name(&"x".repeat(1000)).chars().count(), SHOWN + 1);
        assert_eq!(pattern("model.layers.12.q8.weight"), "model.layers.*.q*.weight");
    }

    #[test]
    fn numbers_are_short() {
        for (p, text) in [
            (0.0, "0 %"),
            (1e-8, "< 0.0001 %"),
            (0.00001, "0.0010 %"),
            (0.0081, "0.81 %"),
            (0.555, "55.5 %"),
            (0.9999, "99.99 %"),
            (0.999_96, "99.99 %"),
            (1.0, "100 %"),
            (1.02, "102 %"),
        ] {
            assert_eq!(share(p), text);
        }
        assert_eq!((percent(1, 0), bytes(1 << 20), bytes(1023)), ("–".into(), "1.00 MiB".into(), "1023 B".into()));
        assert_eq!(
            agreeing(1, "tensor", "is", "are") + &agreeing(2, "tensor", "is", "are"),
            "1 tensor is2 tensors are"
        );
        assert_eq!((count(1, "tensor"), count(0, "tensor")), ("1 tensor".into(), "0 tensors".into()));
    }
}
