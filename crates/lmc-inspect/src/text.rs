//! Names, sizes and shares for people: in pages, in charts and on terminals.

use std::fmt::{self, Display, Formatter, Write};

/// Characters of a name that are shown.
const SHOWN: usize = 160;

/// Untrusted text in one line: characters that control a terminal, or that hide or reorder text, are spelled out.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a>(pub &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() || is_invisible(c) { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

/// Characters that nothing shows, or that change how others look: Unicode's default ignorable code points, the marks
/// of direction, separators of lines, and blanks that are no spaces.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// An untrusted name: [`Plain`], and cut if it is long.
pub(crate) fn name(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => Plain(text).to_string(),
        Some((end, _)) => format!("{}…", Plain(&text[..end])),
    }
}

/// A number of bytes in IEC units with three or four significant digits.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1024.0, 0);
    // 1023.95 would be printed as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.*} {}", if value < 9.995 { 2 } else { 1 }, UNITS[unit])
}

/// A multiple of a step, with no more decimals than that has; at most nine.
pub(crate) fn multiple(x: f64, step: f64) -> String {
    let is_whole = |decimals: &usize| {
        let steps = step * 10f64.powi(*decimals as i32);
        steps > 0.5 && (steps - steps.round()).abs() < 1e-6 * steps
    };
    let decimals = (0..9).find(is_whole).unwrap_or(9);
    let text = format!("{x:.decimals$}");
    if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A number with two significant digits, or all those before the point.
pub fn two_digits(x: f64) -> String {
    let before = if x > 0.0 && x.is_finite() { x.log10().floor() as i32 + 1 } else { 2 };
    format!("{x:.*}", (2 - before).clamp(0, 9) as usize)
}

/// A whole number with its thousands apart; other text as it is.
pub(crate) fn grouped(number: &str) -> String {
    if number.len() < 5 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return number.to_owned();
    }
    let digits = number.char_indices().flat_map(|(i, c)| {
        let comma = (i > 0 && (number.len() - i).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([c])
    });
    digits.collect()
}

/// A number with four significant digits at most, in powers of ten if it is very small or large.
pub(crate) fn significant(x: f64) -> String {
    if x != 0.0 && !(1e-3..1e6).contains(&x.abs()) {
        let text = format!("{x:.3e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let before = if x == 0.0 { 1 } else { x.abs().log10().floor() as i32 + 1 };
    multiple(x, 10f64.powi((before - 4).clamp(-9, 0)))
}

/// A number with two decimals at most.
pub(crate) fn two_decimals(n: f64) -> f64 {
    (n * 100.0).round() / 100.0
}

/// A part of a whole, in percent; small ones with more digits.
pub fn percent(part: u64, whole: u64) -> String {
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
pub fn count(n: impl TryInto<u64>, thing: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
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
        assert_eq!(name("a\x1b[2J\nb\u{202e}c\0"), "a\\u{1b}[2J\\nb\\u{202e}c\\u{0}");
        assert_eq!(name("wörter.0 重み"), "wörter.0 重み");
        assert_eq!(name(&"x".repeat(1000)).chars().count(), SHOWN + 1);
        assert_eq!(pattern("model.layers.12.q8.weight"), "model.layers.*.q*.weight");
    }

    #[test]
    fn what_hides_is_spelled_out() {
        for c in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200d}',
            '\u{2028}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{85}',
        ] {
            assert_eq!(Plain(&format!("a{c}b")).to_string(), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
    }

    #[test]
    fn sizes_keep_their_width_at_the_edges_of_units() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 * 1024 - 1, "10.0 KiB"),
            (1024 * 1024 - 1, "1.00 MiB"),
            (1536 * 1024, "1.50 MiB"),
            (45_426_432, "43.3 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn labels_of_axes_differ() {
        let axis = |top: f64| [0, 1, 2, 3, 4].map(|i| multiple(top * f64::from(i) / 4.0, top / 4.0));
        assert_eq!(axis(0.01), ["0", "0.0025", "0.005", "0.0075", "0.01"]);
        assert_eq!(axis(0.06), ["0", "0.015", "0.03", "0.045", "0.06"]);
        assert_eq!(axis(10.0), ["0", "2.5", "5", "7.5", "10"]);
        assert_eq!(axis(80.0), ["0", "20", "40", "60", "80"]);
        assert_eq!(
            [0.0, 0.000_123, 0.0996, 0.5, 1.04, 12.3, 1234.0].map(two_digits),
            ["0", "0.00012", "0.100", "0.50", "1.0", "12", "1234"]
        );
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
        assert_eq!(percent(1, 0), "–");
        assert_eq!(
            agreeing(1, "tensor", "is", "are") + &agreeing(2, "tensor", "is", "are"),
            "1 tensor is2 tensors are"
        );
        assert_eq!((count(1, "tensor"), count(0, "tensor")), ("1 tensor".into(), "0 tensors".into()));
    }
}
