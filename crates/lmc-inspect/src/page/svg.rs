//! Charts as SVG that is part of a page: bars, lines, heat maps, scatter plots. Colours are classes that the page's styles define.

mod scatter;

use std::fmt::Write;

use super::chart::{Bar, Bars, HeatMap, Line, Lines, SHADES};
use super::html::{escaped, table};
use crate::text::{share, two_decimals};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

/// Rows of a table of a chart's numbers at most.
const NUMBERS: usize = 100;

impl Lines {
    /// Draws them, if they show something.
    pub(crate) fn write(&self, out: &mut String) {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        if !self.show_something() {
            return;
        }
        let at = |x: f64| if self.log { x.max(1.0).log2() } else { x };
        let (min, max) = points().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(at(p.0)), b.max(at(p.0))));
        let top = nice_above(points().fold(0.0, |m: f64, p| m.max(p.1)));
        let px = |x: f64| LEFT + (WIDTH - LEFT - RIGHT) * (at(x) - min) / (max - min).max(1e-9);
        let py = |y: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top;
        begin(self.title, (self.x, self.y), out);
        for i in 0..=4 {
            let y = top * f64::from(i) / 4.0;
            level(py(y), &self.unit.tick(y, top / 4.0), out);
        }
        for x in self.ticks(min, max) {
            tick(px(x), &x.to_string(), out);
        }
        for l in &self.lines {
            let path: Vec<String> = l.points.iter().map(|p| format!("{:.1} {:.1}", px(p.0), py(p.1))).collect();
            let _ = write!(out, "<path class=\"{}\" d=\"M{}\"/>", self.class(l), path.join("L"));
            for p in l.points.iter().filter(|_| self.are_marked()) {
                let title = format!("{}, {}: {}", escaped(&l.name), p.0, self.unit.spell(p.1));
                mark((l.colour, l.nth > 0), (px(p.0), py(p.1)), &title, out);
            }
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
        out.push_str("<details><summary>Numbers</summary>");
        table(self.y, &[], &heads, xs.iter().map(row), out);
        out.push_str("</details>");
    }

    /// All values of x, in order.
    fn xs(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// Values of x that are labelled: existing ones, with room between.
    fn ticks(&self, min: f64, max: f64) -> Vec<f64> {
        let mut all = self.xs();
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

/// The beginning of a chart with two axes, and their titles.
fn begin(title: &str, (x, y): (&str, &str), out: &mut String) {
    let _ = write!(
        out,
        "<figure><figcaption>{0}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{0}\">\
         <text class=a x={1:.1} y={2} text-anchor=middle>{3}</text>\
         <text class=a transform=\"translate(11 {4:.1}) rotate(-90)\" text-anchor=middle>{5}</text>",
        escaped(title),
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escaped(x),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escaped(y)
    );
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

/// The next of 1, 2, 4, 6, 8 times a power of ten, which has four equal parts with short names.
fn nice_above(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(x.log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].iter().map(|m| m * power).find(|&m| m >= x * 0.999).unwrap_or(10.0 * power)
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

/// Bars below each other.
pub(crate) fn bars(chart: &Bars, out: &mut String) {
    let bars = &chart.bars;
    const ROW: f64 = 26.0;
    let name = bars.iter().map(|b| b.name.chars().count()).max().unwrap_or(0);
    let (left, right) = ((6.7 * name as f64 + 16.0).clamp(92.0, 260.0), 120.0);
    let end = |b: &Bar| b.parts.iter().sum::<f64>().max(b.mark.unwrap_or(0.0));
    let longest = bars.iter().map(end).fold(1.0, f64::max);
    let scale = (760.0 - left - right) / longest;
    let height = ROW * bars.len() as f64 + 36.0;
    let _ = write!(
        out,
        "<figure class=w><figcaption>{0}</figcaption><svg viewBox=\"0 0 760 {height}\" role=img aria-label=\"{0}\">",
        escaped(chart.title)
    );
    for (i, b) in bars.iter().enumerate() {
        let y = ROW * i as f64;
        let _ =
            write!(out, "<text class=n x={} y={} text-anchor=end>{}</text>", left - 8.0, y + 17.0, escaped(&b.name));
        let mut x = left;
        for ((colour, what), len) in chart.parts.iter().zip(&b.parts) {
            let class = colour.map_or("r".to_owned(), |c| format!("f{c}"));
            let _ = write!(
                out,
                "<rect class={class} x={x:.1} y={} width={:.1} height=18><title>{}: {len:.3} bits</title></rect>",
                y + 4.0,
                len * scale,
                escaped(what)
            );
            x += len * scale;
        }
        if let Some(at) = b.mark {
            let _ = write!(
                out,
                "<path class=m d=\"M{:.1} {}v24\"><title>{}: {at:.3} bits</title></path>",
                left + at * scale,
                y + 1.0,
                escaped(chart.mark)
            );
        }
        let x = left + end(b) * scale + 8.0;
        let _ = write!(out, "<text class=t x={x:.1} y={}>{}</text>", y + 17.0, escaped(&b.label));
    }
    let y = ROW * bars.len() as f64 + 6.0;
    for i in 0..=4 {
        let v = longest * f64::from(i) / 4.0;
        let x = left + v * scale;
        let _ = write!(out, "<text class=t x={x:.1} y={} text-anchor=middle>{}</text>", y + 12.0, two_decimals(v));
    }
    let _ = write!(
        out,
        "<text class=a x={:.1} y={} text-anchor=middle>{}</text></svg>",
        left + longest * scale / 2.0,
        y + 27.0,
        escaped(chart.x)
    );
    let coloured = || chart.parts.iter().filter_map(|(colour, name)| Some(((*colour)?, *name)));
    if coloured().count() > 1 {
        legend(coloured(), out);
    }
    out.push_str("</figure>");
}

/// A heat map of bits: the highest bit first.
pub(crate) fn heat_map(map: &HeatMap, out: &mut String) {
    let (bits, rows, (sign, exponent)) = (map.bits(), &map.rows, map.fields);
    let left = 250.0;
    let cell = ((760.0 - left - 60.0) / bits as f64).min(22.0).floor();
    let row = 15.0;
    let (top, height) = (34.0, 34.0 + row * rows.len() as f64 + 8.0);
    let _ = write!(
        out,
        "<figure class=w><figcaption>{0}</figcaption><svg viewBox=\"0 0 760 {height}\" role=img aria-label=\"{0}\">",
        escaped(&map.title)
    );
    let x_of = |column: usize| left + cell * column as f64;
    for column in (0..bits).filter(|c| (bits - 1 - c).is_multiple_of(if bits > 16 { 4 } else { 2 }) || *c == 0) {
        let _ = write!(
            out,
            "<text class=t x={:.1} y=30 text-anchor=middle>{}</text>",
            x_of(column) + cell / 2.0,
            bits - 1 - column
        );
    }
    let mantissa = (bits as u32).saturating_sub(sign + exponent);
    let fields = [("sign", sign), ("exponent", exponent), ("mantissa", mantissa)];
    let mut column = 0;
    for (name, width) in fields.into_iter().filter(|f| f.1 > 0 && sign > 0 && mantissa > 0) {
        // The sign is narrower than its name.
        let (middle, anchor) = match width {
            1 => (x_of(column + 1) - 2.0, "end"),
            _ => (x_of(column) + cell * f64::from(width) / 2.0, "middle"),
        };
        let _ = write!(out, "<text class=a x={middle:.1} y=13 text-anchor={anchor}>{name}</text>");
        column += width as usize;
    }
    // One path for each shade: cells of it.
    let mut shades = vec![String::new(); SHADES.len()];
    for (i, r) in rows.iter().enumerate() {
        let y = top + row * i as f64;
        let shown: String = r.name.chars().rev().take(38).collect::<Vec<_>>().into_iter().rev().collect();
        let cut = if shown.len() < r.name.len() { "…" } else { "" };
        let highest = r.rates.iter().enumerate().fold((0, 0.0), |h, (b, &rate)| if rate > h.1 { (b, rate) } else { h });
        let any = r.rates.iter().rposition(|&rate| rate > 0.0);
        let spelled = match any {
            None => "no bit changed".to_owned(),
            Some(top) => format!("bit {} most: {}; highest that changed: {top}", highest.0, share(highest.1)),
        };
        let _ = write!(
            out,
            "<text class=n x={} y={} text-anchor=end>{cut}{}<title>{}: {spelled}</title></text>\
             <text class=t x={:.1} y={}>{}</text>",
            left - 8.0,
            y + 11.0,
            escaped(&shown),
            escaped(&r.name),
            x_of(bits) + 6.0,
            y + 11.0,
            share(highest.1)
        );
        for (bit, &rate) in r.rates.iter().enumerate() {
            if let Some(shade) = SHADES.iter().rposition(|&s| rate >= s).or((rate > 0.0).then_some(0)) {
                let _ = write!(shades[shade], "M{} {y}h{1}v{2}h-{1}z", x_of(bits - 1 - bit), cell - 1.0, row - 1.0);
            }
        }
    }
    let end = top + row * rows.len() as f64;
    let _ = write!(out, "<rect class=e x={left} y={top} width={} height={}></rect>", cell * bits as f64, end - top);
    for (i, d) in shades.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(out, "<path class=h{i} d=\"{d}\"/>");
    }
    for at in [sign, sign + exponent].into_iter().filter(|&at| sign > 0 && mantissa > 0 && at > 0) {
        let _ = write!(out, "<path class=x d=\"M{0:.1} {1}V{end}\"/>", x_of(at as usize) - 0.5, top - 4.0);
    }
    out.push_str("</svg></figure>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (x, above) in [(0.0, 1.0), (0.7, 0.8), (1.0, 1.0), (1.01, 2.0), (57.0, 60.0), (81.0, 100.0)] {
            assert!((nice_above(x) - above).abs() < 1e-9, "{x}");
        }
    }
}
