//! The contents of charts.

use crate::kind::Kind;
use crate::text::{multiple, share, significant};

/// The unit of y.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Parts of one.
    Share,
    Bits,
    Number,
}

impl Unit {
    pub(crate) fn spell(self, y: f64) -> String {
        match self {
            Unit::Share => share(y),
            Unit::Bits => format!("{y:.3}"),
            Unit::Number => significant(y),
        }
    }

    /// A label of an axis whose labels are `step` apart.
    pub(crate) fn tick(self, y: f64, step: f64) -> String {
        match self {
            Unit::Share => format!("{} %", multiple(100.0 * y, 100.0 * step)),
            Unit::Number if step < 1e-3 => significant(y),
            Unit::Bits | Unit::Number => multiple(y, step),
        }
    }
}

/// Lines in one system of axes.
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    /// What it shows, and what is normal.
    pub(crate) about: &'static str,
    /// The labels of the axes.
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) unit: Unit,
    /// Whether x doubles at equal distances; it is at least 1 then.
    pub(crate) log: bool,
    /// Whether y grows tenfold at equal distances; it is positive then.
    pub(crate) log_y: bool,
    pub(crate) lines: Vec<Line>,
}

/// A line of a chart.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Number of its colour, and of its marks and dashes.
    pub(crate) colour: usize,
    /// How many lines of that colour come before it: others are thinner, with hollow marks and dashes.
    pub(crate) nth: usize,
    /// By x.
    pub(crate) points: Vec<(f64, f64)>,
    /// Those of them that stand out.
    pub(crate) spikes: Vec<(f64, f64)>,
}

impl Lines<'_> {
    /// Whether there are two points on any line: a chart without shows nothing.
    pub(crate) fn show_something(&self) -> bool {
        self.lines.iter().any(|l| l.points.len() > 1)
    }

    /// Whether points are marked one by one; lines are dashed otherwise.
    pub(crate) fn are_marked(&self) -> bool {
        self.lines.iter().all(|l| l.points.len() <= MARKED)
    }

    /// The number of a line's dashes: where marks tell colours apart, they tell lines of a colour apart.
    pub(crate) fn dashes(&self, l: &Line) -> usize {
        match (self.are_marked() || self.lines.len() == 1, l.nth) {
            (true, nth) => nth % DASHES,
            (false, 0) => l.colour,
            // Without marks, dashes tell lines of a colour apart, too.
            (false, nth) => (l.colour + nth) % DASHES,
        }
    }
}

impl Line {
    /// A line for each kind and dtype: how many of all its elements there are at each x from the first one on.
    pub(crate) fn of_groups<'g>(groups: impl Iterator<Item = (Kind, &'g str, i32, &'g [u64], u64)>) -> Vec<Self> {
        let groups: Vec<_> = groups.filter(|g| !g.3.is_empty() && g.4 > 0).collect();
        let line = |(i, &(kind, dtype, first, counts, of)): (usize, &(Kind, &str, i32, &[u64], u64))| Self {
            name: match groups.iter().filter(|g| g.0 == kind).count() {
                1 => kind.name().to_owned(),
                _ => format!("{} {dtype}", kind.name()),
            },
            colour: Kind::ALL.iter().position(|k| *k == kind).unwrap_or(0),
            nth: groups[..i].iter().filter(|g| g.0 == kind).count(),
            points: (first..).zip(counts).map(|(x, &n)| (x.into(), n as f64 / of as f64)).collect(),
            spikes: vec![],
        };
        groups.iter().enumerate().map(line).collect()
    }
}

/// Forms of dashes that lines of a colour have: none, and others.
const DASHES: usize = 7;

/// Points of a line that are marked one by one at most.
const MARKED: usize = 30;

/// Bars of the same parts below each other, in one scale from 0.
pub(crate) struct Bars {
    pub(crate) title: &'static str,
    /// What it shows, and what is normal.
    pub(crate) about: &'static str,
    /// The label of the axis.
    pub(crate) x: &'static str,
    /// The number of the colour, none for saved bytes, and the name of each part.
    pub(crate) parts: Vec<(Option<usize>, &'static str)>,
    /// The meaning of marks across bars.
    pub(crate) mark: &'static str,
    pub(crate) bars: Vec<Bar>,
}

/// A bar.
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Its label.
    pub(crate) label: String,
    /// The length of each part.
    pub(crate) parts: Vec<f64>,
    /// Where there is a mark across it.
    pub(crate) mark: Option<f64>,
}

/// A heat map: rows of cells in shades.
pub(crate) struct HeatMap {
    pub(crate) title: String,
    /// What it shows, and what is normal.
    pub(crate) about: String,
    pub(crate) columns: usize,
    /// Names of columns, and above them of several together, each with its middle in columns.
    pub(crate) labels: Vec<(f64, String)>,
    pub(crate) heads: Vec<(f64, String)>,
    /// Columns that lines are before.
    pub(crate) splits: Vec<usize>,
    /// The meaning of each shade.
    pub(crate) shades: Vec<String>,
    pub(crate) rows: Vec<HeatRow>,
}

/// A row of a heat map.
pub(crate) struct HeatRow {
    /// Untrusted text, in one line.
    pub(crate) name: String,
    /// What stands behind the cells, and the text that a pointer shows.
    pub(crate) note: String,
    pub(crate) title: String,
    /// The shade of each cell.
    pub(crate) cells: Vec<Option<usize>>,
}

/// The rates that shades begin at; below the first there is none, but a trace of everything above 0.
pub(crate) const SHADES: [f64; 7] = [1e-5, 1e-3, 0.01, 0.05, 0.15, 0.3, 0.45];

/// Points with names: x is a part of one, y is positive and has a logarithmic scale.
pub(crate) struct Scatter {
    pub(crate) title: &'static str,
    /// What it shows, and what is normal.
    pub(crate) about: &'static str,
    /// The labels of the axes.
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) groups: Vec<Group>,
}

/// Points of one colour.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// Number of its colour.
    pub(crate) colour: usize,
    pub(crate) points: Vec<Point>,
}

/// A point.
pub(crate) struct Point {
    pub(crate) name: String,
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Scatter {
    pub(crate) fn points(&self) -> impl Iterator<Item = &Point> {
        self.groups.iter().flat_map(|g| &g.points)
    }

    /// Whether no other point has both a lower x and a higher y.
    pub(crate) fn is_best(&self, p: &Point) -> bool {
        !self.points().any(|o| o.x <= p.x && o.y >= p.y && (o.x, o.y) != (p.x, p.y))
    }
}
