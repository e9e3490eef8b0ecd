//! Studies of checkpoints whose figures are known.

use lmc::{Base, CompressOptions};
use lmc_inspect::text::percent;
use lmc_inspect::{Analysis, AnalyzeOptions, Checkpoints, DifferenceEntropy, Failed, Kind, StepsFrom, analyze};

use crate::safetensors;

/// Checkpoints of one file each, in memory, with their steps.
pub(crate) struct Run(pub(crate) Vec<(u64, Vec<u8>)>);

impl Checkpoints for Run {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, checkpoint: usize) -> String {
        format!("step{}", self.0[checkpoint].0)
    }
    fn step(&self, checkpoint: usize) -> u64 {
        self.0[checkpoint].0
    }
    fn steps_from(&self) -> StepsFrom {
        StepsFrom::Names
    }
    fn open(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed> {
        let (step, file) = &self.0[checkpoint];
        let base = Base::new(&file[..]).map_err(|e| Failed::new(checkpoint, None, e))?;
        Ok(vec![base.with_name(format!("step{step}.safetensors"))])
    }
}

/// Studies a run with one and with three threads, which makes no difference.
pub(crate) fn study(run: &Run) -> Analysis {
    let codec = CompressOptions::default();
    let with = |threads| analyze(&codec.with_threads(threads), run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    let (one, three) = (with(1), with(3));
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&three).unwrap());
    one
}

pub(crate) fn bf16s(n: u32) -> Vec<u8> {
    // Four exponents and all mantissas, positive.
    (0..n).flat_map(|i| ((120 + (i >> 7 & 3) as u16) << 7 | (i & 127) as u16).to_le_bytes()).collect()
}

pub(crate) fn f32s(n: u32) -> Vec<u8> {
    (0..n).flat_map(|i| ((i.wrapping_mul(0x9e37_79b9) >> 9) | 0x3f80_0000).to_le_bytes()).collect()
}

/// The elements with bit `bit` flipped in every `every`th.
pub(crate) fn flipped(elements: &[u8], width: usize, bit: usize, every: usize) -> Vec<u8> {
    let mut new = elements.to_vec();
    new.chunks_mut(width).step_by(every).for_each(|e| e[bit / 8] ^= 1 << (bit % 8));
    new
}

#[test]
fn fields_of_a_checkpoint() {
    let n = 1 << 20; // in several blocks
    let file = safetensors(&[
        ("model.a.weight", "BF16", vec![n], &bf16s(n as u32)),
        ("model.norm.weight", "F32", vec![4], &[0; 16]),
        ("model.embed.weight", "U8", vec![8], &[0, 1, 2, 3, 0, 1, 2, 3]),
    ]);
    let a = study(&Run(vec![(7, file.clone())]));
    let [t, norm, embed] = &a.tensors[..] else { panic!("{a:?}") };
    assert_eq!((t.kind, norm.kind, embed.kind), (Kind::Weights, Kind::Norm, Kind::Embedding));
    let f = &t.figures;
    assert_eq!((f.elements, f.raw_size, f.element_bits), (n, 2 * n, 16.0));
    assert_eq!((f.sign_entropy, f.exponent_entropy, f.mantissa_entropy), (0.0, 2.0, 7.0));
    assert_eq!((f.distinct_exponents, f.zeros, f.not_finite), (4, 0, 0));
    assert_eq!((norm.figures.zeros, norm.figures.distinct_exponents), (4, 1));
    assert_eq!((embed.figures.mantissa_entropy, embed.figures.zeros), (2.0, 2));
    let [c] = &a.checkpoints[..] else { panic!("{a:?}") };
    assert_eq!(
        (c.step, &c.files[..], &c.formats[..]),
        (7, &["step7.safetensors".to_owned()][..], &["safetensors".to_owned()][..])
    );
    assert_eq!((c.all.raw_size, c.all.tensors), (file.len() as u64, 3));
    // The sizes are those that compression gives.
    let options = CompressOptions::default();
    assert_eq!(c.all.lmc_size, lmc::compress(&file, &options).unwrap().len() as u64);
    let kinds: Vec<_> = c.kinds.iter().map(|g| (&g.name[..], g.figures.raw_size)).collect();
    let header = file.len() as u64 - 2 * n - 24;
    assert_eq!(kinds, [("weights", 2 * n), ("embedding", 8), ("norm", 16), ("other", header)]);
    let dtypes: Vec<_> = c.dtypes.iter().map(|g| &g.name[..]).collect();
    assert_eq!(dtypes, ["BF16", "F32", "U8", "opaque"]);
    let kinds: u64 = c.kinds.iter().map(|g| g.figures.lmc_size).sum();
    let tensors: u64 = a.tensors.iter().map(|t| t.figures.lmc_size).sum();
    assert!(
        tensors <= kinds && kinds <= c.all.lmc_size && c.all.lmc_size - kinds < 1000,
        "{kinds} of {}",
        c.all.lmc_size
    );
    assert!(a.pairs.is_empty() && a.distances.is_empty() && t.change.is_none());
}

