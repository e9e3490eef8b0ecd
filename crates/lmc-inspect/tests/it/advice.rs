//! What a study says of its figures.

use lmc::CompressOptions;
use lmc_inspect::text::{bytes, percent};
use lmc_inspect::{AnalyzeOptions, analyze};

use crate::analyze::{Run, Shards, bf16s, flipped, study};
use crate::safetensors;

#[test]
fn the_usual_distance_comes_first() {
    let noise = lmc_test_inputs::noise(80_000, 7);
    let step = |i: usize| flipped(&noise, 4, 8 * (i % 4), 1 + i / 4);
    let mut files: Vec<_> = (1..=8).map(|i| (1000 * i as u64, step(i))).collect();
    let last = flipped(&files[7].1, 4, 0, 1000);
    files.push((8001, last));
    let file = |(step, w): (u64, Vec<u8>)| (step, safetensors(&[("w", "F32", vec![20_000], &w)]));
    let a = study(&Run(files.into_iter().map(file).collect()));
    let found: Vec<_> = a.distances.iter().map(|d| (d.steps, d.deltas)).collect();
    assert_eq!(found, [(1, 1), (1000, 7), (2000, 4), (4000, 4)]);
    let share = |d: &lmc_inspect::Distance| format!("{:.1} %", 100.0 * d.delta_size as f64 / d.raw_size as f64);
    let (usual, last) = (share(&a.distances[1]), share(&a.distances[3]));
    let said =
        format!("Deltas take {usual} of the size over 1000 steps (7 deltas), and {last} over 4000 steps (4 deltas).");
    assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
    assert!(lmc_inspect::page(&a).contains("as deltas over 1000 steps"));
}

#[test]
fn what_is_stored_by_itself_and_of_weights_alone() {
    let n = 1u32 << 16;
    let steps: Vec<Vec<u8>> = (0..3).map(|i| flipped(&bf16s(n), 2, i % 7, 1 << 6)).collect();
    let file = |w: &[u8]| {
        let moment = lmc_test_inputs::noise(1 << 16, 5);
        safetensors(&[("w", "BF16", vec![n.into()], w), ("exp_avg.w", "F32", vec![1 << 14], &moment)])
    };
    let a = study(&Run(steps.iter().enumerate().map(|(i, w)| (10 * i as u64, file(w))).collect()));
    let all = &a.checkpoints.last().unwrap().all;
    let (share, size) = (percent(all.lmc_size, all.raw_size), bytes(all.raw_size));
    let alone = format!("The last checkpoint takes {share} of its {size} by itself.");
    let usual = &a.distances[0];
    assert_eq!((usual.steps, usual.deltas), (10, 2));
    let g = usual.groups.iter().find(|g| g.dtype == "BF16").unwrap();
    assert_eq!(g.raw_size, 2 * 2 * u64::from(n));
    let weights = format!("The BF16 weights every 10 steps: {} of their size.", percent(g.delta_size, g.raw_size));
    for said in [alone, weights] {
        assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
    }
    // Weights that are rounded from copies beside them take next to nothing, which says nothing of the weights alone.
    let copies = |w: &[u8]| {
        let wide: Vec<u8> = w.as_chunks::<2>().0.iter().flat_map(|e| [0, 0, e[0], e[1]]).collect();
        safetensors(&[("model.w", "BF16", vec![n.into()], w), ("master.w", "F32", vec![n.into()], &wide)])
    };
    let a = study(&Run(steps.iter().enumerate().map(|(i, w)| (i as u64, copies(w))).collect()));
    assert!(!a.advice.iter().any(|s| s.starts_with("The BF16 weights every")), "{:?}", a.advice);
}

#[test]
fn why_deltas_save_nothing() {
    let noise = |seed| lmc_test_inputs::noise(80_000, seed);
    let said = |files: [(&str, u64); 2]| {
        let file = |(name, seed)| safetensors(&[(name, "F32", vec![20_000], &noise(seed))]);
        let a = study(&Run(vec![(1, file(files[0])), (2, file(files[1]))]));
        let why =
            a.advice.iter().find_map(|s| s.strip_prefix("Deltas from checkpoint to checkpoint save next to nothing; "));
        why.unwrap().to_owned()
    };
    assert_eq!(said([("a", 1), ("b", 2)]), "few tensors have a counterpart in the checkpoint before.");
    assert_eq!(said([("a", 1), ("a", 2)]), "100 % of the elements change.");
}

