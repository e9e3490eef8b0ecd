//! The charts of a study as Vega-Lite specifications.

use lmc_inspect::{Analysis, Engine, EngineDistance, Engines, GroupChange, Kind, page, vega, vega_names};
use serde_json::{Value, json};

use crate::analyze::{Run, study};
use crate::page::{parse, run};

/// The charts of a study, each with its name. Checks that the data has every encoded field, and no missing value.
fn charts(a: &Analysis) -> Vec<(String, Value)> {
    let all = vega(a);
    assert_eq!(all, vega(a), "the same for the same study");
    let all = all.into_iter().map(|(name, text)| {
        assert!(text.is_ascii() && !text.contains(['<', '>']) && text.ends_with("}\n"), "{text}");
        let chart: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(chart["$schema"], "https://vega.github.io/schema/vega-lite/v5.json");
        assert_eq!(text.matches("://").count(), 1, "nothing is loaded");
        for view in chart["layer"].as_array().unwrap_or(&vec![chart.clone()]) {
            check(view);
        }
        (name.strip_suffix(".vl.json").unwrap().to_owned(), chart)
    });
    all.collect()
}

fn check(view: &Value) {
    assert!(
        ["line", "bar", "tick", "text", "rect", "point"].contains(&view["mark"]["type"].as_str().unwrap()),
        "{view}"
    );
    assert!(view["data"].as_object().unwrap().keys().eq(["values"]), "{view}");
    let rows = values(view);
    assert!(!rows.is_empty());
    let mut encoded = 0;
    for channel in view["encoding"].as_object().unwrap().values() {
        let channel = if channel["condition"].is_null() { channel } else { &channel["condition"] };
        let field = channel["field"].as_str().unwrap();
        let is_number = channel["type"] == "quantitative";
        assert!(is_number || channel["type"] == "nominal" || channel["type"] == "ordinal", "{channel}");
        for row in rows {
            assert!(if is_number { row[field].is_number() } else { !row[field].is_null() }, "{field} of {row}");
        }
        encoded += 1;
    }
    assert!(encoded >= 2);
}

fn values(view: &Value) -> &Vec<Value> {
    view["data"]["values"].as_array().unwrap()
}

/// The rows of a chart whose field has a value, as pairs of two other fields.
fn of<'c>(chart: &'c Value, kind: &str, [x, y]: [&str; 2]) -> Vec<(&'c Value, &'c Value)> {
    values(chart).iter().filter(|r| r["kind"] == kind).map(|r| (&r[x], &r[y])).collect()
}

/// Fails unless a number is a part of a whole; serde_json may read the last digit of numbers as another one.
fn is_part(found: &Value, n: &Value, of: &Value) {
    let part = n.as_u64().unwrap() as f64 / of.as_u64().unwrap() as f64;
    assert!((found.as_f64().unwrap() - part).abs() <= 1e-15, "{found} is not {n} of {of}");
}