fn json(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).unwrap()
}

#[test]
fn a_sample_of_blocks() {
    let noise = f32s(5 << 18);
    let checkpoint = |step: u64| {
        let moved = flipped(&noise, 4, 2 + step as usize, 2);
        let few = flipped(&bf16s(600), 2, step as usize, 3);
        let tensors =
            [("exp_avg.a", "F32", vec![5 << 18], &moved[..]), ("model.z.weight", "BF16", vec![600], &few[..])];
        (step, safetensors(&tensors))
    };
    let run = Run((0..4).map(checkpoint).collect());
    let study = |sample| {
        let mut options = AnalyzeOptions::default();
        options.sample = sample;
        analyze(&CompressOptions::default(), &run, &options, &mut |_| ()).unwrap()
    };
    let (all, some) = (study(None), study(Some(3)));
    assert_eq!((all.sample, some.sample), (1, 3));
    let says = |a: &Analysis| a.advice.iter().any(|s| s.contains("estimates from one of 3 blocks"));
    assert_eq!((says(&all), says(&some)), (false, true));
    // Counts are those of all elements, and the last checkpoint by itself is compressed whole.
    assert_eq!(json(&some.checkpoints[3]), json(&all.checkpoints[3]));
    assert_eq!([json(&some.kinds), json(&some.magnitudes)], [json(&all.kinds), json(&all.magnitudes)]);
    let near = |a: u64, b: u64| assert!(a != b && a.abs_diff(b) < b / 50, "{a} for {b}");
    for (a, b) in some.pairs.iter().zip(&all.pairs) {
        assert_eq!((a.all.changed, &a.groups[0].flips), (b.all.changed, &b.groups[0].flips));
        near(a.all.delta_size, b.all.delta_size);
    }
    for (a, b) in some.distances.iter().zip(&all.distances) {
        near(a.delta_size, b.delta_size);
        near(a.floats.entropy_size, b.floats.entropy_size);
        assert_eq!((a.raw_size, a.floats.raw_size), (b.raw_size, b.floats.raw_size), "{}", a.steps);
    }
    near(some.checkpoints[1].all.lmc_size, all.checkpoints[1].all.lmc_size);
}

#[test]
fn magnitudes_and_values() {
    let floats = [0.0f32, -0.0, 1.0, -1.5, 1.99, 2.0, 0.25, f32::INFINITY, f32::NAN, 1e-45];
    let wide: Vec<u8> = floats.into_iter().flat_map(f32::to_le_bytes).collect();
    let half: Vec<u8> = [0x3c00u16, 0x3c01, 0xc000, 0x3c00, 0x7c00, 0].into_iter().flat_map(u16::to_le_bytes).collect();
    let e4m3 = [0x38, 0xb8, 0x40, 0x38, 0];
    // Infinity, no number, and 1.
    let e5m2 = [0x7c, 0x7d, 0x3c];
    let file = safetensors(&[
        ("model.a.weight", "F32", vec![10], &wide),
        ("model.b.weight", "F32", vec![1], &8.0f32.to_le_bytes()),
        ("model.c.weight", "F16", vec![6], &half),
        ("model.d.weight", "F8_E4M3", vec![5], &e4m3),
        ("model.e.weight", "F8_E5M2", vec![3], &e5m2),
        ("model.f.weight", "F4", vec![4], &[0x12, 0x21]),
        ("model.embed.weight", "I32", vec![2], &[1, 0, 0, 0, 2, 0, 0, 0]),
    ]);
    let a = study(&Run(vec![(0, file)]));
    let found: Vec<_> = a.magnitudes.iter().map(|g| (g.kind, &g.dtype[..], g.lowest, g.counts.clone())).collect();
    let mut of_f32 = vec![0; 131];
    // The smallest number of all counts as the exponent below that of the smallest normal one.
    (of_f32[0], of_f32[125], of_f32[127], of_f32[128], of_f32[130]) = (1, 1, 3, 1, 1);
    let expected = [
        (Kind::Weights, "F16", 0, vec![3, 1]),
        (Kind::Weights, "F32", -127, of_f32),
        (Kind::Weights, "F8_E4M3", 0, vec![3, 1]),
        (Kind::Weights, "F8_E5M2", 0, vec![1]),
    ];
    assert_eq!(found, expected);
    let values: Vec<_> = a.tensors.iter().map(|t| t.distinct_values).collect();
    assert_eq!(values, [None, None, Some(5), Some(4), Some(3), None, None]);
    // Counted in several blocks, and whole.
    let n = 1 << 20;
    let a = study(&Run(vec![(0, safetensors(&[("model.a.weight", "BF16", vec![n], &bf16s(n as u32))]))]));
    let [g] = &a.magnitudes[..] else { panic!("{:?}", a.magnitudes) };
    assert_eq!((g.counts.len(), g.counts.iter().sum::<u64>()), (4, n));
    assert_eq!(a.tensors[0].distinct_values, Some(512));
}

