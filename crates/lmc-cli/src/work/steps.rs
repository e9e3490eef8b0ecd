//! The steps of checkpoints, from their names: of one name, of a version of a run, and of several paths that are compared.

use std::collections::HashSet;
use std::path::Path;

#[cfg(feature = "lab")]
use lmc_inspect::StepsFrom;

use crate::fs::names::SUFFIX;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;

/// Numbers of a name that are compared, from its end.
#[cfg(feature = "lab")]
const NUMBERS: usize = 4;

/// Ends of words whose numbers are steps, whatever else a name has.
const STEPS: &[&str] = &["step", "steps", "iter", "iters", "iteration", "iterations"];
/// The word of Composer's batches, which are steps.
const BATCH: &str = "ba";
/// Words whose numbers count epochs.
const EPOCHS: &[&str] = &["epoch", "ep"];
/// The end of words whose numbers are those of processes.
const RANK: &str = "rank";
/// Words before the number of a step, unless the number is part of a date.
const CHECKPOINTS: &[&str] = &["checkpoint", "ckpt"];
/// Words whose numbers are not.
const OTHERS: &[&str] = &["v", "version", "epoch", "ep", "shard", "part"];
/// What may stand between words and numbers.
const SEPARATORS: [char; 5] = ['-', '_', '.', '=', ' '];

/// A number for each path that increases from one to the next: steps, which are in the paths' last names or in those of
/// their directories, the last ones that increase; else their places.
///
/// # Errors
/// `Usage` when names that are the same up to a number have another number each, and no numbers increase: a shell lists step1000 before step200.
#[cfg(feature = "lab")]
pub(crate) fn steps(paths: &[impl AsRef<Path>]) -> Result<(Vec<u64>, StepsFrom)> {
    let names: Vec<Vec<String>> = paths.iter().map(|p| components(p.as_ref())).collect();
    let deepest = names.iter().map(Vec::len).min().unwrap_or(0);
    let (mut increases, mut out_of_order) = (false, None);
    for depth in 0..deepest {
        let others_are_same = (0..deepest).filter(|&d| d != depth).all(|d| names.iter().all(|n| n[d] == names[0][d]));
        for number in 0..NUMBERS {
            let each: Option<Vec<Number<'_>>> = names.iter().map(|n| numbers(&n[depth]).nth(number)).collect();
            let Some(each) = each.filter(|s| s.len() > 1) else { continue };
            let around = |n: &Number<'_>| (n.before, n.after) == (each[0].before, each[0].after);
            let alone = others_are_same && each.iter().all(around);
            if each.is_sorted_by(|a, b| a.value < b.value) {
                if each.iter().all(|n| n.is_step(alone)) {
                    return Ok((each.into_iter().map(|n| n.value).collect(), StepsFrom::Names));
                }
                increases = true;
            }
            let different: HashSet<u64> = each.iter().map(|n| n.value).collect();
            let same_up_to = each.iter().all(|n| n.before == each[0].before);
            if out_of_order.is_none() && different.len() == each.len() && same_up_to {
                out_of_order = each.windows(2).position(|w| w[0].value > w[1].value);
            }
        }
    }
    if let Some(i) = out_of_order.filter(|_| !increases) {
        let [before, after] = [&paths[i], &paths[i + 1]].map(|p| Name::path(p.as_ref()).to_string());
        let why = format!("{before} is named before {after}: name checkpoints in the order of their steps");
        return Err(Failure::Usage(why));
    }
    Ok(((0..paths.len() as u64).collect(), StepsFrom::Places))
}

/// The step in a name, whatever other names are.
pub(crate) fn step(name: &str) -> Option<u64> {
    said(name).map(|n| n.value)
}

/// The number that a name says is a step.
fn said(name: &str) -> Option<Number<'_>> {
    numbers(name).find(|n| n.is_step(false) && !n.is_shard())
}

