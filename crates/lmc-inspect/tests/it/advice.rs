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
    let all = &a.checkpoints.last().unwrap().all;
    let (part, size) = (percent(all.lmc_size, all.raw_size), bytes(all.raw_size));
    for said in [said, format!("The last checkpoint takes {part} of its {size} by itself.")] {
        assert!(a.advice.contains(&said), "{said}: {:?}", a.advice);
    }
    assert!(lmc_inspect::page(&a).contains("as deltas over 1000 steps"));
}

#[test]
fn deltas_that_save_nothing() {
    let file = |seed| safetensors(&[("a", "F32", vec![20_000], &lmc_test_inputs::noise(80_000, seed))]);
    let a = study(&Run(vec![(1, file(1)), (2, file(2))]));
    let said = "They save next to nothing: of the elements that have a counterpart, 100 % change.";
    assert!(a.advice.iter().any(|s| s == said), "{:?}", a.advice);
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
        "3 tensors equal earlier ones (23.4 KiB): c, w, w.",
        "5 tensors have only values of BF16 (44.9 KiB): b, c, a, and 2 more.",
    ] {
        assert!(a.advice.iter().any(|s| s == sentence), "{sentence}: {:?}", a.advice);
    }
}
