//! The steps of checkpoints, from their names.

use std::path::Path;

/// Numbers of a name that are looked at, from its end.
const NUMBERS: usize = 4;

/// A number for each path that increases from one to the next: those in their names, the last ones that do, or in those of their
/// directories; else their places.
pub(super) fn steps(paths: &[impl AsRef<Path>]) -> Vec<u64> {
    let names: Vec<Vec<String>> = paths.iter().map(|p| components(p.as_ref())).collect();
    let deepest = names.iter().map(Vec::len).min().unwrap_or(0);
    for depth in 0..deepest {
        for number in 0..NUMBERS {
            let each: Option<Vec<u64>> = names.iter().map(|name| numbers(&name[depth]).nth(number)).collect();
            if let Some(steps) = each.filter(|s| s.len() > 1 && s.is_sorted_by(|a, b| a < b)) {
                return steps;
            }
        }
    }
    (0..paths.len() as u64).collect()
}

/// The names in a path, the last one first.
fn components(path: &Path) -> Vec<String> {
    path.components().rev().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The numbers in a name, the last one first; those that are too large for a step are left out.
fn numbers(name: &str) -> impl Iterator<Item = u64> {
    name.rsplit(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_names() {
        assert_eq!(steps(&["step00300.safetensors", "step00301.safetensors"]), [300, 301]);
        assert_eq!(steps(&["run7/step5/model.safetensors", "run7/step10/model.safetensors"]), [5, 10]);
        assert_eq!(steps(&["a-10-of-2.pt", "a-20-of-2.pt"]), [10, 20]);
        // None that increase.
        assert_eq!(steps(&["20.pt", "10.pt"]), [0, 1]);
        assert_eq!(steps(&["a.pt", "b.pt", "c2.pt"]), [0, 1, 2]);
        assert_eq!(steps(&["99999999999999999999.pt", "99999999999999999998.pt"]), [0, 1]);
        assert_eq!(steps(&["step7.pt"]), [0]);
        assert_eq!(steps(&[""; 0]), [] as [u64; 0]);
    }
}
