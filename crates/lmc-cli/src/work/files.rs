//! Files to be saved in a store, and directories of them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use lmc_store::Store;
use lmc_store::files::Identities;

use crate::fs::input::{Source, same_file};
use crate::fs::links;
use crate::fs::names::{STORE_MARKER, SUFFIX};
use crate::fs::walk::{self, Entry, Kind, Other};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::work::shards::{Fault, fault, has_weights, named_by, shards};

/// Beginnings and ends of names of models in directories of Hugging Face.
const MODELS: [(&str, &str); 2] = [("model", ".safetensors"), ("pytorch_model", ".bin")];

/// A file, and its name in the snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its path in the snapshot, with slashes.
    pub name: String,
}

/// The files that paths name: a directory names all files in it, named by their paths there; the index of a checkpoint
/// for itself and the files that it names; anything else for itself.
#[derive(Debug)]
pub struct NamedFiles {
    paths: Vec<PathBuf>,
    /// The location of the store.
    store: String,
    found: Found,
}

/// What paths name.
#[derive(Debug, Default)]
struct Found {
    files: Vec<NamedFile>,
    /// What is special about files, as sentences.
    notes: Vec<(PathBuf, String)>,
    /// The directories that were searched.
    directories: Identities,
}

impl NamedFiles {
    /// Finds the files, and those that links lead to. A directory that contains a store is refused: stores are copied in another way. So are
    /// links to directories, what is neither file nor directory, an index
    /// without the files that it names, or with one that ends early, and files of one name.
    ///
    /// A file in a directory whose name a store cannot hold is left out, unless it has weights, by the suffix of its name.
    ///
    /// # Errors
    /// For paths that are refused, cannot be read, or have no files.
    pub fn find(paths: &[PathBuf], store: &str) -> Result<Self> {
        Ok(Self { paths: paths.to_vec(), store: store.to_owned(), found: found(paths, store)? })
    }

    /// The files, those of a directory in order of their names.
    pub fn files(&self) -> &[NamedFile] {
        &self.found.files
    }

    /// What whoever saves them should know, as sentences: files that are left out, and those that are saved as they are, but end before
    /// their tensors do, or are no model although their names say so.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn notes(&self) -> Result<Vec<String>> {
        let mut notes: Vec<String> = self.found.notes.iter().map(|(_, note)| note.clone()).collect();
        for file in self.files() {
            // Hidden files are those of other programs, such as ._model.safetensors of macOS.
            if is_hidden(&file.path, file.path.parent().unwrap_or(Path::new(""))) {
                continue;
            }
            // An index that is none is noted already.
            if self.found.notes.iter().any(|(path, _)| *path == file.path) {
                continue;
            }
            if let Some(why) = Source::open(&file.path)?.truncated()? {
                notes.push(format!("{}: {why}; it is stored as it is", Name::path(&file.path)));
            }
        }
        Ok(notes)
    }

    /// Refuses a link that has the name of an original, and leads to its compressed form.
    ///
    /// # Errors
    /// For such a link.
    pub fn check_original(path: &Path) -> Result {
        let Some(compressed) = links::compressed_under_other_name(path) else { return Ok(()) };
        let what = format_args!(
            "is a link to a compressed file, {}, and a store would keep that under the name of the original: restore it first (lmc \
             hub restore), or save it from a mount (lmc mount)",
            Name::path(compressed.file_name().map(Path::new).unwrap_or(&compressed))
        );
        Err(Failure::at(path, what))
    }

    /// Checks that directories still have the same files, and are the same, after these were read.
    ///
    /// # Errors
    /// When they have not, or cannot be read.
    pub fn check_same(&self) -> Result {
        if let Some(path) = self.found.directories.changed() {
            return Err(Failure::at(path, "was replaced while it was read: save it when nothing replaces it"));
        }
        if found(&self.paths, &self.store)?.files == self.found.files {
            return Ok(());
        }
        let path = self.paths.iter().find(|path| path.is_dir()).unwrap_or(&self.paths[0]);
        Err(Failure::at(path, "got or lost files while it was read: save it when it is finished"))
    }
}

fn found(paths: &[PathBuf], store: &str) -> Result<Found> {
    let store = std::fs::canonicalize(store).ok();
    let mut found = Found::default();
    let mut indexed = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.files.len();
            found.walk(path, path, store.as_deref())?;
            if found.files.len() == before {
                return Err(Failure::at(path, "has no files to save"));
            }
            found.check_indexes(path, before)?;
        } else {
            let name = path.file_name().map(Path::new).unwrap_or(path);
            found.files.push(NamedFile { name: name_of(name, path)?, path: path.clone() });
            for name in shards(path)?.into_iter().flatten() {
                let there = named_by(path, &name).unwrap_or_else(|| path.with_file_name(&name));
                let is_plain = there.ends_with(&name);
                indexed.push(NamedFile { path: there, name: if is_plain { name } else { format!("{name}.{SUFFIX}") } });
            }
            if let Some(Fault::Unfinished(failure)) = fault(path, |_| false)? {
                return Err(Failure::Failed(format!("{failure}: {COMPLETE_IT}")));
            }
        }
    }
    for file in found.files.iter().chain(&indexed) {
        NamedFiles::check_original(&file.path)?;
    }
    for file in indexed {
        // It may be given by itself, too.
        let same = |other: &NamedFile| other.name == file.name && is_same(&other.path, &file.path);
        if !found.files.iter().any(same) {
            found.files.push(file);
        }
    }
    refuse_equal_names(&found.files)?;
    Ok(found)
}

