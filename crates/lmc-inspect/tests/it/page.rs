//! The page of a study.

use std::io::Write;
use std::process::{Command, Stdio};

use lmc_inspect::text::{bytes, percent};
use lmc_inspect::{Analysis, Kind, page};

use crate::analyze::{Run, bf16s, f32s, flipped, study};
use crate::safetensors;

/// Elements without an end, and those whose end may be left out; the latter end where one of the former ends or begins, or another of them.
const VOID: &[&str] = &["meta", "input", "br"];
const OPTIONAL: &[&str] = &["li", "td", "th", "tr"];

/// The parts of a page.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Elements: name and attributes.
    elements: Vec<(String, Vec<(String, String)>)>,
    /// The text of each cell of a table, as it is written.
    cells: Vec<String>,
    /// The contents of scripts, and of styles.
    scripts: Vec<String>,
    styles: Vec<String>,
}

impl Parsed {
    /// The titles of the charts.
    pub(crate) fn titles(&self) -> Vec<String> {
        let drawn = self.elements.iter().filter(|e| e.0 == "svg");
        let titles = drawn.filter_map(|e| e.1.iter().find(|a| a.0 == "aria-label"));
        titles.map(|a| a.1.clone()).collect()
    }
}

/// Parses a page, and fails unless all elements are closed in order, and all attributes are well-formed.
pub(crate) fn parse(html: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a page");
    let mut open: Vec<String> = Vec::new();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>'), "{text}");
        if open.last().is_some_and(|e| e == "td") {
            parsed.cells.last_mut().unwrap().push_str(text);
        }
        rest = &rest[at + 1..];
        if let Some(end) = rest.strip_prefix('/') {
            let (name, after) = end.split_once('>').unwrap();
            while open.last().is_some_and(|e| OPTIONAL.contains(&&e[..]) && e != name) {
                open.pop();
            }
            assert_eq!(open.pop().as_deref(), Some(name), "{:?}", &after[..after.len().min(80)]);
            rest = after;
            continue;
        }
        let (name, attributes, after, closed) = tag(rest);
        rest = after;
        match &name[..] {
            "td" | "th" if open.last().is_some_and(|e| e == "td" || e == "th") => _ = open.pop(),
            "tr" => open.truncate(open.iter().rposition(|e| e == "tbody" || e == "thead").unwrap() + 1),
            "li" if open.last().is_some_and(|e| e == "li") => _ = open.pop(),
            _ => {}
        }
        if name == "td" {
            parsed.cells.push(String::new());
        }
        if name == "script" || name == "style" {
            let (text, after) = rest.split_once(&format!("</{name}>")).unwrap();
            if name == "script" { &mut parsed.scripts } else { &mut parsed.styles }.push(text.to_owned());
            rest = after;
        } else if !closed && !VOID.contains(&&name[..]) {
            open.push(name.clone());
        }
        parsed.elements.push((name, attributes));
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
    parsed
}

/// The name and attributes of a tag, the text after it, and whether it is closed.
fn tag(text: &str) -> (String, Vec<(String, String)>, &str, bool) {
    let name_end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
    let (name, mut rest) = text.split_at(name_end);
    assert!(!name.is_empty(), "{:?}", &text[..text.len().min(60)]);
    let mut attributes: Vec<(String, String)> = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/>") {
            return (name.to_owned(), attributes, after, true);
        }
        if let Some(after) = rest.strip_prefix('>') {
            return (name.to_owned(), attributes, after, false);
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap();
        let (key, after) = rest.split_at(end);
        assert!(!key.is_empty(), "{:?}", &rest[..rest.len().min(60)]);
        let value;
        (value, rest) = match after.strip_prefix('=') {
            None => ("", after),
            Some(quoted) if quoted.starts_with('"') => quoted[1..].split_once('"').unwrap(),
            Some(plain) => plain.split_at(plain.find([' ', '>']).unwrap()),
        };
        assert!(!value.contains('<') && !attributes.iter().any(|a| a.0 == key), "{key}={value}");
        attributes.push((key.to_owned(), value.to_owned()));
    }
}

