//! Scatter plots, with the names of as many points as there is room for.

use std::fmt::Write;

use super::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, begin, level, mark, tick};
use crate::page::chart::{Point, Scatter};
use crate::page::html::escaped;
use crate::text::{share, two_digits};

/// The width of a character, and the height of a line, at the size that text has on a phone.
const CHARACTER: f64 = 8.5;
const LINE: f64 = 17.0;

/// The room that something takes: left, top, right, bottom.
type Room = [f64; 4];

impl Scatter {
    pub(crate) fn write(&self, out: &mut String) {
        let x = x_range(self.points());
        let y = decades(self.points());
        let px = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * (at - x.0) / (x.1 - x.0);
        let py = |at: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (at.log10() - y.0) / (y.1 - y.0);
        begin(self.title, self.about, (self.x, self.y), out);
        let mut decade = y.0;
        while decade <= y.1 {
            let spelled = if decade < -3.0 { format!("1e{decade}") } else { 10f64.powf(decade).to_string() };
            level(py(10f64.powf(decade)), &spelled, out);
            decade += 1.0;
        }
        for i in 0..=4 {
            let value = x.0 + (x.1 - x.0) * f64::from(i) / 4.0;
            tick(px(value), &share(value).replace(".0 %", " %"), out);
        }
        for g in &self.groups {
            for p in &g.points {
                let title = format!("{} ({}): {}, {}", escaped(&p.name), g.name, share(p.x), two_digits(p.y));
                mark((g.colour, false), (px(p.x), py(p.y)), &title, out);
            }
        }
        self.write_names((px, py), out);
        out.push_str("</svg>");
        out.push_str("<p class=k>");
        for g in &self.groups {
            out.push_str("<span><svg viewBox=\"0 0 11 11\">");
            mark((g.colour, false), (5.5, 5.5), "", out);
            let _ = write!(out, "</svg>{}</span> ", escaped(g.name));
        }
        out.push_str("</p></figure>");
    }

    /// Names beside the points that no other one outdoes, where neither points nor other names are.
    fn write_names(&self, (px, py): (impl Fn(f64) -> f64, impl Fn(f64) -> f64), out: &mut String) {
        let mut taken: Vec<Room> = self.points().map(|p| around(px(p.x), py(p.y))).collect();
        for p in self.points().filter(|p| self.is_best(p)) {
            let (x, y, width) = (px(p.x), py(p.y), CHARACTER * p.name.chars().count() as f64);
            let beside = [(x + 7.0, y), (x - 7.0 - width, y)];
            let above_or_below = [y - 14.0, y + 15.0];
            let places = above_or_below.map(|y| [x - width / 2.0, x - 5.0, x + 5.0 - width].map(|left| (left, y)));
            let places = beside.into_iter().chain(places.into_iter().flatten());
            let room = |(left, middle): (f64, f64)| [left, middle - LINE / 2.0, left + width, middle + LINE / 2.0];
            let fits = |r: &Room| {
                let inside = r[0] >= LEFT && r[1] >= 0.0 && r[2] <= WIDTH && r[3] <= HEIGHT - BOTTOM + LINE / 2.0;
                inside && !taken.iter().any(|t| overlap(t, r))
            };
            if let Some(room) = places.map(room).find(fits) {
                let _ =
                    write!(out, "<text class=n x={:.1} y={:.1}>{}</text>", room[0], room[1] + 12.0, escaped(&p.name));
                taken.push(room);
            }
        }
    }
}

/// The room of a point.
fn around(x: f64, y: f64) -> Room {
    [x - 5.0, y - 5.0, x + 5.0, y + 5.0]
}

fn overlap(a: &Room, b: &Room) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Twentieths around all points, in four equal parts.
fn x_range<'p>(points: impl Iterator<Item = &'p Point>) -> (f64, f64) {
    let (min, max) = points.fold((f64::MAX, f64::MIN), |(min, max), p| (min.min(p.x), max.max(p.x)));
    let from = (min * 20.0).floor();
    let part = ((max * 20.0 - from) / 4.0).ceil().max(1.0);
    (from / 20.0, (from + 4.0 * part) / 20.0)
}

/// Powers of ten around all points; the highest may stand a little above the last one.
fn decades<'p>(points: impl Iterator<Item = &'p Point>) -> (f64, f64) {
    let (min, max) = points.fold((f64::MAX, f64::MIN), |(min, max), p| (min.min(p.y), max.max(p.y)));
    let (from, to) = (min.log10().floor(), (max / 1.2).log10().ceil());
    (from, to.max(from + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::chart::Group;

    fn chart(points: &[(&str, f64, f64)]) -> Scatter {
        let points = points.iter().map(|&(name, x, y)| Point { name: name.to_owned(), x, y }).collect();
        Scatter { title: "t", about: "", x: "x", y: "y", groups: vec![Group { name: "g", colour: 0, points }] }
    }

    #[test]
    fn axes_end_around_the_points() {
        let c = chart(&[("a", 0.664, 0.23), ("b", 1.004, 1.02), ("c", 0.93, 0.000_7)]);
        assert_eq!(x_range(c.points()), (0.65, 1.05));
        assert_eq!(decades(c.points()), (-4.0, 0.0));
        let c = chart(&[("a", 0.7, 0.1)]);
        assert_eq!(x_range(c.points()), (0.7, 0.9));
        assert_eq!(decades(c.points()), (-1.0, 0.0));
    }

    #[test]
    fn the_best_have_names_that_do_not_overlap() {
        let mut out = String::new();
        chart(&[("small", 0.6, 0.1), ("fast", 0.9, 0.9), ("worse", 0.9, 0.1)]).write(&mut out);
        for name in ["small", "fast"] {
            assert!(out.contains(&format!(">{name}</text>")), "{name}: {out}");
        }
        assert!(!out.contains(">worse</text>") && out.contains("<title>worse (g): 90.0 %, 0.10</title>"), "{out}");
        // There is no room for the names of nine points in one place.
        let mut out = String::new();
        chart(&[("a name", 0.75, 0.5); 9]).write(&mut out);
        let names = out.matches(">a name</text>").count();
        assert!((1..=8).contains(&names), "{names}: {out}");
    }
}
