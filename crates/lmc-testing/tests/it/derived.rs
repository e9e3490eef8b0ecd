//! Tensors that are copies of a base's in another precision.

use crate::support::{normal, restored, safetensors};
use lmc::{Base, CompressOptions, Compressor, Level};
use lmc_testing::input::Random;

/// Tensors of a file: name, dtype, shape, bytes.
type Tensors = Vec<(String, &'static str, Vec<u64>, Vec<u8>)>;

fn file(tensors: &Tensors) -> Vec<u8> {
    let all: Vec<_> = tensors.iter().map(|(n, d, s, b)| (&n[..], *d, s.clone(), &b[..])).collect();
    safetensors(&all)
}

const SHAPES: [[usize; 2]; 4] = [[256, 384], [384, 512], [512, 384], [192, 768]];

/// Weights of some layers, as BF16.
fn weights(random: &mut Random) -> Vec<Vec<u16>> {
    let mut of = |[rows, columns]: [usize; 2]| {
        let size = 0.02 + 0.001 * (random.below(10) as f32);
        (0..rows * columns).map(|_| bf16(size * normal(random))).collect()
    };
    SHAPES.into_iter().map(&mut of).collect()
}

fn bf16(x: f32) -> u16 {
    (x.to_bits().wrapping_add(0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16
}

fn float(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

fn base(weights: &[Vec<u16>]) -> Vec<u8> {
    file(&tensors(weights))
}

fn tensors(weights: &[Vec<u16>]) -> Tensors {
    let tensors = weights.iter().zip(SHAPES).enumerate().map(|(i, (w, [rows, columns]))| {
        let bytes = w.iter().flat_map(|x| x.to_le_bytes()).collect();
        (format!("model.layers.{i}.proj.weight"), "BF16", vec![rows as u64, columns as u64], bytes)
    });
    tensors.collect()
}

/// The nearest of the floats of 8 bits that are not negative, ties to even.
fn e4m3(y: f32) -> u8 {
    let value = |code: u8| {
        let (e, m) = (i32::from(code >> 3), f64::from(code & 7) / 8.0);
        if e == 0 { m / 64.0 } else { (1.0 + m) * 2f64.powi(e - 7) }
    };
    let magnitude = f64::from(y.abs());
    let above = (0..0x7f).find(|&c| value(c) >= magnitude).unwrap_or(0x7e);
    let code = match above {
        0 => 0,
        _ => {
            let [low, high] = [magnitude - value(above - 1), value(above) - magnitude];
            if low < high || low == high && above % 2 == 1 { above - 1 } else { above }
        }
    };
    code | if y.is_sign_negative() { 0x80 } else { 0 }
}

fn largest(of: impl Iterator<Item = f32>) -> f32 {
    of.fold(0.0, |a, x| a.max(x.abs()))
}

/// A file of codes with the scales of groups of rows and columns before them, as names rise.
fn quantised(
    weights: &[Vec<u16>],
    [rows_of, columns_of]: [usize; 2],
    (dtype, scale, code): (&'static str, impl Fn(f32) -> f32, impl Fn(f32, f32) -> u8),
) -> Vec<u8> {
    let (mut scales, mut codes) = (Tensors::new(), Tensors::new());
    for (i, (w, [rows, columns])) in weights.iter().zip(SHAPES).enumerate() {
        let (height, width) = (rows_of.min(rows), columns_of.min(columns));
        let of = |group: (usize, usize)| {
            let in_rows = group.0 * height..rows.min((group.0 + 1) * height);
            let each = in_rows
                .flat_map(move |r| (group.1 * width..columns.min((group.1 + 1) * width)).map(move |c| r * columns + c));
            scale(largest(each.map(|at| float(w[at]))))
        };
        let (down, across) = (rows.div_ceil(height), columns.div_ceil(width));
        let all: Vec<f32> = (0..down).flat_map(|r| (0..across).map(move |c| (r, c))).map(of).collect();
        let of_codes = w
            .iter()
            .enumerate()
            .map(|(at, &x)| code(float(x), all[at / columns / height * across + at % columns / width]));
        let name = format!("model.layers.{i}.proj.weight");
        codes.push((name.clone(), dtype, vec![rows as u64, columns as u64], of_codes.collect()));
        let bytes = all.iter().flat_map(|s| s.to_le_bytes()).collect();
        scales.push((format!("{name}_scale"), "F32", vec![down as u64, across as u64], bytes));
    }
    scales.append(&mut codes);
    file(&scales)
}

fn check(raw: &[u8], base: &[u8], most: usize, what: &str) {
    for level in [Level::Fast, Level::Default, Level::Max] {
        let len = restored(raw, base, level).len();
        assert!(len * 1000 <= raw.len() * most, "{what}, {level:?}: {len} of {}", raw.len());
    }
}

#[test]
fn codes_cost_next_to_nothing() {
    let weights = weights(&mut Random::new(1));
    let base = base(&weights);
    let all = usize::MAX;
    let fp8 = |by: fn(f32, f32) -> f32| move |x: f32, s: f32| e4m3(by(x, s));
    let int8 = |x: f32, s: f32| (x / s).round_ties_even() as i8 as u8;
    for shape in [[128, 128], [1, all], [all, 1], [all, all], [1, 64]] {
        // The first block has scales twice.
        let most = if shape == [1, 64] { 70 } else { 25 };
        let raw = quantised(&weights, shape, ("F8_E4M3", |a| a / 448.0, fp8(|x, s| x / s)));
        check(&raw, &base, most, &format!("divided, {shape:?}"));
        let raw = quantised(&weights, shape, ("F8_E4M3", |a| 448.0 / a, fp8(|x, s| x * s)));
        check(&raw, &base, most + 30, &format!("multiplied, {shape:?}"));
        let raw = quantised(&weights, shape, ("I8", |a| a / 127.0, int8));
        check(&raw, &base, most, &format!("integers, {shape:?}"));
    }
    // Products that are rounded to BF16 first.
    let raw =
        quantised(&weights, [all, all], ("F8_E4M3", |a| 1.0 / (448.0 / a), fp8(|x, s| float(bf16(x * (1.0 / s))))));
    check(&raw, &base, 40, "rounded twice");
}

#[test]
fn scales_that_are_as_many_as_the_weights_of_norms_take_no_trials_away() {
    let mut random = Random::new(8);
    let weights = weights(&mut random);
    let mut tensors = tensors(&weights);
    for (i, [rows, _]) in (0..1200).map(|i| (i, SHAPES[i % SHAPES.len()])) {
        let norm = (0..rows).flat_map(|_| bf16(1.0 + normal(&mut random)).to_le_bytes()).collect();
        tensors.push((format!("model.norms.{i}.weight"), "BF16", vec![rows as u64], norm));
    }
    let raw = quantised(&weights, [1, usize::MAX], ("F8_E4M3", |a| a / 448.0, |x, s| e4m3(x / s)));
    check(&raw, &file(&tensors), 25, "with norms");
}

#[test]
fn changed_codes_cost_what_changed() {
    let mut random = Random::new(2);
    let weights = weights(&mut random);
    let base = base(&weights);
    let mut raw = quantised(&weights, [128, 128], ("F8_E4M3", |a| a / 448.0, |x, s| e4m3(x / s)));
    let start = raw.len() - weights.iter().map(Vec::len).sum::<usize>();
    for code in &mut raw[start..] {
        if random.below(100) == 0 {
            *code = code.wrapping_add(1);
        }
    }
    check(&raw, &base, 40, "one per cent changed");
}

#[test]
fn an_unrelated_base_is_not_named() {
    let raw = quantised(&weights(&mut Random::new(3)), [128, 128], ("F8_E4M3", |a| a / 448.0, |x, s| e4m3(x / s)));
    let other = base(&weights(&mut Random::new(4)));
    let (mut alone, mut given) = (Vec::new(), Vec::new());
    let mut compressor = Compressor::new(&CompressOptions::default()).unwrap();
    compressor.compress(&raw, &[], &mut alone).unwrap();
    compressor.compress(&raw, &[Base::new(&other[..]).unwrap()], &mut given).unwrap();
    assert!(alone == given);
}

#[test]
fn special_values_restore() {
    let mut random = Random::new(5);
    let mut weights = weights(&mut random);
    // Groups of zeros, one with infinities, one with NaNs, subnormal numbers, both zeros.
    for w in &mut weights {
        w[..384].fill(0);
        w[400] = 0x7f80;
        w[401] = 0xffc1;
        w[900] = 0x8000;
        (1000..1100).for_each(|i| w[i] = (i % 128) as u16);
    }
    let base = base(&weights);
    for shape in [[1, usize::MAX], [128, 128], [1, 32]] {
        let raw = quantised(&weights, shape, ("F8_E4M3", |a| a / 448.0, |x, s| e4m3(x / s)));
        restored(&raw, &base, Level::Default);
        let raw = quantised(&weights, shape, ("I8", |a| a / 127.0, |x, s| (x / s).round_ties_even() as i8 as u8));
        restored(&raw, &base, Level::Default);
    }
}

#[test]
fn casts_cost_next_to_nothing() {
    let weights = weights(&mut Random::new(6));
    let base = base(&weights);
    for (name, dtype) in [("model.layers.{}.proj.weight", "F32"), ("blk.{}.w", "F32"), ("blk.{}.w", "F8_E4M3")] {
        let tensors = weights.iter().zip(SHAPES).enumerate().map(|(i, (w, [rows, columns]))| {
            let bytes = w.iter().flat_map(|&x| match dtype {
                "F32" => float(x).to_le_bytes().to_vec(),
                _ => vec![e4m3(float(x))],
            });
            (name.replace("{}", &i.to_string()), dtype, vec![rows as u64, columns as u64], bytes.collect())
        });
        check(&file(&tensors.collect()), &base, 8, &format!("{name} as {dtype}"));
    }
}

#[test]
fn rows_of_attention_heads_may_be_interleaved() {
    let mut random = Random::new(7);
    let weights = weights(&mut random);
    let base = base(&weights);
    let tensors = weights.iter().zip(SHAPES).enumerate().map(|(i, (w, [rows, columns]))| {
        // Heads of 64 rows: row 2·j + t of a head is row t·32 + j.
        let row = |r: usize| r / 64 * 64 + r % 2 * 32 + r % 64 / 2;
        let bytes = (0..rows).flat_map(|r| &w[row(r) * columns..][..columns]).flat_map(|&x| float(x).to_le_bytes());
        (format!("blk.{i}.attn_q.weight"), "F32", vec![rows as u64, columns as u64], bytes.collect())
    });
    check(&file(&tensors.collect()), &base, 20, "interleaved");
}
