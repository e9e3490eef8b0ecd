//! What is in a cache of the Hugging Face hub.
//!
//! A model is a directory `models--ORG--NAME`. Its files are `blobs/HASH`, and `snapshots/REVISION/…` has a link to one
//! for each file of a revision. Newer versions of huggingface_hub keep files that several models may have in
//! `blobs/XX/HASH` of the cache itself, and `blobs/HASH` of a model is a link to it. Where a system has no links, the
//! files are in the snapshots.
//!
//! Of a compressed file, the bytes are in `HASH.lmc`, and `HASH` is a link to that: links to `HASH` stay as they are,
//! and huggingface_hub finds the file, and finds that it need not download it. A `HASH.lmc` without such a link is the
//! base of deltas in its directory: a second name (hard link) of a file of another model, or what is left of a file
//! that huggingface_hub deleted. So no model needs another one, and deleting any of them makes none unreadable.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::{BaseInfo, DecompressOptions, Reader};
use lmc_store::files::parent;

use crate::fs::input::Source;
use crate::fs::links;
use crate::fs::walk::{self, Kind};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, quoted};
use crate::ui::messages::Ui;
use crate::work::plan::{AddSuffix, Naming};

const MODELS: &str = "models--";
/// Of repositories that are no models.
const OTHERS: [&str; 3] = ["datasets--", "spaces--", "kernels--"];
const BLOBS: &str = "blobs";

/// A cache.
pub(super) struct Cache {
    /// Without links.
    pub(super) dir: PathBuf,
    /// In order of their names.
    pub(super) models: Vec<Model>,
    pub(super) files: Vec<Weights>,
    /// Repositories that are no models.
    pub(super) others: Vec<String>,
    /// Directories of files that are named by their contents.
    pub(super) directories: Vec<PathBuf>,
    /// Where links in snapshots lead although nothing is there.
    pub(super) missing: HashSet<PathBuf>,
}

/// A repository of a cache.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) revisions: usize,
    /// The numbers of its files with weights, each once.
    pub(super) files: Vec<usize>,
    /// Files that are loaded together, each time in order of their names.
    pub(super) checkpoints: Vec<Vec<usize>>,
}

/// A file with weights.
pub(super) struct Weights {
    /// Where its bytes are, or were before it was compressed: `HASH`, without links above it.
    pub(super) path: PathBuf,
    /// Its name in a snapshot.
    pub(super) name: String,
    pub(super) raw_size: u64,
    pub(super) compressed: Option<Compressed>,
    /// Whether it is in a directory of files that are named by their contents, and may be a base and a delta.
    pub(super) is_blob: bool,
    /// What huggingface_hub locks while it writes the file.
    pub(super) lock: PathBuf,
}

/// What is known of a compressed file.
pub(super) struct Compressed {
    pub(super) size: u64,
    pub(super) bases: Vec<BaseInfo>,
    /// Device and inode: others may be the same file.
    pub(super) identity: (u64, u64),
}

/// The directory of the cache, as huggingface_hub finds it.
pub(super) fn default_directory() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").ok_or_else(|| Failure::Usage("HOME is not set: give --cache-dir".to_owned()));
    let expanded = |path: PathBuf| match path.strip_prefix("~") {
        Ok(inside) => home().map(|home| home.join(inside)),
        Err(_) => Ok(path),
    };
    if let Some(dir) = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")) {
        return expanded(dir);
    }
    let hub = match (set("HF_HOME"), set("XDG_CACHE_HOME")) {
        (Some(dir), _) => expanded(dir)?,
        (None, Some(caches)) => expanded(caches)?.join("huggingface"),
        (None, None) => home()?.join(".cache/huggingface"),
    };
    Ok(hub.join("hub"))
}

