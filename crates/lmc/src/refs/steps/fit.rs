//! Fits the constants of a step of Adam to samples: nobody has to state them, and no file does.
//!
//! Sums are made in one order and of binary64, so that all machines find the same constants.

use lmc_kernels::predict::bits_apart;
use lmc_kernels::predict::optimizer::{MomentStep, WeightStep};
use lmc_layout::dtype::Dtype;

/// Sampled elements of tensors, before and after: as many of all, or none where they are not known.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) w: [Vec<f32>; 2],
    pub(super) m: [Vec<f32>; 2],
    pub(super) v: [Vec<f32>; 2],
}

/// Digits of the decays that people choose.
const DIGITS_B: f64 = 1e4;
const DIGITS_A: f64 = 1e5;
/// Bits, of an element on average, that a step must save.
const SAVED: f64 = 1.0;
/// The smallest constant that is added to the root and how many are tried, half a decade apart; then how often the interval about the
/// best one is divided, and by which share.
const EPSILON: (f64, usize) = (1e-12, 25);
const HALF_DECADE: f64 = 3.162_277_660_168_379_5;
const DIVISIONS: usize = 24;
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Bits of the residuals that rounding leaves.
const EXACT: f64 = 2.0;
/// Elements that this search looks at.
const SEARCHED: usize = 1 << 11;
/// The share of elements with the largest residuals that a fit leaves out: they may have other constants.
const LEFT_OUT: usize = 50;

/// Bits of the residuals of an element on average.
fn bits(elements: &[f32], predictions: &[f32]) -> f64 {
    bits_apart(Dtype::F32, &le(elements), &le(predictions)) as f64 / elements.len() as f64
}

/// The step that leads from the second moments before to those after; `None` if none does, as after several steps.
pub(super) fn moment(s: &Samples) -> Option<MomentStep> {
    let ([m0, m1], [v0, v1]) = (&s.m, &s.v);
    if [m0, m1, v0, v1].iter().any(|of| of.is_empty()) {
        return None;
    }
    // v1 = a·v0 + c·h²·(m1 − b·m0)² is linear in v0, m1², m1·m0 and m0²; relative to v1, so that large elements do not decide alone.
    let rows = (0..v1.len()).filter(|&i| v1[i] > 0.0 && v1[i].is_finite()).map(|i| {
        let (m0, m1, v0, v1) = (f64::from(m0[i]), f64::from(m1[i]), f64::from(v0[i]), f64::from(v1[i]));
        ([v0 / v1, m1 * m1 / v1, m1 * m0 / v1, m0 * m0 / v1], 1.0)
    });
    let [_, square, mixed, _] = least_squares(rows)?;
    let b = (-mixed / (2.0 * square) * DIGITS_B).round() / DIGITS_B;
    if !(0.0..1.0).contains(&b) {
        return None;
    }
    let rows = (0..v1.len()).filter(|&i| v1[i] > 0.0 && v1[i].is_finite()).map(|i| {
        let (v0, v1) = (f64::from(v0[i]), f64::from(v1[i]));
        let g = (f64::from(m1[i]) - b * f64::from(m0[i])) / (1.0 - b);
        ([v0 / v1, g * g / v1], 1.0)
    });
    let [a, _] = least_squares(rows)?;
    let a = (a * DIGITS_A).round() / DIGITS_A;
    if !(0.0..1.0).contains(&a) {
        return None;
    }
    let step = MomentStep { b: b as f32, h: (1.0 / (1.0 - b)) as f32, a: a as f32, c: (1.0 - a) as f32 };
    let predictions = predict(v1.len(), |out| step.predict(&le(v0), &le(m0), &le(m1), out));
    (bits(v1, &predictions) + SAVED < bits(v1, v0)).then_some(step)
}

