//! The report as text.

use std::io::{self, Write};
use std::path::Path;

use lmc::Dtype;
use lmc_inspect::{Changes, Compared, DiffSums, SegmentDiff};

use crate::cmd::list::{Between, display_name};
use crate::ui::format::{Name, bytes, percent};
use crate::ui::table::Table;

const HEADINGS: [&str; 12] =
    ["tensor", "dtype", "shape", "state", "changed", "median", "90 %", "99 %", "max", "bits", "alone", "predictor"];

pub(super) fn write(c: &Compared<'_>, [old, new]: [&Path; 2], verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} since {}", Name::path(new), Name::path(old))?;
    let mut rows = Table::new(&HEADINGS, &[4, 5, 6, 7, 8, 9, 10]);
    for (_, diff) in &c.new {
        let between = match verbose {
            true => Between::default(),
            false => Between::of(diff.segments.iter().map(|s| &s.segment)),
        };
        let shown = diff.segments.iter().filter(|s| s.segment.len > 0 || s.segment.name.is_some());
        for s in shown.filter(|s| !between.hides(&s.segment)) {
            rows.add_row(match between.is_first(&s.segment) {
                true => row_of_all(&between, diff.segments.iter().filter(|s| s.segment.name.is_none())),
                false => row(c, s),
            });
        }
    }
    for &place in &c.missing {
        let s = c.old_segment(place);
        let mut row = vec![display_name(s), dtype(s.dtype.as_ref()), format!("{:?}", s.shape), "missing".to_owned()];
        row.resize(HEADINGS.len(), "-".to_owned());
        rows.add_row(row);
    }
    rows.write_to(out)?;
    if verbose {
        histograms(c).write_to(out)?;
    }
    let dtypes = c.sums(|s| s.segment.dtype);
    if dtypes.len() > 1 {
        by_dtype(dtypes.iter()).write_to(out)?;
    }
    let (states, missing) = c.states();
    let states = states.into_iter().map(|(state, n)| (n, state.words()));
    let states = states.chain((missing > 0).then_some((missing, "missing")));
    let states: Vec<String> = states.map(|(n, state)| format!("{n} {state}")).collect();
    let all = c.sums(|_| ()).remove(&()).unwrap_or_default();
    // Distances of different dtypes are not those of one thing.
    let distances = distances(&all.changes).filter(|_| dtypes.len() == 1);
    writeln!(
        out,
        "\n{}\nchanged: {} of {} elements that can be compared, of {}{}",
        if states.is_empty() { "no tensors".to_owned() } else { format!("tensors: {}", states.join(", ")) },
        percent(all.changes.changed, all.changes.compared),
        all.changes.compared,
        all.elements,
        distances.map_or(String::new(), |[m, p90, p99, max]| {
            format!("; distance: median {m}, 90 % {p90}, 99 % {p99}, max {max}")
        }),
    )?;
    let [raw, delta, alone] = c.sizes();
    writeln!(
        out,
        "compressed: {} with the base ({} => {}), {} without ({})",
        percent(delta, raw),
        bytes(raw),
        bytes(delta),
        percent(alone, raw),
        bytes(alone),
    )
}

fn row(c: &Compared<'_>, s: &SegmentDiff) -> Vec<String> {
    let shape = if s.segment.name.is_some() { format!("{:?}", s.segment.shape) } else { "-".to_owned() };
    let mut row = vec![display_name(&s.segment), dtype(s.segment.dtype.as_ref()), shape];
    row.push(Name::text(&c.state(s, |shape| format!("{shape:?}"))).to_string());
    row.extend(figures(&s.changes, s.bits()));
    row.push(predictor(s));
    row
}

/// The changed part, distances, and bits of an element.
fn figures(c: &Changes, bits: Option<[f64; 2]>) -> impl Iterator<Item = String> {
    let none = || "-".to_owned();
    let distances = distances(c).unwrap_or_else(|| std::array::from_fn(|_| none()));
    let bits = bits.map_or_else(|| [none(), none()], |bits| bits.map(|b| format!("{b:.3}")));
    [percent(c.changed, c.compared)].into_iter().chain(distances).chain(bits)
}

/// The row of all ranges of no tensor in a file.
fn row_of_all<'s>(between: &Between, ranges: impl Iterator<Item = &'s SegmentDiff>) -> Vec<String> {
    let mut all = DiffSums::default();
    ranges.for_each(|s| all.add(s));
    // They are bytes without an order.
    all.changes.levels.clear();
    let mut row = vec![between.to_string(), "-".to_owned(), "-".to_owned(), "-".to_owned()];
    row.extend(figures(&all.changes, all.bits()));
    row.push("-".to_owned());
    row
}

/// A row for each dtype.
fn by_dtype<'s>(sums: impl Iterator<Item = (&'s Option<Dtype>, &'s DiffSums)>) -> Table {
    let mut rows = Table::new(
        &["all of", "tensors", "changed", "median", "90 %", "99 %", "max", "bits", "alone"],
        &[1, 2, 3, 4, 5, 6, 7, 8],
    );
    for (d, s) in sums {
        rows.add_row([dtype(d.as_ref()), s.segments.to_string()].into_iter().chain(figures(&s.changes, s.bits())));
    }
    rows
}

/// How the distances of each tensor are distributed.
fn histograms(c: &Compared<'_>) -> Table {
    let mut rows = Table::new(&["tensor", "unchanged", "changed by 2^0, 2^1, …", "to"], &[1]);
    for s in c.new.iter().flat_map(|(_, d)| &d.segments).filter(|s| !s.changes.levels.is_empty()) {
        rows.add_row([
            display_name(&s.segment),
            percent(s.changes.compared - s.changes.changed, s.changes.compared),
            bars(&s.changes.levels),
            format!("2^{}", s.changes.levels.len() - 1),
        ]);
    }
    rows
}

fn dtype(d: Option<&Dtype>) -> String {
    d.map_or("-", Dtype::name).to_owned()
}

/// Median, 90 %, 99 % and largest distance as powers of two; `None` where nothing changed, or values have no order.
fn distances(c: &Changes) -> Option<[String; 4]> {
    let power = |q| c.quantile(q).map(|level| format!("2^{level}"));
    Some([power(0.5)?, power(0.9)?, power(0.99)?, power(1.0)?])
}

/// The predictor of most bytes.
fn predictor(s: &SegmentDiff) -> String {
    let Some(c) = s.coded.first() else { return "-".to_owned() };
    let from = if c.from_itself { " (this file)" } else { "" };
    let share = if s.coded.len() > 1 {
        format!(" {:.0} %", 100.0 * c.raw_len as f64 / s.segment.len as f64)
    } else {
        String::new()
    };
    format!("{}{from}{share}", c.predictor.unwrap_or("-"))
}

/// Counts as bars; the largest count is a full bar.
fn bars(counts: &[u64]) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = u128::from(counts.iter().copied().max().unwrap_or(0).max(1));
    counts.iter().map(|&n| BARS[(u128::from(n) * 8).div_ceil(largest) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_all_that_is_there() {
        assert_eq!(bars(&[0, 1, 50, 100]), " ▁▄█");
        assert_eq!(bars(&[u64::MAX]), "█");
        assert_eq!(bars(&[]), "");
    }
}
