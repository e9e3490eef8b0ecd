//! Charts as SVG that is part of a page: bars, lines, heat maps, scatter plots. Colours are classes that the page's styles define.

mod scatter;

use std::fmt::Write;

use super::chart::{Bar, Bars, HeatMap, Line, Lines};
use super::html::{escaped, table};
use crate::text::{grouped, two_decimals};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// The width of bars and heat maps, which has room on a phone.
const NARROW: f64 = 400.0;
/// The width of a digit in charts of that width, at most.
const DIGIT: f64 = 6.7;

/// Rows of a table of a chart's numbers at most.
const NUMBERS: usize = 100;
/// Points of a line that are drawn at most: the highest of those that are close to each other.
const DRAWN: usize = 1000;

impl Lines<'_> {
    /// Draws them, if they show something.
    pub(crate) fn write(&self, out: &mut String) {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        if !self.show_something() {
            return;
        }
        let (at, high) =
            (|x: f64| if self.log { x.max(1.0).log2() } else { x }, |y: f64| if self.log_y { y.log10() } else { y });
        let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
            points().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(of(p)), b.max(of(p))))
        };
        let ((min, max), (low, top)) = (range(&|p| at(p.0)), range(&|p| high(p.1)));
        let y = if self.log_y { Axis::of_decades(low, top) } else { Axis::new(low, top) };
        let px = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * (at(x) - min) / (max - min).max(1e-9);
        let py = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (high(value) - y.low) / (y.high - y.low);
        begin(self.title, self.about, (self.x, self.y), out);
        for value in y.values() {
            match self.log_y {
                true => level(py(10f64.powf(value)), &self.unit.spell(10f64.powf(value)), out),
                false => level(py(value), &self.unit.tick(value, y.step), out),
            }
        }
        for x in self.ticks(min, max) {
            tick(px(x), &grouped(&x.to_string()), out);
        }
        let mut drawn: Vec<String> = Vec::new();
        for l in &self.lines {
            let highest = |near: &[(f64, f64)]| near.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
            let shown = l.points.chunks(l.points.len().div_ceil(DRAWN).max(1)).filter_map(highest);
            let path: Vec<String> = shown.map(|p| format!("{:.1} {:.1}", px(p.0), py(p.1))).collect();
            let path = path.join("L");
            // Equal lines beside each other.
            let apart = 3 * drawn.iter().filter(|d| **d == path).count();
            let _ =
                write!(out, "<g transform=\"translate(0 -{apart})\"><path class=\"{}\" d=\"M{path}\"/>", self.class(l));
            drawn.push(path);
            let title = |p: &(f64, f64)| format!("{}, {}: {}", escaped(&l.name), p.0, self.unit.spell(p.1));
            for p in l.points.iter().filter(|_| self.are_marked()) {
                mark((l.colour, l.nth > 0), (px(p.0), py(p.1)), &title(p), out);
            }
            for p in &l.spikes {
                let (x, y) = (px(p.0), py(p.1));
                let _ = write!(
                    out,
                    "<circle class=\"q s{}\" cx={x:.1} cy={y:.1} r=7><title>spike: {}</title></circle>",
                    l.colour,
                    title(p)
                );
            }
            out.push_str("</g>");
        }
        out.push_str("</svg><p class=k>");
        for l in &self.lines {
            let _ = write!(
                out,
                "<span><svg class=w viewBox=\"0 0 30 11\"><path class=\"{}\" d=M0,5.5H30 />",
                self.class(l)
            );
            if self.are_marked() {
                mark((l.colour, l.nth > 0), (15.0, 5.5), "", out);
            }
            let _ = write!(out, "</svg>{}</span> ", escaped(&l.name));
        }
        out.push_str("</p>");
        self.write_numbers(out);
        out.push_str("</figure>");
    }

    /// The classes of a line.
    fn class(&self, l: &Line) -> String {
        let dashes = match self.dashes(l) {
            0 => String::new(),
            n => format!(" d{n}"),
        };
        format!("l s{}{dashes}{}", l.colour, if l.nth > 0 { " v" } else { "" })
    }

    /// The points as a table, unless there are too many: JSON has them, too.
    fn write_numbers(&self, out: &mut String) {
        let xs = self.xs();
        if xs.len() > NUMBERS {
            return;
        }
        let heads: Vec<&str> = [self.x].into_iter().chain(self.lines.iter().map(|l| &l.name[..])).collect();
        let row = |x: &f64| {
            let at = |l: &Line| l.points.iter().find(|p| p.0 == *x).map_or("–".to_owned(), |p| self.unit.spell(p.1));
            [x.to_string()].into_iter().chain(self.lines.iter().map(at)).collect()
        };
        table("Numbers", &[], &heads, xs.iter().map(row), out);
    }

    /// All values of x, in order.
    fn xs(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// Values of x that are labelled: all, if there is room; else round ones, or where they double, existing ones.
    fn ticks(&self, min: f64, max: f64) -> Vec<f64> {
        let mut all = self.xs();
        if !self.log && all.len() > 9 {
            let axis = Axis::new(min, max);
            return axis.values().filter(|x| (min..=max).contains(x) && x.fract() == 0.0).collect();
        }
        let room = (max - min) / 9.0;
        let at = |x: f64| if self.log { x.max(1.0).log2() } else { x };
        let mut last = f64::MIN;
        all.retain(|&x| {
            let kept = at(x) - last >= room;
            last = if kept { at(x) } else { last };
            kept
        });
        all
    }
}

