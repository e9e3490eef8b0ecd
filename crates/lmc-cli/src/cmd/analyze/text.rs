//! Prints a summary of the findings.

use std::io::{self, Write};

use lmc_inspect::text::two_digits;
use lmc_inspect::{Analysis, Engines, Figures};

use crate::ui::format::{Name, bytes, count, percent};
use crate::ui::table::Table;

/// Writes the most important figures: the last checkpoint by kind and dtype, and the changes.
pub(super) fn write(a: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let Some(last) = a.checkpoints.last() else { return Ok(()) };
    writeln!(
        out,
        "{}: {}, {} => {} ({})",
        Name::text(&last.name),
        count(last.all.tensors, "tensor"),
        bytes(last.all.raw_size),
        bytes(last.all.lmc_size),
        percent(last.all.lmc_size, last.all.raw_size),
    )?;
    let mut rows = Table::new(
        &["", "tensors", "raw", "lmc", "of raw", "bits", "sign", "exponent", "mantissa", "lmc bits", "zeros"],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    );
    for group in last.kinds.iter().chain(&last.dtypes) {
        rows.add_row(row(&Name::text(&group.name).to_string(), &group.figures));
    }
    rows.add_row(row("all", &last.all));
    rows.write_to(out)?;
    let since = match a.pairs.len() {
        1 => "since the checkpoint before".to_owned(),
        n => format!("all {n} pairs of neighbours"),
    };
    let mut rows =
        Table::new(&[&since, "dtype", "changed", "same tensors", "delta", "of raw", "without"], &[2, 3, 4, 5, 6]);
    for g in &a.changes {
        let c = &g.change;
        rows.add_row([
            g.kind.name().to_owned(),
            Name::text(&g.dtype).to_string(),
            percent(c.changed, c.compared),
            format!("{} of {}", c.unchanged_tensors, c.tensors),
            bytes(c.delta_size),
            percent(c.delta_size, c.raw_size),
            percent(c.lmc_size, c.raw_size),
        ]);
    }
    rows.write_to(out)?;
    let distance = format!("distance in {}s", a.steps_from.unit());
    let mut rows = Table::new(&[&distance, "deltas", "of raw", "of floats", "H of floats"], &[0, 1, 2, 3, 4]);
    for d in &a.distances {
        let f = &d.floats;
        rows.add_row([
            d.steps.to_string(),
            d.deltas.to_string(),
            percent(d.delta_size, d.raw_size),
            percent(f.delta_size, f.raw_size),
            percent(f.entropy_size, f.raw_size),
        ]);
    }
    rows.write_to(out)?;
    training(a, out)?;
    if let Some(e) = &a.engines {
        engines(e, out)?;
    }
    writeln!(out)?;
    a.advice.iter().try_for_each(|sentence| writeln!(out, "{sentence}"))
}

/// How far the weights moved: the median of all pairs, and the last one.
fn training(a: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = Table::new(&["moved", "RMS", "|update| / |w|", "last", "cosine", "last"], &[1, 2, 3, 4, 5]);
    let spelled = |x: Option<f32>| x.map_or("-".to_owned(), |x| format!("{x:.2e}"));
    for k in a.kinds.iter().filter(|k| k.course.ratio.iter().any(Option::is_some)) {
        let c = &k.course;
        let last = |of: &[Option<f32>]| spelled(of.last().copied().flatten());
        let median = |of: &[Option<f32>]| {
            let mut known: Vec<f32> = of.iter().flatten().copied().collect();
            known.sort_by(f32::total_cmp);
            spelled(known.get(known.len() / 2).copied())
        };
        rows.add_row([
            k.name.clone(),
            last(&c.rms),
            median(&c.ratio),
            last(&c.ratio),
            median(&c.cosine),
            last(&c.cosine),
        ]);
    }
    rows.write_to(out)
}

/// Other compressors on a sample.
fn engines(all: &Engines, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\non {} of {}; speeds relative to copying", bytes(all.sample_size), Name::text(&all.of))?;
    let mut rows = Table::new(&["engine", "bytes", "given", "of raw", "compress", "decompress"], &[3, 4, 5]);
    for e in &all.engines {
        rows.add_row([
            e.name.clone(),
            e.order.clone(),
            e.given.clone(),
            percent(e.size, e.raw_size),
            two_digits(e.compress_of_memcpy),
            two_digits(e.decompress_of_memcpy),
        ]);
    }
    rows.write_to(out)
}

fn row(name: &str, f: &Figures) -> [String; 11] {
    let bits = |b: f64| format!("{b:.2}");
    [
        name.to_owned(),
        f.tensors.to_string(),
        bytes(f.raw_size),
        bytes(f.lmc_size),
        percent(f.lmc_size, f.raw_size),
        bits(f.element_bits),
        bits(f.sign_entropy),
        bits(f.exponent_entropy),
        bits(f.mantissa_entropy),
        bits(f.lmc_bits),
        percent(f.zeros, f.elements),
    ]
}