/// Numbers and constants equal others, and fit narrow types, by nature.
#[test]
fn what_says_nothing_is_not_said() {
    let (ones, one) = (vec![0x3f80_0000u32; 64], [0x4396_0000u32]);
    let [ones, one] = [&ones[..], &one[..]].map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    let narrow = |n: u32| bf16s(n).chunks(2).flat_map(|e| [0, 0, e[0], e[1]]).collect::<Vec<u8>>();
    let (small, large) = (narrow(500), narrow(5000));
    let file = |more: &[(&str, &Vec<u8>)]| {
        let all = [&[("1.norm", &ones), ("2.norm", &ones), ("1.step", &one), ("2.step", &one)], more].concat();
        let tensors: Vec<_> = all.iter().map(|(n, b)| (*n, "F32", vec![b.len() as u64 / 4], &b[..])).collect();
        safetensors(&tensors)
    };
    let run = Shards(vec![vec![
        ("rank0", file(&[("a", &small), ("w", &small), ("b", &large)])),
        ("rank1", file(&[("c", &large), ("w", &small)])),
    ]]);
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    assert!(a.tensors[1].duplicate_of == Some(0) && a.tensors[3].fits.is_some());
    for sentence in [
        "c equals b, and 2 duplicates of others: 23.4 KiB in all.",
        "5 tensors of 44.9 KiB have only values of BF16: b, c, a, and 2 more.",
    ] {
        assert!(a.advice.iter().any(|s| s == sentence), "{sentence}: {:?}", a.advice);
    }
    // Files tell apart what names do not.
    let run = Shards(vec![vec![("rank0", file(&[("w", &small)])), ("rank1", file(&[("w", &small)]))]]);
    let a = analyze(&CompressOptions::default(), &run, &AnalyzeOptions::default(), &mut |_| ()).unwrap();
    for sentence in [
        "w of rank1 equals w of rank0: 1.95 KiB in all.",
        "2 tensors of 3.91 KiB have only values of BF16: w of rank0, w of rank1.",
    ] {
        assert!(a.advice.iter().any(|s| s == sentence), "{sentence}: {:?}", a.advice);
    }
}

#[test]
fn whole_states_seldom_and_weights_often() {
    let n = 1u32 << 16;
    let weights: Vec<Vec<u8>> = (0..9).map(|i| flipped(&bf16s(n), 2, i % 7, 1 << 6)).collect();
    let state = |i: usize, seed: u64| {
        let moment = lmc_test_inputs::noise(1 << 18, seed);
        // Which changes more than the other weights do.
        let embedding = flipped(&bf16s(n / 4), 2, i % 7, 1 << 2);
        safetensors(&[
            ("w", "BF16", vec![n.into()], &weights[i]),
            ("embed_tokens.weight", "BF16", vec![64, u64::from(n) / 256], &embedding),
            ("exp_avg.w", "F32", vec![n.into()], &moment),
        ])
    };
    let run = |seed: &dyn Fn(usize) -> u64| Run((0..9).map(|i| (5 * i as u64, state(i, seed(i)))).collect());
    // The moments are others at each step.
    let a = study(&run(&|i| 100 + i as u64));
    let [usual, .., longest] = &a.distances[..] else { panic!("{:?}", a.distances) };
    assert_eq!((usual.steps, usual.deltas, longest.steps, longest.deltas), (5, 8, 40, 1));
    let of_weights: Vec<_> = usual.groups.iter().filter(|g| g.dtype == "BF16").collect();
    assert_eq!(of_weights.len(), 2, "{of_weights:?}");
    let sum = |of: fn(&lmc_inspect::GroupDelta) -> u64| of_weights.iter().map(|g| of(g)).sum::<u64>();
    let delta_size = sum(|g| g.delta_size);
    let weights_alone = percent(delta_size, sum(|g| g.raw_size));
    let a_step = longest.delta_size as f64 / 40.0 + delta_size as f64 / 40.0;
    let said = format!(
        "Save whole states every 40 steps ({} of their size as deltas), and the BF16 weights alone every 5 steps \
         ({weights_alone} of theirs): {} a step, and not the {} of whole states every 5 steps.",
        percent(longest.delta_size, longest.raw_size),
        bytes(a_step.round() as u64),
        bytes((usual.delta_size as f64 / 40.0).round() as u64),
    );
    assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
    // A state of 384 KiB, of which all but an eighth of the weights is new, every 40 steps.
    assert!((a_step - 7000.0).abs() < 700.0 && usual.delta_size / 40 > 50_000, "{a_step}");
    let of_weights = |a: &lmc_inspect::Analysis| a.advice.iter().filter(|s| s.contains("BF16 weights")).count();
    assert_eq!(of_weights(&a), 1, "{:?}", a.advice);
    // States that hardly change take no more than their weights.
    let a = study(&run(&|_| 100));
    assert!(!a.advice.iter().any(|s| s.starts_with("Save ")) && of_weights(&a) == 1, "{:?}", a.advice);
}

/// Where all is weights, their size is said once.
#[test]
fn weights_are_no_other_fact_than_all() {
    let n = 1u32 << 16;
    let file = |i: usize| safetensors(&[("w", "BF16", vec![n.into()], &flipped(&bf16s(n), 2, i, 1 << 6))]);
    let a = study(&Run((0..3).map(|i| (i as u64, file(i))).collect()));
    assert!(a.advice.iter().any(|s| s.starts_with("Deltas take ")), "{:?}", a.advice);
    assert!(!a.advice.iter().any(|s| s.contains("weights")), "{:?}", a.advice);
}
