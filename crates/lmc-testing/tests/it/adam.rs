//! States of a training with Adam: a step predicts the next state from the one before.

use crate::support::{decompress_options, normal, restored, safetensors};
use lmc::{Base, CompressOptions, Compressor, Decompressor, Level, Reader};
use lmc_testing::input::Random;

/// The constants of a training.
#[derive(Clone, Copy)]
struct Adam {
    rate: f32,
    decay: f32,
    betas: [f32; 2],
    epsilon: f32,
}

const ADAM: Adam = Adam { rate: 3e-4, decay: 0.1, betas: [0.9, 0.95], epsilon: 1e-8 };

/// A training of some tensors: weights, and the averages of their gradients and of the squares.
#[derive(Clone)]
struct Training {
    adam: Adam,
    steps: i32,
    tensors: Vec<[Vec<f32>; 3]>,
    shapes: Vec<[usize; 2]>,
}

impl Training {
    fn new(adam: Adam, shapes: &[[usize; 2]], random: &mut Random) -> Self {
        let tensor = |&[rows, columns]: &[usize; 2]| {
            let weights = (0..rows * columns).map(|_| 0.05 * normal(random)).collect();
            [weights, vec![0.0; rows * columns], vec![0.0; rows * columns]]
        };
        let tensors = shapes.iter().map(tensor).collect();
        let mut training = Self { adam, steps: 0, tensors, shapes: shapes.to_vec() };
        (0..5).for_each(|_| training.step(random));
        training
    }

    /// As PyTorch computes it, operation by operation.
    fn step(&mut self, random: &mut Random) {
        self.steps += 1;
        let Adam { rate, decay, betas: [b1, b2], epsilon } = self.adam;
        let correction = |b: f32| 1.0 - f64::from(b).powi(self.steps);
        let (size, root) = ((f64::from(rate) / correction(b1)) as f32, correction(b2).sqrt() as f32);
        for ([w, m, v], [_, columns]) in self.tensors.iter_mut().zip(&self.shapes) {
            for i in 0..w.len() {
                // Columns differ in size.
                let g = 1e-3 * normal(random) * [0.1, 1.0, 5.0][i % columns % 3];
                w[i] *= 1.0 - rate * decay;
                m[i] += (g - m[i]) * (1.0 - b1);
                v[i] = v[i] * b2 + (1.0 - b2) * g * g;
                w[i] -= size * (m[i] / (v[i].sqrt() / root + epsilon));
            }
        }
    }

    /// A safetensors file, with moments before weights, as names rise.
    fn file(&self) -> Vec<u8> {
        self.file_of(&[(1, "exp_avg"), (2, "exp_avg_sq"), (0, "master")])
    }

    /// A file of some kinds of tensors.
    fn file_of(&self, kinds: &[(usize, &str)]) -> Vec<u8> {
        let mut named = vec![];
        for &(k, kind) in kinds {
            for (i, (tensor, [rows, columns])) in self.tensors.iter().zip(&self.shapes).enumerate() {
                let bytes: Vec<u8> = tensor[k].iter().flat_map(|x| x.to_le_bytes()).collect();
                named.push((format!("{kind}.layers.{i}.weight"), vec![*rows as u64, *columns as u64], bytes));
            }
        }
        let tensors: Vec<_> =
            named.iter().map(|(name, shape, bytes)| (&name[..], "F32", shape.clone(), &bytes[..])).collect();
        safetensors(&tensors)
    }
}

const SHAPES: &[[usize; 2]] = &[[512, 320], [300, 512], [1024, 128], [64, 8]];

#[test]
fn a_step_predicts_weights_and_second_moments() {
    let mut random = Random::new(1);
    let mut training = Training::new(ADAM, SHAPES, &mut random);
    let before = training.file();
    training.step(&mut random);
    let after = training.file();
    for level in [Level::Fast, Level::Default, Level::Max] {
        let len = restored(&after, &before, level).len();
        // Averages of gradients cannot be predicted: a third of the state.
        assert!(len * 100 < after.len() * 36, "{level:?}: {len} of {}", after.len());
    }
    let independent = CompressOptions::default().with_independent(true);
    let mut out = Vec::new();
    let bases = [Base::new(&before).unwrap()];
    Compressor::new(&independent).unwrap().compress(&after, &bases, &mut out).unwrap();
    assert!(
        out.len() * 100 > after.len() * 50,
        "{} of {}: tensors of one file that predict each other",
        out.len(),
        after.len()
    );
}