/// The advice where an index lacks files.
const COMPLETE_IT: &str = "put it there, or name the files to save";

impl Found {
    /// Looks for the files that indexes in a directory name, whose files are those from `first` on.
    fn check_indexes(&mut self, root: &Path, first: usize) -> Result {
        let all = &self.files[first..];
        for file in all.iter().filter(|file| !is_hidden(&file.path, root)) {
            match fault(&file.path, |names| is_stale(&file.path, names, all.iter().map(|file| &*file.path)))? {
                None => {}
                Some(Fault::Unfinished(failure)) => return Err(Failure::Failed(format!("{failure}: {COMPLETE_IT}"))),
                Some(Fault::Other(failure)) => {
                    self.notes.push((file.path.clone(), format!("{failure}, and it is stored as it is")));
                }
            }
        }
        Ok(())
    }

    /// Adds the files of a directory and its subdirectories, in order of names.
    fn walk(&mut self, dir: &Path, root: &Path, store: Option<&Path>) -> Result {
        if store.is_some_and(|store| std::fs::canonicalize(dir).is_ok_and(|dir| dir == store)) {
            return Err(Failure::at(dir, "is the store itself: save files from a directory without it"));
        }
        if dir.join(STORE_MARKER).is_file() {
            let what = format_args!(
                "is a store itself ({STORE_MARKER}): lmc snapshot copy copies its snapshots; name files to save"
            );
            return Err(Failure::at(dir, what));
        }
        let unreadable = |e| Failure::io(dir, "cannot read the directory", &e);
        self.directories.note(dir).map_err(unreadable)?;
        for Entry { path, kind, .. } in walk::entries(dir)? {
            let what = match kind {
                Kind::Directory => {
                    self.walk(&path, root, store)?;
                    continue;
                }
                Kind::File | Kind::Link(_) => {
                    match name_of(path.strip_prefix(root).unwrap_or(&path), &path) {
                        Ok(name) => self.files.push(NamedFile { name, path }),
                        // Nothing else makes a snapshot incomplete.
                        Err(failure) if has_weights(&path) => return Err(failure),
                        Err(failure) => {
                            let note = format!("{failure}; it is left out");
                            self.notes.push((path, note));
                        }
                    }
                    continue;
                }
                Kind::Other(Other::LinkToDirectory) => {
                    "is a symbolic link to a directory, and only those to files are followed: name the files to save"
                }
                Kind::Other(Other::LinkToNothing) => {
                    "is a symbolic link that leads nowhere: remove it, or fetch the file again"
                }
                Kind::Other(Other::Special) => {
                    "is not a regular file, and a store keeps only files: name those to save"
                }
            };
            return Err(Failure::at(&path, what));
        }
        Ok(())
    }
}

/// Whether a file in a directory, or a directory that it is in there, is hidden. Such indexes are copies that other programs keep.
pub(crate) fn is_hidden(path: &Path, root: &Path) -> bool {
    let inside = path.strip_prefix(root).unwrap_or(path);
    inside.components().any(|c| c.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// Whether none of the files that an index names is there, but the model is, in another format, among `all` files: downloads of one format
/// often have the indexes of others, too.
pub(crate) fn is_stale<'p>(path: &Path, names: &BTreeSet<String>, all: impl IntoIterator<Item = &'p Path>) -> bool {
    if names.iter().any(|name| named_by(path, name).is_some()) {
        return false;
    }
    let is_model = |other: &Path| {
        let name = other.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".lmc").unwrap_or(&name);
        let format = MODELS.iter().find(|(start, end)| name.starts_with(start) && name.ends_with(end));
        format.is_some_and(|(_, end)| names.iter().all(|named| !named.ends_with(end)))
    };
    all.into_iter().any(|other| other.parent() == path.parent() && is_model(other))
}

/// Fails if two files have the same name.
fn refuse_equal_names(files: &[NamedFile]) -> Result {
    let mut seen = HashMap::new();
    for file in files {
        if let Some(other) = seen.insert(&file.name, &file.path) {
            return Err(Failure::Usage(format!(
                "{} and {}: two files are named {:?}: name the directory that both are in, and their paths there are their names",
                Name::path(other),
                Name::path(&file.path),
                file.name
            )));
        }
    }
    Ok(())
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((std::fs::metadata(a), std::fs::metadata(b)), (Ok(a), Ok(b)) if same_file(&a, &b))
}

/// A relative path as the name of a file in a store.
fn name_of(inside: &Path, path: &Path) -> Result<String> {
    let component = |c| match c {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    let names = inside.components().map(component).collect::<Option<Vec<_>>>();
    let name = names.ok_or_else(|| Failure::at(path, "names in a store are UTF-8: rename it"))?.join("/");
    match Store::check_name(&name) {
        Ok(()) => Ok(name),
        Err(_) => Err(Failure::at(path, "has a name that no file in a store can have: rename it")),
    }
}