/// A scale with round numbers.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// A scale of about five steps, from 0 unless that would hide what values do.
    fn new(min: f64, max: f64) -> Self {
        let min = if min >= 0.0 && min < 0.6 * max { 0.0 } else { min };
        let step = nice_above(((max - min) / 5.0).max(max.abs() * 1e-6));
        // A little more than a step is no other one.
        let (low, high) = ((min / step + 1e-6).floor() * step, (max / step - 1e-6).ceil() * step);
        Self { low, high: high.max(low + step), step }
    }

    /// A scale of powers of ten, at most six.
    fn of_decades(min: f64, max: f64) -> Self {
        let step = ((max.ceil() - min.floor()) / 6.0).ceil().max(1.0);
        let (low, high) = ((min / step).floor() * step, (max / step).ceil() * step);
        Self { low, high: high.max(low + step), step }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let steps = ((self.high - self.low) / self.step).round() as i32;
        (0..=steps).map(|i| self.low + f64::from(i) * self.step)
    }
}

/// The beginning of a chart with two axes, and their titles.
fn begin(title: &str, about: &str, (x, y): (&str, &str), out: &mut String) {
    let _ = write!(
        out,
        "<figure><figcaption>{0}</figcaption>{6}<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{0}\">\
         <text class=a x={1:.1} y={2} text-anchor=middle>{3}</text>\
         <text class=a transform=\"translate(11 {4:.1}) rotate(-90)\" text-anchor=middle>{5}</text>",
        escaped(title),
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escaped(x),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escaped(y),
        sentence(about),
    );
}

/// What a chart shows, and what is normal.
fn sentence(about: &str) -> String {
    if about.is_empty() { String::new() } else { format!("<p class=dim>{}</p>", escaped(about)) }
}

/// A value of the axis of y, and a line across the chart.
fn level(y: f64, value: &str, out: &mut String) {
    let _ = write!(
        out,
        "<path class=g d=\"M{LEFT} {y:.1}H{0}\"/><text class=t x={1} y={2:.1} text-anchor=end>{value}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0
    );
}

/// A value of the axis of x.
fn tick(x: f64, value: &str, out: &mut String) {
    let _ = write!(out, "<text class=t x={x:.1} y={} text-anchor=middle>{value}</text>", HEIGHT - BOTTOM + 18.0);
}

/// The next of 1, 2, 5 times a power of ten.
fn nice_above(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(x.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|m| m * power).find(|&m| m >= x * 0.999).unwrap_or(10.0 * power)
}