/// A run of a model with that many layers, and names of tensors that begin with `prefix`.
pub(crate) fn run(prefix: &str, layers: u64, steps: u64) -> Run {
    let (w, m) = (bf16s(600), f32s(600));
    let checkpoint = |step: u64| {
        let data: Vec<_> = (0..layers)
            .map(|i| flipped(&w, 2, (step + i) as usize % 16, 3 + i as usize))
            .zip((0..).map(|i| flipped(&m, 4, (step * 3 + i) as usize % 32, 2)))
            .collect();
        let names: Vec<_> = (0..layers)
            .map(|i| (format!("{prefix}model.layers.{i}.mlp.weight"), format!("{prefix}exp_avg.{i}")))
            .collect();
        let tensors: Vec<(&str, &str, Vec<u64>, &[u8])> = names
            .iter()
            .zip(&data)
            .flat_map(|((a, b), (w, m))| [(&a[..], "BF16", vec![600], &w[..]), (&b[..], "F32", vec![20, 30], &m[..])])
            .collect();
        (1 << step, safetensors(&tensors))
    };
    Run((0..steps).map(checkpoint).collect())
}

fn embedded(parsed: &Parsed) -> serde_json::Value {
    serde_json::from_str(&parsed.scripts[0]).unwrap()
}

#[test]
fn numbers_are_those_of_json() {
    let a = study(&run("", 3, 4));
    let html = page(&a);
    let parsed = parse(&html);
    assert_eq!(
        embedded(&parsed),
        serde_json::from_str::<serde_json::Value>(&serde_json::to_string(&a).unwrap()).unwrap()
    );
    let with_commas = |n: &String| match n.len() {
        5..=6 if n.bytes().all(|b| b.is_ascii_digit()) => format!("{},{}", &n[..n.len() - 3], &n[n.len() - 3..]),
        _ => n.clone(),
    };
    let has = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(with_commas).collect();
        assert!(parsed.cells.windows(cells.len()).any(|c| c == cells), "{cells:?}");
    };
    for t in &a.tensors {
        let at = parsed.cells.iter().position(|c| *c == t.name).unwrap();
        let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
        let (f, c) = (&t.figures, t.change.as_ref().unwrap());
        let row = &parsed.cells[at..at + 14];
        assert_eq!(row[1..4], [t.kind.name(), &t.dtype, &shape.join("×")]);
        assert_eq!(row[4..6], [bytes(f.raw_size), percent(f.lmc_size, f.raw_size)]);
        assert_eq!(row[6..8], [f.distinct_exponents.to_string(), percent(f.zeros, f.elements)]);
        assert!(t.course.rms.len() == 4 && !row[8].is_empty(), "{row:?}");
        assert_eq!(row[10..12], [percent(c.changed, c.compared), percent(c.delta_size, c.raw_size)]);
        assert_eq!(row[12], c.flips.iter().rposition(|&n| n > 0).unwrap().to_string());
    }
    for d in &a.distances {
        let numbers = [d.steps, d.deltas, d.raw_size, d.delta_size].map(|n| n.to_string());
        let f = &d.floats;
        let floats = [f.raw_size, f.delta_size, f.entropy_size].map(|n| n.to_string());
        let parts = [(d.delta_size, d.raw_size), (f.delta_size, f.raw_size), (f.entropy_size, f.raw_size)];
        let [of_all, of_floats @ ..] = parts.map(|(n, of)| percent(n, of));
        assert!(f.raw_size > 0 && f.entropy_size > 0);
        has(&[&numbers[..], &[of_all], &floats[..], &of_floats[..]].concat());
    }
    let last = a.checkpoints.last().unwrap();
    let groups = last.kinds.iter().chain(&last.dtypes).map(|g| (&g.name[..], &g.figures));
    for (name, f) in groups.chain([("all", &last.all)]) {
        let numbers = [f.tensors, f.elements, f.raw_size, f.lmc_size].map(|n| n.to_string());
        let bits = [f.sign_entropy, f.exponent_entropy, f.mantissa_entropy, f.lmc_bits].map(|b| format!("{b:.3}"));
        let parts = [percent(f.zeros, f.elements), f.distinct_exponents.to_string()];
        let of_raw = percent(f.lmc_size, f.raw_size);
        has(&[&[name.to_owned()], &numbers[..], &[of_raw], &bits[..], &parts[..]].concat());
    }
    for g in &a.changes {
        let c = &g.change;
        let of = percent(c.changed, c.compared);
        let numbers = [c.largest_distance, c.delta_size, c.lmc_size].map(|n| n.to_string());
        let changed = [g.kind.name().into(), g.dtype.clone(), c.compared.to_string(), c.changed.to_string(), of];
        has(&[&changed[..], &numbers[..]].concat());
    }
    // To sort by, cells have their values.
    let sorted = parsed.elements.iter().filter(|e| e.0 == "td").filter_map(|e| e.1.iter().find(|a| a.0 == "data-v"));
    let values: Vec<f64> = sorted.map(|a| a.1.parse().unwrap()).collect();
    assert_eq!(values.len(), 9 * a.tensors.len());
    assert_eq!(values[0], a.tensors[0].figures.raw_size as f64);
    for sentence in &a.advice {
        assert!(html.contains(sentence), "{sentence}");
    }
    assert_eq!(page(&study(&run("", 3, 4))), html, "the same for the same files");
}

