//! Files to be saved in a store, and directories of them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::input::same_file;
use crate::names::STORE_MARKER;
use crate::shards::{Index, index, named_by};

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
    files: Vec<NamedFile>,
}

impl NamedFiles {
    /// Finds the files. Links to files are followed: the caches of models consist of them. A directory that contains a store is refused:
    /// stores are copied in another way. So are links to directories, which may lead anywhere, what is neither file nor directory, an index
    /// without the files that it names, and files of one name.
    ///
    /// # Errors
    /// For paths that are refused, cannot be read, or have no files.
    pub fn find(paths: &[PathBuf], store: &str) -> Result<Self> {
        let files = found(paths, store)?;
        Ok(Self { paths: paths.to_vec(), store: store.to_owned(), files })
    }

    /// The files, those of a directory in order of their names.
    pub fn files(&self) -> &[NamedFile] {
        &self.files
    }

    /// Checks that directories still have the same files, after these were read.
    ///
    /// # Errors
    /// When they have not, or cannot be read.
    pub fn check_same(&self) -> Result {
        if found(&self.paths, &self.store)? == self.files {
            return Ok(());
        }
        let path = self.paths.iter().find(|path| path.is_dir()).unwrap_or(&self.paths[0]);
        Err(Failure::at(path, "got or lost files while it was read: save it when it is finished"))
    }
}

fn found(paths: &[PathBuf], store: &str) -> Result<Vec<NamedFile>> {
    let store = std::fs::canonicalize(store).ok();
    let mut found = Vec::new();
    let mut indexed = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            walk(path, path, store.as_deref(), &mut found)?;
            if found.len() == before {
                return Err(Failure::at(path, "has no files to save"));
            }
            let all: Vec<&Path> = found[before..].iter().map(|file| &*file.path).collect();
            all.iter().try_for_each(|path| of_index(path, &all).map(drop))?;
        } else {
            let name = path.file_name().map(Path::new).unwrap_or(path);
            found.push(NamedFile { name: name_of(name, path)?, path: path.clone() });
            for there in of_index(path, &[])? {
                let name = name_of(there.file_name().map(Path::new).unwrap_or(&there), &there)?;
                indexed.push(NamedFile { path: there, name });
            }
        }
    }
    for file in indexed {
        // It may be given by itself, too.
        let same = |other: &NamedFile| other.name == file.name && is_same(&other.path, &file.path);
        if !found.iter().any(same) {
            found.push(file);
        }
    }
    refuse_equal_names(&found)?;
    Ok(found)
}

/// The files that an index names; none of anything else, or if `all` files have the model in another format. An index without its files
/// would be a snapshot without a model.
fn of_index(path: &Path, all: &[&Path]) -> Result<Vec<PathBuf>> {
    let names = match index(path)? {
        Index::Torn => return Err(Failure::at(path, "is not JSON, as an index that is not completely written")),
        Index::Of(names) if !is_stale(path, &names, all) => names,
        Index::Of(_) | Index::No => return Ok(Vec::new()),
    };
    let missing = |name: &str| {
        let name = Name::text(name);
        Failure::at(path, format_args!("names {name}, which is not beside it: put it there, or name the files to save"))
    };
    names.iter().map(|name| named_by(path, name).ok_or_else(|| missing(name))).collect()
}

/// Whether none of the files that an index names is there, but the model is, in another format: downloads of one format often have the
/// indexes of others, too.
fn is_stale(path: &Path, names: &BTreeSet<String>, all: &[&Path]) -> bool {
    if names.iter().any(|name| named_by(path, name).is_some()) {
        return false;
    }
    let is_model = |other: &Path| {
        let name = other.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".lmc").unwrap_or(&name);
        let format = MODELS.iter().find(|(start, end)| name.starts_with(start) && name.ends_with(end));
        format.is_some_and(|(_, end)| names.iter().all(|named| !named.ends_with(end)))
    };
    all.iter().any(|other| other.parent() == path.parent() && is_model(other))
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

/// Adds the files of a directory and its subdirectories, in order of names.
fn walk(dir: &Path, root: &Path, store: Option<&Path>, found: &mut Vec<NamedFile>) -> Result {
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
    let entries = std::fs::read_dir(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = entries.map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(unreadable)?);
        if kind.is_dir() {
            walk(&path, root, store, found)?;
        } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
            found.push(NamedFile { name: name_of(path.strip_prefix(root).unwrap_or(&path), &path)?, path });
        } else {
            let what = match (kind.is_symlink(), path.exists()) {
                (true, true) => "is a symbolic link to no file, and others are not followed: name the files to save",
                (true, false) => "is a symbolic link that leads nowhere: remove it, or fetch the file again",
                _ => "is not a regular file, and a store keeps only files: name those to save",
            };
            return Err(Failure::at(&path, what));
        }
    }
    Ok(())
}

/// A relative path as the name of a file in a store.
fn name_of(inside: &Path, path: &Path) -> Result<String> {
    let component = |c| match c {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    let names = inside.components().map(component).collect::<Option<Vec<_>>>();
    let names = names.ok_or_else(|| Failure::at(path, "names in a store are UTF-8: rename it"))?;
    Ok(names.join("/"))
}