#[test]
fn flips_are_counted_by_bit() {
    let n = 700_000; // in two blocks
    let (w, m) = (bf16s(n), f32s(1000));
    let file = |w: &[u8], m: &[u8]| {
        safetensors(&[
            ("w", "BF16", vec![u64::from(n)], w),
            ("exp_avg.w", "F32", vec![1000], m),
            ("still", "F32", vec![1000], &f32s(1000)),
        ])
    };
    // Bit 3 of every hundredth element, then bit 14 of every third as well; the moments change in bit 31 only, in all elements.
    let w1 = flipped(&w, 2, 3, 100);
    let w2 = flipped(&w1, 2, 14, 3);
    let m2 = flipped(&m, 4, 31, 1);
    let a = study(&Run(vec![(10, file(&w, &m)), (11, file(&w1, &m)), (13, file(&w2, &m2))]));
    let (hundredth, third) = (u64::from(n).div_ceil(100), u64::from(n).div_ceil(3));
    let c = a.tensors[0].change.as_ref().unwrap();
    let mut expected = vec![0; 16];
    (expected[3], expected[14]) = (hundredth, third);
    assert_eq!((c.pairs, c.compared, c.changed, &c.flips), (2, 2 * u64::from(n), hundredth + third, &expected));
    let parts: Vec<f64> = a.tensors[0].course.changed.iter().map(|p| f64::from(p.unwrap())).collect();
    assert!((parts[0] - 0.01).abs() < 1e-5 && (parts[1] - 1.0 / 3.0).abs() < 1e-5, "{parts:?}");
    // Bit 3 is a distance of eight values, bit 14 one of 2^14.
    assert_eq!(
        (c.distances[3], c.distances[14], c.distances.iter().sum::<u64>()),
        (hundredth, third, hundredth + third)
    );
    let still = a.tensors[2].change.as_ref().unwrap();
    assert_eq!((still.changed, still.flips.iter().sum::<u64>(), still.pairs), (0, 0, 2));
    assert!(a.advice.contains(&"1 tensor never changes (3.91 KiB): still.".to_owned()), "{:?}", a.advice);

    let [first, second] = &a.pairs[..] else { panic!("{a:?}") };
    assert_eq!((first.from, first.to, first.steps, second.steps), (0, 1, 1, 2));
    assert_eq!((first.all.changed, first.all.unchanged_tensors), (hundredth, 2));
    let moments = second.groups.iter().find(|g| g.kind == Kind::ExpAvg).unwrap();
    assert_eq!((moments.change.changed, moments.flips[31], moments.flips.iter().sum::<u64>()), (1000, 1000, 1000));
    assert_eq!(a.changes.iter().map(|g| g.change.changed).sum::<u64>(), first.all.changed + second.all.changed);
    // Deltas equal those of compression; deltas over the whole run are reported, too.
    let steps: Vec<_> = a.distances.iter().map(|d| (d.steps, d.deltas)).collect();
    assert_eq!(steps, [(1, 1), (2, 1)]);
    let delta = a.deltas.iter().find(|d| d.steps == 1).unwrap();
    assert!(first.all.delta_size < first.all.lmc_size && delta.delta_size == first.all.delta_size);
}