#[test]
fn numbers_are_those_of_json() {
    let study = study(&run("", 3, 4));
    let charts = charts(&study);
    let names: Vec<&str> = charts.iter().map(|(name, _)| &name[..]).collect();
    let expected = [
        "fields",
        "magnitudes",
        "deltas",
        "bounds",
        "changed",
        "sizes",
        "exponents",
        "distances",
        "flips-1",
        "flips-2",
    ];
    assert_eq!(names, expected);
    let a = serde_json::to_value(&study).unwrap();
    let chart = |name: &str| &charts.iter().find(|c| c.0 == name).unwrap().1;
    let list = |v: &Value| v.as_array().unwrap().clone();

    let fields = &chart("fields")["layer"];
    let mut rows = 0;
    for g in list(&a["checkpoints"][3]["kinds"]).iter().filter(|g| g["name"] != "other") {
        let kind = g["name"].as_str().unwrap();
        let parts = of(&fields[0], kind, ["part", "bits"]);
        for (i, field) in ["sign", "exponent", "mantissa"].into_iter().enumerate() {
            let entropy = g[format!("{field}_entropy")].as_f64();
            assert_eq!((parts[i].0, parts[i].1.as_f64()), (&json!(field), entropy), "{kind}");
        }
        let all: f64 = parts.iter().map(|p| p.1.as_f64().unwrap()).sum();
        assert!((all - g["element_bits"].as_f64().unwrap()).abs() < 1e-6 && parts[3].0 == "saved", "{parts:?}");
        let [(lmc, _)] = of(&fields[1], kind, ["lmc", "end"])[..] else { panic!("{fields}") };
        assert_eq!(lmc.as_f64(), g["lmc_bits"].as_f64());
        rows += 4;
    }
    assert_eq!(values(&fields[0]).len(), rows);

    for g in list(&a["magnitudes"]) {
        let points = of(chart("magnitudes"), g["kind"].as_str().unwrap(), ["log2_magnitude", "of_floats"]);
        let all: u64 = list(&g["counts"]).iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(points.len(), list(&g["counts"]).len());
        for ((i, (x, share)), n) in points.iter().enumerate().zip(list(&g["counts"])) {
            assert_eq!(x.as_f64().unwrap(), g["lowest"].as_f64().unwrap() + i as f64);
            is_part(share, &n, &json!(all));
        }
    }

    let distances = list(&a["distances"]);
    let all = of(chart("deltas"), "all", ["steps", "of_raw"]);
    assert_eq!(all.len(), distances.len());
    for ((steps, share), d) in all.iter().zip(&distances) {
        assert_eq!(*steps, &d["steps"]);
        is_part(share, &d["delta_size"], &d["raw_size"]);
    }
    for (line, field) in [("lmc", "delta_size"), ("H", "entropy_size")] {
        let points = of(chart("bounds"), line, ["steps", "of_raw"]);
        assert_eq!(points.len(), distances.len());
        for ((steps, share), d) in points.iter().zip(&distances) {
            assert_eq!(*steps, &d["steps"]);
            is_part(share, &d["floats"][field], &d["floats"]["raw_size"]);
        }
    }
    for kind in ["weights", "exp_avg"] {
        let points = of(chart("deltas"), kind, ["steps", "of_raw"]);
        for ((_, share), d) in points.iter().zip(&distances) {
            let g = list(&d["groups"]).into_iter().find(|g| g["kind"] == kind).unwrap();
            is_part(share, &g["delta_size"], &g["raw_size"]);
        }
        let changed = of(chart("changed"), kind, ["step", "changed"]);
        assert_eq!(changed.len(), 3);
        for ((step, share), p) in changed.iter().zip(list(&a["pairs"])) {
            let g = list(&p["groups"]).into_iter().find(|g| g["kind"] == kind).unwrap();
            assert_eq!(*step, &a["checkpoints"][p["to"].as_u64().unwrap() as usize]["step"]);
            is_part(share, &g["changed"], &g["compared"]);
        }
        for (name, figure) in [("sizes", "lmc_bits"), ("exponents", "exponent_entropy")] {
            let points = of(chart(name), kind, ["step", figure]);
            assert_eq!(points.len(), 4);
            for ((step, bits), c) in points.iter().zip(list(&a["checkpoints"])) {
                let g = list(&c["kinds"]).into_iter().find(|g| g["name"] == kind).unwrap();
                assert_eq!((*step, bits.as_f64()), (&c["step"], g[figure].as_f64()));
            }
        }
        let moved = of(chart("distances"), kind, ["log2_distance", "of_elements"]);
        let g = list(&a["changes"]).into_iter().find(|g| g["kind"] == kind).unwrap();
        assert_eq!(moved.len(), list(&g["distances"]).len());
        for ((i, share), n) in moved.iter().zip(list(&g["distances"])) {
            assert_eq!(list(&g["distances"])[i.as_u64().unwrap() as usize], n);
            is_part(share, &n, &g["compared"]);
        }
    }
    for (i, dtype) in [(1, "F32"), (2, "BF16")] {
        let map = chart(&format!("flips-{i}"));
        let tensors: Vec<Value> = list(&a["tensors"]).into_iter().filter(|t| t["dtype"] == dtype).collect();
        assert!(map["title"].as_str().unwrap().starts_with(dtype), "{map}");
        assert_eq!(map["params"][0]["value"], json!(tensors.iter().map(|t| &t["name"]).collect::<Vec<_>>()));
        assert_eq!(values(map).len(), tensors.iter().map(|t| list(&t["change"]["flips"]).len()).sum::<usize>());
        for row in values(map) {
            let t = &tensors[row["row"].as_u64().unwrap() as usize];
            assert_eq!(row["name"], t["name"]);
            let flips = &t["change"]["flips"][row["bit"].as_u64().unwrap() as usize];
            is_part(&row["rate"], flips, &t["change"]["compared"]);
        }
    }
}

