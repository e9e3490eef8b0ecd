//! Decides which files a run may remove or replace, for the command and for the Python package.
//!
//! A delta cannot be restored without its bases, nor these without theirs. So a run never removes or replaces a base, an input still to be
//! read, or a file that it wrote earlier. Files are identified by device and inode, so that links, `..` and case-insensitive names do not
//! matter.
//!
//! Nor is a file removed that symbolic links lead to, or such a link: what reads a model by it would find nothing, and removing a link frees
//! no space.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Display};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lmc_store::files::parent;

use crate::ui::failure::Failure;
use crate::ui::format::Name;

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
    /// Symbolic links, by device and inode of the files that they lead to.
    links: Mutex<HashMap<(u64, u64), PathBuf>>,
}

/// Why a file is not removed or replaced: a sentence that begins with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Usage(refusal.to_string())
    }
}

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

    /// Registers a symbolic link that leads to a file.
    pub fn keep_link(&self, link: &Path, target: &Metadata) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry((target.dev(), target.ino())).or_insert_with(|| link.to_owned());
    }

    /// Fails if an input must not be removed.
    ///
    /// # Errors
    /// The refusal, which names both files.
    pub fn check_remove(&self, input: &Path, metadata: &Metadata) -> Result<(), Refusal> {
        let name = Name::path(input);
        if let Some((Role::Base, path)) = self.role(metadata) {
            return Err(Refusal(format!(
                "{name}: is the base {}, without which nothing that was made from it can be restored: leave out --rm, or this file",
                Name::path(&path)
            )));
        }
        if is_blob_of_hub(input) {
            return Err(Refusal(format!(
                "{name}: is in a cache of the Hugging Face hub, and links in its snapshots lead to it: leave out --rm; lmc hub compress \
                 and lmc hub restore change the cache, and keep the links"
            )));
        }
        if let Ok(target) = std::fs::read_link(input) {
            return Err(Refusal(format!(
                "{name}: is a symbolic link, without which {} would take the same space: leave out --rm, or name that file",
                Name::path(&parent(input).join(target))
            )));
        }
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        match links.get(&(metadata.dev(), metadata.ino())) {
            None => Ok(()),
            Some(link) => Err(Refusal(format!(
                "{name}: is what the symbolic link {} leads to, which would lead nowhere: leave out --rm, or remove the link",
                Name::path(link)
            ))),
        }
    }

    fn role(&self, metadata: &Metadata) -> Option<(Role, PathBuf)> {
        self.files().get(&(metadata.dev(), metadata.ino())).cloned()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<(u64, u64), (Role, PathBuf)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a path leads to a file of a cache of the Hugging Face hub, whose models consist of links to them: `blobs/HASH` beside `snapshots`.
fn is_blob_of_hub(path: &Path) -> bool {
    let Ok(file) = path.canonicalize() else { return false };
    let blobs = parent(&file);
    blobs.file_name().is_some_and(|name| name == "blobs") && blobs.with_file_name("snapshots").is_dir()
}

/// What to say of a file that was removed, if hard links to it are left.
pub(crate) fn note_names_left(path: &Path, metadata: &Metadata) -> Option<String> {
    let left = metadata.nlink().checked_sub(2)? + 1;
    let (names, they) = if left == 1 { ("name", "that is") } else { ("names", "those are") };
    Some(format!(
        "{}: is removed, but its file has {left} more {names} (hard links): its space is free when {they} removed, too",
        Name::path(path)
    ))
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
