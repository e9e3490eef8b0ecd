//! States of a training with Adam.

use super::{Tensor, noise};

const SHAPE: [u64; 2] = [256, 260];

fn floats(t: &Tensor) -> Vec<f32> {
    t.3.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn set(t: &mut Tensor, values: &[f32]) {
    t.3 = values.iter().flat_map(|x| x.to_le_bytes()).collect();
}

/// The average of gradients, the second moment and the weights of a parameter that is not small, after some steps.
pub(crate) fn training() -> Vec<Tensor> {
    let [rows, columns] = SHAPE;
    let tensor = |name, seed| Tensor::new(name, rows, columns, seed);
    let mut all = vec![tensor("exp_avg.a", 1), tensor("exp_avg_sq.a", 2), tensor("model.a", 3)];
    for (t, size) in all.iter_mut().zip([0.0, 0.0, 0.02]) {
        let values: Vec<f32> = floats(t).iter().map(|x| x * size).collect();
        set(t, &values);
    }
    (1..5).for_each(|n| step_of_adam(&mut all, n));
    all
}

/// Step `n` of a training, as PyTorch computes it, with random gradients.
pub(crate) fn step_of_adam(tensors: &mut [Tensor], n: u64) {
    let [m, v, w] = tensors else { panic!("a parameter has three tensors") };
    let (rate, decay, b1, b2, epsilon) = (3e-4f32, 0.1f32, 0.9f32, 0.95f32, 1e-8f32);
    let correction = |b: f32| 1.0 - f64::from(b).powi(n as i32);
    let (size, root) = ((f64::from(rate) / correction(b1)) as f32, correction(b2).sqrt() as f32);
    let [mut of_m, mut of_v, mut of_w] = [&*m, v, w].map(floats);
    for (i, random) in noise(8 * of_w.len(), n).as_chunks::<8>().0.iter().enumerate() {
        let sum: f32 =
            random.as_chunks::<2>().0.iter().map(|x| f32::from(u16::from_le_bytes(*x)) / 65536.0 - 0.5).sum();
        let g = 1e-3 * sum * [0.1, 1.0, 5.0][i % 260 % 3];
        of_w[i] *= 1.0 - rate * decay;
        of_m[i] += (g - of_m[i]) * (1.0 - b1);
        of_v[i] = of_v[i] * b2 + (1.0 - b2) * g * g;
        of_w[i] -= size * (of_m[i] / (of_v[i].sqrt() / root + epsilon));
    }
    for (t, values) in [(m, of_m), (v, of_v), (w, of_w)] {
        set(t, &values);
    }
}
