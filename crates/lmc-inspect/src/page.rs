//! Pages: HTML files that need nothing else, and no script to be read. Names are untrusted text, which is escaped.

pub(crate) mod chart;
pub(crate) mod html;
pub(crate) mod svg;

use std::fmt::Write;

use self::html::{escaped, heads};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
/// Nothing is loaded from anywhere, and no styles or scripts count but those above, which it names by their SHA-256.
const POLICY: &str = "default-src 'none'; style-src 'sha256-JHF2uAA7Fjc9IvXDYaVqG5y1XbFoD95PnXQ7ND4s48o='; \
                      script-src 'sha256-u9H0cRtf9JbLq2HqROvJT8qUjrnpQYswyAqgDVNodcw='; base-uri 'none'; \
                      form-action 'none'";

/// Bytes of JSON that a page has room for.
pub(crate) const ROOM: usize = 400_000;
/// Rows of a table at most.
pub(crate) const ROWS: usize = 2000;
/// Bytes of a table at most: names may be long.
pub(crate) const TABLE: usize = 1_000_000;

/// The beginning of a page of a command, up to the introduction of its content.
pub(crate) fn begin(title: &str, command: &str, about: &str, out: &mut String) {
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"{POLICY}\">\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><title>{0} – {command}</title>\
         <style>{STYLE}</style></head><body><main><h1>{0}</h1><p class=dim>{1}.</p>",
        escaped(title),
        escaped(about),
    );
}

/// The end of a page, with its figures as JSON, which [`html::json`] has made plain. `command` prints the figures that
/// are left out.
pub(crate) fn end(json: &str, id: &str, left_out: Option<&str>, command: &str, out: &mut String) {
    let _ = write!(
        out,
        "<h2>Data</h2><p class=dim>The figures of this page are in it as JSON, in the element with the id <code>{id}</code>"
    );
    if let Some(left_out) = left_out {
        let _ = write!(out, ", without {left_out}: <code>{command} --json</code> has them all");
    }
    let _ = writeln!(
        out,
        ".</p><script type=\"application/json\" id={id}>{json}</script></main><script>{SCRIPT}</script></body></html>"
    );
}

/// An important number, and its label.
pub(crate) fn card(number: &str, what: &str, out: &mut String) {
    let _ = write!(out, "<div><b>{}</b><span>{}</span></div>", escaped(number), escaped(what));
}

/// The beginning of a table that sorts and filters: the first columns are text, and so is the last one if there is any.
pub(crate) fn begin_table(text: &[&str], numbers: &[&str], last: Option<&str>, out: &mut String) {
    out.push_str("<div class=t0><table class=s><thead><tr>");
    heads(text, numbers, out);
    heads(last.as_slice(), &[], out);
    out.push_str("</thead><tbody>");
}

/// A cell of a table: its sort key, and its text. A missing key sorts first.
pub(crate) fn cell(value: Option<f64>, text: &str, out: &mut String) {
    let _ = match value {
        Some(v) => write!(out, "<td data-v={v}>{text}"),
        None => write!(out, "<td data-v=-1>–"),
    };
}

/// A part of a whole, to sort by: as many digits as can be distinguished.
pub(crate) fn part(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (1e6 * n as f64 / of as f64).round() / 1e6)
}
