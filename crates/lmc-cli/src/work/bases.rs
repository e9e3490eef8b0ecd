//! The bases of deltas: raw files, compressed ones, and whole checkpoints of several files.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use lmc::{Base, BaseInfo, DecompressOptions, Reader, ResolveError, resolve_bases};

use crate::fs::guard::{Guard, Role};
use crate::fs::handles::Handles;
use crate::fs::input::{Source, same_file};
use crate::fs::names::is_dash;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, hex};
use crate::ui::messages::Ui;
use crate::work::beside::Beside;
use crate::work::shards::{named_by, shards};

/// The bases of deltas.
#[derive(Args, Default)]
#[command(next_help_heading = "Bases")]
pub(crate) struct BaseArgs {
    /// The earlier version that a delta is made from, or was made from. A raw file, an .lmc file, or the model.safetensors.index.json of a
    /// checkpoint in several files. Repeat the option for each further file, and for the bases of a base that is a delta itself. To restore,
    /// bases that lie beside a delta are found without it, by their content hash, and those in a directory that is given.
    #[arg(long = "base", value_name = "OLD")]
    paths: Vec<PathBuf>,
}

/// Open bases.
pub(crate) struct Bases {
    /// In the order in which they were given.
    bases: Vec<Base<'static>>,
    files: BaseFiles,
    given: bool,
    several: bool,
    threads: usize,
    /// Where others are looked for.
    beside: Beside,
    /// The files of the last delta that needed some of there: others would stay open.
    found: Mutex<Option<BaseFiles>>,
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
    /// A base that it needs.
    pub(crate) wanted: BaseInfo,
}

impl BaseArgs {
    /// Opens all bases. `several`: whether they serve several files; each file may need only some of them.
    pub(crate) fn open(&self, several: bool, threads: usize) -> Result<Bases> {
        Bases::open(&self.paths, several, threads)
    }

    /// [`Self::open`] to restore deltas: their bases are also looked for beside them, and in directories among the paths.
    pub(crate) fn open_to_restore(&self, several: bool, threads: usize) -> Result<Bases> {
        self.open_behind(Vec::new(), several, threads)
    }

    /// [`Self::open_to_restore`] with `files` before those that were given.
    pub(crate) fn open_behind(&self, files: Vec<PathBuf>, several: bool, threads: usize) -> Result<Bases> {
        let (directories, given) = self.paths.iter().cloned().partition::<Vec<_>, _>(|path| path.is_dir());
        let mut paths = [files, given].concat();
        let beside = Beside::new(directories);
        let opened = loop {
            let lacking = match Bases::try_open(&paths, several, threads)? {
                Ok(bases) => break bases,
                Err(lacking) => lacking,
            };
            let before = paths.len();
            for Lack { path, wanted, .. } in &lacking.0 {
                let mut found = beside.find(path, std::slice::from_ref(wanted), |_| false, threads).unwrap_or_default();
                found.retain(|path| !paths.contains(path));
                paths.extend(found);
            }
            if paths.len() == before {
                return Err(lacking.into());
            }
        };
        Ok(Bases { beside, given: !self.paths.is_empty(), ..opened })
    }
}

impl Bases {
    /// Opens files that may be bases of each other: raw, compressed, or whole checkpoints. `several`: as for [`BaseArgs::open`].
    pub(crate) fn open(paths: &[PathBuf], several: bool, threads: usize) -> Result<Self> {
        Ok(Self::try_open(paths, several, threads)??)
    }

