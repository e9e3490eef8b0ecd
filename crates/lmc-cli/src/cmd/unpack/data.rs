//! The data files of a checkpoint, compressed or not. A few are open at a time.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path};
use std::rc::Rc;
use std::sync::Arc;

use lmc::{Base, DecompressOptions, Reader, Segment};

use crate::fs::guard::{Guard, Role};
use crate::fs::handles::Handles;
use crate::fs::input::Source;
use crate::fs::names::SUFFIX;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::work::bases::{Bases, describe};

/// Compressed files whose indexes and decoded blocks are kept.
const OPEN: usize = 8;
/// The metadata of a checkpoint.
pub(in crate::cmd) const METADATA: &str = ".metadata";
/// Ranges from this length on are decoded by several threads, others by one, which keeps the blocks.
const LARGE: usize = 2 << 20;

/// The data files of a checkpoint.
pub(in crate::cmd) struct DataFiles<'a> {
    directory: &'a Path,
    bases: &'a Bases,
    options: DecompressOptions,
    handles: Arc<Handles>,
    /// By the files' numbers in the metadata.
    sources: HashMap<usize, Arc<Source>>,
    /// Most recently used last.
    open: Vec<(usize, Rc<DataFile<'a>>)>,
}

/// An open data file.
pub(super) struct DataFile<'a> {
    source: Arc<Source>,
    bases: &'a Bases,
    contents: Contents,
    /// Whether it begins like a zip archive, as files of `torch.save` do.
    pub(super) is_archive: bool,
}

enum Contents {
    Plain(HashMap<String, Segment>),
    Compressed(Box<Reader<'static, Arc<Source>>>),
}

impl<'a> DataFiles<'a> {
    /// None yet.
    pub(in crate::cmd) fn new(directory: &'a Path, bases: &'a Bases, options: DecompressOptions) -> Self {
        let (handles, sources) = (Arc::default(), HashMap::new());
        Self { directory, bases, options, handles, sources, open: Vec::new() }
    }

    /// Adds the file with a number and a name, which is untrusted. Of its contents little is read.
    pub(super) fn add(&mut self, number: usize, name: &str, guard: &Guard) -> Result {
        if !self.sources.contains_key(&number) {
            let source = self.source(name)?;
            guard.keep(Role::Input, source.path(), source.metadata());
            self.sources.insert(number, Arc::new(source));
        }
        Ok(())
    }

    /// The file of this name, or its compressed form.
    pub(in crate::cmd) fn source(&self, name: &str) -> Result<Source> {
        let metadata = || self.directory.join(METADATA);
        let inside = |c| matches!(c, Component::Normal(_));
        if name.is_empty() || name.ends_with('/') || !Path::new(name).components().all(inside) {
            return Err(Failure::at(
                &metadata(),
                format_args!("names the data file {name:?}, which is not inside of the checkpoint: it may be hostile"),
            ));
        }
        let plain = self.directory.join(name);
        let places = [plain.clone(), self.directory.join(format!("{name}.{SUFFIX}"))];
        let Some(path) = places.iter().find(|p| p.symlink_metadata().is_ok()) else {
            let why = format!("is missing, and so is {}: parts of tensors are in it", Name::path(&places[1]));
            return Err(Failure::at(&plain, why));
        };
        // A FIFO is not even opened.
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            return Err(Failure::at(path, "is not a regular file, as the data files of a checkpoint are"));
        }
        Source::open_one_of(path, &self.handles)
    }

    /// Opens a file that was added.
    pub(super) fn get(&mut self, number: usize) -> Result<Rc<DataFile<'a>>> {
        if let Some(at) = self.open.iter().position(|(n, _)| *n == number) {
            let found = self.open.remove(at);
            self.open.push(found);
        } else {
            if self.open.len() == OPEN {
                self.open.remove(0);
            }
            let opened = self.opened(&self.sources[&number])?;
            self.open.push((number, Rc::new(opened)));
        }
        Ok(self.open[self.open.len() - 1].1.clone())
    }

    fn opened(&self, source: &Arc<Source>) -> Result<DataFile<'a>> {
        let path = source.path();
        let at_fault = |e| Failure::codec(path, &e);
        let contents = if is_compressed(source)? {
            let reader = Reader::open(source.clone(), &self.options).map_err(at_fault)?;
            let bases = self.bases_of(path, &reader)?;
            Contents::Compressed(Box::new(reader.with_bases(bases).map_err(at_fault)?))
        } else {
            Contents::Plain(HashMap::new())
        };
        let mut file = DataFile { source: source.clone(), bases: self.bases, contents, is_archive: false };
        let mut start = [0; 4];
        file.is_archive = file.raw().size().is_ok_and(|size| size >= 4) && {
            file.read(&mut start, 0)?;
            start == *b"PK\x03\x04"
        };
        if let (Contents::Plain(_), false) = (&file.contents, file.is_archive) {
            let plain = Base::new(source.clone()).map_err(at_fault)?;
            let named = |s: &Segment| Some((s.name.as_deref()?.to_owned(), s.clone()));
            file.contents = Contents::Plain(plain.segments().iter().filter_map(named).collect());
        }
        Ok(file)
    }

    /// The bases that a file needs.
    fn bases_of(&self, path: &Path, reader: &Reader<'_, Arc<Source>>) -> Result<Vec<Base<'static>>> {
        let bases = self.bases.all();
        match reader.bases() {
            [first, ..] if bases.is_empty() => {
                Err(Failure::at(path, format_args!("is a delta of {}: give it with --base", describe(first))))
            }
            [] => Ok(Vec::new()),
            _ => Ok(bases.to_vec()),
        }
    }

    /// Fails if a file was modified since it was added.
    pub(super) fn check_unchanged(&self) -> Result {
        self.sources.values().try_for_each(|source| source.check_unchanged())
    }
}

fn is_compressed(source: &Source) -> Result<bool> {
    let mut start = [0; lmc::MAGIC.len()];
    Ok(source.start(&mut start)? == lmc::MAGIC)
}

impl DataFile<'_> {
    /// Its raw bytes.
    pub(super) fn raw(&self) -> &dyn lmc::ReadAt {
        match &self.contents {
            Contents::Plain(_) => &*self.source,
            Contents::Compressed(reader) => &**reader,
        }
    }

    /// The tensor of this name, of a file that is no archive.
    pub(super) fn tensor(&self, name: &str) -> Option<&Segment> {
        match &self.contents {
            Contents::Plain(named) => named.get(name),
            Contents::Compressed(reader) => reader.tensor(name),
        }
    }

    /// Fills `buf` with the raw bytes from `offset` on.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> Result {
        match &self.contents {
            Contents::Compressed(reader) if buf.len() >= LARGE => {
                reader.read_range(offset, buf).map_err(|e| self.failure(&e))
            }
            _ => self.raw().read_exact_at(buf, offset).map_err(|e| self.cannot_read(e)),
        }
    }

    fn cannot_read(&self, e: io::Error) -> Failure {
        match e.downcast::<lmc::Error>() {
            Ok(e) => self.failure(&e),
            Err(e) => {
                let changed = self.source.check_unchanged().err();
                changed.unwrap_or_else(|| Failure::io(self.source.path(), "cannot read", &e))
            }
        }
    }

    /// Attributes a failure to its cause: a file was modified while it was read, or the data is bad.
    pub(super) fn failure(&self, e: &lmc::Error) -> Failure {
        let changed = self.source.check_unchanged().err().or_else(|| self.bases.check_unchanged().err());
        changed.unwrap_or_else(|| Failure::codec(self.source.path(), e))
    }
}
