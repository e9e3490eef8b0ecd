//! The bases of deltas: raw files, compressed ones, and whole checkpoints of several files.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lmc::{Base, BaseInfo, DecompressOptions, Reader, ResolveError, resolve_bases};

use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, hex, quoted};
use crate::guard::{Guard, Role};
use crate::handles::Handles;
use crate::input::{Source, same_file};
use crate::names::is_dash;
use crate::shards::{named_by, shards};
use crate::ui::Ui;

/// The bases of deltas.
#[derive(Args)]
pub(crate) struct BaseArgs {
    /// The earlier version that a delta is made from, or was made from. A raw file, an .lmc file, or the model.safetensors.index.json of a
    /// checkpoint in several files. Repeat the option for each further file, and for the bases of a base that is a delta itself.
    #[arg(long = "base", value_name = "OLD")]
    paths: Vec<PathBuf>,
}

/// Open bases.
pub(crate) struct Bases {
    /// In the order in which they were given.
    bases: Vec<Base<'static>>,
    files: BaseFiles,
    given: bool,
}

/// Files that may be bases, or have some.
pub(crate) struct BaseFiles {
    sources: Vec<Arc<Source>>,
    /// For each file, the index of the path that it was given by.
    numbers: Vec<usize>,
    /// For each, whether a delta need not use it.
    optional: Vec<bool>,
}

/// Deltas whose own bases are missing.
pub(crate) struct Lacking(pub(crate) Vec<Lack>);

/// A delta without its base.
pub(crate) struct Lack {
    pub(crate) path: PathBuf,
    /// The index of the path that it was given by.
    pub(crate) number: usize,
    /// A description of the base that it needs.
    pub(crate) wanted: String,
}

impl BaseArgs {
    /// Opens all bases. `several`: whether they serve several files; each file may need only some of them.
    pub(crate) fn open(&self, several: bool, threads: usize) -> Result<Bases> {
        Bases::open(&self.paths, several, threads)
    }

    /// The paths that were given.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Bases {
    /// Opens files that may be bases of each other: raw, compressed, or whole checkpoints. `several`: as for [`BaseArgs::open`].
    pub(crate) fn open(paths: &[PathBuf], several: bool, threads: usize) -> Result<Self> {
        let bases = Self::try_open(paths, several, threads)?;
        bases.map_err(|Lacking(all)| match &all[..] {
            [Lack { path, wanted, .. }, ..] => {
                Failure::at(path, format_args!("is a delta itself, made from {wanted}: give that too, with --base"))
            }
            [] => Failure::Failed("a base is a delta itself: give its base, too".to_owned()),
        })
    }

    /// [`Self::open`] for callers that handle deltas whose own bases are missing.
    pub(crate) fn try_open(paths: &[PathBuf], several: bool, threads: usize) -> Result<Result<Self, Lacking>> {
        let files = BaseFiles::open(paths, several)?;
        let bases = files.resolve(0..files.len(), threads);
        let bases = bases.map_err(|(file, e)| Failure::codec(files.path(file), &e))?;
        Ok(bases.map(|bases| Bases { bases, files, given: !paths.is_empty() }))
    }

    /// The files that the path with this index names, in order.
    pub(crate) fn of(&self, number: usize) -> Vec<Base<'static>> {
        self.bases[self.files.of(number)].to_vec()
    }

    /// Whether there are any.
    pub(crate) fn are_given(&self) -> bool {
        self.given
    }

    /// The bases for a file that may or may not need them.
    pub(crate) fn all(&self) -> &[Base<'static>] {
        &self.bases
    }

    /// The bases for a file that names the given ones; none for one that needs none.
    ///
    /// # Errors
    /// When it names some and none is given; the message has the command to run.
    pub(crate) fn for_file(&self, path: &Path, wanted: &[BaseInfo], command: &[&str]) -> Result<&[Base<'static>]> {
        match wanted {
            [] => Ok(&[]),
            [first, ..] if !self.given => Err(missing(path, first, wanted.len(), command)),
            _ => Ok(&self.bases),
        }
    }

    /// Says that a file needs no base, if one was given for it alone.
    pub(crate) fn note_unneeded(&self, path: &Path, wanted: &[BaseInfo], ui: &Ui) {
        if wanted.is_empty() && self.bases.iter().any(|b| !b.is_optional()) {
            ui.warn(format_args!("{}: is no delta, and needs no base", Name::path(path)));
        }
    }

    /// Says that a file was compressed without the bases that were given, if it shares nothing with them.
    pub(crate) fn note_unused(path: &Path, compressed: &Path, ui: &Ui) {
        let options = DecompressOptions::default().with_threads(1); // nothing is decoded
        // What cannot be opened any more is another matter.
        let bases = File::open(compressed).ok().and_then(|f| Some(Reader::open(&f, &options).ok()?.bases().is_empty()));
        if bases == Some(true) {
            ui.warn(format_args!(
                "{}: shares nothing with the base, and was compressed without: it is restored without --base",
                Name::path(path)
            ));
        }
    }

    /// All but the file itself, which may be given as a base for others.
    pub(crate) fn for_input(&self, file: &Metadata) -> Vec<Base<'static>> {
        let each = self.bases.iter().zip(&self.files.sources);
        each.filter(|(_, source)| !same_file(source.metadata(), file)).map(|(b, _)| b.clone()).collect()
    }

    /// Registers the bases with `guard`, so that they are not removed or replaced.
    pub(crate) fn guard(&self) -> Guard {
        self.files.guard(Role::Base)
    }

    /// Fails if a base was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.files.check_unchanged()
    }
}

