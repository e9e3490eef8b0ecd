//! Inputs that are files of one checkpoint: what was there at the beginning of a run is what it reads.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use lmc_store::files::{Identities, Identity};

use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::work::shards::{Index, index};
use lmc_store::files::parent;

/// The inputs of a run, and their directories, as they were when it began. Each file is read by itself, so that its bytes are those of one
/// file; of a checkpoint, all of them have to be.
pub(crate) struct Together {
    /// Each with the indexes in it.
    directories: BTreeMap<PathBuf, Identities>,
    /// The files that these name.
    files: Identities,
}

impl Together {
    /// Looks at the directories of inputs, if there are several. One that cannot be read fails when its turn comes.
    pub(crate) fn of<'p>(inputs: impl IntoIterator<Item = &'p Path>) -> Self {
        let inputs: HashSet<&Path> = inputs.into_iter().collect();
        let mut this = Self { directories: BTreeMap::new(), files: Identities::default() };
        if inputs.len() < 2 {
            return this;
        }
        for dir in inputs.iter().map(|path| parent(path)) {
            if !this.directories.contains_key(dir) {
                let seen = this.look(dir, &inputs);
                this.directories.insert(dir.to_owned(), seen);
            }
        }
        this
    }

    fn look(&mut self, dir: &Path, inputs: &HashSet<&Path>) -> Identities {
        let mut seen = Identities::default();
        _ = seen.note(dir);
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = if dir == Path::new(".") { entry.file_name().into() } else { entry.path() };
            let Ok(Index::Of(names)) = index(&path) else { continue };
            // One that is an input may be removed when it was read.
            if !inputs.contains(&*path) {
                _ = seen.note(&path);
            }
            let named = names.iter().map(|name| path.with_file_name(name));
            named.filter(|path| inputs.contains(&**path)).for_each(|path| _ = self.files.note(&path));
        }
        seen
    }

    /// Fails if an input is not what was there at the beginning, or is in another directory: to be called when it is open, and when it was
    /// read.
    pub(crate) fn check(&self, input: &Source) -> Result {
        let path = input.path();
        let is_same = |seen| Identity::of(input.metadata()).is_unchanged(seen);
        let changed = match self.files.get(path) {
            Some(seen) if !is_same(seen) => Some(path),
            _ => self.directories.get(parent(path)).and_then(Identities::changed),
        };
        let Some(changed) = changed else { return Ok(()) };
        let what =
            "was replaced since the run began, so that the outputs would be of two versions: compress all files again";
        Err(Failure::at(changed, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_of_another_version_are_not_together() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |version: &str, text: &str| {
            fs::create_dir_all(at(version)).unwrap();
            ["a", "b", "other"].iter().for_each(|name| fs::write(at(version).join(name), text).unwrap());
            fs::write(at(version).join("m.index.json"), br#"{"weight_map": {"x": "a", "y": "./b"}}"#).unwrap();
        };
        write("v", "1");
        let inputs = ["v/a", "v/b", "v/other"].map(at);
        let paths = || inputs.iter().map(|path| &**path);
        let open = |name: &str| Source::open(&at(name)).unwrap();
        let together = Together::of(paths());
        paths().for_each(|path| together.check(&Source::open(path).unwrap()).unwrap());
        // A file that no index names may be another one by now; of those that are named, all have to be the same.
        let a = open("v/a");
        for name in ["v/b", "v/other"] {
            fs::write(at("new"), "2").unwrap();
            fs::rename(at("new"), at(name)).unwrap();
        }
        together.check(&a).unwrap();
        together.check(&open("v/other")).unwrap();
        let e = together.check(&open("v/b")).unwrap_err().to_string();
        assert!(e.contains("v/b: was replaced since the run began"), "{e}");
        // So has their index, and the directory.
        let together = Together::of(paths());
        fs::write(at("v/m.index.json"), br#"{"weight_map": {"x": "a"}}"#).unwrap();
        assert!(together.check(&a).unwrap_err().to_string().contains("m.index.json: was replaced"));
        let (together, one) = (Together::of(paths()), Together::of(paths().take(1)));
        write("w", "1");
        fs::rename(at("v"), at("old")).unwrap();
        fs::rename(at("w"), at("v")).unwrap();
        assert!(together.check(&a).unwrap_err().to_string().contains("v: was replaced"));
        assert!(together.check(&open("v/other")).is_err());
        // A single file is whole in any case.
        one.check(&open("v/a")).unwrap();
    }
}
