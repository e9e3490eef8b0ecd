//! Decides which files a run may remove or replace, for the command and for the Python package.
//!
//! A delta cannot be restored without its bases, nor these without theirs. So a run never removes or replaces a base, an input still to be
//! read, or a file that it wrote earlier. Files are identified by device and inode, so that links, `..` and case-insensitive names do not
//! matter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Display};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lmc_store::files::parent;

use crate::format::Name;

/// The role of a file in a run, strongest reason to keep it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A store; if it is a directory, with everything in it.
    Store,
    /// A base.
    Base,
    /// An input.
    Input,
    /// Written by the run.
    Output,
}

/// The files of a run.
#[derive(Debug, Default)]
pub struct Guard {
    /// By device and inode.
    files: Mutex<HashMap<(u64, u64), (Role, PathBuf)>>,
}

/// Why a file is not removed or replaced: a sentence that begins with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Guard {
    /// Registers a file with its role.
    pub fn keep(&self, role: Role, path: &Path, metadata: &Metadata) {
        self.keep_known(role, path, (metadata.dev(), metadata.ino()));
    }

    /// [`Self::keep`] by device and inode.
    pub fn keep_known(&self, role: Role, path: &Path, file: (u64, u64)) {
        match self.files().entry(file) {
            Entry::Occupied(known) if known.get().0 <= role => {}
            Entry::Occupied(mut known) => _ = known.insert((role, path.to_owned())),
            Entry::Vacant(new) => _ = new.insert((role, path.to_owned())),
        }
    }

    /// Fails if the file at `target`, which may be a link, must not be replaced, or if no file may be created there.
    ///
    /// # Errors
    /// The refusal, which names both files.
    pub fn check_replace(&self, target: &Path) -> Result<(), Refusal> {
        // Both a link and its target count.
        let there = [std::fs::metadata(target), std::fs::symlink_metadata(target)];
        there.iter().flatten().try_for_each(|m| self.check_write(target, m))?;
        // The directory that contains it, and those above. Missing ones would be created in the nearest existing one.
        let resolved = |d: &Path| if d.as_os_str().is_empty() { Path::new(".") } else { d }.canonicalize().ok();
        let Some(directory) = parent(target).ancestors().find_map(resolved) else { return Ok(()) };
        let above = directory.ancestors().filter_map(|d| std::fs::metadata(d).ok()).find_map(|m| self.role(&m));
        above.map_or(Ok(()), |(_, store)| {
            let (target, store) = (Name::path(target), Name::path(&store));
            Err(Refusal(format!("{target}: is in the store {store}: write elsewhere")))
        })
    }

    /// [`Self::check_replace`] for an open file, such as standard output.
    ///
    /// # Errors
    /// Those of [`Self::check_replace`].
    pub fn check_write(&self, target: &Path, metadata: &Metadata) -> Result<(), Refusal> {
        self.check_known(target, (metadata.dev(), metadata.ino()))
    }

    /// [`Self::check_replace`] by device and inode.
    ///
    /// # Errors
    /// Those of [`Self::check_replace`].
    pub fn check_known(&self, target: &Path, file: (u64, u64)) -> Result<(), Refusal> {
        let Some((role, path)) = self.files().get(&file).cloned() else { return Ok(()) };
        let target = Name::path(target);
        let path = Name::path(&path);
        Err(Refusal(match role {
            Role::Store => format!("{target}: is the store {path}: write elsewhere"),
            Role::Base => format!(
                "{target}: is the base {path}, without which nothing that was made from it can be restored: write to another file"
            ),
            Role::Input => format!("{target}: is the input file {path}: write to another file"),
            Role::Output => {
                format!("{target}: is {path}, which was written a moment ago: write each file to a name of its own")
            }
        }))
    }

    /// Fails if an input must not be removed.
    ///
    /// # Errors
    /// The refusal, which names both files.
    pub fn check_remove(&self, input: &Path, metadata: &Metadata) -> Result<(), Refusal> {
        match self.role(metadata) {
            Some((Role::Base, path)) => Err(Refusal(format!(
                "{}: is the base {}, without which nothing that was made from it can be restored: leave out --rm, or this file",
                Name::path(input),
                Name::path(&path)
            ))),
            _ => Ok(()),
        }
    }

    fn role(&self, metadata: &Metadata) -> Option<(Role, PathBuf)> {
        self.files().get(&(metadata.dev(), metadata.ino())).cloned()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<(u64, u64), (Role, PathBuf)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_itself_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["base", "input", "output", "other"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("sub")).unwrap();
        symlink(at("base"), at("link")).unwrap();
        symlink(at("link"), at("link to link")).unwrap();
        symlink(dir.path(), at("sub/back")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::hard_link(at("base"), at("hard")).unwrap();
        let guard = Guard::default();
        let keep = |role, name| guard.keep(role, &at(name), &fs::metadata(at(name)).unwrap());
        // A base that is also an input counts as a base.
        keep(Role::Input, "base");
        keep(Role::Base, "base");
        keep(Role::Input, "base");
        keep(Role::Input, "input");
        keep(Role::Output, "output");
        for name in ["base", "link", "link to link", "hard", "sub/../base", "./base", "sub/back/base", "sub/back/link"]
        {
            let refusal = guard.check_replace(&at(name)).unwrap_err().to_string();
            assert!(refusal.contains(&*at(name).to_string_lossy()) && refusal.contains("is the base"), "{refusal}");
            assert!(refusal.contains(&*at("base").to_string_lossy()), "{refusal}");
            guard.check_remove(&at(name), &fs::metadata(at(name)).unwrap()).unwrap_err();
        }
        guard.check_replace(&at("input")).unwrap_err();
        guard.check_remove(&at("input"), &fs::metadata(at("input")).unwrap()).unwrap();
        guard.check_replace(&at("output")).unwrap_err();
        for name in ["other", "dangling", "nowhere", "sub"] {
            guard.check_replace(&at(name)).unwrap();
        }
    }

    #[test]
    fn nothing_is_written_into_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("store/data")).unwrap();
        fs::create_dir(at("storefront")).unwrap();
        symlink(at("store/data"), at("link")).unwrap();
        let guard = Guard::default();
        guard.keep(Role::Store, &at("store"), &fs::metadata(at("store")).unwrap());
        for name in [
            "store",
            "store/new",
            "store/data/new",
            "store/not/there",
            "link/new",
            "storefront/../store/new",
            "link/../new",
        ] {
            guard.check_replace(&at(name)).unwrap_err();
        }
        for name in ["new", "storefront/new", "store/../new", "nowhere/new"] {
            guard.check_replace(&at(name)).unwrap();
        }
    }
}