/// A mark at a point, whose form says the same as its colour; those of other lines of a colour are hollow.
fn mark((colour, hollow): (usize, bool), (x, y): (f64, f64), title: &str, out: &mut String) {
    let (dx, dy, form) = MARKS[colour % MARKS.len()];
    let class = if hollow { format!("\"o s{colour}\"") } else { format!("f{colour}") };
    let _ = write!(out, "<path class={class} d=\"M{:.1} {:.1}{form}z\"", x + dx, y + dy);
    let _ = match title {
        "" => write!(out, "/>"),
        title => write!(out, "><title>{title}</title></path>"),
    };
}

/// The forms of marks by the number of their colour: where they begin beside the point, and how they go on.
const MARKS: [(f64, f64, &str); 8] = [
    (-3.2, 0.0, "a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0"),
    (-3.0, -3.0, "h6v6h-6"),
    (0.0, -4.0, "l4 7h-8"),
    (0.0, -4.4, "l4.4 4.4l-4.4 4.4l-4.4-4.4"),
    (0.0, 4.0, "l4-7h-8"),
    (-1.3, -4.0, "h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7"),
    (-4.0, -1.5, "h8v3h-8"),
    (-1.5, -4.0, "h3v8h-3"),
];

/// Names of colours.
fn legend<'n>(entries: impl Iterator<Item = (usize, &'n str)>, out: &mut String) {
    out.push_str("<p class=k>");
    for (colour, name) in entries {
        let _ = write!(out, "<span><i class=b{colour}></i>{}</span> ", escaped(name));
    }
    out.push_str("</p>");
}

/// The beginning of a chart whose rows have their names above them.
fn begin_rows(title: &str, about: &str, height: f64, out: &mut String) {
    let _ = write!(
        out,
        "<figure><figcaption>{0}</figcaption>{1}<svg viewBox=\"0 0 {NARROW} {height}\" role=img aria-label=\"{0}\">",
        escaped(title),
        sentence(about),
    );
}

/// Bars below each other.
pub(crate) fn bars(chart: &Bars, out: &mut String) {
    const ROW: f64 = 36.0;
    let bars = &chart.bars;
    let end = |b: &Bar| b.parts.iter().sum::<f64>().max(b.mark.unwrap_or(0.0));
    let longest = bars.iter().map(end).fold(1.0, f64::max);
    let scale = (NARROW - 10.0) / longest;
    let bottom = ROW * bars.len() as f64;
    begin_rows(chart.title, chart.about, bottom + 34.0, out);
    for (i, b) in bars.iter().enumerate() {
        let y = ROW * i as f64;
        let _ = write!(
            out,
            "<text class=n x=0 y={0}>{1}</text><text class=t x={2} y={0} text-anchor=end>{3}</text>",
            y + 11.0,
            escaped(&b.name),
            NARROW - 10.0,
            escaped(&b.label)
        );
        let mut x = 0.0;
        for ((colour, what), len) in chart.parts.iter().zip(&b.parts) {
            let class = colour.map_or("r".to_owned(), |c| format!("f{c}"));
            let _ = write!(
                out,
                "<rect class={class} x={x:.1} y={} width={:.1} height=14><title>{}: {len:.3} bits</title></rect>",
                y + 15.0,
                len * scale,
                escaped(what)
            );
            x += len * scale;
        }
        if let Some(at) = b.mark {
            let (x, y, what) = (at * scale, y + 13.0, escaped(chart.mark));
            let _ = write!(out, "<path class=m d=\"M{x:.1} {y}v18\"><title>{what}: {at:.3} bits</title></path>");
        }
    }
    for i in 0..=4 {
        let v = longest * f64::from(i) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"][i as usize];
        let (x, y, v) = (v * scale, bottom + 12.0, two_decimals(v));
        let _ = write!(out, "<text class=t x={x:.1} y={y} text-anchor={anchor}>{v}</text>");
    }
    let (x, y) = (longest * scale / 2.0, bottom + 27.0);
    let _ = write!(out, "<text class=a x={x:.1} y={y} text-anchor=middle>{}</text></svg>", escaped(chart.x));
    legend(chart.parts.iter().filter_map(|(colour, name)| Some(((*colour)?, *name))), out);
    out.push_str("</figure>");
}

/// Characters of the names of rows that stand beside them.
const BESIDE: usize = 14;