#[test]
fn states_of_adam_have_their_numbers() {
    let n = 3000;
    let noise = |seed| lmc_test_inputs::noise(n, seed).into_iter().map(|b| 1e-3 * (f32::from(b) - 127.5)).collect();
    let mut state: [Vec<f32>; 3] = [noise(1), vec![0.0; n], vec![0.0; n]];
    let checkpoint = |step: u64| {
        let gradients: Vec<f32> = noise(10 + step);
        for (i, g) in gradients.into_iter().enumerate() {
            let [w, m, v] = &mut state;
            m[i] += 0.1 * (g - m[i]);
            v[i] += 0.05 * (g * g - v[i]);
            w[i] -= 1e-3 * m[i] / (v[i].sqrt() + 1e-8);
        }
        let bytes = state.each_ref().map(|x| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let named = ["model.a.weight", "exp_avg.a.weight", "exp_avg_sq.a.weight"].into_iter().zip(&bytes);
        let tensors: Vec<_> = named.map(|(name, data)| (name, "F32", vec![n as u64], &data[..])).collect();
        (step, safetensors(&tensors))
    };
    let a = study(&Run((1..5).map(checkpoint).collect()));
    let parsed = parse(&page(&a));
    for p in &a.pairs {
        let adam = p.adam.unwrap();
        assert!(adam.elements == n as u64 && adam.explained > 0.9999, "{adam:?}");
        let gradient = adam.gradient.unwrap();
        assert!((0.01..0.99).contains(&gradient), "{adam:?}");
        let size = |kind| {
            p.groups.iter().find(|g| g.kind == kind).map_or((0, 0), |g| (g.change.delta_size, g.change.raw_size))
        };
        let sizes = [Kind::Weights, Kind::Master, Kind::ExpAvg, Kind::ExpAvgSq].map(size).map(|(n, of)| percent(n, of));
        let parts = [adam.explained, gradient].map(|x| percent((1e6 * x).round() as u64, 1_000_000));
        let row = [[a.checkpoints[p.to].step.to_string(), "1".to_owned()].as_slice(), &sizes, &parts].concat();
        assert!(parsed.cells.windows(row.len()).any(|cells| cells == row), "{row:?}");
    }
    assert!(page(&study(&run("", 1, 2))).matches("States of Adam").count() == 0, "there are none");
}

#[test]
fn nothing_is_loaded() {
    let parsed = parse(&page(&study(&run("", 2, 3))));
    for (name, attributes) in &parsed.elements {
        assert!(!["link", "img", "iframe", "object", "base"].contains(&&name[..]), "{name}");
        for (key, value) in attributes {
            assert!(!["src", "href", "style"].contains(&&key[..]) && !key.starts_with("on"), "{key}={value}");
        }
    }
    let policy = parsed.elements.iter().find(|e| e.1.iter().any(|a| a.1 == "Content-Security-Policy")).unwrap();
    let policy = &policy.1[1].1;
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    // What is not as it was written is not run: neither other scripts nor other styles.
    for (source, text) in [("script-src", &parsed.scripts[1]), ("style-src", &parsed.styles[0])] {
        let rule = format!("{source} 'sha256-{}';", sha256_in_base64(text));
        assert!(policy.contains(&rule), "page.rs needs {rule} in {policy}");
    }
    let html = page(&study(&run("", 2, 3)));
    assert!(
        !html.contains("http:") && !html.contains("https:") && !html.contains("//www") && !html.contains("@import")
    );
    assert!(!html.contains("url("));
}

/// As policies have it.
fn sha256_in_base64(text: &str) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let sum = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let digest: Vec<u32> = (0..64).step_by(2).map(|i| u32::from_str_radix(&sum[i..i + 2], 16).unwrap()).collect();
    let letter = |sextet: u32| match sextet {
        0..26 => (b'A' + sextet as u8) as char,
        26..52 => (b'a' + sextet as u8 - 26) as char,
        52..62 => (b'0' + sextet as u8 - 52) as char,
        62 => '+',
        _ => '/',
    };
    let letters = digest.chunks(3).flat_map(|c| {
        let bits = c.iter().fold(0, |bits, byte| bits << 8 | byte) << (24 - 8 * c.len());
        (0..=c.len()).map(move |i| letter(bits >> (18 - 6 * i) & 63))
    });
    letters.chain(['=']).collect()
}

