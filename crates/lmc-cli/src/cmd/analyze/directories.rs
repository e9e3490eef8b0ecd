//! The checkpoints in a directory: one, or those of several steps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::{Base, DecompressOptions, Reader, Segment};

use crate::cmd::unpack::{DataFiles, METADATA, read_metadata};
use crate::fs::input::Source;
use crate::fs::names::{STORE_MARKER, SUFFIX};
use crate::fs::walk::{self, Entry, Kind};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::bases::Bases;
use crate::work::shards::is_index;
use crate::work::steps::step;

/// Levels of directories below one that was named.
const DEPTH: usize = 8;

/// A file of a checkpoint.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) path: PathBuf,
    /// What it is to the checkpoint.
    pub(super) kind: MemberKind,
}

/// What a file is to a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberKind {
    /// It may have tensors: a directory has files of other kinds, too.
    Candidate,
    /// Metadata name it.
    Named,
}

/// A checkpoint.
pub(super) struct Found {
    pub(super) name: PathBuf,
    pub(super) files: Vec<Member>,
}

/// The checkpoints in a directory and below it, in the order of their steps, if there are several; else all of it.
pub(super) fn checkpoints(path: &Path, ui: &Ui) -> Result<Vec<Found>> {
    let all = Tree::of(path, 0)?;
    let mut by_step: BTreeMap<u64, Found> = BTreeMap::new();
    if all.steps.keys().map(|(_, step)| step).collect::<HashSet<_>>().len() < 2 {
        return Ok(vec![all.into_one(path)?]);
    }
    for ((_, step), tree) in all.steps {
        let found = tree.tree.into_one(&tree.path)?;
        if let ([one, other, ..], false) = (&found.files[..], found.name.is_dir()) {
            let [one, other] = [one, other].map(|f| Name::path(&f.path).to_string());
            let why =
                format!("step {step} has {one} and {other}: put the files of each step in a directory of its own");
            return Err(Failure::usage(path, why));
        }
        if let Some(other) = by_step.get(&step) {
            let [one, other] = [&found.name, &other.name].map(|p| Name::path(p).to_string());
            let why = format!("step {step} is in {other} and in {one}: name the checkpoints of one run");
            return Err(Failure::usage(path, why));
        }
        by_step.insert(step, found);
    }
    let left_out = all.files.iter().filter(|f| has_tensors(&f.path)).collect::<Vec<_>>();
    if let [first, others @ ..] = &left_out[..] {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let (path, first) = (Name::path(path), Name::path(&first.path));
        ui.warn(format_args!("{path}: {} steps are studied, without {first}{more}, of no step", by_step.len()));
    }
    Ok(by_step.into_values().collect())
}

/// The files in a directory and below it.
#[derive(Default)]
struct Tree {
    /// Those of no step.
    files: Vec<Member>,
    /// Those of steps, by the directory that they are in, and the step.
    steps: BTreeMap<(PathBuf, u64), Step>,
    /// The tensors of each checkpoint of `torch.distributed.checkpoint`.
    distributed: Vec<(PathBuf, Vec<String>)>,
}

struct Step {
    path: PathBuf,
    tree: Tree,
}

impl Tree {
    /// Names that begin with a dot are no part of a checkpoint, and indexes name files that are found anyway.
    fn of(dir: &Path, depth: usize) -> Result<Self> {
        let metadata = dir.join(METADATA);
        if metadata.is_file() {
            return Self::distributed(dir, &metadata);
        }
        let mut all = Self::default();
        for Entry { path, name, kind } in walk::entries(dir)? {
            let name = name.to_string_lossy();
            if name.starts_with('.') || is_index(&path) {
                continue;
            }
            match kind {
                // A store is studied by itself.
                Kind::Directory if depth < DEPTH && !path.join(STORE_MARKER).is_file() => {
                    all.add_directory(dir, &path, Self::of(&path, depth + 1)?);
                }
                Kind::File | Kind::Link(_) => {
                    let file = Member { path: path.clone(), kind: MemberKind::Candidate };
                    match step(&name).filter(|_| has_tensors(&path)) {
                        Some(number) => all.at(dir, number, &path).files.push(file),
                        None => all.files.push(file),
                    }
                }
                Kind::Directory | Kind::Other(_) => {}
            }
        }
        Ok(all)
    }

