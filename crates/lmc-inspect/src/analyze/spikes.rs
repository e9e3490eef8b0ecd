//! Points of a curve that stand out: the Hampel identifier (Davies and Gather, "The Identification of Multiple Outliers",
//! 1993; Pearson, "Outliers in process modeling and identification", 2002), of points above alone.

/// Points around one that it is compared with, on each side.
const AROUND: usize = 20;
/// The fewest of them, and of those before it: a curve often begins high.
const LEAST: usize = 10;
const BEFORE: usize = 5;

/// How many standard deviations a spike is away. Three, as the literature has it, marks 4 of 1000 points of Gaussian noise,
/// and 26 of Laplace's; eight marks fewer than one of either.
const AWAY: f32 = 8.0;
/// The standard deviation of Gaussian noise over the median of the distances from its median.
const DEVIATION: f32 = 1.4826;
/// What a spike exceeds the median by at least, as a part of it: points that hardly vary have no deviation to speak of.
const FLOOR: f32 = 0.05;

/// Points further above the median of those around them than eight times their deviation, and above the point before, by
/// their number.
pub(super) fn spikes(points: &[Option<f32>]) -> Vec<usize> {
    let median = |of: &mut [f32]| {
        of.sort_by(f32::total_cmp);
        of[of.len() / 2]
    };
    let (mut known, mut before) = (0, f32::MAX);
    let mut stands_out = |i: usize| {
        let Some(x) = points[i] else { return false };
        known += 1;
        let rises = x > std::mem::replace(&mut before, x);
        let around = &points[i.saturating_sub(AROUND)..(i + AROUND + 1).min(points.len())];
        let mut around: Vec<f32> = around.iter().flatten().copied().collect();
        if !rises || known <= BEFORE || around.len() <= LEAST {
            return false;
        }
        let middle = median(&mut around);
        around.iter_mut().for_each(|y| *y = (*y - middle).abs());
        let usual = DEVIATION * median(&mut around);
        x - middle > (FLOOR * middle.abs()).max(AWAY * usual)
    };
    (0..points.len()).filter(|&i| stands_out(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many numbers from 0 to 1, both left out.
    fn uniform(n: usize, seed: u64) -> impl FnMut() -> f32 {
        let mut bytes = lmc_test_inputs::noise(4 * n, seed).into_iter();
        move || {
            let bits = u32::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap())) >> 9;
            (bits as f32 + 0.5) / (1 << 23) as f32
        }
    }

    /// So many points of noise around 1, whose deviation is a part of it.
    fn noisy(n: usize, deviation: f32, seed: u64, of_laplace: bool) -> Vec<Option<f32>> {
        let mut next = uniform(2 * n, seed);
        let point = |_| {
            let (a, b) = (next(), next());
            let noise = match of_laplace {
                true => (2.0 * a - 1.0).signum() * -(1.0 - (2.0 * a - 1.0).abs()).ln() / 2f32.sqrt(),
                false => (-2.0 * a.ln()).sqrt() * (std::f32::consts::TAU * b).cos(),
            };
            Some(1.0 + deviation * noise)
        };
        (0..n).map(point).collect()
    }

    #[test]
    fn noise_has_few_spikes() {
        for of_laplace in [false, true] {
            for deviation in [0.01, 0.1, 0.5] {
                let found = spikes(&noisy(20_000, deviation, 7, of_laplace)).len();
                assert!(found <= 20, "{found} of 20,000 points, {deviation}, {of_laplace}");
                // Of runs of 30 checkpoints.
                let short = (0..200).map(|seed| spikes(&noisy(30, deviation, 100 + seed, of_laplace)).len());
                assert!(short.clone().sum::<usize>() <= 6, "{} of 6,000 points", short.sum::<usize>());
            }
        }
    }

    #[test]
    fn a_spike_is_found_in_noise() {
        for of_laplace in [false, true] {
            for (n, at) in [(30, 12), (30, 29), (30, 5), (200, 100)] {
                let mut points = noisy(n, 0.02, 3, of_laplace);
                points[at] = Some(1.4);
                let found = spikes(&points);
                assert!(found.contains(&at) && found.len() <= 2, "{found:?} of {n} points, Laplace: {of_laplace}");
            }
        }
    }

    #[test]
    fn what_stands_out() {
        let mut points: Vec<Option<f32>> = (0..20).map(|i| Some(1.0 + 0.01 * (i % 3) as f32)).collect();
        assert_eq!(spikes(&points), [0; 0]);
        (points[7], points[12], points[3]) = (Some(1.8), Some(1.03), None);
        assert_eq!(spikes(&points), [7], "1.03 is within a twentieth of the median");
        // A curve that falls from its first points is as it should be.
        points = (0..20).map(|i| Some(2.0 + 4.0 * 0.5f32.powi(i))).collect();
        assert_eq!(spikes(&points), [0; 0]);
        points = vec![Some(1.0); 40];
        (points[0], points[30]) = (Some(9.0), Some(1.2));
        assert_eq!(spikes(&points), [30]);
        let mut few = [Some(1.0); 10];
        few[8] = Some(9.0);
        assert_eq!(spikes(&few), [0; 0], "too few to tell");
    }
}
