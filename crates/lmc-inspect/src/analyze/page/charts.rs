//! The charts of a page, and their numbers.

use std::fmt::Write;

use crate::analyze::charts::Charts;
use crate::analyze::result::Analysis;
use crate::page::svg::bars;
use crate::spelled::percent;

pub(super) fn write(a: &Analysis, charts: &Charts, out: &mut String) {
    out.push_str("<h2>Where the bits go</h2>");
    where_bits_go(a, charts, out);
    if a.checkpoints.len() < 2 {
        return;
    }
    let _ = write!(out, "<h2>From {0} to {0}</h2><div class=charts>", a.steps_from.unit());
    charts.steps.iter().for_each(|(_, lines)| lines.write(out));
    out.push_str("</div>");
    distances(a, out);
}

fn where_bits_go(a: &Analysis, charts: &Charts, out: &mut String) {
    let Some(last) = a.checkpoints.last() else { return };
    bars(&charts.fields, out);
    out.push_str(
        "<p class=dim>Grey is what an ideal code saves that knows how often each value of a field occurs in its tensor. \
         What it takes to know that is not counted: in small tensors it is as much as grey, or more. lmc may need less \
         than the code: it also uses earlier tensors of the same file. Sizes of kinds, dtypes and tensors are their \
         shares of blocks that may have several; those of checkpoints and deltas are those of whole files.</p>",
    );
    let _ = write!(out, "<div class=t0><table><thead><tr><th class=l>kind or dtype");
    for head in [
        "tensors",
        "elements",
        "raw bytes",
        "lmc bytes",
        "of raw",
        "sign, bits",
        "exponent, bits",
        "mantissa, bits",
        "lmc, bits",
        "zeros",
        "exponents",
    ] {
        let _ = write!(out, "<th>{head}");
    }
    out.push_str("</thead><tbody>");
    let all = [("all", &last.all)];
    let groups = last.kinds.iter().chain(&last.dtypes).map(|g| (&g.name[..], &g.figures));
    for (name, f) in groups.chain(all) {
        let _ = write!(
            out,
            "<tr><td class=l>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.3}<td>{:.3}<td>{:.3}<td>{:.3}<td>{}<td>{}",
            crate::page::html::escaped(name),
            f.tensors,
            f.elements,
            f.raw_size,
            f.lmc_size,
            percent(f.lmc_size, f.raw_size),
            f.sign_entropy,
            f.exponent_entropy,
            f.mantissa_entropy,
            f.lmc_bits,
            percent(f.zeros, f.elements),
            f.distinct_exponents
        );
    }
    out.push_str("</tbody></table></div>");
}

/// The deltas by distance, in numbers.
fn distances(a: &Analysis, out: &mut String) {
    let _ = write!(
        out,
        "<div class=t0><table><thead><tr><th>distance in {}s<th>deltas<th>raw bytes<th>delta bytes<th>of raw</thead><tbody>",
        a.steps_from.unit()
    );
    for d in &a.distances {
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}",
            d.steps,
            d.deltas,
            d.raw_size,
            d.delta_size,
            percent(d.delta_size, d.raw_size)
        );
    }
    out.push_str("</tbody></table></div>");
}