impl Cache {
    /// Looks at a cache. What cannot be read is said, and left out.
    pub(super) fn open(dir: &Path, ui: &Ui) -> Result<Self> {
        let real = dir.canonicalize();
        let real = real
            .map_err(|e| Failure::io(dir, "is no cache of the Hugging Face hub; name another with --cache-dir", &e))?;
        let mut this = Self {
            dir: real,
            models: Vec::new(),
            files: Vec::new(),
            others: Vec::new(),
            directories: Vec::new(),
            missing: HashSet::new(),
        };
        let mut known = HashMap::new();
        let shared = this.dir.join(BLOBS);
        let shared = if shared.is_dir() { walk::entries(&shared)? } else { Vec::new() };
        this.directories = shared.into_iter().filter(|e| matches!(e.kind, Kind::Directory)).map(|e| e.path).collect();
        for entry in walk::entries(&this.dir.clone())? {
            let name = entry.name.to_string_lossy().into_owned();
            if OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
                this.others.push(name);
            } else if let Some(id) = name.strip_prefix(MODELS).filter(|_| entry.path.is_dir()) {
                let blobs = entry.path.join(BLOBS).canonicalize();
                this.directories.extend(blobs.as_ref().ok().cloned());
                match this.model(&entry.path, id.replace("--", "/"), &mut known, ui) {
                    Ok(model) => this.models.push(model),
                    Err(failure) => {
                        ui.fail(&failure);
                        // Nothing is removed there: it is unknown what links lead to.
                        this.directories.retain(|directory| Some(directory) != blobs.as_ref().ok());
                    }
                }
            }
        }
        Ok(this)
    }

    fn model(
        &mut self,
        dir: &Path,
        name: String,
        known: &mut HashMap<PathBuf, Option<usize>>,
        ui: &Ui,
    ) -> Result<Model> {
        let (mut files, mut checkpoints, mut revisions) = (Vec::new(), Vec::new(), 0);
        let snapshots = dir.join("snapshots");
        let entries = if snapshots.is_dir() { walk::entries(&snapshots)? } else { Vec::new() };
        for revision in entries.into_iter().filter(|entry| matches!(entry.kind, Kind::Directory)) {
            revisions += 1;
            // By directory, and by the name without the number of a shard.
            let mut together: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
            let mut directories = vec![revision.path];
            while let Some(directory) = directories.pop() {
                for entry in walk::entries(&directory)? {
                    if matches!(entry.kind, Kind::Directory) {
                        directories.push(entry.path);
                        continue;
                    }
                    if matches!(entry.kind, Kind::Other(_)) {
                        self.note_missing(&entry.path, ui);
                    }
                    if !(AddSuffix { all: false }).picks(&entry.path) {
                        continue;
                    }
                    let Some(path) = self.payload(dir, &entry.path) else {
                        ui.detail(format_args!("{}: left alone, no file of the cache", Name::path(&entry.path)));
                        continue;
                    };
                    let new = || self.weights(&path, dir, &entry.name).map_err(|e| ui.fail(&e)).ok();
                    let number = match known.get(&path) {
                        Some(number) => *number,
                        None => {
                            let number = new().map(|file| {
                                self.files.push(file);
                                self.files.len() - 1
                            });
                            known.insert(path, number);
                            number
                        }
                    };
                    let Some(number) = number else { continue };
                    if !files.contains(&number) {
                        files.push(number);
                    }
                    together.entry(directory.join(without_shard(&entry.name))).or_default().push(number);
                }
            }
            checkpoints.extend(together.into_values().filter(|files| !checkpoints.contains(files)).collect::<Vec<_>>());
        }
        Ok(Model { name, revisions, files, checkpoints })
    }

    /// The file of the cache that an entry of a snapshot leads to.
    fn payload(&self, model: &Path, entry: &Path) -> Option<PathBuf> {
        let mut path = entry.to_owned();
        while !is_compressed(&path)
            && let Some(next) = links::next(&path)
        {
            // Where it leads to itself, the system finds nothing.
            path.metadata().ok()?;
            path = parent(&next).canonicalize().ok()?.join(next.file_name()?);
        }
        let path = parent(&path).canonicalize().ok()?.join(path.file_name()?);
        let is_inside = path.starts_with(&self.dir) || path.starts_with(model.canonicalize().ok()?);
        (is_inside && path.is_file()).then_some(path)
    }

    /// A link in a snapshot that leads nowhere. What was compressed otherwise is not to be removed.
    fn note_missing(&mut self, link: &Path, ui: &Ui) {
        if let Some(compressed) = links::compressed_since(link) {
            let restore = format_args!("lmc decompress {}", quoted(&compressed)).to_string();
            ui.warn(format_args!(
                "{}: leads nowhere, as the file was compressed without lmc hub: {restore}",
                Name::path(link)
            ));
            let original = compressed.with_extension("");
            let directory = parent(&original).canonicalize();
            self.missing.extend(directory.ok().zip(original.file_name()).map(|(directory, name)| directory.join(name)));
        }
    }

    fn weights(&self, path: &Path, model: &Path, name: &OsStr) -> Result<Weights> {
        let source = Source::open(path)?;
        let metadata = source.metadata();
        let (identity, size) = ((metadata.dev(), metadata.ino()), metadata.len());
        let (raw_size, compressed) = if is_compressed(path) {
            let options = DecompressOptions::default().with_threads(1); // nothing is decoded
            let reader = Reader::open(&source, &options).map_err(|e| Failure::codec(&links::with_suffix(path), &e))?;
            (reader.raw_size(), Some(Compressed { size, bases: reader.bases().to_vec(), identity }))
        } else {
            (size, None)
        };
        let mut file = path.file_name().unwrap_or_default().to_owned();
        file.push(".lock");
        let is_shared = parent(parent(path)) == self.dir.join(BLOBS);
        let is_blob = self.directories.iter().any(|directory| directory == parent(path));
        let lock = match is_shared {
            true => path.with_file_name(file),
            false => self.dir.join(".locks").join(model.file_name().unwrap_or_default()).join(file),
        };
        let name = name.to_string_lossy().into_owned();
        Ok(Weights { path: path.to_owned(), name, raw_size, compressed, is_blob, lock })
    }

    /// The numbers of the models with these names; of all if there are none.
    pub(super) fn select(&self, names: &[String]) -> Result<Vec<usize>> {
        let find = |name: &String| {
            let is_it = |m: &Model| m.name == *name || name.strip_prefix(MODELS) == Some(&m.name.replace('/', "--"));
            self.models.iter().position(is_it).ok_or_else(|| {
                let (name, dir) = (Name::text(name), Name::path(&self.dir));
                Failure::Usage(format!("{name}: no such model is in {dir}: lmc hub list names them"))
            })
        };
        if names.is_empty() { Ok((0..self.models.len()).collect()) } else { names.iter().map(find).collect() }
    }

    /// The numbers of the files of models, each once.
    pub(super) fn files_of(&self, models: &[usize]) -> Vec<usize> {
        let mut files: Vec<usize> = models.iter().flat_map(|&model| &self.models[model].files).copied().collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl Weights {
    /// What it takes on disk.
    pub(super) fn size(&self) -> u64 {
        self.compressed.as_ref().map_or(self.raw_size, |c| c.size)
    }

    pub(super) fn is_delta(&self) -> bool {
        self.compressed.as_ref().is_some_and(|c| !c.bases.is_empty())
    }
}

/// Whether a path is the link to the compressed file beside it.
pub(super) fn is_compressed(path: &Path) -> bool {
    let compressed = links::with_suffix(path);
    std::fs::read_link(path).is_ok_and(|target| Some(target.as_os_str()) == compressed.file_name())
}

/// The name of a file without `-00001-of-00003`.
fn without_shard(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (stem, suffix) = name.rsplit_once('.').unwrap_or((&name, ""));
    let parts: Vec<&str> = stem.rsplitn(4, '-').collect();
    match parts[..] {
        [all, "of", one, stem] if is_number(all) && is_number(one) => format!("{stem}.{suffix}"),
        _ => name.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_one_checkpoint() {
        for (name, stem) in [
            ("model-00001-of-00003.safetensors", "model.safetensors"),
            ("a-b-1-of-2.gguf", "a-b.gguf"),
            ("model.safetensors", "model.safetensors"),
            ("model.fp16.safetensors", "model.fp16.safetensors"),
            ("x-1-in-2.bin", "x-1-in-2.bin"),
            ("1-of-2.bin", "1-of-2.bin"),
        ] {
            assert_eq!(without_shard(name.as_ref()), stem);
        }
    }
}
