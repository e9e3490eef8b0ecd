//! Sizes and speeds of other compressors.

use crate::analyze::result::{Analysis, Engine};
use crate::page::chart::{Group, Point, Scatter};

const ABOUT: &str = "Smaller is to the left, faster is above. Names stand beside what nothing else outdoes in both.";

/// What is compressed, and the number of its colour.
const GROUPS: [(&str, usize); 5] =
    [("lmc", LMC), ("as is", 1), ("grouped", 2), ("xor", XOR), ("xor, grouped", XOR_GROUPED)];
/// The numbers of colours, here and elsewhere.
pub(super) const LMC: usize = 0;
pub(super) const XOR: usize = 3;
pub(super) const XOR_GROUPED: usize = 5;

/// Size against the speed of compression, and of decompression.
pub(super) fn plots(a: &Analysis) -> Vec<Scatter> {
    let Some(engines) = &a.engines else { return vec![] };
    let plots = [
        plot(&engines.engines, "Size and speed of compression", |e| e.compress_of_memcpy),
        plot(&engines.engines, "Size and speed of decompression", |e| e.decompress_of_memcpy),
    ];
    plots.into_iter().filter(|plot| plot.points().count() > 1).collect()
}

fn plot(engines: &[Engine], title: &'static str, speed: impl Fn(&Engine) -> f64) -> Scatter {
    let group = |(name, colour): (&'static str, usize)| {
        let of = engines.iter().filter(|e| group_of(e) == name);
        let of = of.filter(|e| e.raw_size > 0 && speed(e) > 0.0);
        let point = |e: &Engine| Point { name: name_of(e), x: e.size as f64 / e.raw_size as f64, y: speed(e) };
        Group { name, colour, points: of.map(point).collect() }
    };
    let groups = GROUPS.map(group).into_iter().filter(|g| !g.points.is_empty()).collect();
    Scatter { title, about: ABOUT, x: "% of raw size", y: "speed of memcpy, log scale", groups }
}

fn group_of(e: &Engine) -> &'static str {
    match (e.name.starts_with("lmc"), &e.given[..], &e.order[..]) {
        (true, ..) => "lmc",
        (_, "xor", "grouped") => "xor, grouped",
        (_, "xor", _) => "xor",
        (.., "grouped") => "grouped",
        _ => "as is",
    }
}

/// What distinguishes it from others of its colour.
fn name_of(e: &Engine) -> String {
    match &e.given[..] {
        "base" => format!("{} with base", e.name),
        _ => e.name.clone(),
    }
}
