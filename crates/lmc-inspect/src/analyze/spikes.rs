//! Points of a curve that stand out.

/// Points around one that it is compared with, on each side.
const AROUND: usize = 5;

/// Points that are half as large again as the median of those around them, and further from it than six times the
/// median of those distances.
pub(super) fn spikes(points: &[Option<f32>]) -> Vec<usize> {
    let median = |mut of: Vec<f32>| {
        of.sort_by(f32::total_cmp);
        of[of.len() / 2]
    };
    let stands_out = |&i: &usize| {
        let around = i.saturating_sub(AROUND)..(i + AROUND + 1).min(points.len());
        let others: Vec<f32> = around.filter(|&j| j != i).filter_map(|j| points[j]).collect();
        let Some(x) = points[i].filter(|_| others.len() >= AROUND) else { return false };
        let middle = median(others.clone());
        let usual = median(others.iter().map(|y| (y - middle).abs()).collect());
        x - middle > (0.5 * middle.abs()).max(6.0 * usual)
    };
    (0..points.len()).filter(stands_out).collect()
}
