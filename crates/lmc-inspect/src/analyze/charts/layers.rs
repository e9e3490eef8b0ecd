//! How far the weights of each layer moved, step by step.

use crate::analyze::result::Analysis;
use crate::page::chart::{HeatMap, HeatRow};
use crate::text::{grouped, name, significant};

/// Columns at most: of more pairs, each column has the largest of several.
const COLUMNS: usize = 60;
/// Rows at most.
const ROWS: usize = 100;
/// Shades, each of the same factor.
const SHADES: usize = 7;

/// ‖Δw‖ / ‖w‖ of each layer in each pair; `None` if there are fewer than two layers or pairs.
pub(super) fn map(a: &Analysis) -> Option<HeatMap> {
    let (pairs, layers) = (a.pairs.len(), &a.layers[..a.layers.len().min(ROWS)]);
    let each = pairs.div_ceil(COLUMNS).max(1);
    let largest = |ratios: &[Option<f32>]| {
        let columns = ratios.chunks(each).map(|some| some.iter().flatten().copied().reduce(f32::max));
        columns.map(|x| x.filter(|x| *x > 0.0).map(f64::from)).collect::<Vec<_>>()
    };
    let ratios: Vec<_> = layers.iter().map(|l| largest(&l.course.ratio)).collect();
    let known = || ratios.iter().flatten().flatten().map(|x| x.ln());
    let (low, high) = known().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    if layers.len() < 2 || pairs < 2 || low > high {
        return None;
    }
    let factor = ((high - low) / SHADES as f64).max(1e-9);
    let shade = |x: f64| (((x.ln() - low) / factor) as usize).min(SHADES - 1);
    let row = |(layer, ratios): (&crate::analyze::result::GroupCourse, &Vec<Option<f64>>)| {
        let most = ratios.iter().flatten().copied().fold(0.0, f64::max);
        HeatRow {
            name: name(&layer.name),
            note: significant(most),
            title: format!("{} at most", significant(most)),
            cells: ratios.iter().map(|x| x.map(shade)).collect(),
        }
    };
    let columns = pairs.div_ceil(each);
    let step = |column: usize| a.checkpoints[(column * each + 1).min(pairs)].step;
    let labels = (0..columns).step_by(columns.div_ceil(6)).map(|c| (c as f64 + 0.5, grouped(&step(c).to_string())));
    let from = |i: usize| significant((low + factor * i as f64).exp());
    let several = if each > 1 { format!(" Each column is the largest of {each} pairs.") } else { String::new() };
    Some(HeatMap {
        title: "How far the weights of each layer move, ‖Δw‖ / ‖w‖".to_owned(),
        about: format!(
            "Rows are layers, columns {}s, behind each row its largest. Layers that move alike are normal; a row that stands \
             out learns faster or slower than the others, a dark column is a spike.{several}",
            a.steps_from.unit()
        ),
        columns,
        labels: labels.collect(),
        heads: vec![],
        splits: vec![],
        shades: (0..SHADES).map(|i| format!("from {}", from(i))).collect(),
        rows: layers.iter().zip(&ratios).map(row).collect(),
    })
}
