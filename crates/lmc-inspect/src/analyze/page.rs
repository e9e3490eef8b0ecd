//! A study as a page: one HTML file that needs nothing else, and no script to be read.

mod brief;
mod charts;
mod engines;
mod table;

use std::fmt::Write;

use super::charts::Charts;
use super::input::StepsFrom;
use super::result::Analysis;
use crate::page as pages;
use crate::page::html::escaped;
use crate::text::{agreeing, bytes, count, name, percent};

/// The page of a study: charts, tables, and the study as JSON. Names are untrusted text, which is escaped. It is the
/// same for the same study.
pub fn page(a: &Analysis) -> String {
    let mut out = String::new();
    let (Some(first), Some(last)) = (a.checkpoints.first(), a.checkpoints.last()) else { return out };
    let title = match a.checkpoints.len() {
        1 => name(&last.name),
        n => format!("{n} checkpoints, {} to {}", name(&first.name), name(&last.name)),
    };
    let about = format!("How it compresses, by {} at level {}", a.program, a.level);
    pages::begin(&title, "lmc analyze", &about, &mut out);
    out.push_str("<div class=cards>");
    cards(a, &mut out);
    out.push_str("</div>");
    out.push_str("<ul class=said>");
    for said in &a.advice {
        let _ = write!(out, "<li>{}", sentence(said));
    }
    out.push_str("</ul>");
    let drawn = Charts::of(a);
    charts::write(a, &drawn, &mut out);
    engines::write(a, &drawn, &mut out);
    table::write(a, &mut out);
    glossary(&mut out);
    let (json, left_out) = brief::brief(a);
    pages::end(&json, "study", left_out, "lmc analyze", &mut out);
    out
}

/// The words of the page.
const GLOSSARY: [(&str, &str); 13] = [
    ("checkpoint, pair", "the state of a training run at a step; a checkpoint and the one before it"),
    (
        "kind",
        "what a tensor is for, as its name shows it: weights, embedding, norm, master (copies that the optimizer \
              updates), exp_avg and exp_avg_sq (its means of gradients and of their squares)",
    ),
    ("Δw, update", "the difference of the weights of two checkpoints, however many steps are between them"),
    ("‖w‖, norm", "the root of the sum of the squares of all elements"),
    ("RMS", "the root of the mean of the squares: the norm without the number of elements"),
    ("cosine", "of the angle between an update and the one before: 1 the same direction, 0 none in common, −1 back"),
    (
        "spike",
        "a point further above the median of the forty around it than eight times what they deviate by (Hampel’s \
         identifier), and than a twentieth of it",
    ),
    (
        "explained, gradient",
        "Adam moves weights along m / √v of its moments, but for their decay: the part of the squared length of Δw that lies \
         along it is explained. What does not lie along that of the state before came with the gradient of the step. After \
         several steps little is explained",
    ),
    ("of raw", "a compressed size as a part of the bytes as they are"),
    ("delta", "a checkpoint compressed given an earlier one, its base"),
    ("entropy", "the bits that an ideal code takes which knows how often each value occurs"),
    (
        "H",
        "the entropy of the differences of floats given the exponents that they come from; of F32 and F64, of the \
           length and the first eight bits, with the others as they are. It does not count what it takes to know how \
           often each difference occurs, so it is too small where differences are many",
    ),
    (
        "share of a block",
        "sizes of kinds, dtypes and tensors are their shares of blocks that may have several; those of \
                          checkpoints and deltas are those of whole files",
    ),
];

fn glossary(out: &mut String) {
    out.push_str("<h2>Words</h2><dl>");
    for (word, meaning) in GLOSSARY {
        let _ = write!(out, "<dt>{word}</dt><dd>{meaning}</dd>");
    }
    out.push_str("</dl>");
}

/// The most important numbers.
fn cards(a: &Analysis, out: &mut String) {
    let mut card = |number: String, what: String| pages::card(&number, &what, out);
    let Some(last) = a.checkpoints.last() else { return };
    card(bytes(last.all.raw_size), format!("{} in the last checkpoint", count(last.all.tensors, "tensor")));
    card(percent(last.all.lmc_size, last.all.raw_size), format!("of that by itself: {}", bytes(last.all.lmc_size)));
    if let (Some(usual), Some(first)) = (a.usual_distance(), a.checkpoints.first()) {
        let over = count(usual.steps, a.steps_from.unit());
        card(percent(usual.delta_size, usual.raw_size), format!("as deltas over {over}"));
        let (changed, compared) = a.changed_elements();
        card(percent(changed, compared), "of elements change from checkpoint to checkpoint".to_owned());
        let changes = a.tensors.iter().filter_map(|t| t.change.as_ref());
        let never = changes.filter(|c| c.never_changes(a.pairs.len())).count();
        card(never.to_string(), without_number(never, "tensor", "never changes", "never change"));
        if a.steps_from != StepsFrom::Places {
            card(format!("{} – {}", first.step, last.step), "steps".to_owned());
        }
    }
    let twice = a.tensors.iter().filter(|t| t.duplicate_of.is_some()).count();
    card(twice.to_string(), without_number(twice, "tensor", "equals an earlier one", "equal an earlier one"));
}

/// A noun and a verb behind a number that stands elsewhere.
fn without_number(n: usize, thing: &str, one: &str, more: &str) -> String {
    let all = agreeing(n as u64, thing, one, more);
    all.split_once(' ').map_or(String::new(), |(_, words)| words.to_owned())
}

/// A sentence whose options are not broken over lines.
fn sentence(text: &str) -> String {
    let is_option = |w: &str| {
        w.strip_prefix("--").is_some_and(|o| !o.is_empty() && o.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
    };
    let word = |w: &str| match is_option(w) {
        true => format!("<code>{w}</code>"),
        false => escaped(w).to_string(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
