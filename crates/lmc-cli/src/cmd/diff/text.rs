//! The report as text.

use std::io::{self, Write};
use std::path::Path;

use lmc_inspect::{Changes, Relation, SegmentDiff};

use super::report::{Report, bits};
use crate::cmd::list::{Between, display_name};
use crate::format::{Name, bytes, percent};
use crate::table::Table;

const HEADINGS: [&str; 12] =
    ["tensor", "dtype", "shape", "state", "changed", "median", "90 %", "99 %", "max", "bits", "alone", "predictor"];

impl Report {
    pub(super) fn write_text(&self, old: &Path, new: &Path, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        let t = &self.total;
        writeln!(out, "{} since {}", Name::path(new), Name::path(old))?;
        let mut rows = Table::new(&HEADINGS, &[4, 5, 6, 7, 8, 9, 10]);
        for (_, diff) in &self.new {
            let between = match verbose {
                true => Between::default(),
                false => Between::of(diff.segments.iter().map(|s| &s.segment)),
            };
            let shown = diff.segments.iter().filter(|s| s.segment.len > 0 || s.segment.name.is_some());
            for s in shown.filter(|s| !between.hides(&s.segment)) {
                rows.add_row(match between.is_first(&s.segment) {
                    true => self.row_of_all(&between, diff.segments.iter().filter(|s| s.segment.name.is_none())),
                    false => self.row(s),
                });
            }
        }
        for &(base, i) in &self.missing {
            let s = &self.old[base].segments()[i];
            let mut row = vec![display_name(s), dtype(s), format!("{:?}", s.shape), "missing".to_owned()];
            row.resize(HEADINGS.len(), "-".to_owned());
            rows.add_row(row);
        }
        rows.write_to(out)?;
        if verbose {
            self.histograms().write_to(out)?;
        }
        let states: Vec<String> = self.states().iter().map(|(s, n)| format!("{n} {}", spelled(s))).collect();
        writeln!(
            out,
            "\n{}\nchanged: {} of {} elements that can be compared, of {}{}",
            if states.is_empty() { "no tensors".to_owned() } else { format!("tensors: {}", states.join(", ")) },
            percent(t.changes.changed, t.changes.compared),
            t.changes.compared,
            t.elements,
            distances(&t.changes).map_or(String::new(), |[m, p90, p99, max]| {
                format!("; distance: median {m}, 90 % {p90}, 99 % {p99}, max {max}")
            }),
        )?;
        writeln!(
            out,
            "compressed: {} with the base ({} => {}), {} without ({})",
            percent(t.delta_size, t.raw_size),
            bytes(t.raw_size),
            bytes(t.delta_size),
            percent(t.alone_size, t.raw_size),
            bytes(t.alone_size),
        )
    }

    fn row(&self, s: &SegmentDiff) -> Vec<String> {
        let tensor = s.segment.name.is_some();
        let none = || "-".to_owned();
        let [median, p90, p99, max] = distances(&s.changes).unwrap_or([none(), none(), none(), none()]);
        let bits = |n| bits(n, &s.segment).map_or(none(), |b| format!("{b:.3}"));
        vec![
            display_name(&s.segment),
            dtype(&s.segment),
            if tensor { format!("{:?}", s.segment.shape) } else { none() },
            self.state(s),
            percent(s.changes.changed, s.changes.compared),
            median,
            p90,
            p99,
            max,
            bits(s.delta_size),
            bits(s.alone_size),
            predictor(s),
        ]
    }

    /// The row of all ranges of no tensor in a file.
    fn row_of_all<'s>(&self, between: &Between, ranges: impl Iterator<Item = &'s SegmentDiff>) -> Vec<String> {
        let (mut changed, mut compared, mut len, mut delta, mut alone) = (0, 0, 0, 0, 0);
        for s in ranges {
            changed += s.changes.changed;
            compared += s.changes.compared;
            len += s.segment.len;
            delta += s.delta_size;
            alone += s.alone_size;
        }
        let bits = |n: u64| format!("{:.3}", 8.0 * n as f64 / len as f64);
        let mut row = vec![between.to_string(), "-".to_owned(), "-".to_owned(), "-".to_owned()];
        row.push(percent(changed, compared));
        row.resize(9, "-".to_owned());
        row.extend([bits(delta), bits(alone), "-".to_owned()]);
        row
    }

    /// The state of a tensor, and its earlier name, shape or dtype if that differs.
    fn state(&self, s: &SegmentDiff) -> String {
        let Some((base, i)) = s.counterpart else { return spelled(s.relation.name()).to_owned() };
        let old = &self.old[base].segments()[i];
        let name = spelled(s.relation.name());
        match s.relation {
            Relation::Renamed => format!("{name}, was {}", display_name(old)),
            Relation::Retyped => format!("{name}, was {}", dtype(old)),
            Relation::Reshaped | Relation::Resized => format!("{name}, was {:?}", old.shape),
            _ => name.to_owned(),
        }
    }

    /// How the distances of each tensor are distributed.
    fn histograms(&self) -> Table {
        let mut rows = Table::new(&["tensor", "unchanged", "changed by 2^0, 2^1, …", "to"], &[1]);
        for s in self.new.iter().flat_map(|(_, d)| &d.segments).filter(|s| !s.changes.levels.is_empty()) {
            rows.add_row([
                display_name(&s.segment),
                percent(s.changes.compared - s.changes.changed, s.changes.compared),
                bars(&s.changes.levels),
                format!("2^{}", s.changes.levels.len() - 1),
            ]);
        }
        rows
    }
}

fn dtype(s: &lmc::Segment) -> String {
    s.dtype.as_ref().map_or("-", lmc::Dtype::name).to_owned()
}

fn spelled(state: &str) -> &str {
    if state == "retyped" { "re-typed" } else { state }
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