#[test]
fn a_file_for_each_chart_of_the_page() {
    let known: Vec<String> = vega_names().collect();
    for steps in 1..=4 {
        let a = study(&run("", 2, steps));
        assert!(vega(&a).iter().all(|(name, _)| known.contains(name)), "{steps}");
        let drawn = parse(&page(&a)).titles();
        let titles: Vec<String> = charts(&a).iter().map(|c| c.1["title"].as_str().unwrap().to_owned()).collect();
        assert_eq!(titles, drawn, "{steps}");
    }
}

#[test]
fn hostile_names_are_data() {
    let plain = vega(&study(&run("", 2, 3)));
    for name in [
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "' + alert(1) + '",
        "../../etc/passwd/",
        "a\\nb\\u202ec\\u0000d.",
        "datum.rate.",
    ] {
        let a = study(&run(name, 2, 3));
        let (texts, hostile) = (vega(&a), charts(&a));
        assert!(texts.iter().map(|t| &t.0).eq(plain.iter().map(|t| &t.0)), "{name}");
        for ((file, mut chart), (_, plain)) in hostile.into_iter().zip(&plain) {
            let mut plain: Value = serde_json::from_str(plain).unwrap();
            if file.starts_with("flips") {
                let shown = chart["params"][0]["value"].take();
                assert_eq!(shown[0], chart["data"]["values"][0]["name"]);
                plain["params"][0]["value"].take();
            }
            for layer in [&mut chart, &mut plain] {
                layer["data"].take();
                layer["layer"].as_array_mut().into_iter().flatten().for_each(|view| _ = view["data"].take());
            }
            assert_eq!(chart, plain, "{name}");
        }
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
    let charts = charts(&a);
    for (name, field) in [("compression", 0), ("decompression", 1)] {
        let chart = &charts.iter().find(|c| c.0 == name).unwrap().1;
        let found: Vec<_> =
            values(chart).iter().map(|p| (&p["group"], &p["name"], &p["of_raw"], &p["of_memcpy"])).collect();
        let expected = [
            ("lmc", "lmc default", 0.66, [0.2, 0.5]),
            ("lmc", "lmc default with base", 0.08, [0.1, 0.25]),
            ("as is", "zstd 3", 0.93, [0.05, 0.1]),
            ("grouped", "zstd 3", 0.71, [0.02, 0.125]),
            ("xor", "zstd 3", 0.4, [0.01, 0.05]),
            ("xor, grouped", "zstd 3", 0.15, [0.03, 0.0625]),
        ];
        for (found, (group, of, size, speeds)) in found.iter().zip(expected) {
            assert_eq!(*found, (&json!(group), &json!(of), &json!(size), &json!(speeds[field])), "{name}");
        }
        assert_eq!(found.len(), expected.len());
    }
    let page = page(&a);
    assert_eq!(parse(&page).titles().last().unwrap(), "Size and speed of decompression");
    for shown in [">lmc default with base</text>", "<title>zstd 3 (xor, grouped): 15.0 %, 0.030</title>"] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains(">zstd 3</text>"), "lmc outdoes it");
    // One point, and speeds that could not be measured, show nothing.
    a.engines.as_mut().unwrap().engines.truncate(1);
    assert!(!vega(&a).iter().any(|c| c.0.contains("compression")));
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
    let all = charts(&a);
    let chart = &all.iter().find(|c| c.0 == "xor").unwrap().1;
    let rows: Vec<_> = values(chart).iter().map(|r| (&r["kind"], &r["steps"], &r["of_raw"])).collect();
    let lines = [
        ("lmc", [0.081, 0.092]),
        ("XOR, zstd 1", [0.403, 0.511]),
        ("XOR, grouped, zstd 1", [0.202, 0.307]),
        ("H", [0.077, 0.089]),
    ];
    let expected: Vec<_> = lines
        .iter()
        .flat_map(|(name, shares)| {
            [(json!(name), json!(1), json!(shares[0])), (json!(name), json!(4), json!(shares[1]))]
        })
        .collect();
    assert!(rows.iter().copied().eq(expected.iter().map(|(a, b, c)| (a, b, c))), "{rows:?}");
    let html = page(&a);
    for row in ["<td>1<td>2<td>1000<td>81<td>403<td>202<td>77", "<td>4<td>2<td>1000<td>92<td>511<td>307<td>89"] {
        assert!(html.contains(&format!("<tr>{row}")), "{row}");
    }
    // Nothing is grouped where elements are bytes, and integers have no entropy.
    for d in &mut a.engines.as_mut().unwrap().distances {
        (d.xor_grouped_size, d.entropy_size) = (None, None);
    }
    let all = charts(&a);
    assert_eq!(values(&all.iter().find(|c| c.0 == "xor").unwrap().1).len(), 4);
    assert!(page(&a).contains("<tr><td>4<td>2<td>1000<td>92<td>511<td>–<td>–"));
}

