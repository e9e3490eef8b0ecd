//! Charts as specifications of Vega-Lite with their data, for programs that draw, restyle or combine them.

use serde::Serialize;
use serde_json::{Value, json};

use super::chart::{Bars, Chart, HeatMap, Lines, SHADES, Scatter, Unit};

/// The language of specifications. It is a name: nothing is loaded from there.
const SCHEMA: &str = "https://vega.github.io/schema/vega-lite/v5.json";

/// Colours by number, then the colour of saved bytes: those of the page on a light screen.
const COLOURS: [&str; 8] = ["#005bb8", "#904411", "#6c8f2e", "#ac6fce", "#098b8c", "#cb437c", "#7d7f83", "#1d2126"];
const SAVED: &str = "#dcdfe3";
/// Marks of points, by the number of their colour, and dashes of lines.
const SHAPES: [&str; 8] =
    ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "M-1-.4h2v.8h-2z", "M-.4-1h.8v2h-.8z"];
const DASHES: [&[u32]; 8] = [&[], &[8, 3], &[2, 2], &[9, 3, 2, 3], &[5, 2], &[3, 4], &[12, 4], &[5, 3]];
/// The colour of heat maps, and how opaque it is for each of the shades.
const HEAT: [u8; 3] = [0x1f, 0x5f, 0xa8];
const OPACITIES: [f64; SHADES.len()] = [0.14, 0.26, 0.38, 0.5, 0.64, 0.8, 1.0];

/// A chart in Vega-Lite. Names are values of its data, and of nothing else.
pub(crate) fn specification(chart: &Chart) -> Value {
    match chart {
        Chart::Lines(chart) => lines(chart),
        Chart::Bars(chart) => bars(chart),
        Chart::HeatMap(chart) => heat_map(chart),
        Chart::Scatter(chart) => scatter(chart),
    }
}

/// A number as it would be in JSON: whole ones without a fraction.
fn number(x: f64) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e15 { json!(x as i64) } else { json!(x) }
}

/// The colour, or another look, of each value of a field.
fn looks<'n, L: Serialize>(field: &str, of: impl Iterator<Item = (&'n str, L)>) -> Value {
    let (names, looks): (Vec<&str>, Vec<L>) = of.unzip();
    json!({ "field": field, "type": "nominal", "title": null, "scale": { "domain": names, "range": looks } })
}

fn lines(chart: &Lines) -> Value {
    let Lines { title, x, y, unit, log, lines } = chart;
    let values = lines
        .iter()
        .flat_map(|l| l.points.iter().map(|p| json!({ "kind": l.name, x.field: number(p.0), y.field: number(p.1) })));
    let colours = looks("kind", lines.iter().map(|l| (&l.name[..], COLOURS[l.colour])));
    let scale = if *log { json!({ "type": "log", "base": 2 }) } else { json!({ "zero": false, "nice": false }) };
    let format = match unit {
        Unit::Share => "~%",
        Unit::Bits => "~f",
    };
    let marked = chart.are_marked();
    let dashes = looks("kind", lines.iter().map(|l| (&l.name[..], DASHES[chart.dashes(l)])));
    let mut chart = json!({
        "$schema": SCHEMA,
        "title": title,
        "width": 480,
        "height": 240,
        "data": { "values": values.collect::<Vec<_>>() },
        "mark": { "type": "line", "point": marked, "tooltip": true },
        "encoding": {
            "x": { "field": x.field, "type": "quantitative", "title": x.title, "scale": scale },
            "y": { "field": y.field, "type": "quantitative", "title": y.title, "axis": { "format": format } },
            "color": colours,
            "strokeDash": dashes,
        },
    });
    // The form says the same as the colour, for those who cannot tell colours apart.
    if marked {
        chart["encoding"]["shape"] = looks("kind", lines.iter().map(|l| (&l.name[..], SHAPES[l.colour])));
    }
    chart
}