#[test]
fn other_constants_and_distances_cost_no_more_than_differences() {
    let mut random = Random::new(2);
    // SGD in the clothes of Adam, a large epsilon, no decay, other decays.
    let trainings = [
        Adam { epsilon: 1e-3, ..ADAM },
        Adam { decay: 0.0, betas: [0.95, 0.999], ..ADAM },
        Adam { rate: 1e-2, betas: [0.8, 0.99], ..ADAM },
    ];
    for adam in trainings {
        let mut training = Training::new(adam, SHAPES, &mut random);
        let before = training.file();
        training.step(&mut random);
        let one = restored(&training.file(), &before, Level::Default).len();
        assert!(one * 100 < before.len() * 40, "{one} of {}", before.len());
        (0..8).for_each(|_| training.step(&mut random));
        restored(&training.file(), &before, Level::Default);
    }
    // A state of another training, and numbers that are none.
    let mut training = Training::new(ADAM, SHAPES, &mut random);
    let before = Training::new(ADAM, SHAPES, &mut random).file();
    restored(&training.file(), &before, Level::Default);
    let before = training.file();
    training.step(&mut random);
    for tensor in &mut training.tensors {
        for (i, x) in tensor.iter_mut().flatten().enumerate().filter(|(i, _)| i % 97 == 0) {
            *x = [f32::NAN, f32::INFINITY, -1.0, f32::from_bits(1), -0.0][i / 97 % 5];
        }
    }
    restored(&training.file(), &before, Level::Default);
}

/// What a store does with tensors that it compresses by themselves.
#[test]
fn moments_beside_a_file_tell_the_step() {
    let mut random = Random::new(4);
    let mut training = Training::new(ADAM, SHAPES, &mut random);
    let kinds = [[(1, "exp_avg")], [(2, "exp_avg_sq")], [(0, "model")]];
    let old = kinds.map(|kind| training.file_of(&kind));
    training.step(&mut random);
    let new = kinds.map(|kind| training.file_of(&kind));
    let base = |file: &'_ Vec<u8>| Base::new(file.clone()).unwrap();
    let beside = |file: &'_ Vec<u8>| base(file).beside();
    let ways = [
        (1, vec![base(&old[1]), base(&old[0]), beside(&new[0])]),
        (2, vec![base(&old[2]), beside(&new[0]), beside(&new[1])]),
    ];
    for (of, bases) in ways {
        let (mut out, mut back) = (Vec::new(), Vec::new());
        let o = CompressOptions::default().with_threads(1);
        Compressor::new(&o).unwrap().compress(&new[of], &bases, &mut out).unwrap();
        assert!(out.len() * 100 < new[of].len() * 10, "{of}: {} of {}", out.len(), new[of].len());
        Decompressor::new(&decompress_options(1)).unwrap().decompress(&out, &bases, &mut back).unwrap();
        assert!(back == new[of]);
        // Which one is beside the file counts for compression only.
        let plain = match of {
            1 => [&old[1], &old[0], &new[0]],
            _ => [&old[2], &new[0], &new[1]],
        };
        Decompressor::new(&decompress_options(1)).unwrap().decompress(&out, &plain.map(base), &mut back).unwrap();
        assert!(back == new[of]);
    }
    // Nothing else is predicted from what is beside it: the file is as it would be without.
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut compressor = Compressor::new(&CompressOptions::default().with_threads(1)).unwrap();
    compressor.compress(&new[0], &[base(&old[0]), beside(&new[0])], &mut with).unwrap();
    compressor.compress(&new[0], &[base(&old[0])], &mut without).unwrap();
    assert!(with == without && Reader::open(&with, &decompress_options(1)).unwrap().bases().len() == 1);
}

#[test]
fn files_may_end_anywhere() {
    let mut random = Random::new(3);
    let mut training = Training::new(ADAM, SHAPES, &mut random);
    let before = training.file();
    training.step(&mut random);
    let after = training.file();
    let kind = after.len() / 3;
    for len in [kind / 2, kind, 2 * kind - 1000, 2 * kind + 5, after.len() - 1] {
        restored(&after[..len], &before, Level::Default);
        let base = &before[..len];
        let bases = [Base::new(base).unwrap()];
        let (o, mut out) = (CompressOptions::default().with_threads(1), Vec::new());
        Compressor::new(&o).unwrap().compress(&after[..], &bases, &mut out).unwrap();
        let mut back = Vec::new();
        Decompressor::new(&decompress_options(1)).unwrap().decompress(&out, &bases, &mut back).unwrap();
        assert!(back == after);
    }
}