/// The step that leads from the weights before to those after, by the moments after it, and the average of gradients before it if that
/// helps.
pub(super) fn weight(s: &Samples) -> Option<WeightStep> {
    let ([w0, w1], [m0, m1], v1) = (&s.w, &s.m, &s.v[1]);
    if [w0, w1, m1, v1].iter().any(|of| of.is_empty()) {
        return None;
    }
    let n = w1.len();
    let without = bits(w1, w0);
    let mut best: Option<(f64, WeightStep)> = None;
    for with_before in [false, true].into_iter().filter(|&before| !before || !m0.is_empty()) {
        // Where a step is all that there was, nothing is left to gain.
        if best.is_some_and(|(bits, _)| bits < EXACT) {
            break;
        }
        // The best factors for a constant that is added to the root, and their residual in units of the last place, of every
        // `stride`-th element.
        let fit = |e: f64, stride: usize| -> Option<(f64, [f64; 3])> {
            let terms = |i: usize| {
                let (w0, w1) = (f64::from(w0[i]), f64::from(w1[i]));
                let unit = f64::from(w1.abs().max(f64::from(f32::MIN_POSITIVE)) as f32 * f32::EPSILON);
                let d = f64::from(v1[i]).sqrt() + e;
                let before = if with_before { f64::from(m0[i]) / d } else { 0.0 };
                ([w0 / unit, f64::from(m1[i]) / d / unit, before / unit], (w1 - w0) / unit)
            };
            let all: Vec<([f64; 3], f64)> = (0..n)
                .step_by(stride)
                .map(terms)
                .filter(|(x, y)| y.is_finite() && x.iter().all(|x| x.is_finite()))
                .collect();
            let solve = |most: f64, of: [f64; 3]| {
                let rows = all.iter().filter(|(x, y)| apart(*x, *y, of) <= most).copied();
                if with_before {
                    least_squares(rows)
                } else {
                    let [a, s] = least_squares(rows.map(|([x, m, _], y)| ([x, m], y)))?;
                    Some([a, s, 0.0])
                }
            };
            let first = solve(f64::INFINITY, [0.0; 3])?;
            let mut residuals: Vec<f64> = all.iter().map(|(x, y)| apart(*x, *y, first)).collect();
            let at = residuals.len().checked_sub(1 + residuals.len() / LEFT_OUT)?;
            let most = *residuals.select_nth_unstable_by(at, f64::total_cmp).1;
            let factors = solve(most, first)?;
            Some((all.iter().map(|(x, y)| apart(*x, *y, factors).min(8.0)).sum(), factors))
        };
        let searched = n.div_ceil(SEARCHED);
        let residual = |e: f64| fit(e, searched).map_or(f64::INFINITY, |(residual, _)| residual);
        let mut e = 0.0;
        let (mut least, mut tried) = (residual(0.0), EPSILON.0);
        for _ in 0..EPSILON.1 {
            let of_this = residual(tried);
            if of_this < least {
                (least, e) = (of_this, tried);
            }
            tried *= HALF_DECADE;
        }
        if e > 0.0 {
            e = minimum(e / HALF_DECADE, e * HALF_DECADE, residual);
        }
        let Some((_, [decay, s1, s0])) = fit(e, 1) else { continue };
        let step = WeightStep { a: (1.0 + decay) as f32, s1: s1 as f32, s0: s0 as f32, e: e as f32 };
        let finite = [step.a, step.s1, step.s0, step.e].iter().all(|x| x.is_finite());
        if !finite || with_before && step.s0 == 0.0 {
            continue;
        }
        let before = with_before.then(|| le(m0));
        let predictions = predict(n, |out| step.predict(&le(w0), &le(m1), &le(v1), before.as_deref(), out));
        let bits = bits(w1, &predictions);
        // A further operand must save a tenth of a bit.
        if best.is_none_or(|(least, _)| bits + 0.1 < least) {
            best = Some((bits, step));
        }
    }
    best.filter(|(bits, _)| bits + SAVED / 4.0 < without).map(|(_, step)| step)
}

/// Where a function is least between two numbers, by golden sections.
fn minimum(mut from: f64, mut to: f64, f: impl Fn(f64) -> f64) -> f64 {
    let inner = |from: f64, to: f64| (to - GOLDEN * (to - from), from + GOLDEN * (to - from));
    let (mut a, mut b) = inner(from, to);
    let (mut of_a, mut of_b) = (f(a), f(b));
    for _ in 0..DIVISIONS {
        if of_a <= of_b {
            (to, b, of_b) = (b, a, of_a);
            a = inner(from, to).0;
            of_a = f(a);
        } else {
            (from, a, of_a) = (a, b, of_b);
            b = inner(from, to).1;
            of_b = f(b);
        }
    }
    if of_a <= of_b { a } else { b }
}

/// How far a sum of products is from a number.
fn apart(x: [f64; 3], y: f64, factors: [f64; 3]) -> f64 {
    (y - (x[0] * factors[0] + x[1] * factors[1] + x[2] * factors[2])).abs()
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn predict(n: usize, by: impl FnOnce(&mut [u8])) -> Vec<f32> {
    let mut out = vec![0; 4 * n];
    by(&mut out);
    out.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The factors of the columns whose sum is nearest to the last number of each row, by normal equations; `None` if there is no one solution.
fn least_squares<const N: usize>(rows: impl Iterator<Item = ([f64; N], f64)>) -> Option<[f64; N]> {
    let (mut a, mut b) = ([[0.0f64; N]; N], [0.0f64; N]);
    for (x, y) in rows {
        for i in 0..N {
            for j in 0..N {
                a[i][j] += x[i] * x[j];
            }
            b[i] += x[i] * y;
        }
    }
    // Cholesky's method on a matrix with ones on its diagonal: the columns have sizes far apart.
    let mut scale = [0.0; N];
    for i in 0..N {
        scale[i] = a[i][i].sqrt();
        if !(scale[i] > 0.0 && scale[i].is_finite()) {
            return None;
        }
    }
    let mut l = [[0.0f64; N]; N];
    for i in 0..N {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            let rest = a[i][j] / (scale[i] * scale[j]) - sum;
            l[i][j] = if i == j { rest.sqrt() } else { rest / l[j][j] };
            if !l[i][j].is_finite() || i == j && l[i][i] < 1e-7 {
                return None;
            }
        }
    }
    let (mut y, mut x) = ([0.0; N], [0.0; N]);
    for i in 0..N {
        let sum: f64 = (0..i).map(|k| l[i][k] * y[k]).sum();
        y[i] = (b[i] / scale[i] - sum) / l[i][i];
    }
    for i in (0..N).rev() {
        let sum: f64 = (i + 1..N).map(|k| l[k][i] * x[k]).sum();
        x[i] = (y[i] - sum) / l[i][i];
    }
    for i in 0..N {
        x[i] /= scale[i];
    }
    Some(x)
}