fn bars(chart: &Bars) -> Value {
    let x = chart.x.field;
    let parts = chart.bars.iter().flat_map(|b| {
        let each = chart.parts.iter().zip(&b.parts).enumerate();
        each.map(|(place, ((_, part), &len))| json!({ "kind": b.name, "part": part, "place": place, x: number(len) }))
    });
    let rest = chart.bars.iter().map(|b| {
        let end = b.parts.iter().sum();
        json!({ "kind": b.name, "label": b.label, "end": number(end), chart.mark: b.mark.map(number) })
    });
    let colours = looks("part", chart.parts.iter().map(|&(colour, part)| (part, colour.map_or(SAVED, |c| COLOURS[c]))));
    let y = json!({ "field": "kind", "type": "nominal", "title": null, "sort": null });
    let rest = json!({ "values": rest.collect::<Vec<_>>() });
    json!({
        "$schema": SCHEMA,
        "title": chart.title,
        "width": 560,
        "height": { "step": 26 },
        "layer": [
            {
                "data": { "values": parts.collect::<Vec<_>>() },
                "mark": { "type": "bar", "tooltip": true },
                "encoding": {
                    "y": y,
                    "x": { "field": x, "type": "quantitative", "title": chart.x.title, "stack": "zero" },
                    "order": { "field": "place", "type": "quantitative" },
                    "color": colours,
                },
            },
            {
                "data": rest,
                "mark": { "type": "tick", "thickness": 2, "color": COLOURS[7], "tooltip": true },
                "encoding": { "y": y, "x": { "field": chart.mark, "type": "quantitative" } },
            },
            {
                "data": rest,
                "mark": { "type": "text", "align": "left", "dx": 6 },
                "encoding": {
                    "y": y,
                    "x": { "field": "end", "type": "quantitative" },
                    "text": { "field": "label", "type": "nominal" },
                },
            },
        ],
    })
}

fn heat_map(chart: &HeatMap) -> Value {
    let values = chart.rows.iter().enumerate().flat_map(|(row, r)| {
        let each = r.rates.iter().enumerate();
        each.map(move |(bit, &rate)| json!({ "row": row, "name": r.name, "bit": bit, "rate": number(rate) }))
    });
    // Names may be the same, or nearly: rows are numbers, and names are their labels.
    let names: Vec<&str> = chart.rows.iter().map(|r| &r.name[..]).collect();
    let [red, green, blue] = HEAT;
    let colours = OPACITIES.map(|opacity| format!("rgba({red},{green},{blue},{opacity})"));
    json!({
        "$schema": SCHEMA,
        "title": chart.title,
        "width": { "step": 16 },
        "height": { "step": 15 },
        "params": [{ "name": "names", "value": names }],
        "data": { "values": values.collect::<Vec<_>>() },
        "mark": { "type": "rect", "tooltip": true },
        "encoding": {
            "x": { "field": "bit", "type": "ordinal", "sort": "descending", "axis": { "labelAngle": 0 } },
            "y": {
                "field": "row",
                "type": "ordinal",
                "title": null,
                "axis": { "labelExpr": "names[datum.value]", "labelLimit": 300 },
            },
            "color": {
                "condition": {
                    "test": "datum.rate > 0",
                    "field": "rate",
                    "type": "quantitative",
                    "title": "part of elements",
                    "scale": { "type": "threshold", "domain": SHADES[1..], "range": colours },
                },
                "value": "transparent",
            },
        },
    })
}

fn scatter(chart: &Scatter) -> Value {
    let Scatter { title, x, y, groups } = chart;
    let values = groups.iter().flat_map(|g| {
        g.points.iter().map(|p| json!({ "group": g.name, "name": p.name, x.field: number(p.x), y.field: number(p.y) }))
    });
    let colours = looks("group", groups.iter().map(|g| (g.name, COLOURS[g.colour])));
    let scale = json!({ "zero": false });
    json!({
        "$schema": SCHEMA,
        "title": title,
        "width": 480,
        "height": 240,
        "data": { "values": values.collect::<Vec<_>>() },
        "mark": { "type": "point", "filled": true, "size": 60, "tooltip": { "content": "data" } },
        "encoding": {
            "x": { "field": x.field, "type": "quantitative", "title": x.title, "scale": scale, "axis": { "format": "~%" } },
            "y": { "field": y.field, "type": "quantitative", "title": y.title, "scale": { "type": "log" } },
            "color": colours,
            "shape": looks("group", groups.iter().map(|g| (g.name, SHAPES[g.colour]))),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_page() {
        let style = include_str!("style.css");
        for (i, colour) in COLOURS[..7].iter().enumerate() {
            assert!(style.contains(&format!("--c{i}:{colour};")), "{i}");
        }
        let heat = HEAT.map(|part| format!("{part:02x}")).concat();
        for rule in [format!("--ink:{};", COLOURS[7]), format!("--line:{SAVED};"), format!("--heat:#{heat}}}")] {
            assert!(style.contains(&rule), "{rule}");
        }
        for (i, opacity) in OPACITIES[..6].iter().enumerate() {
            let opacity = opacity.to_string();
            let rule = format!(".h{i}{{fill:var(--heat);fill-opacity:{}}}", opacity.trim_start_matches('0'));
            assert!(style.contains(&rule), "{rule}");
        }
    }
}