    /// [`Self::open`] for callers that handle deltas whose own bases are missing.
    pub(crate) fn try_open(paths: &[PathBuf], several: bool, threads: usize) -> Result<Result<Self, Lacking>> {
        let files = BaseFiles::open(paths, several)?;
        let bases = files.resolve(0..files.len(), threads);
        let bases = bases.map_err(|(file, e)| Failure::codec(files.path(file), &e))?;
        let (given, beside, found) = (!paths.is_empty(), Beside::default(), Mutex::default());
        Ok(bases.map(|bases| Bases { bases, files, given, several, threads, beside, found }))
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

    /// The bases for a file that names these, in any order; none for one that needs none. What is not given is looked for, unless a base
    /// was given for this file alone.
    ///
    /// # Errors
    /// When one is not found, or cannot be read.
    pub(crate) fn for_file(&self, path: &Path, wanted: &[BaseInfo]) -> Result<Vec<Base<'static>>> {
        *self.found() = None;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let given = !self.bases.is_empty();
        if given && !self.several {
            return Ok(self.bases.clone());
        }
        let is_base = |b: &Base<'static>, w: &BaseInfo| {
            b.raw_size() == w.raw_size && b.content_hash(self.threads).is_ok_and(|hash| hash == w.content_hash)
        };
        let has = |w: &BaseInfo| self.bases.iter().any(|b| is_base(b, w));
        if wanted.iter().all(has) {
            return Ok(self.bases.clone());
        }
        let paths = self.beside.find(path, wanted, has, self.threads);
        let paths = paths.map_err(|missing| not_found(path, &missing, wanted))?;
        // Those that were found may need those that were given.
        let given = self.files.sources.iter().map(|source| source.path().to_owned());
        let files = BaseFiles::open(&given.chain(paths).collect::<Vec<_>>(), true)?;
        let bases = files.resolve(0..files.len(), self.threads);
        let bases = bases.map_err(|(file, e)| Failure::codec(files.path(file), &e))??;
        *self.found() = Some(files);
        Ok(bases)
    }

    fn found(&self) -> MutexGuard<'_, Option<BaseFiles>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
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
        let guard = self.files.guard(Role::Base);
        self.guard_found(&guard, Role::Base);
        guard
    }

    /// Registers those that were found for the last file.
    pub(crate) fn guard_found(&self, guard: &Guard, role: Role) {
        self.found().iter().for_each(|files| files.register(guard, role));
    }

    /// Fails if a base was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.files.check_unchanged()?;
        self.found().as_ref().map_or(Ok(()), BaseFiles::check_unchanged)
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
                    Lack { path: path.to_owned(), number, wanted: base }
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
        self.register(&guard, role);
        guard
    }

    fn register(&self, guard: &Guard, role: Role) {
        self.sources.iter().for_each(|f| guard.keep(role, f.path(), f.metadata()));
    }

    /// Fails if a file was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.sources.iter().try_for_each(|f| f.check_unchanged())
    }
}

impl From<Lacking> for Failure {
    fn from(Lacking(all): Lacking) -> Self {
        match &all[..] {
            [Lack { path, wanted, .. }, ..] => {
                let wanted = describe(wanted);
                Failure::at(path, format_args!("is a delta itself, made from {wanted}: give that too, with --base"))
            }
            [] => Failure::Failed("a base is a delta itself: give its base, too".to_owned()),
        }
    }
}

/// The failure of a delta that needs `wanted`, without a base: one of these, or one of theirs.
fn not_found(path: &Path, base: &BaseInfo, wanted: &[BaseInfo]) -> Failure {
    let what = match (wanted.contains(base), wanted.len()) {
        (true, 1) => format!("is a delta of {}", describe(base)),
        (true, n) => format!("is a delta of {} and {} more", describe(base), n - 1),
        (false, _) => format!("is a delta of a delta, which needs {}", describe(base)),
    };
    let beside = path.with_file_name(&base.name);
    // A name from the file is untrusted: only its last component is used.
    let is_beside = Path::new(&base.name).file_name() == Some(OsStr::new(&base.name)) && beside.is_file();
    let where_it_is = match is_beside {
        true => format!("{} has other bytes, and no file beside it has those", Name::path(&beside)),
        false => "no file beside it has these bytes".to_owned(),
    };
    Failure::at(path, format_args!("{what}; {where_it_is}: give --base with that file, or its directory"))
}

/// Describes a base that a file names.
pub(crate) fn describe(base: &BaseInfo) -> String {
    let name = if base.name.is_empty() { "a file".to_owned() } else { Name::text(&base.name).to_string() };
    format!("{name} ({}, content hash {})", bytes(base.raw_size), hex(&base.content_hash))
}