    /// The files that metadata name.
    fn distributed(dir: &Path, metadata: &Path) -> Result<Self> {
        let metadata = read_metadata(&Source::open(metadata)?)?;
        let (none, one) = (Bases::open(&[], true, 1)?, DecompressOptions::default().with_threads(1));
        let data = DataFiles::new(dir, &none, one);
        let mut files = Vec::new();
        for name in &metadata.files {
            files.push(Member { path: data.source(name)?.path().to_owned(), kind: MemberKind::Named });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let names = metadata.tensors.into_iter().map(|t| t.name).collect();
        Ok(Self { files, distributed: vec![(dir.to_owned(), names)], ..Self::default() })
    }

    /// Adds a directory in `dir`.
    fn add_directory(&mut self, dir: &Path, path: &Path, mut below: Self) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Numbers alone are ranks and the like, too.
        let number = || name.parse().ok().filter(|_| !below.distributed.is_empty() && below.steps.is_empty());
        match step(&name).or_else(number).filter(|_| below.has_tensors()) {
            Some(number) => self.at(dir, number, path).extend(below.flat()),
            None => {
                self.steps.append(&mut below.steps);
                self.extend(below);
            }
        }
    }

    /// The files of a step in a directory; `path` is the first of them, or the step's own directory.
    fn at(&mut self, dir: &Path, step: u64, path: &Path) -> &mut Self {
        let new = || Step { path: path.to_owned(), tree: Self::default() };
        &mut self.steps.entry((dir.to_owned(), step)).or_insert_with(new).tree
    }

    fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.distributed.extend(other.distributed);
    }

    /// All of it as one, whatever steps there are.
    fn flat(mut self) -> Self {
        for step in std::mem::take(&mut self.steps).into_values() {
            self.extend(step.tree);
        }
        self
    }

    fn has_tensors(&self) -> bool {
        let one = |f: &Member| f.kind == MemberKind::Named || has_tensors(&f.path);
        self.files.iter().any(one) || !self.steps.is_empty()
    }

    fn into_one(self, name: &Path) -> Result<Found> {
        let Self { files, distributed, .. } = self.flat();
        check_distinct(name, &distributed)?;
        Ok(Found { name: name.to_owned(), files: each_once(files) })
    }
}

/// Fails if two checkpoints that are no steps have a tensor of the same name: they are not parts of one.
fn check_distinct(path: &Path, all: &[(PathBuf, Vec<String>)]) -> Result {
    let mut seen: HashMap<&str, &Path> = HashMap::new();
    for (dir, names) in all {
        for name in names {
            if let Some(other) = seen.insert(name, dir).filter(|other| other != dir) {
                let [one, other] = [other, dir].map(|p| Name::path(p).to_string());
                let why = format!("has several checkpoints, such as {one} and {other}: name them in order");
                return Err(Failure::usage(path, why));
            }
        }
    }
    Ok(())
}

/// The files in the order of their paths, each of them once.
fn each_once(mut files: Vec<Member>) -> Vec<Member> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    // A file beside its compressed form is that form, too.
    let names: HashSet<PathBuf> = files.iter().map(|f| f.path.clone()).collect();
    let has_both =
        |path: &Path| path.extension().is_some_and(|e| e == SUFFIX) && names.contains(&path.with_extension(""));
    files.retain(|f| !has_both(&f.path));
    // Caches have several names for a file.
    let mut seen = HashSet::new();
    files.retain(|f| std::fs::metadata(&f.path).map_or(true, |m| seen.insert((m.dev(), m.ino()))));
    files
}

/// Whether a file has tensors, or cannot be read, which is to be reported.
fn has_tensors(path: &Path) -> bool {
    let Ok(source) = Source::open(path) else { return true };
    let named = |segments: &[Segment]| is_of_tensors(path) || segments.iter().any(|s| s.name.is_some());
    let mut start = [0; lmc::MAGIC.len()];
    let is_compressed = source.start(&mut start).is_ok_and(|start| start == lmc::MAGIC);
    let found = match is_compressed {
        true => Reader::open(&source, &DecompressOptions::default().with_threads(1)).map(|r| named(r.segments())),
        false => Base::new(&source).map(|b| named(b.segments())),
    };
    found.unwrap_or(true)
}

/// Whether a name says that a file has tensors. One that ends early has none, and must be reported.
pub(super) fn is_of_tensors(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "safetensors")
}
