//! Other compressors, where they were measured.

use std::fmt::Write;

use crate::analyze::charts::Charts;
use crate::analyze::input::PAIRS;
use crate::analyze::result::{Analysis, EngineDistance, Engines};
use crate::page::begin_table;
use crate::page::html::{escaped, table};
use crate::text::{bytes, percent, share, two_digits};

pub(super) fn write(a: &Analysis, charts: &Charts<'_>, out: &mut String) {
    let Some(engines) = &a.engines else { return };
    let _ = write!(
        out,
        "<h2>Other compressors</h2><p class=dim>On {} of {}: {}. In memory, one thread; medians of as \
         many rounds as 0.2 seconds have room for, of one at least. Speeds are relative to copying the same bytes just before, with two \
         significant digits, and ± what a half of the rounds was within. “xor”: XOR with the tensor of the checkpoint before; “grouped”: all \
         first bytes of elements, then all second bytes, and so on.</p>",
        bytes(engines.sample_size),
        escaped(&engines.of),
        match engines.pieces {
            1 => "all of them".to_owned(),
            n => format!("{n} evenly spread pieces"),
        }
    );
    if !charts.engines.is_empty() {
        out.push_str("<div class=charts>");
        charts.engines.iter().for_each(|plot| plot.write(out));
        out.push_str("</div>");
    }
    begin_table(
        &["engine", "bytes", "given"],
        &["size, bytes", "of raw", "compress, of memcpy", "decompress, of memcpy"],
        None,
        out,
    );
    for e in &engines.engines {
        let _ = write!(
            out,
            "<tr><td class=l>{}<td class=l>{}<td class=l>{}<td data-v={size}>{size}<td data-v={size}>{}\
             <td data-v={compress}>{}<td data-v={decompress}>{}",
            escaped(&e.name),
            escaped(&e.order),
            escaped(&e.given),
            percent(e.size, e.raw_size),
            with_spread(e.compress_of_memcpy, e.compress_spread),
            with_spread(e.decompress_of_memcpy, e.decompress_spread),
            size = e.size,
            compress = e.compress_of_memcpy,
            decompress = e.decompress_of_memcpy,
        );
    }
    out.push_str("</tbody></table></div>");
    distances(a, engines, out);
}

/// A median, and how far a half of the rounds was from it.
fn with_spread(speed: f64, spread: Option<f64>) -> String {
    spread.map_or_else(|| two_digits(speed), |part| format!("{} ± {}", two_digits(speed), share(part)))
}

/// The samples of each distance.
fn distances(a: &Analysis, engines: &Engines, out: &mut String) {
    if engines.distances.is_empty() {
        return;
    }
    let size = |n: Option<u64>| n.map_or("–".to_owned(), |n| n.to_string());
    let row = |d: &EngineDistance| {
        let first = [d.steps, d.deltas, d.raw_size, d.lmc_size, d.xor_size].map(|n| n.to_string());
        first.into_iter().chain([size(d.xor_grouped_size), size(d.entropy_size)]).collect()
    };
    let (distance, by) = (format!("distance in {}s", a.steps_from.unit()), &engines.xor_by);
    let (xor, grouped) = (format!("XOR, {by}, bytes"), format!("XOR, grouped, {by}, bytes"));
    let heads = [&distance[..], "samples", "raw bytes", "lmc, bytes", &xor, &grouped, "H, bytes"];
    let caption = format!("Deltas of samples by distance, added up: of at most {PAIRS} pairs of each");
    table(&caption, &[], &heads, engines.distances.iter().map(row), out);
}