/// A heat map.
pub(crate) fn heat_map(map: &HeatMap, out: &mut String) {
    let rows = &map.rows;
    let above = rows.iter().any(|r| r.name.chars().count() > BESIDE);
    let (left, row, cells) = if above { (0.0, 29.0, 12.0) } else { (7.0 * BESIDE as f64, 14.0, 13.0) };
    let notes = rows.iter().map(|r| r.note.chars().count()).max().unwrap_or(0);
    let cell = (NARROW - left - 6.0 - DIGIT * notes as f64) / map.columns.max(1) as f64;
    let top = if map.heads.is_empty() { 18.0 } else { 34.0 };
    let bottom = top + row * rows.len() as f64;
    begin_rows(&map.title, &map.about, bottom + 6.0, out);
    let x_of = |column: f64| left + cell * column;
    for (labels, class, y) in [(&map.labels, "t", top - 5.0), (&map.heads, "a", 13.0)] {
        for (column, label) in labels {
            // Nothing is shown left of the chart.
            let x = x_of(*column).max(DIGIT / 2.0 * label.chars().count() as f64);
            let _ = write!(out, "<text class={class} x={x:.1} y={y} text-anchor=middle>{label}</text>");
        }
    }
    // One path for each shade: cells of it.
    let mut shades = vec![String::new(); map.shades.len()];
    for (i, r) in rows.iter().enumerate() {
        let y = top + row * i as f64 + (row - cells);
        let (x, name_y, anchor) = if above { (0.0, y - 4.0, "start") } else { (left - 6.0, y + 10.0, "end") };
        // Fits above cells.
        let shown: String = r.name.chars().rev().take(56).collect::<Vec<_>>().into_iter().rev().collect();
        let cut = if shown.len() < r.name.len() { "…" } else { "" };
        let _ = write!(
            out,
            "<text class=n x={x} y={name_y} text-anchor={anchor}>{cut}{}<title>{}: {}</title></text>\
             <text class=t x={} y={} text-anchor=end>{}</text>",
            escaped(&shown),
            escaped(&r.name),
            r.title,
            NARROW,
            y + 10.0,
            r.note
        );
        for (column, shade) in r.cells.iter().enumerate() {
            if let Some(shade) = shade {
                let _ = write!(shades[*shade], "M{:.1} {y}h{cell:.1}v{}h-{cell:.1}z", x_of(column as f64), cells - 1.0);
            }
        }
    }
    for (i, d) in shades.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(out, "<path class=h{i} d=\"{d}\"/>");
    }
    for at in &map.splits {
        // Not through the names above cells.
        let of_row = |i: usize| format!("M{:.1} {}v{cells}", x_of(*at as f64), top + row * (i + 1) as f64 - cells);
        let lines: String = (0..rows.len()).map(of_row).collect();
        let _ = write!(out, "<path class=x d=\"{lines}\"/>");
    }
    out.push_str("</svg><p class=k>");
    for (i, shade) in map.shades.iter().enumerate() {
        let _ =
            write!(out, "<span><svg viewBox=\"0 0 11 11\"><rect class=h{i} width=11 height=11 /></svg>{shade}</span> ");
    }
    out.push_str("</p></figure>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        for (min, max, low, high, step) in [
            (0.0, 1.0, 0.0, 1.0, 0.2),
            (0.1, 0.7, 0.0, 0.8, 0.2),
            (2.31, 2.42, 2.3, 2.42, 0.05),
            (-0.2, 0.9, -0.5, 1.0, 0.5),
            (3.0, 3.0, 3.0, 3.0, 0.00001),
        ] {
            let axis = Axis::new(min, max);
            assert!(
                (axis.low - low).abs() < 1e-9 && axis.high >= high - 1e-9 && axis.step <= step + 1e-9,
                "{min} {max}: {} {} {}",
                axis.low,
                axis.high,
                axis.step
            );
            assert!(axis.values().count() <= 9 && axis.low <= min && axis.high >= max);
        }
        let decades = Axis::of_decades(-6.3, -2.2);
        assert_eq!((decades.low, decades.high, decades.step), (-7.0, -2.0, 1.0));
    }
}
