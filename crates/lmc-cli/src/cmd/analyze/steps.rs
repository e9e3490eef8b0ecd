//! The steps of checkpoints, from their names.

use std::collections::HashSet;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::format::Name;

/// Numbers of a name that are looked at, from its end.
const NUMBERS: usize = 4;

/// A number for each path that increases from one to the next: those in their names, the last ones that do, or in those of their
/// directories; else their places.
///
/// # Errors
/// `Usage` when names that are the same up to a number have another number each, and those do not increase: a shell lists step1000 before step200.
pub(super) fn steps(paths: &[impl AsRef<Path>]) -> Result<Vec<u64>> {
    let names: Vec<Vec<String>> = paths.iter().map(|p| components(p.as_ref())).collect();
    let deepest = names.iter().map(Vec::len).min().unwrap_or(0);
    let mut out_of_order = None;
    for depth in 0..deepest {
        for number in 0..NUMBERS {
            let each: Option<Vec<(&str, u64)>> = names.iter().map(|name| numbers(&name[depth]).nth(number)).collect();
            let Some(each) = each.filter(|s| s.len() > 1) else { continue };
            if each.is_sorted_by(|a, b| a.1 < b.1) {
                return Ok(each.into_iter().map(|(_, step)| step).collect());
            }
            let different: HashSet<u64> = each.iter().map(|e| e.1).collect();
            if out_of_order.is_none() && different.len() == each.len() && each.iter().all(|e| e.0 == each[0].0) {
                out_of_order = each.windows(2).position(|w| w[0].1 > w[1].1);
            }
        }
    }
    if let Some(i) = out_of_order {
        let [before, after] = [&paths[i], &paths[i + 1]].map(|p| Name::path(p.as_ref()).to_string());
        let why = format!("{before} is named before {after}: name checkpoints in the order of their steps");
        return Err(Failure::Usage(why));
    }
    Ok((0..paths.len() as u64).collect())
}

/// The names in a path, the last one first.
fn components(path: &Path) -> Vec<String> {
    path.components().rev().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The numbers in a name, the last one first, each with the text before it; numbers that are too large for a step are
/// left out.
fn numbers(name: &str) -> impl Iterator<Item = (&str, u64)> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let end = rest.rfind(|c: char| c.is_ascii_digit())? + 1;
        let before = rest[..end].trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &rest[before.len()..end];
        rest = before;
        Some((before, digits.parse().ok()))
    })
    .filter_map(|(before, number)| Some((before, number?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_names() {
        let ok = |paths: &[&str]| steps(paths).unwrap_or_else(|_| panic!("{paths:?}"));
        assert_eq!(ok(&["step00300.safetensors", "step00301.safetensors"]), [300, 301]);
        assert_eq!(ok(&["run7/step5/model.safetensors", "run7/step10/model.safetensors"]), [5, 10]);
        assert_eq!(ok(&["a-10-of-2.pt", "a-20-of-2.pt"]), [10, 20]);
        assert_eq!(ok(&["a-20-of-1.pt", "a-10-of-2.pt"]), [1, 2]);
        assert_eq!(ok(&["größe7ü.pt", "größe8ü.pt"]), [7, 8]);
        // None that increase.
        assert_eq!(ok(&["llama-20b.pt", "qwen-10b.pt"]), [0, 1]);
        assert_eq!(ok(&["step7.pt", "step7.pt", "step3.pt"]), [0, 1, 2]);
        assert_eq!(ok(&["a.pt", "b.pt", "c2.pt"]), [0, 1, 2]);
        assert_eq!(ok(&["99999999999999999999.pt", "99999999999999999998.pt"]), [0, 1]);
        assert_eq!(ok(&["step7.pt"]), [0]);
        assert_eq!(ok(&[]), [] as [u64; 0]);
    }

    #[test]
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
