//! Names of files: paths within a snapshot.

/// The most bytes of a name, and of each of its components.
const MAX: usize = 1024;
const MAX_COMPONENT: usize = 255;

/// Checks that a name is a relative path that stays below its directory: restoring must not write elsewhere. Returns
/// the fault.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let bad = |c: char| matches!(c, '\\' | ':') || c.is_control();
    let component = |c: &str| !matches!(c, "" | "." | "..") && c.len() <= MAX_COMPONENT;
    if name.len() > MAX || name.contains(bad) || !name.split('/').all(component) {
        return Err(format!("{name:?} cannot be the name of a file in a store"));
    }
    Ok(())
}

/// Checks that files of these names fit in one directory: names are distinct, and none is the directory of another.
/// Returns the fault.
pub(crate) fn check_together<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    // Sorted by components, so that the files in a directory follow a file of the directory's name.
    names.sort_unstable_by(|a, b| a.split('/').cmp(b.split('/')));
    names.windows(2).try_for_each(|pair| match pair[1].strip_prefix(pair[0]) {
        Some("") => Err(format!("two files are named {:?}: names are unique in a snapshot", pair[0])),
        Some(rest) if rest.starts_with('/') => {
            Err(format!("{:?} is a file, and {:?} would be in it", pair[0], pair[1]))
        }
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_below_a_directory() {
        let (long, deepest) = ("x".repeat(255), "x/".repeat(511) + "xx");
        for name in
            ["a", "a/b", "model.safetensors", "optimizer_0/__0_0.distcp", "..a/b..", ".hidden/é", &long, &deepest]
        {
            check_name(name).unwrap();
        }
        let (longer, deep) = ("x".repeat(256), "x/".repeat(512) + "x");
        let bad =
            ["", "/", ".", "..", "../x", "x/..", "a/../b", "a/./b", "a//b", "a/", "/etc/passwd", "a\\b", "C:x", "a\nb"];
        for name in bad.into_iter().chain([&longer[..], &format!("a/{longer}"), &deep]) {
            check_name(name).expect_err(name);
        }
    }

    #[test]
    fn names_that_exclude_each_other_are_found() {
        for fine in [&["a/b", "a/c", "ab", "a!", "b"][..], &["a.b/c", "a"], &["x"], &[]] {
            assert_eq!(check_together(fine.iter().copied()), Ok(()), "{fine:?}");
        }
        for (bad, why) in [
            (&["a", "b", "a"][..], "two files are named \"a\""),
            (&["a/b", "a!", "a/b"], "two files are named \"a/b\""),
            (&["a/b/c", "a!", "a-b", "a"], "\"a\" is a file, and \"a/b/c\" would be in it"),
            (&["a/b", "z", "a/b/c/d", "a/b!"], "\"a/b\" is a file, and \"a/b/c/d\" would be in it"),
        ] {
            let found = check_together(bad.iter().copied()).expect_err(why);
            assert!(found.contains(why), "{found}");
        }
    }
}
