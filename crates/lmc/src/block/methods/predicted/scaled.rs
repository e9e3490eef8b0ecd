//! Finds the factor by which second moments shrink where gradients are small.

use lmc_kernels::cluster::element::Element;

/// Elements that are looked at, and the share of quotients below the factor: elements whose gradients were about 0.
const SAMPLE: usize = 1 << 16;
const SHARE: usize = 2000;
/// Least quotients that are compared.
const LEAST: usize = 256;
/// Decays that trainings use, and how near a number of steps must be to a whole one.
const DECAYS: [f64; 6] = [0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
const NEAR: f64 = 0.01;
/// The most steps between two snapshots.
const STEPS: u32 = 10_000;

/// The factor of elements of `width` bytes, F32 or BF16, that are second moments some steps after `base`; `None` if they look
/// like something else. A little less than the power of a decay, so that no element is below its prediction.
pub(in crate::block) fn find(width: usize, elements: &[u8], base: &[u8]) -> Option<f32> {
    let value = |bytes: &[u8], i: usize| match width {
        4 => f32::from_bits(u32::load(&bytes[4 * i..])),
        _ => f32::from_bits(u32::from(u16::load(&bytes[2 * i..])) << 16),
    };
    let n = elements.len() / width;
    let stride = n.div_ceil(SAMPLE).max(1);
    let mut quotients = Vec::with_capacity(n.min(SAMPLE));
    for i in (0..n).step_by(stride) {
        let (new, old) = (value(elements, i), value(base, i));
        if new.is_sign_negative() || old.is_sign_negative() || !new.is_finite() || !old.is_finite() {
            return None;
        }
        if old > 0.0 && new > 0.0 {
            quotients.push(f64::from(new) / f64::from(old));
        }
    }
    if quotients.len() < LEAST {
        return None;
    }
    let at = quotients.len() / SHARE;
    let (_, quotient, _) = quotients.select_nth_unstable_by(at, f64::total_cmp);
    let quotient = *quotient;
    if !(quotient > 0.1 && quotient < 1.0) {
        return None;
    }
    let known = DECAYS.iter().filter_map(|&decay| power_near(decay, quotient)).next();
    let factor = match known {
        Some((power, steps)) => power * (1.0 - f64::from(steps + 4) / f64::from(1 << 24)),
        None => quotient * (1.0 - 1.0 / f64::from(1 << 18)),
    };
    Some(factor as f32)
}

/// The power of a decay that is near a number, and its exponent.
fn power_near(decay: f64, number: f64) -> Option<(f64, u32)> {
    // Products are rounded alike on all machines; functions of the mathematical library are not.
    let mut power = 1.0;
    for steps in 1..=STEPS {
        power *= decay;
        if (power - number).abs() < NEAR * (1.0 - decay) * number {
            return Some((power, steps));
        }
        if power < number {
            return None;
        }
    }
    None
}