/// The number that is the step of a version: the one that its name, which is without a suffix, says is it, or else the one at its end.
fn of_version(name: &str) -> Option<Number<'_>> {
    match said(name) {
        // What follows may say that it is a copy.
        Some(step) => goes_with_step(step.after).then_some(step),
        None => numbers(name).next().filter(|n| n.after.is_empty() && n.may_be_step()),
    }
}

/// The step in the name of a version of a run.
pub(crate) fn version_step(name: &str) -> Option<u64> {
    of_version(name).map(|n| n.value)
}

/// What the names of all versions of a run have in common: a name without the numbers that change from one to the next.
pub(crate) fn common(name: &str) -> String {
    let Some(Number { before, after, .. }) = of_version(name) else { return name.to_owned() };
    let (before, after) = (without_values(before), without_values(after));
    let (mut out, mut rest) = (String::new(), &before[..]);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out += &rest[..at];
        rest = &rest[at..];
        let digits = &rest[..rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len()];
        out += if EPOCHS.contains(&&*word(&out)) { "#" } else { digits };
        rest = &rest[digits.len()..];
    }
    let after = after.chars().filter(|c| !c.is_ascii_digit());
    out.chars().chain(rest.chars()).chain(after).collect()
}

/// A text without the numbers behind `=`.
fn without_values(text: &str) -> String {
    let mut parts = text.split('=');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, p| all + "=" + p.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.eE".contains(c)))
}

/// Whether what follows a step belongs to the name of a version: `-rank0`, `-unsharded`, `-consumed_samples=800.0`.
fn goes_with_step(text: &str) -> bool {
    // Numbers such as `-1.25` and `1e-05` are cut at their signs.
    let mut goes_on = false;
    let belongs = |part: &str| {
        let rest = goes_on && part.starts_with(|c: char| c.is_ascii_digit());
        goes_on = part.ends_with('=') || (part.contains('=') || rest) && part.ends_with(['e', 'E']);
        let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
        rest || part.contains('=') || part == "unsharded" || word.len() < part.len() && word.ends_with(RANK)
    };
    text.is_empty() || text.starts_with(SEPARATORS) && text.trim_start_matches(SEPARATORS).split('-').all(belongs)
}

/// The word that ends a text, in lower case, whatever separates it from what follows.
fn word(text: &str) -> String {
    let text = text.trim_end_matches(SEPARATORS).to_lowercase();
    text[text.trim_end_matches(|c: char| c.is_alphabetic()).len()..].to_owned()
}

/// The names in a path, the last one first, without the suffix of compressed files.
fn components(path: &Path) -> Vec<String> {
    let uncompressed = path.with_extension("");
    let path = if path.extension().is_some_and(|e| e == SUFFIX) { &uncompressed } else { path };
    path.components().rev().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect()
}

/// A number in a name, and the text around it.
struct Number<'n> {
    before: &'n str,
    value: u64,
    after: &'n str,
}

impl Number<'_> {
    /// Whether it is a step. `alone`: the paths differ in nothing else.
    fn is_step(&self, alone: bool) -> bool {
        if !self.may_be_step() {
            return false;
        }
        let word = &*word(self.before);
        if word == BATCH || STEPS.iter().any(|w| word.ends_with(w)) {
            return true;
        }
        // Of dates, and of versions with several numbers.
        let joined = self.before.trim_end_matches(SEPARATORS).ends_with(|c: char| c.is_ascii_digit())
            || self.after.starts_with(SEPARATORS) && self.after[1..].starts_with(|c: char| c.is_ascii_digit());
        !joined && (CHECKPOINTS.contains(&word) || alone && !OTHERS.contains(&word))
    }

    /// Whether it is neither part of a fraction, nor a rank, nor the last number of `00001-of-00004`.
    fn may_be_step(&self) -> bool {
        let is_digit = |c: char| c.is_ascii_digit();
        let of_fraction = self.before.strip_suffix('.').is_some_and(|whole| whole.ends_with(is_digit))
            || self.after.strip_prefix('.').is_some_and(|rest| {
                let end = rest.trim_start_matches(is_digit);
                end.len() < rest.len() && !end.starts_with(char::is_alphanumeric)
            });
        let is_last_of = self.before.strip_suffix("-of-").is_some_and(|part| part.ends_with(is_digit));
        !of_fraction && !is_last_of && !word(self.before).ends_with(RANK)
    }

    /// Whether it is the first number of `00001-of-00004`.
    fn is_shard(&self) -> bool {
        let of = self.after.trim_start_matches(SEPARATORS).strip_prefix("of");
        of.is_some_and(|rest| rest.starts_with(SEPARATORS))
    }
}

