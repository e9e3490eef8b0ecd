//! The charts of a study's page.

use lmc_inspect::text::percent;
use lmc_inspect::{Engine, EngineDistance, Engines, Kind, page};

use crate::analyze::{Run, study};
use crate::page::{parse, run};

/// The chart of a page with this title.
fn chart<'h>(html: &'h str, title: &str) -> &'h str {
    let caption = format!("<figcaption>{title}<");
    let found = html.split("<figure").find(|figure| figure.contains(&caption));
    found.unwrap_or_else(|| panic!("there is no chart {title:?}"))
}

/// The points of a line of a chart, as the table below it has them: those that the line lacks are left out.
pub(crate) fn points(html: &str, title: &str, line: &str) -> Vec<(String, String)> {
    let table = chart(html, title).split("<summary>Numbers</summary>").nth(1).expect("the chart has its numbers");
    let cells = |row: &str, tag: &str| {
        let tag = format!("<{tag}");
        let cells = row.split(&tag[..]).skip(1);
        cells.map(|c| c.split_once('>').unwrap().1.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (head, rows) = table.split_once("<tbody>").unwrap();
    let column = cells(head, "th scope").iter().position(|name| name == line);
    let column = column.unwrap_or_else(|| panic!("{title:?} has no line {line:?}"));
    let rows = rows.split("</tbody>").next().unwrap().split("<tr>").skip(1).map(|row| cells(row, "td"));
    rows.filter(|row| row[column] != "–").map(|row| (row[0].clone(), row[column].clone())).collect()
}

/// A point whose y is a part of a whole.
fn part(x: impl ToString, n: u64, of: u64) -> (String, String) {
    (x.to_string(), percent(n, of))
}

fn bits(x: impl ToString, bits: f64) -> (String, String) {
    (x.to_string(), format!("{bits:.3}"))
}

#[test]
fn numbers_are_those_of_the_study() {
    let a = study(&run("", 3, 4));
    let html = page(&a);
    let moved = [
        "How far weights move, ‖Δw‖ / ‖w‖",
        "How far the weights of each layer move, ‖Δw‖ / ‖w‖",
        "Cosine of successive updates",
        "RMS of the weights",
        "RMS of the updates",
    ];
    let titles = [
        "Entropy of the fields of an element, and what lmc makes of it (the line), in the last checkpoint",
        "Magnitudes of floats other than zero, in the last checkpoint",
        "Size of deltas by distance",
        "Deltas of floats, and the entropy H of their differences",
        "Size by itself",
        "How far elements moved",
        "F32: tensor × bit",
        "BF16: tensor × bit",
    ];
    let changed = "Elements that changed since the checkpoint before";
    assert_eq!(parse(&html).titles(), [&moved[..], &[changed], &titles].concat());

    let mut fields = chart(&html, titles[0]);
    for g in a.checkpoints[3].kinds.iter().filter(|g| g.name != "other") {
        let f = &g.figures;
        let saved = f.element_bits - f.sign_entropy - f.exponent_entropy - f.mantissa_entropy;
        let all = [
            ("sign", f.sign_entropy),
            ("exponent", f.exponent_entropy),
            ("mantissa", f.mantissa_entropy),
            ("saved", saved),
            ("lmc", f.lmc_bits),
        ];
        for (name, bits) in all {
            let title = format!("<title>{name}: {bits:.3} bits</title>");
            fields = fields.split_once(&title).unwrap_or_else(|| panic!("{}: {title}", g.name)).1;
        }
    }
    for g in &a.magnitudes {
        let all = g.counts.iter().sum();
        let expected: Vec<_> = (g.lowest..).zip(&g.counts).map(|(x, &n)| part(x, n, all)).collect();
        let found = points(&html, titles[1], g.kind.name());
        assert!(expected.iter().all(|p| found.contains(p)) && found.len() == expected.len(), "{found:?}");
    }
    let distances = |line: &str, of: &dyn Fn(usize) -> (u64, u64)| {
        let expected: Vec<_> = (0..a.distances.len()).map(|i| part(a.distances[i].steps, of(i).0, of(i).1)).collect();
        let title = if ["lmc", "H"].contains(&line) { titles[3] } else { titles[2] };
        assert_eq!(points(&html, title, line), expected, "{line}");
    };
    distances("all", &|i| (a.distances[i].delta_size, a.distances[i].raw_size));
    distances("lmc", &|i| (a.distances[i].floats.delta_size, a.distances[i].floats.raw_size));
    distances("H", &|i| (a.distances[i].floats.entropy_size, a.distances[i].floats.raw_size));
    for kind in [Kind::Weights, Kind::ExpAvg] {
        let name = kind.name();
        distances(name, &|i| {
            let g = a.distances[i].groups.iter().find(|g| g.kind == kind).unwrap();
            (g.delta_size, g.raw_size)
        });
        let of_pairs = a.pairs.iter().map(|p| {
            let g = p.groups.iter().find(|g| g.kind == kind).unwrap();
            part(a.checkpoints[p.to].step, g.change.changed, g.change.compared)
        });
        assert_eq!(points(&html, changed, name), of_pairs.collect::<Vec<_>>());
        let each = a.checkpoints.iter().map(|c| {
            let g = c.kinds.iter().find(|g| g.name == name).unwrap();
            bits(c.step, g.figures.lmc_bits)
        });
        assert_eq!(points(&html, titles[4], name), each.collect::<Vec<_>>());
        let change = &a.changes.iter().find(|g| g.kind == kind).unwrap().change;
        let moved = points(&html, titles[5], name);
        let expected: Vec<_> = (0..).zip(&change.distances).map(|(i, &n)| part(i, n, change.compared)).collect();
        assert_eq!(moved, expected);
    }
    for t in &a.tensors {
        let c = t.change.as_ref().unwrap();
        let highest = c.flips.iter().copied().max().unwrap();
        let most = c.flips.iter().position(|&n| n == highest).unwrap();
        let said = format!(
            "{}: bit {most} most: {}; highest that changed: {}",
            t.name,
            part(0, highest, c.compared).1,
            c.flips.iter().rposition(|&n| n > 0).unwrap()
        );
        assert!(chart(&html, &format!("{}: tensor × bit", t.dtype)).contains(&said), "{said}");
    }
}

fn engine(name: &str, [order, given]: [&str; 2], size: u64, speeds: [f64; 2]) -> Engine {
    Engine {
        name: name.to_owned(),
        order: order.to_owned(),
        given: given.to_owned(),
        raw_size: 1000,
        size,
        compress_of_memcpy: speeds[0],
        decompress_of_memcpy: speeds[1],
        compress_spread: Some(0.03),
        decompress_spread: None,
    }
}

#[test]
fn sizes_and_speeds_of_engines() {
    let mut a = study(&run("", 2, 3));
    let all = vec![
        engine("lmc default", ["as is", "nothing"], 660, [0.2, 0.5]),
        engine("lmc default", ["as is", "base"], 80, [0.1, 0.25]),
        engine("zstd 3", ["as is", "nothing"], 930, [0.05, 0.1]),
        engine("zstd 3", ["grouped", "nothing"], 710, [0.02, 0.125]),
        engine("zstd 3", ["as is", "xor"], 400, [0.01, 0.05]),
        engine("zstd 3", ["grouped", "xor"], 150, [0.03, 0.0625]),
    ];
    a.engines =
        Some(Engines { of: "F32 of c".to_owned(), sample_size: 1000, pieces: 1, engines: all, ..Engines::default() });
    let html = page(&a);
    let titles = ["Size and speed of compression", "Size and speed of decompression"];
    let points = [
        ("lmc default (lmc): 66.0 %", ["0.20", "0.50"]),
        ("lmc default with base (lmc): 8.0 %", ["0.10", "0.25"]),
        ("zstd 3 (as is): 93.0 %", ["0.050", "0.10"]),
        ("zstd 3 (grouped): 71.0 %", ["0.020", "0.12"]),
        ("zstd 3 (xor): 40.0 %", ["0.010", "0.050"]),
        ("zstd 3 (xor, grouped): 15.0 %", ["0.030", "0.062"]),
    ];
    for (i, title) in titles.into_iter().enumerate() {
        let chart = chart(&html, title);
        for (point, speeds) in points {
            let point = format!("<title>{point}, {}</title>", speeds[i]);
            assert!(chart.contains(&point), "{title}: {point}: {chart}");
        }
        assert_eq!(chart.matches("<title>").count(), points.len());
    }
    assert!(
        html.contains(">lmc default with base</text>")
            && html.contains("<td data-v=0.2>0.20 ± 3.0 %<td data-v=0.5>0.50<")
    );
    assert!(!html.contains(">zstd 3</text>"), "lmc outdoes it");
    // One point, and speeds that could not be measured, show nothing.
    a.engines.as_mut().unwrap().engines.truncate(1);
    assert!(!parse(&page(&a)).titles().iter().any(|title| titles.contains(&&title[..])));
}

#[test]
fn deltas_of_samples_by_distance() {
    let mut a = study(&run("", 2, 3));
    let of = |steps, sizes: [u64; 3], grouped| EngineDistance {
        steps,
        deltas: 2,
        raw_size: 1000,
        lmc_size: sizes[0],
        entropy_size: Some(sizes[1]),
        xor_size: sizes[2],
        xor_grouped_size: grouped,
    };
    let distances = vec![of(1, [81, 77, 403], Some(202)), of(4, [92, 89, 511], Some(307))];
    let xor_by = "zstd 1".to_owned();
    a.engines =
        Some(Engines { of: "F32 of c".to_owned(), sample_size: 1000, pieces: 1, xor_by, distances, engines: vec![] });
    let html = page(&a);
    let title = "Deltas of samples by lmc, by another compressor on the XOR, and the entropy H";
    let lines = [("lmc", [81, 92]), ("XOR, zstd 1", [403, 511]), ("XOR, grouped, zstd 1", [202, 307]), ("H", [77, 89])];
    for (line, sizes) in lines {
        assert_eq!(points(&html, title, line), [part(1, sizes[0], 1000), part(4, sizes[1], 1000)], "{line}");
    }
    for row in ["<td>1<td>2<td>1000<td>81<td>403<td>202<td>77", "<td>4<td>2<td>1000<td>92<td>511<td>307<td>89"] {
        assert!(html.contains(&format!("<tr>{row}")), "{row}");
    }
    // Nothing is grouped where elements are bytes, and integers have no entropy.
    for d in &mut a.engines.as_mut().unwrap().distances {
        (d.xor_grouped_size, d.entropy_size) = (None, None);
    }
    let html = page(&a);
    assert_eq!(chart(&html, title).matches("<title>").count(), 4);
    assert!(html.contains("<tr><td>4<td>2<td>1000<td>92<td>511<td>–<td>–"));
}

/// Lines of one kind, of one colour, differ by their dashes.
#[test]
fn dtypes_of_a_kind_are_told_apart() {
    let mut a = study(&run("", 2, 3));
    let group = a.changes.iter().find(|g| g.kind == Kind::Weights).unwrap().clone();
    a.changes = vec![group; 3];
    a.changes.iter_mut().zip(["BF16", "F16", "F32"]).for_each(|(g, dtype)| g.dtype = dtype.to_owned());
    let html = page(&a);
    let chart = chart(&html, "How far elements moved");
    for name in ["weights BF16", "weights F16", "weights F32"] {
        assert!(chart.contains(&format!("</svg>{name}</span>")), "{name}: {chart}");
    }
    // In the chart, and in the legend.
    for class in ["l s0", "l s0 d1 v", "l s0 d2 v"] {
        assert_eq!(chart.matches(&format!("<path class=\"{class}\"")).count(), 2, "{class}: {chart}");
    }
}

/// Two rows of a heat map stay two where their names are the same.
#[test]
fn rows_of_one_name_are_kept_apart() {
    let mut a = study(&run("", 2, 3));
    a.tensors.iter_mut().for_each(|t| t.name = "w".to_owned());
    let html = page(&a);
    assert_eq!(chart(&html, "F32: tensor × bit").matches("<title>w: bit ").count(), 2);
}

#[test]
fn nothing_to_draw_is_no_chart() {
    let file = crate::safetensors(&[("empty", "F32", vec![0], &[])]);
    let html = page(&study(&Run(vec![(0, file.clone()), (1, file)])));
    let [fields] = &parse(&html).titles()[..] else { panic!("{html}") };
    assert!(fields.starts_with("Entropy of the fields") && !html.contains("<rect class=f"), "{html}");
}