/// Norms, ratios and angles whose values are known.
#[test]
fn how_weights_move() {
    let f32s = |v: [f32; 4]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let bf16s = |v: [f32; 4]| v.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect::<Vec<_>>();
    let file = |w: [f32; 4], b: [f32; 4], more: &[(&str, &str, Vec<u64>, &[u8])]| {
        let (w, b) = (f32s(w), bf16s(b));
        let all = [("model.layers.0.w", "F32", vec![4], &w[..]), ("model.layers.1.w", "BF16", vec![2, 2], &b[..])];
        safetensors(&[&all[..], more].concat())
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let late = f32s([1.0, 0.0, 0.0, 0.0]);
    let run = Run(vec![
        (1, file([3.0, 4.0, 0.0, nan], [1.0; 4], &[])),
        (2, file([3.0, 4.0, 5.0, 1.0], [2.0; 4], &[])),
        (5, file([3.0, 9.0, 5.0, inf], [1.0; 4], &[("z", "F32", vec![4], &late)])),
        (6, file([3.0, 14.0, 5.0, 1.0], [0.0; 4], &[("z", "F32", vec![4], &late)])),
    ]);
    let a = study(&run);
    let [w, b, z] = &a.tensors[..] else { panic!("{:?}", a.tensors) };
    let some = |of: &[f32]| of.iter().map(|&x| (!x.is_nan()).then(|| format!("{x:.5e}"))).collect::<Vec<_>>();
    let of = |of: &[Option<f32>]| of.iter().map(|x| x.map(|x| format!("{x:.5e}"))).collect::<Vec<_>>();
    // What is not finite, or was not, is left out.
    let norms = [5.0, 51f32.sqrt(), 115f32.sqrt(), 231f32.sqrt()];
    assert_eq!(of(&w.course.norm), some(&norms));
    assert_eq!(
        of(&w.course.rms),
        some(&[(25f32 / 3.0).sqrt(), 51f32.sqrt() / 2.0, (115f32 / 3.0).sqrt(), 231f32.sqrt() / 2.0])
    );
    assert_eq!(of(&w.course.update_norm), some(&[5.0; 3]));
    assert_eq!(of(&w.course.ratio), some(&[1.0, 5.0 / 51f32.sqrt(), 5.0 / 115f32.sqrt()]));
    assert_eq!(of(&w.course.cosine), some(&[nan, 0.0, 1.0]));
    assert_eq!(of(&w.course.changed), some(&[0.5, 0.5, 0.5]));
    assert_eq!(of(&b.course.ratio), some(&[1.0, 0.5, 1.0]));
    assert_eq!(of(&b.course.cosine), some(&[nan, -1.0, 1.0]));
    assert_eq!((of(&z.course.norm), of(&z.course.ratio)), (some(&[nan, nan, 1.0, 1.0]), some(&[nan, nan, 0.0])));
    let names: Vec<_> = a.layers.iter().map(|l| &l.name[..]).collect();
    assert_eq!(names, ["layers.0", "layers.1", "z"]);
    assert_eq!(of(&a.layers[1].course.ratio), of(&b.course.ratio));
    let [kind] = &a.kinds[..] else { panic!("{:?}", a.kinds) };
    let all: Vec<f32> = norms.iter().zip([4f32, 16.0, 4.0, 0.0]).map(|(n, b)| (n * n + b).sqrt()).collect();
    let with_z = [all[0], all[1], (all[2] * all[2] + 1.0).sqrt(), (all[3] * all[3] + 1.0).sqrt()];
    assert_eq!((&kind.name[..], of(&kind.course.norm)), ("weights", some(&with_z)));
    assert!(a.metrics.is_empty());
    let page = lmc_inspect::page(&a);
    for title in ["How far weights move", "Cosine of successive updates", "How far the weights of each layer move"] {
        assert!(page.contains(&format!("<figcaption>{title}")), "{title}");
    }
}

#[test]
fn longer_distances_are_measured() {
    let w = f32s(40_000);
    let run =
        (0..5).map(|i| (4 * i, safetensors(&[("w", "F32", vec![40_000], &flipped(&w, 4, i as usize, 2))]))).collect();
    let run = Run(run);
    let a = study(&run);
    let found: Vec<_> = a.distances.iter().map(|d| (d.steps, d.deltas)).collect();
    assert_eq!(found, [(4, 4), (8, 3), (16, 1)]);
    let whole = a.deltas.iter().find(|d| d.steps == 16).unwrap();
    assert_eq!((whole.from, whole.to), (0, 4));
    let mut out = Vec::new();
    let mut c = lmc::Compressor::new(&CompressOptions::default()).unwrap();
    c.compress(&run.0[4].1[..], &run.open(0).unwrap(), &mut out).unwrap();
    // But for the base's name.
    assert!(whole.delta_size.abs_diff(out.len() as u64) <= 64, "{} and {}", whole.delta_size, out.len());
    assert_eq!(whole.groups.iter().map(|g| g.raw_size).sum::<u64>(), whole.raw_size);
}

#[test]
fn what_is_twice_what_is_narrow_and_what_is_no_number() {
    let embed = bf16s(5000);
    let narrow: Vec<u8> = embed.chunks(2).flat_map(|e| [0, 0, e[0], e[1]]).collect();
    let mut swapped = embed.clone();
    swapped[..4].rotate_left(2);
    let bad: Vec<u8> = [f32::NAN, f32::INFINITY, 1.1].iter().flat_map(|v| v.to_le_bytes()).collect();
    let a = study(&Run(vec![(
        0,
        safetensors(&[
            ("model.embed.weight", "BF16", vec![5000], &embed),
            ("swapped", "BF16", vec![5000], &swapped),
            ("lm_head.weight", "BF16", vec![5000], &embed),
            ("wide", "F32", vec![5000], &narrow),
            ("bad", "F32", vec![3], &bad),
            ("exp_avg.zero", "F32", vec![10], &[0; 40]),
        ]),
    )]));
    let of: Vec<_> = a.tensors.iter().map(|t| (t.duplicate_of, t.fits.as_deref())).collect();
    assert_eq!(of[..5], [(None, None), (None, None), (Some(0), None), (None, Some("BF16")), (None, None)]);
    for sentence in [
        "1 tensor equals an earlier one (9.77 KiB): lm_head.weight.",
        "1 tensor has only values of BF16 (19.5 KiB): wide.",
        "1 tensor has values that are not finite (12 B): bad.",
    ] {
        assert!(a.advice.iter().any(|s| s == sentence), "{sentence}: {:?}", a.advice);
    }
}

/// Also where the checkpoint before is the base of all sizes.
#[test]
fn what_was_quantised() {
    let levels = lmc_test_inputs::noise(1 << 16, 3);
    let of = |step: f32| -> Vec<u8> {
        let value = |i: usize, b: &u8| f32::from(b % 8 + b / 32) * (0.01 + step + (i / 64 * 37 % 101) as f32 / 2000.0);
        levels.iter().enumerate().flat_map(|(i, b)| value(i, b).to_bits().to_le_bytes()[2..].to_vec()).collect()
    };
    let plain: Vec<u8> =
        lmc_test_inputs::noise(1 << 17, 4).chunks(2).flat_map(|e| [e[0], 0x3c | (e[1] & 0x83)]).collect();
    let file = |step| {
        let shape = vec![256, 256];
        safetensors(&[("a", "BF16", shape.clone(), &of(step)), ("b", "BF16", shape, &plain)])
    };
    for run in [Run(vec![(0, file(0.0))]), Run(vec![(0, file(0.0)), (1, file(0.001))])] {
        let a = study(&run);
        let of: Vec<_> = a.tensors.iter().map(|t| t.quantised.as_deref()).collect();
        assert_eq!(of, [Some("int4 with zero points 1 × 64"), None]);
        let said = "1 tensor was dequantised (128.0 KiB): a (int4 with zero points 1 × 64).".to_owned();
        assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
        assert_eq!([0, 1].map(|i| a.tensors[i].quantised_part), [1.0, 0.0]);
        // Less than 4 bits of the 16 of an element, and more than 3.
        let size = a.tensors[0].figures.lmc_size;
        assert!(size > 3 << 13 && size < 34_000, "{size}");
    }
}

/// In some blocks of a tensor alone.
#[test]
fn what_was_quantised_in_part() {
    let levels = lmc_test_inputs::noise(1 << 20, 3);
    let value = |i: usize, b: &u8| f32::from(b % 8 + b / 32) * (0.01 + (i / 64 * 37 % 101) as f32 / 2000.0);
    let mut bytes: Vec<u8> =
        levels.iter().enumerate().flat_map(|(i, b)| value(i, b).to_bits().to_le_bytes()[2..].to_vec()).collect();
    let plain = lmc_test_inputs::noise(7 << 20, 4);
    bytes.extend(plain.chunks(2).flat_map(|e| [e[0], 0x3c | (e[1] & 0x83)]));
    let a = study(&Run(vec![(0, safetensors(&[("a", "BF16", vec![4608, 1024], &bytes)]))]));
    let t = &a.tensors[0];
    assert!(t.quantised.is_some() && t.quantised_part > 0.15 && t.quantised_part < 0.3, "{t:?}");
    let (part, format) = (percent((t.quantised_part * 1e6).round() as u64, 1_000_000), t.quantised.as_deref().unwrap());
    let said = format!("1 tensor was dequantised in part (9.00 MiB): a ({part} {format}).");
    assert!(a.advice.contains(&said) && format.starts_with("int4"), "{said}: {:?}", a.advice);
}

#[test]
fn weights_beside_their_copies() {
    let noise = lmc_test_inputs::noise(2_400_000, 1);
    let master: Vec<u8> = noise.chunks(4).flat_map(|e| [e[0], e[1], e[2], 0x3c | (e[3] & 0x83)]).collect();
    let rounded: Vec<u8> = master
        .chunks(4)
        .flat_map(|e| {
            let bits = u32::from_le_bytes(e.try_into().unwrap());
            (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
        })
        .collect();
    let run = Run(vec![(
        0,
        safetensors(&[("master.w", "F32", vec![600_000], &master), ("model.w", "BF16", vec![600_000], &rounded)]),
    )]);
    let beside = study(&run);
    let alone = study(&Run(vec![(0, safetensors(&[("model.w", "BF16", vec![600_000], &rounded)]))]));
    let sizes = [alone.tensors[0].figures.lmc_size, beside.tensors[1].figures.lmc_size];
    assert!(sizes[0] > 20 * sizes[1], "{sizes:?}");
}

#[test]
fn tensors_come_and_go() {
    let (a, b) = (f32s(100), f32s(300));
    let run = Run(vec![
        (1, safetensors(&[("gone", "F32", vec![100], &a), ("kept", "F32", vec![300], &b)])),
        (2, safetensors(&[("kept", "F32", vec![300], &b), ("new", "I64", vec![1], &[7; 8])])),
        (3, safetensors(&[("kept", "F32", vec![300], &b), ("new", "I64", vec![1], &[8; 8])])),
    ]);
    let a = study(&run);
    let counts: Vec<_> = a.pairs.iter().map(|p| (p.missing_tensors, p.new_tensors)).collect();
    assert_eq!((&counts[..], &a.pairs[0].missing_names[..]), (&[(1, 1), (0, 0)][..], &["gone".to_owned()][..]));
    for sentence in [
        "1 tensor is missing in the checkpoint after: gone.",
        "1 tensor has no counterpart in the checkpoint before: new.",
    ] {
        assert!(a.advice.iter().any(|s| s == sentence), "{sentence}: {:?}", a.advice);
    }
    let [kept, new] = &a.tensors[..] else { panic!("{a:?}") };
    assert_eq!(kept.course.changed, [Some(0.0), Some(0.0)]);
    assert_eq!(new.course.changed, [None, Some(1.0)]);
    let (kept, new) = (kept.change.as_ref().unwrap(), new.change.as_ref().unwrap());
    assert_eq!((kept.pairs, kept.changed), (2, 0));
    assert_eq!((new.pairs, new.changed), (1, 1));
    assert_eq!((a.pairs[0].all.tensors, a.pairs[0].all.unchanged_tensors), (2, 1));
}

/// Without known steps, nothing is said of steps.
#[test]
fn places_are_no_steps() {
    let file = |bit| safetensors(&[("w", "BF16", vec![600], &flipped(&bf16s(600), 2, bit, 3))]);
    let run = Shards((0..4).map(|bit| vec![("w", file(bit))]).collect());
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(serde_json::to_value(&a).unwrap()["steps_from"], "places");
    for text in &a.advice {
        // But for the names of fields.
        let text = text.replace("\"step\"", "").replace("\"steps\"", "").replace("\"steps_from\"", "");
        assert!(!text.contains("step"), "{text}");
    }
    let said = "Deltas take ";
    assert!(
        a.advice.iter().any(|s| s.starts_with(said) && s.contains("over 1 checkpoint (3 deltas)")),
        "{:?}",
        a.advice
    );
}

/// Checkpoints of several files, each with its name.
pub(crate) struct Shards(pub(crate) Vec<Vec<(&'static str, Vec<u8>)>>);

impl Checkpoints for Shards {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, checkpoint: usize) -> String {
        format!("checkpoint {checkpoint}")
    }
    fn step(&self, checkpoint: usize) -> u64 {
        checkpoint as u64
    }
    fn steps_from(&self) -> StepsFrom {
        StepsFrom::Places
    }
    fn open(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed> {
        let each = self.0[checkpoint].iter();
        Ok(each.map(|(name, file)| Base::new(&file[..]).unwrap().with_name(*name)).collect())
    }
}

#[test]
fn histories_follow_tensors_to_other_files() {
    let (a, b) = (f32s(100), f32s(300));
    let w = |name, bytes: &[u8]| safetensors(&[(name, "F32", vec![bytes.len() as u64 / 4], bytes)]);
    let both = safetensors(&[("a", "F32", vec![100], &a), ("b", "F32", vec![300], &b)]);
    // "twice" is in two files, which their names distinguish, also where they stand in another order.
    let (one, two) = (w("twice", &f32s(50)), w("twice", &flipped(&f32s(50), 4, 9, 1)));
    let moved = flipped(&a, 4, 5, 1);
    let run = Shards(vec![
        vec![("x", both.clone()), ("p", one.clone()), ("q", two.clone())],
        vec![("q", two.clone()), ("x1", w("b", &b)), ("x2", w("a", &moved)), ("p", one.clone())],
        vec![("p.lmc", one), ("x1", w("a", &moved)), ("q", two), ("x2", w("b", &b))],
    ]);
    let found = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    for t in &found.tensors {
        let c = t.change.as_ref().unwrap();
        let expected = if t.name == "a" { [Some(1.0), Some(0.0)] } else { [Some(0.0); 2] };
        assert_eq!((c.pairs, &t.course.changed[..]), (2, &expected[..]), "{} of {}", t.name, t.file);
        assert_eq!(c.compared, 2 * t.figures.elements);
    }
    let sizes: Vec<u64> =
        run.0[2].iter().map(|(_, f)| lmc::compress(f, &CompressOptions::default()).unwrap().len() as u64).collect();
    assert_eq!(found.checkpoints[2].all.lmc_size, sizes.iter().sum::<u64>());
}

/// Also where directories have the step in their names.
#[test]
fn files_of_one_name_belong_together() {
    let w = |seed| lmc_test_inputs::noise(4000, seed);
    let file = |seed, bit| safetensors(&[("w", "F32", vec![1000], &flipped(&w(seed), 4, bit, 10))]);
    let at = |names: [&'static str; 2], bit| vec![(names[0], file(1, bit)), (names[1], file(2, bit))];
    for names in [["b/rank0", "a/rank1"], ["rank1/model", "rank0/model"]] {
        let old = if names[0].starts_with('b') { ["1/rank0", "1/rank1"] } else { names };
        let run = Shards(vec![at(old, 0), at(names, 1).into_iter().rev().collect()]);
        let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
        assert_eq!(
            (a.pairs[0].groups[0].change.compared, a.pairs[0].groups[0].change.changed),
            (2000, 200),
            "{names:?}"
        );
    }
    // Of files whose directories have the step in their names, too.
    let run = Shards(vec![
        at(["checkpoint-1/global_step1/rank0", "checkpoint-1/global_step1/rank1"], 0),
        at(["checkpoint-2/global_step2/rank0.lmc", "checkpoint-2/global_step2/rank1.lmc"], 1),
        at(["checkpoint-3/global_step3/rank0", "checkpoint-3/global_step3/rank1"], 2),
    ]);
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    let changes: Vec<_> =
        a.tensors.iter().map(|t| t.change.as_ref().map(|c| (c.pairs, c.compared, c.changed))).collect();
    assert_eq!(changes, [Some((2, 2000, 200)), Some((2, 2000, 200))]);
}

#[test]
fn histories_begin_anew_with_another_dtype_or_shape() {
    let wide = f32s(200);
    let narrow: Vec<u8> = wide.chunks(4).flat_map(|e| [e[2], e[3]]).collect();
    let file = |dtype: &str, shape: Vec<u64>, w: &[u8], grown: &[u8]| {
        safetensors(&[("w", dtype, shape, w), ("grown", "F32", vec![grown.len() as u64 / 4], grown)])
    };
    let checkpoints = [
        file("F32", vec![200], &wide, &wide[..400]),
        file("BF16", vec![200], &narrow, &wide),
        file("BF16", vec![10, 20], &narrow, &wide),
        file("BF16", vec![10, 20], &flipped(&narrow, 2, 0, 2), &wide),
    ];
    for n in 2..=4 {
        let a = study(&Run((0..).zip(checkpoints[..n].iter().cloned()).collect()));
        for c in a.tensors.iter().filter_map(|t| Some((t, t.change.as_ref()?))) {
            assert_eq!(c.1.flips.len(), if c.0.dtype == "F32" { 32 } else { 16 }, "{n}: {c:?}");
        }
        assert!(lmc_inspect::page(&a).ends_with("</html>\n"), "{n}");
        if n == 4 {
            let c = a.tensors[0].change.as_ref().unwrap();
            assert_eq!((c.compared, c.changed, c.flips[0], c.unchanged_pairs), (200, 100, 100, 0), "{c:?}");
            assert_eq!(a.tensors[0].course.changed, [None, None, Some(0.5)]);
        } else {
            // Its elements were compared, but with those of another dtype or shape.
            assert!(a.tensors[0].change.is_none() && a.pairs[n - 2].groups[0].change.compared == 200, "{a:?}");
        }
        // Neither a grown tensor nor one of another dtype is reported as unchanged.
        if n == 2 {
            assert!(a.tensors[1].change.is_none() && a.pairs[0].all.unchanged_tensors == 0, "{a:?}");
            assert!(!a.advice.iter().any(|s| s.contains("never change")), "{:?}", a.advice);
        }
    }
}

#[test]
fn sizes_by_itself_are_those_of_files_in_later_checkpoints_too() {
    // Blocks of data that are nearly all zeros are large, and those of repeated rows end where the rows do, unless a
    // delta is compared with them.
    let mut zeros = vec![0; 18 << 20];
    zeros.iter_mut().step_by(40_000).for_each(|b| *b = 7);
    let row = lmc_test_inputs::noise(300_000, 5);
    let repeated: Vec<u8> = row.iter().copied().cycle().take(3 << 20).collect();
    let file = |first: u8| {
        let mut zeros = zeros.clone();
        zeros[0] = first;
        let n = zeros.len() as u64 / 4;
        safetensors(&[("zeros", "F32", vec![n], &zeros), ("rows", "U8", vec![3 << 20], &repeated)])
    };
    let run = Run(vec![(1, file(1)), (2, file(2))]);
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    for (c, (_, file)) in a.checkpoints.iter().zip(&run.0) {
        assert_eq!(c.all.lmc_size, lmc::compress(file, &CompressOptions::default()).unwrap().len() as u64);
    }
    assert_eq!(a.pairs[0].all.lmc_size, a.checkpoints[1].all.lmc_size);
    let delta = {
        let mut out = Vec::new();
        let mut c = lmc::Compressor::new(&CompressOptions::default()).unwrap();
        c.compress(&run.0[1].1[..], &run.open(0).unwrap(), &mut out).unwrap();
        out.len() as u64
    };
    assert_eq!(a.pairs[0].all.delta_size, delta);
}

#[test]
fn what_cannot_be_studied() {
    let failed = |files: &[&[u8]]| {
        let run = Run(files.iter().zip(1..).map(|(f, step)| (step, f.to_vec())).collect());
        analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap_err()
    };
    let good = safetensors(&[("w", "F32", vec![1000], &f32s(1000))]);
    let f = failed(&[&good, b""]);
    assert_eq!((f.checkpoint, f.file.as_deref()), (1, Some("step2.safetensors")));
    assert!(f.error.to_string().contains("it is empty"), "{}", f.error);
    let text = failed(&[b"what is this"]).error.to_string();
    assert!(text.contains("it is text, \"what is this\""), "{text}");
    for len in [100, 1000, good.len() - 1] {
        let f = failed(&[&good, &good[..len]]);
        assert_eq!((f.checkpoint, f.file.as_deref()), (1, Some("step2.safetensors")), "{len} bytes");
        assert!(f.error.to_string().contains("ends early"), "{len} bytes: {}", f.error);
    }
    assert!(failed(&[]).error.to_string().contains("no checkpoints"));
}

#[test]
fn entropy_of_differences_by_distance() {
    let n = 1u32 << 20; // in several blocks
    let first = bf16s(n);
    // One exponent.
    let one = first.iter().enumerate().map(|(i, b)| if i % 2 == 1 { 0x3f } else { b | 0x80 }).collect::<Vec<u8>>();
    let (second, third) = (flipped(&one, 2, 0, 2), flipped(&one, 2, 0, 4));
    let moments = [f32s(256), flipped(&f32s(256), 4, 0, 1), f32s(256)];
    let file = |w: &[u8], m: &[u8]| {
        let counts = vec![1; 64];
        safetensors(&[
            ("w", "BF16", vec![n.into()], w),
            ("exp_avg.w", "F32", vec![256], m),
            ("count", "I64", vec![8], &counts),
        ])
    };
    let files = [&one, &second, &third].into_iter().zip(&moments).map(|(w, m)| file(w, m));
    let a = study(&Run((1..).zip(files).collect()));
    let raw = 2 * u64::from(n) + 1024;
    let groups = |i: usize| {
        let floats = a.deltas[i].groups.iter().filter(|g| ["BF16", "F32"].contains(&&g.dtype[..]));
        floats.map(|g| g.delta_size).sum::<u64>()
    };
    for (i, d) in a.deltas.iter().enumerate() {
        assert_eq!((d.floats.raw_size, d.floats.delta_size), (raw, groups(i)), "{i}: no integers, and no header");
    }
    let halves: Vec<u64> = a.deltas.iter().map(|d| d.floats.entropy_size).collect();
    let known = |old: &[u8], new: &[u8], m: [usize; 2]| {
        let mut e = DifferenceEntropy::new(lmc::Dtype::Bf16).unwrap();
        e.add(new, old);
        let mut f = DifferenceEntropy::new(lmc::Dtype::F32).unwrap();
        f.add(&moments[m[1]], &moments[m[0]]);
        ((e.bits() + f.bits()) / 8.0).round() as u64
    };
    let pairs: Vec<_> = a.deltas.iter().map(|d| (d.from, d.to)).collect();
    assert_eq!(pairs, [(0, 1), (1, 2), (0, 2)]);
    assert_eq!(halves, [known(&one, &second, [0, 1]), known(&second, &third, [1, 2]), known(&one, &third, [0, 2])]);
    // A bit for each element where every second one is the next value, and at most that for each moment.
    assert!((u64::from(n) / 8..=u64::from(n) / 8 + 32).contains(&halves[0]), "{halves:?}");
    let sum = |of: fn(&lmc_inspect::FloatDelta) -> u64| of(&a.deltas[0].floats) + of(&a.deltas[1].floats);
    let one_step = &a.distances[0].floats;
    assert_eq!((a.distances[0].steps, one_step.raw_size), (1, 2 * raw));
    assert_eq!((one_step.delta_size, one_step.entropy_size), (sum(|f| f.delta_size), sum(|f| f.entropy_size)));
}
