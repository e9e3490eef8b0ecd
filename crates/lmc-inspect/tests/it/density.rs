//! How many weights a step changes, beside the prediction: in a synthetic step of Adam.

use lmc::{Base, CompressOptions};
use lmc_inspect::text::percent;
use lmc_inspect::{Analysis, AnalyzeOptions, Checkpoints, Density, Failed, StepsFrom, analyze, page};
use lmc_test_inputs::noise;

use crate::analyze::{Run, study};
use crate::charts::points;
use crate::safetensors;

const N: usize = 1 << 16;
const RATE: f32 = 3e-4;

/// Numbers of about the normal distribution.
fn normal(seed: u64) -> Vec<f32> {
    let of = |b: &[u8]| (b.iter().map(|&b| f32::from(b)).sum::<f32>() - 510.0) / 147.8;
    noise(4 * N, seed).chunks(4).map(of).collect()
}

fn bytes(of: &[f32]) -> Vec<u8> {
    of.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The number rounded to BF16.
fn bf16(x: f32) -> [u8; 2] {
    let bits = x.to_bits();
    (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
}

/// A state of one parameter.
#[derive(Clone)]
struct State {
    copies: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl State {
    /// One in the middle of a run.
    fn new() -> Self {
        let scale = |mut x: Vec<f32>, by: f32| {
            x.iter_mut().for_each(|x| *x *= by);
            x
        };
        let square = normal(3).iter().map(|x| 1e-6 * (1.0 + 0.2 * x).powi(2) + 1e-9).collect();
        Self { copies: scale(normal(1), 0.1), mean: scale(normal(2), 2.3e-4), square }
    }

    fn direction(&self, i: usize) -> f32 {
        self.mean[i] / (self.square[i].sqrt() + 1e-8)
    }

    /// The next one.
    fn step(&self) -> Self {
        let mut next = self.clone();
        for (i, g) in normal(4).iter().enumerate() {
            let g = g * 1e-3;
            next.mean[i] = 0.9 * self.mean[i] + 0.1 * g;
            next.square[i] = 0.999 * self.square[i] + 0.001 * g * g;
            next.copies[i] -= RATE * next.direction(i);
        }
        next
    }

    fn weights(&self) -> Vec<[u8; 2]> {
        self.copies.iter().map(|&x| bf16(x)).collect()
    }

    fn file(&self, names: [&str; 4]) -> Vec<u8> {
        let shape = || vec![256, 256];
        safetensors(&[
            (names[0], "BF16", shape(), &self.weights().concat()),
            (names[1], "F32", shape(), &bytes(&self.copies)),
            (names[2], "F32", shape(), &bytes(&self.mean)),
            (names[3], "F32", shape(), &bytes(&self.square)),
        ])
    }
}

/// A part of one with six decimals, in percent.
fn share(part: f64) -> String {
    percent((part * 1e6).round() as u64, 1_000_000)
}

const NAMES: [&str; 4] = ["model.w", "master.w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w"];

fn of(names: [&str; 4], steps: [u64; 2]) -> (Analysis, Option<Density>) {
    let old = State::new();
    let a = study(&Run(vec![(steps[0], old.file(names)), (steps[1], old.step().file(names))]));
    let density = a.pairs[0].density;
    (a, density)
}

fn says_so(a: &Analysis) -> bool {
    a.advice.iter().any(|s| s.contains("Adam's moments predict"))
}

#[test]
fn a_step_of_adam() {
    let (a, found) = of(NAMES, [500, 501]);
    let d = found.unwrap();
    let (old, new) = (State::new(), State::new().step());
    let changed = old.weights().iter().zip(new.weights()).filter(|(a, b)| **a != *b).count() as u64;
    assert_eq!((d.elements, d.changed), (N as u64, changed));
    assert!((d.learning_rate / f64::from(RATE) - 1.0).abs() < 1e-3 && d.explained > 0.999, "{d:?}");
    let ulp = |i: usize| f64::from(f32::from_bits(old.copies[i].to_bits() & 0x7f80_0000)) / 128.0;
    let mean = |update: &dyn Fn(usize) -> f64| {
        (0..N).map(|i| (f64::from(RATE) * update(i) / ulp(i)).min(1.0)).sum::<f64>() / N as f64
    };
    assert!((d.predicted - mean(&|i| f64::from(old.direction(i).abs()))).abs() < 1e-3, "{d:?}");
    assert!((d.at_most - mean(&|_| 1.0)).abs() < 1e-3, "{d:?}");
    // The prediction is right, and not close to zero.
    let measured = changed as f64 / N as f64;
    assert!((d.predicted - measured).abs() < 0.01 && measured > 0.05 && measured < d.at_most, "{measured}: {d:?}");
    assert!(says_so(&a), "{:?}", a.advice);
    let said = format!(
        "Step 501 changed {} of the 16-bit weights that have copies: at a fitted rate of 3.00e-4 (it includes Adam's bias \
         correction), Adam's moments predict {}, and updates as large as the rate {}.",
        percent(changed, N as u64),
        share(d.predicted),
        share(d.at_most),
    );
    assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
}

#[test]
fn predictions_stand_on_the_page() {
    let states = [State::new(), State::new().step(), State::new().step().step()];
    let mut a = study(&Run((500..).zip(states.iter().map(|s| s.file(NAMES))).collect()));
    let title = "16-bit weights that a step of Adam changed, and was predicted to";
    let known: Vec<Density> = a.pairs.iter().map(|p| p.density.unwrap()).collect();
    type Part = fn(&Density) -> f64;
    let parts: [(&str, Part); 3] = [
        ("changed", |d| d.changed as f64 / d.elements as f64),
        ("predicted", |d| d.predicted),
        ("at the fitted rate", |d| d.at_most),
    ];
    let html = page(&a);
    for (name, part) in parts {
        let expected: Vec<_> = (501..).zip(&known).map(|(step, d)| (step.to_string(), share(part(d)))).collect();
        assert_eq!(points(&html, title, name), expected);
    }
    let row = |step: u64, d: &Density| {
        let counts = format!("<td>{step}<td>{}<td>{}<td>{}", d.elements, d.changed, percent(d.changed, d.elements));
        let rate = format!("{:.3e}", d.learning_rate);
        format!("<tr>{counts}<td>{}<td>{}<td>{rate}<td>{}", share(d.predicted), share(d.at_most), share(d.explained))
    };
    for (step, d) in (501..).zip(&known) {
        assert!(html.contains(&row(step, d)), "{}", row(step, d));
    }
    // Of many, the last ones stand in the table, and all in the chart and in the page's JSON, of which other details are cut.
    let (pair, checkpoint) = (a.pairs[0].clone(), a.checkpoints[0].clone());
    for i in 3..100 {
        let (mut p, mut c) = (pair.clone(), checkpoint.clone());
        (p.from, p.to, c.step) = (i - 1, i, 500 + i as u64);
        let d = p.density.as_mut().unwrap();
        d.changed = 1000 + i as u64;
        p.missing_names = vec!["x".repeat(1000); 8];
        a.pairs.push(p);
        a.checkpoints.push(c);
    }
    let html = page(&a);
    assert!(
        html.contains("the last steps, without 67 before") && html.contains(&row(599, &a.pairs[98].density.unwrap()))
    );
    assert!(!html.contains(&row(501, &known[0])));
    assert!(parts.iter().all(|(name, _)| points(&html, title, name).len() == 99));
    assert!((1003..1100).all(|n| html.contains(&format!("\"elements\":65536,\"changed\":{n},"))));
}

/// In the first steps, updates are larger than the rate that fits them.
#[test]
fn no_figure_contradicts_another() {
    let (mut old, mut new) = (State::new(), State::new().step());
    let scaled = |of: &mut Vec<f32>, by: f32| of.iter_mut().for_each(|x| *x *= by);
    [&mut old, &mut new].into_iter().for_each(|s| scaled(&mut s.mean, 8.0));
    let moved: Vec<f32> = (0..N).map(|i| old.copies[i] - RATE * new.direction(i)).collect();
    new.copies = moved;
    let a = study(&Run(vec![(1, old.file(NAMES)), (2, new.file(NAMES))]));
    let d = a.pairs[0].density.unwrap();
    assert!(d.at_most < d.changed as f64 / d.elements as f64, "{d:?}");
    assert!(says_so(&a) && !a.advice.iter().any(|s| s.contains("as large as")), "{:?}", a.advice);
}

/// Checkpoints whose steps are unknown.
struct Unknown(Run);

impl Checkpoints for Unknown {
    fn count(&self) -> usize {
        self.0.count()
    }
    fn name(&self, checkpoint: usize) -> String {
        self.0.name(checkpoint)
    }
    fn step(&self, checkpoint: usize) -> u64 {
        checkpoint as u64
    }
    fn steps_from(&self) -> StepsFrom {
        StepsFrom::Places
    }
    fn open(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed> {
        self.0.open(checkpoint)
    }
}

#[test]
fn a_step_must_be_known_to_be_one() {
    let run = Unknown(Run(vec![(500, State::new().file(NAMES)), (501, State::new().step().file(NAMES))]));
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    assert!(a.pairs[0].density.is_none() && !says_so(&a), "{:?}", a.advice);
}

#[test]
fn what_does_not_tell_it() {
    let names = |i: usize, name| {
        let mut names = NAMES;
        names[i] = name;
        names
    };
    for (names, steps) in [
        // More than a step.
        (NAMES, [500, 502]),
        // A moment is missing, is that of another parameter, or may be either's.
        (names(3, "other"), [500, 501]),
        (names(3, "optimizer.exp_avg_sq.v"), [500, 501]),
        (names(1, "exp_avg.w"), [500, 501]),
    ] {
        let (a, density) = of(names, steps);
        assert!(density.is_none() && !says_so(&a), "{names:?} {steps:?}");
    }
    // Nothing moved.
    let file = State::new().file(NAMES);
    assert!(study(&Run(vec![(1, file.clone()), (2, file)])).pairs[0].density.is_none());
}

#[test]
fn copies_that_go_their_own_way() {
    let (old, mut new) = (State::new(), State::new().step());
    new.copies.iter_mut().zip(normal(5)).for_each(|(w, x)| *w += 0.01 * x);
    let a = study(&Run(vec![(1, old.file(NAMES)), (2, new.file(NAMES))]));
    assert!(a.pairs[0].density.is_none_or(|d| d.explained < 0.1) && !says_so(&a), "{:?}", a.pairs[0].density);
}
