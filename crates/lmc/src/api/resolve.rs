//! Makes bases of files that may be bases of each other.

use std::fmt;

use crate::api::reader::Reader;
use crate::format::bases::BaseInfo;
use crate::format::header::MAGIC;
use crate::refs::base::{Base, describe};
use crate::settings::options::DecompressOptions;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, read_at};

/// The error of [`resolve_bases`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ResolveError {
    /// Index of the file.
    pub file: usize,
    /// The error.
    pub error: Error,
    /// The missing base, if the file is a delta whose base is not among the files.
    pub missing: Option<BaseInfo>,
    /// The other deltas whose bases are missing, or lack their own bases, each with a base that it needs.
    pub also: Vec<(usize, BaseInfo)>,
}

impl ResolveError {
    fn new(file: usize, error: Error) -> Self {
        Self { file, error, missing: None, also: vec![] }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// A delta whose own bases are not resolved yet.
struct Waiting<'a, R> {
    file: usize,
    name: String,
    reader: Reader<'a, R>,
}

/// Makes bases of named files, raw or `.lmc`. A delta finds its own bases among the other files, in any order; bases found so are
/// [optional](Base::optional).
///
/// `threads` threads (0 for as many as the machine has) compute hashes where they are needed.
///
/// # Errors
/// Those of [`Base::new`], [`Reader::open`] and [`Base::content_hash`], and `Base` when a delta's base is missing.
pub fn resolve_bases<'a, R: ReadAt + Send + 'a>(
    files: impl IntoIterator<Item = (String, R)>,
    threads: usize,
) -> Result<Vec<Base<'a>>, ResolveError> {
    let mut bases: Vec<Option<Base<'a>>> = Vec::new();
    let mut waiting = Vec::new();
    for (file, (name, source)) in files.into_iter().enumerate() {
        let failed = |error| ResolveError::new(file, error);
        if is_compressed(&source).map_err(failed)? {
            // Blocks are decoded on the reading thread.
            let o = DecompressOptions { threads: 1, ..DecompressOptions::default() };
            let reader = Reader::open(source, &o).map_err(failed)?;
            waiting.push(Waiting { file, name, reader });
            bases.push(None);
        } else {
            bases.push(Some(Base::new(source).map_err(failed)?.with_name(name)));
        }
    }
    let mut used = vec![false; bases.len()];
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut left = Vec::new();
        for w in waiting {
            let Some(found) = find(&bases, w.reader.bases(), threads)? else {
                left.push(w);
                continue;
            };
            let own = found.iter().map(|&i| bases[i].clone().expect("it was found")).collect();
            let failed = |error| ResolveError::new(w.file, error);
            bases[w.file] = Some(Base::lmc(w.reader.with_bases(own).map_err(failed)?).with_name(w.name));
            found.iter().for_each(|&i| used[i] = true);
        }
        waiting = left;
        if let Some(w) = waiting.first().filter(|_| waiting.len() == before) {
            let missing = w.reader.bases()[0].clone();
            let (name, of) = (&w.name, describe(&missing));
            let error = Error::base(format!("the base {name:?} is a delta itself, made from {of}: give that, too"));
            let also = waiting[1..].iter().map(|w| (w.file, w.reader.bases()[0].clone())).collect();
            return Err(ResolveError { file: w.file, error, missing: Some(missing), also });
        }
    }
    let bases = bases.into_iter().map(|b| b.expect("all have their own bases"));
    Ok(bases.zip(used).map(|(b, used)| if used { b.optional() } else { b }).collect())
}

/// Whether a file begins with the magic number.
fn is_compressed(source: &dyn ReadAt) -> Result<bool> {
    let size = source.size().map_err(|e| Error::io("cannot get the size of the base", e))?;
    let mut start = [0; MAGIC.len()];
    Ok(size >= start.len() as u64 && {
        read_at(source, "the base", &mut start, 0)?;
        start == MAGIC
    })
}

/// Indices of the bases that a file needs, if all are resolved.
fn find(bases: &[Option<Base<'_>>], wanted: &[BaseInfo], threads: usize) -> Result<Option<Vec<usize>>, ResolveError> {
    let mut found = Vec::new();
    for w in wanted {
        let mut right = None;
        for (file, b) in bases.iter().enumerate() {
            let Some(b) = b.as_ref().filter(|b| b.raw_size() == w.raw_size) else { continue };
            let hash = b.content_hash(threads).map_err(|error| ResolveError::new(file, error))?;
            if hash == w.content_hash {
                right = Some(file);
                break;
            }
        }
        let Some(i) = right else { return Ok(None) };
        found.push(i);
    }
    Ok(Some(found))
}