#[test]
fn hostile_dtypes_are_text() {
    let dtype = "<img/src=x/onerror=alert(1)>";
    let file = |flip: u8| safetensors(&[("w", dtype, vec![8], &[flip; 16]), ("v", "F32", vec![2], &[0; 8])]);
    let a = study(&Run(vec![(1, file(0)), (2, file(1))]));
    assert_eq!(a.tensors[0].dtype, dtype);
    let parsed = parse(&page(&a));
    assert!(!parsed.elements.iter().any(|e| e.0 == "img") && parsed.cells.iter().any(|c| c.contains("&lt;img/src=x")));
    assert_eq!(embedded(&parsed)["tensors"][0]["dtype"], dtype);
}

#[test]
fn charts_have_their_numbers() {
    let a = study(&run("", 3, 4));
    let html = page(&a);
    // Five of training; magnitudes, deltas, deltas of floats, sizes and distances, each with a row for each of its points.
    assert_eq!(html.matches("<details><summary>Numbers</summary>").count(), 10);
    let weights = a.checkpoints[3].kinds.iter().find(|g| g.name == "weights").unwrap();
    let moments = a.checkpoints[3].kinds.iter().find(|g| g.name == "exp_avg").unwrap();
    let row = [&weights.figures, &moments.figures].map(|f| format!("<td>{:.3}", f.lmc_bits)).concat();
    assert!(html.contains(&format!("<tr><td>8{row}")), "{row}");
    // Their dtypes are not mixed, and lines differ by their marks.
    for kind in [0, 4] {
        assert!(html.contains(&format!("class=\"l s{kind}\"")) && html.contains(&format!("<path class=f{kind} ")));
    }
}

#[test]
fn distances_of_dtypes_are_not_pooled() {
    let (w, m) = (bf16s(600), f32s(600));
    let file = |w: &[u8], m: &[u8]| safetensors(&[("a.w", "BF16", vec![600], w), ("b.w", "F32", vec![600], m)]);
    let a = study(&Run(vec![(1, file(&w, &m)), (2, file(&flipped(&w, 2, 1, 2), &flipped(&m, 4, 9, 2)))]));
    let html = page(&a);
    assert!(html.contains("</svg>weights BF16</span>") && html.contains("</svg>weights F32</span>"));
    // Half of each moved, not a quarter of both.
    assert!(html.contains("weights BF16, 1: 50.0 %") && html.contains("weights F32, 9: 50.0 %"), "{html}");
}

#[test]
fn hostile_names_are_text() {
    // As they stand in the header's JSON.
    for name in [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "\\\"><svg onload=alert(1)>",
        "' onmouseover='alert(1)",
        "a\\nb\\u202ec\\u0000d<!--",
        "]]>&lt;`${x}`",
    ] {
        let harmless = parse(&page(&study(&run("", 2, 3))));
        let a = study(&run(name, 2, 3));
        let html = page(&a);
        let parsed = parse(&html);
        let names = |p: &Parsed| p.elements.iter().map(|e| e.0.clone()).collect::<Vec<_>>();
        assert_eq!(names(&parsed), names(&harmless), "{name}");
        assert_eq!(parsed.scripts.len(), 2);
        assert!(!html.contains('\u{202e}') && !html.contains('\0'), "{name}");
        assert_eq!(embedded(&parsed)["tensors"][0]["name"], a.tensors[0].name);
    }
}

#[test]
fn a_long_run_of_many_tensors_fits() {
    let mut a: Analysis = study(&run("model.a_rather_long_prefix.", 150, 3));
    assert_eq!(a.tensors.len(), 300);
    // As many checkpoints as a long run has, each a copy of an existing one.
    let (checkpoint, pair, delta) = (a.checkpoints[1].clone(), a.pairs[1].clone(), a.deltas[1].clone());
    for step in 3..50 {
        let mut c = checkpoint.clone();
        c.step = 1000 * step;
        a.checkpoints.push(c);
        let mut p = pair.clone();
        (p.from, p.to, p.steps) = (step as usize - 1, step as usize, 1000);
        a.pairs.push(p);
        a.deltas.push(delta.clone());
    }
    for t in &mut a.tensors {
        t.course.cosine.resize(49, Some(0.123_456));
    }
    let html = page(&a);
    assert!(html.len() <= 700_000, "{}", html.len());
    let parsed = parse(&html);
    assert!(parsed.cells.iter().filter(|c| c.contains("mlp.weight")).count() == 150);
    assert!(html.contains("lmc analyze --json"), "it says what it leaves out");
}