/// The numbers in a name, the last one first; those that are too large for a step are left out.
fn numbers(name: &str) -> impl Iterator<Item = Number<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let end = rest.rfind(|c: char| c.is_ascii_digit())? + 1;
        let before = rest[..end].trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &rest[before.len()..end];
        rest = before;
        Some((before, digits.parse().ok(), &name[end..]))
    })
    .filter_map(|(before, value, after)| Some(Number { before, value: value?, after }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "lab")]
    fn steps_are_in_names() {
        let found = |paths: &[&str]| steps(paths).unwrap_or_else(|_| panic!("{paths:?}"));
        let ok = |paths: &[&str]| found(paths).0;
        assert_eq!(ok(&["step00300.safetensors", "step00301.safetensors"]), [300, 301]);
        assert_eq!(ok(&["run7/step5/model.safetensors", "run7/step10/model.safetensors"]), [5, 10]);
        assert_eq!(ok(&["a-10-of-2.pt", "a-20-of-2.pt"]), [10, 20]);
        assert_eq!(ok(&["größe7ü.pt", "größe8ü.pt"]), [7, 8]);
        // None that increase.
        assert_eq!(ok(&["llama-20b.pt", "qwen-10b.pt"]), [0, 1]);
        assert_eq!(ok(&["step7.pt", "step7.pt", "step3.pt"]), [0, 1, 2]);
        assert_eq!(ok(&["a.pt", "b.pt", "c2.pt"]), [0, 1, 2]);
        assert_eq!(ok(&["99999999999999999999.pt", "99999999999999999998.pt"]), [0, 1]);
        assert_eq!(ok(&["step7.pt"]), [0]);
        assert_eq!(ok(&[]), [] as [u64; 0]);
        let from = |paths: &[&str]| found(paths).1;
        for names in [
            ["step1", "step2.lmc"],
            ["a/checkpoint-500", "b/checkpoint-1000"],
            ["epoch=1-step=70.ckpt", "epoch=2-step=140.ckpt"],
            ["step1000-tokens2B", "step2000-tokens4B"],
            ["iter_0000100/rank1", "iter_0000200/rank1"],
            ["global_step9/m", "global_step10/m"],
            ["run-2024-01-31-step1", "run-2024-02-01-step2"],
            ["1000", "2000"],
            ["model_1000.pt", "model_2000.pt.lmc"],
        ] {
            assert_eq!(from(&names), StepsFrom::Names, "{names:?}");
        }
        for names in [
            ["2026-01-31.pt", "2026-02-01.pt"],
            ["2026-02-01.pt", "2026-02-02.pt"],
            ["ckpt-2024-12-31", "ckpt-2025-01-01"],
            ["model-7b-v1", "model-7b-v2"],
            ["llama-1.1", "llama-1.2"],
            ["epoch1.pt", "epoch2.pt"],
            ["a/1.pt", "b/2.pt"],
            ["a-20-of-1.pt", "a-10-of-2.pt"],
            ["mistral-7b", "qwen-14b"],
        ] {
            assert_eq!(found(&names), (vec![0, 1], StepsFrom::Places), "{names:?}");
        }
    }

    #[test]
    fn a_step_in_one_name() {
        for (name, found) in [
            ("step-100", Some(100)),
            ("iter_0000200", Some(200)),
            ("epoch=1-step=70.ckpt", Some(70)),
            ("step100-rank7.pt", Some(100)),
            ("checkpoint-500", Some(500)),
            ("step7-offline.pt", Some(7)),
            ("checkpoint-00001-of-00004.pt", None),
            ("model-00001-of-00002.safetensors", None),
            ("ckpt-2024-12-31", None),
            ("mp_rank_00_model_states.pt", None),
            ("1000", None),
            ("epoch3", None),
        ] {
            assert_eq!(step(name), found, "{name}");
        }
    }

    #[test]
    fn the_step_of_a_version() {
        for (name, found) in [
            // Hugging Face, DeepSpeed, Megatron, slime, Orbax.
            ("checkpoint-1000", Some(1000)),
            ("global_step7", Some(7)),
            ("iter_0000200", Some(200)),
            ("weight_v000123", Some(123)),
            ("100", Some(100)),
            ("0", Some(0)),
            // Lightning, NeMo, Composer, OLMo, flax.
            ("epoch=0-step=16", Some(16)),
            ("epoch=2-val_loss=0.25-step=48", Some(48)),
            ("epoch_0_step_99", Some(99)),
            ("megatron_gpt--val_loss=2.31-step=100-consumed_samples=800.0", Some(100)),
            ("ep0-ba100-rank0", Some(100)),
            ("step100-unsharded", Some(100)),
            ("checkpoint_100", Some(100)),
            // With values that have signs, and many of them.
            ("step=100-val_loss=0.25-acc=0.87-epoch=1", Some(100)),
            ("step=100-loss=0.5-lr=1e-05", Some(100)),
            ("epoch=2-step=100-val_loss=9.8e-05-reward=-1.25", Some(100)),
            // Others.
            ("model-300", Some(300)),
            ("qwen2.5-step100", Some(100)),
            ("v-of-2", Some(2)),
            ("epoch-3", Some(3)),
            // A rank, a fraction, a file of several, a copy.
            ("rank7", None),
            ("mp_rank_00", None),
            ("1.5", None),
            ("val_loss=0.25", None),
            ("a-1-of-2", None),
            ("checkpoint-00001-of-00004", None),
            ("checkpoint-60-old", None),
            ("checkpoint-1000.bak", None),
            ("x--step=100-consumed_samples=800.0-last", None),
            ("99999999999999999999", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(version_step(name), found, "{name}");
        }
    }

    #[test]
    fn versions_of_one_run_are_named_alike() {
        for alike in [
            ["step-7", "step-900"],
            ["epoch=0-step=16", "epoch=1-step=32"],
            ["epoch=0-reward=-1.25-step=100", "epoch=1-reward=0.50-step=200"],
            ["epoch_0_step_99", "epoch_12_step_199"],
            ["ep0-ba100-rank0", "ep1-ba200-rank0"],
            ["m--val_loss=2.31-step=100-consumed_samples=800.0", "m--val_loss=11.5-step=200-consumed_samples=1600.0"],
        ] {
            assert_eq!(common(alike[0]), common(alike[1]), "{alike:?}");
        }
        for other in [["step-7", "backup_20241126"], ["llama7b-step100", "llama13b-step200"], ["m-7", "m7"]] {
            assert_ne!(common(other[0]), common(other[1]), "{other:?}");
        }
    }

    #[test]
    #[cfg(feature = "lab")]
    fn steps_out_of_order_are_told() {
        for (paths, first) in [
            (&["20.pt", "10.pt"][..], "20.pt is named before 10.pt"),
            (&["step100", "step1000", "step200", "step2000"], "step1000 is named before step200"),
            (
                &["step9/model.pt", "step10/model.pt", "step1/model.pt"],
                "step10/model.pt is named before step1/model.pt",
            ),
        ] {
            match steps(paths) {
                Err(Failure::Usage(text)) => assert!(text.starts_with(first), "{text}"),
                other => panic!("{paths:?}: {:?}", other.ok()),
            }
        }
    }
}