/// Dtypes are names that come from files, too.
#[test]
fn dtypes_are_data() {
    let mut a = study(&run("", 2, 3));
    let rename = |g: &mut GroupChange| g.dtype = "../<x>".to_owned();
    a.changes.iter_mut().filter(|g| g.kind == Kind::Weights).for_each(rename);
    a.tensors.iter_mut().filter(|t| t.dtype == "BF16").for_each(|t| t.dtype = "../<x>".to_owned());
    let all = charts(&a);
    assert!(
        all.iter().all(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()))
    );
    assert!(all.iter().any(|(_, c)| c["title"].as_str().unwrap().starts_with("../<x>: ")));
}

/// Lines of one kind, of one colour, differ by their dashes; here and on the page.
#[test]
fn dtypes_of_a_kind_are_told_apart() {
    let mut a = study(&run("", 2, 3));
    let group = a.changes.iter().find(|g| g.kind == Kind::Weights).unwrap().clone();
    a.changes = vec![group; 3];
    a.changes.iter_mut().zip(["BF16", "F16", "F32"]).for_each(|(g, dtype)| g.dtype = dtype.to_owned());
    let all = charts(&a);
    let encoding = &all.iter().find(|c| c.0 == "distances").unwrap().1["encoding"];
    let looks = |channel: &str| {
        let scale = &encoding[channel]["scale"];
        assert_eq!(scale["domain"], json!(["weights BF16", "weights F16", "weights F32"]));
        scale["range"].as_array().unwrap().clone()
    };
    let (colours, shapes, dashes) = (looks("color"), looks("shape"), looks("strokeDash"));
    assert!(colours.iter().all(|c| *c == colours[0]) && shapes.iter().all(|s| *s == shapes[0]));
    assert!(dashes[0] == json!([]) && dashes[1] != dashes[0] && dashes[2] != dashes[0] && dashes[2] != dashes[1]);
    let page = page(&a);
    let chart = page.split("<figure>").find(|f| f.contains("<figcaption>How far elements moved<")).unwrap();
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
    let all = charts(&a);
    let map = &all.iter().find(|c| c.0 == "flips-1").unwrap().1;
    assert_eq!(map["params"][0]["value"], json!(["w", "w"]));
    assert_eq!(map["encoding"]["y"]["field"], "row");
    assert_eq!(values(map).iter().filter(|r| r["row"] == 1).count(), 32);
}

#[test]
fn nothing_to_draw_is_no_chart() {
    let file = crate::safetensors(&[("empty", "F32", vec![0], &[])]);
    assert_eq!(charts(&study(&Run(vec![(0, file.clone()), (1, file)]))), []);
}
