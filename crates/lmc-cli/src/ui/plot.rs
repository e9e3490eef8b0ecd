//! Plots for a terminal.

use rasciigraph::{Config, plot_many};

/// In characters, without the scale.
const WIDTH: usize = 72;
const HEIGHT: u32 = 10;

/// Plots values as a line above a scale from zero. If there are more values than columns, each column shows the largest of its values.
pub(crate) fn line(values: &[f64], caption: String) -> String {
    let together = values.len().div_ceil(WIDTH).max(1);
    let wide = (WIDTH / values.len().max(1)).max(1);
    let largest = values.chunks(together).map(|v| v.iter().copied().fold(0.0, f64::max));
    let series: Vec<f64> = largest.flat_map(|v| std::iter::repeat_n(v, wide)).collect();
    if series.is_empty() {
        return String::new();
    }
    // The second series is a single point at zero, so that the scale includes zero.
    plot_many(vec![series, vec![0.0]], Config::default().with_height(HEIGHT).with_caption(caption)) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_high_as_their_values() {
        let plot = line(&[10.0, 40.0, 20.0], "steps 1 to 3".into());
        let lines: Vec<Vec<char>> = plot.lines().map(|l| l.chars().collect()).collect();
        assert_eq!(lines.len(), HEIGHT as usize + 2, "{plot}");
        assert!(plot.starts_with(" 40.00 ") && plot.ends_with("steps 1 to 3\n"), "{plot}");
        // In the middle of each third.
        let height = |third: usize| {
            let column = 8 + third * WIDTH / 3 + WIDTH / 6;
            (0..=HEIGHT as usize).find(|&y| lines[y].get(column) == Some(&'─')).map(|y| HEIGHT as usize - y)
        };
        assert_eq!([height(0), height(1), height(2)], [Some(3), Some(10), Some(5)], "{plot}");
    }

    #[test]
    fn whatever_is_stored_can_be_plotted() {
        let many: Vec<f64> = (0..1000).map(|i| if i == 500 { 100.0 } else { 1.0 }).collect();
        let plot = line(&many, String::new());
        assert!(plot.contains('│') && plot.lines().all(|l| l.chars().count() < WIDTH + 12), "{plot}");
        for values in [&[][..], &[0.0], &[0.0, 0.0], &[56.0, 56.000_000_1], &[1e-9], &[1e9, 0.0]] {
            line(values, String::new());
        }
    }
}