impl BaseFiles {
    /// Opens files without reading them: raw, compressed, or whole checkpoints. `several`: as for [`BaseArgs::open`].
    pub(crate) fn open(paths: &[PathBuf], several: bool) -> Result<Self> {
        let mut files = Vec::new();
        for (number, path) in paths.iter().enumerate() {
            if is_dash(path) {
                let why = "a base needs random access, which standard input lacks: name a file";
                return Err(Failure::Usage(why.to_owned()));
            }
            if path.is_dir() {
                let what =
                    "is a directory, and a base is a file, or the *.index.json of a checkpoint in several: name that";
                return Err(Failure::at(path, what));
            }
            match shards(path)? {
                None => files.push((path.clone(), number, several)),
                Some(names) => files.extend(names.iter().map(|name| {
                    // Opening one that is missing says so.
                    (named_by(path, name).unwrap_or_else(|| path.with_file_name(name)), number, true)
                })),
            }
        }
        let handles = Arc::new(Handles::default());
        // Model caches consist of links.
        let open = |path: &Path| match files.len() {
            1 => Source::open(path),
            _ => Source::open_one_of(path, &handles),
        };
        let sources = files.iter().map(|(path, ..)| open(path).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        let (numbers, optional) = files.into_iter().map(|(_, number, optional)| (number, optional)).unzip();
        Ok(Self { sources, numbers, optional })
    }

    /// Some of the files as bases of each other; or those that need others.
    ///
    /// # Errors
    /// The index of a file that cannot be read, and why.
    pub(crate) fn resolve(
        &self,
        some: Range<usize>,
        threads: usize,
    ) -> std::result::Result<std::result::Result<Vec<Base<'static>>, Lacking>, (usize, lmc::Error)> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let named = self.sources[some.clone()].iter().map(|source| (name(source.path()), source.clone()));
        match resolve_bases(named, threads) {
            Ok(linked) => {
                let each = linked.into_iter().zip(&self.optional[some]);
                Ok(Ok(each.map(|(b, optional)| if *optional { b.optional() } else { b }).collect()))
            }
            Err(ResolveError { file, missing: Some(missing), also, .. }) => {
                let lack = |(file, base): (usize, BaseInfo)| {
                    let (path, number) = (self.path(some.start + file), self.numbers[some.start + file]);
                    Lack { path: path.to_owned(), number, wanted: describe(&base) }
                };
                Ok(Err(Lacking([(file, missing)].into_iter().chain(also).map(lack).collect())))
            }
            Err(e) => Err((some.start + e.file, e.error)),
        }
    }

    /// How many of the files are bases now.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.sources.iter().filter(|s| Arc::strong_count(s) > 1).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Where those are that the path with this index names.
    pub(crate) fn of(&self, number: usize) -> Range<usize> {
        let before = |number| self.numbers.partition_point(|&n| n < number);
        before(number)..before(number + 1)
    }

    /// The index of the path that a file was given by.
    pub(crate) fn number(&self, file: usize) -> usize {
        self.numbers[file]
    }

    pub(crate) fn path(&self, file: usize) -> &Path {
        self.sources[file].path()
    }

    /// Registers the files with a guard, so that they are not removed or replaced.
    pub(crate) fn guard(&self, role: Role) -> Guard {
        let guard = Guard::default();
        self.sources.iter().for_each(|f| guard.keep(role, f.path(), f.metadata()));
        guard
    }

    /// Fails if a file was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.sources.iter().try_for_each(|f| f.check_unchanged())
    }
}

/// The failure of a delta without a base: names the base, and the command to run.
fn missing(path: &Path, first: &BaseInfo, n: usize, command: &[&str]) -> Failure {
    let also = if n > 1 { format!(" and {} more", n - 1) } else { String::new() };
    let name = if first.name.is_empty() { "OLD" } else { &first.name };
    let beside = path.with_file_name(name);
    // A name from the file is untrusted: only its last component is used.
    let is_beside = Path::new(name).file_name() == Some(OsStr::new(name)) && beside.is_file();
    let (base, whether) = if is_beside {
        (beside, "a file of that name lies beside it")
    } else {
        (PathBuf::from(name), "no file of that name lies beside it")
    };
    let words = [&["lmc", command[0], "--base"], &[][..]].concat();
    let line: Vec<String> = words
        .iter()
        .map(|w| (*w).to_owned())
        .chain([quoted(&base), quoted(path)])
        .chain(command[1..].iter().map(|w| quoted(Path::new(w))))
        .collect();
    Failure::at(path, format_args!("is a delta of {}{also}; {whether}: run {}", describe(first), line.join(" ")))
}

/// Describes a base that a file names.
pub(crate) fn describe(base: &BaseInfo) -> String {
    let name = if base.name.is_empty() { "a file".to_owned() } else { Name::text(&base.name).to_string() };
    format!("{name} ({}, content hash {})", bytes(base.raw_size), hex(&base.content_hash))
}
