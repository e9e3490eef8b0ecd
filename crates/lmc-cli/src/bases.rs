//! The bases of deltas: raw files, compressed ones, and whole checkpoints of several files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lmc::{Base, BaseInfo, DecompressOptions, Reader};

use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, hex, quoted};
use crate::input::Source;
use crate::plan::{SUFFIX, is_dash};

/// What deltas are made from.
#[derive(Args)]
pub(crate) struct BaseArgs {
    /// An earlier version of the file, of which only the differences are stored: as it is, or as .lmc file, or the
    /// model.safetensors.index.json of a checkpoint in several files. Give it again for each further file, and for the
    /// bases of a base that is a delta itself.
    #[arg(long = "base", value_name = "OLD")]
    paths: Vec<PathBuf>,
}

/// Open bases.
pub(crate) struct Bases {
    bases: Vec<Base<'static>>,
    files: Vec<Arc<Source>>,
    given: bool,
}

/// An open compressed file that waits for its own bases.
struct Delta {
    reader: Reader<'static, Arc<Source>>,
    path: PathBuf,
    name: String,
    optional: bool,
}

/// The longest index of a checkpoint, in bytes.
const MAX_INDEX: u64 = 100_000_000;

impl BaseArgs {
    /// Opens all bases. `several`: whether they are for several files, of which each may need only some.
    pub(crate) fn open(&self, several: bool, threads: usize) -> Result<Bases> {
        let mut bases = Bases { bases: vec![], files: vec![], given: !self.paths.is_empty() };
        let mut deltas = Vec::new();
        for path in &self.paths {
            if is_dash(path) {
                return Err(Failure::Usage(
                    "a base is read here and there, not from standard input: name a file".into(),
                ));
            }
            if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
                for shard in shards(path)? {
                    bases.add(&shard, true, &mut deltas)?;
                }
            } else {
                bases.add(path, several, &mut deltas)?;
            }
        }
        bases.link(deltas, threads)?;
        Ok(bases)
    }
}

impl Bases {
    /// Whether there are any.
    pub(crate) fn are_given(&self) -> bool {
        self.given
    }

    /// The bases for a file of which it is not known yet whether it needs them.
    pub(crate) fn all(&self) -> &[Base<'static>] {
        &self.bases
    }

    /// The bases for a file that names these.
    ///
    /// # Errors
    /// When it names some and none is given: with the command to run.
    pub(crate) fn for_file(&self, path: &Path, wanted: &[BaseInfo], command: &[&str]) -> Result<&[Base<'static>]> {
        match wanted {
            [] if self.bases.iter().all(Base::is_optional) => Ok(&[]),
            [first, ..] if !self.given => Err(missing(path, first, wanted.len(), command)),
            _ => Ok(&self.bases),
        }
    }

    /// Fails if a base was written to since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result {
        self.files.iter().try_for_each(|f| f.check_unchanged())
    }

    /// Opens a file, which becomes a base or waits for its own.
    fn add(&mut self, path: &Path, optional: bool, deltas: &mut Vec<Delta>) -> Result {
        // Caches of models are full of links.
        let source = Arc::new(Source::open(path, true)?);
        self.files.push(source.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let at_fault = |e| Failure::codec(path, &e);
        if source.start(&mut [0; 8])? == lmc::MAGIC {
            let mut options = DecompressOptions::default();
            options.threads = 1; // its blocks are decoded by those who read them
            let reader = Reader::open(source, &options).map_err(at_fault)?;
            deltas.push(Delta { reader, path: path.to_owned(), name, optional });
        } else {
            self.push(Base::new(source).map_err(at_fault)?, name, optional);
        }
        Ok(())
    }

    fn push(&mut self, base: Base<'static>, name: String, optional: bool) {
        let base = base.with_name(name);
        self.bases.push(if optional { base.optional() } else { base });
    }

    /// Gives compressed bases their own bases, from among all. They need not come in order.
    fn link(&mut self, mut deltas: Vec<Delta>, threads: usize) -> Result {
        while !deltas.is_empty() {
            let mut waiting = Vec::new();
            let before = deltas.len();
            for delta in deltas {
                match self.find(delta.reader.bases(), threads)? {
                    None => waiting.push(delta),
                    Some(found) => {
                        let reader = delta.reader.with_bases(found).map_err(|e| Failure::codec(&delta.path, &e))?;
                        self.push(Base::lmc(reader), delta.name, delta.optional);
                    }
                }
            }
            deltas = waiting;
            if deltas.len() == before {
                let Delta { reader, path, .. } = &deltas[0];
                let wanted = &reader.bases()[0];
                return Err(Failure::at(
                    path,
                    format_args!("is a delta itself, made from {}: give that too, with --base", describe(wanted)),
                ));
            }
        }
        Ok(())
    }

    /// The bases that a compressed base needs, if all are there. Whoever has been of use need not be of any other.
    fn find(&mut self, wanted: &[BaseInfo], threads: usize) -> Result<Option<Vec<Base<'static>>>> {
        let mut found = Vec::new();
        for w in wanted {
            let mut right = None;
            for (i, b) in self.bases.iter().enumerate().filter(|(_, b)| b.raw_size() == w.raw_size) {
                let hash = b.content_hash(threads).map_err(|e| Failure::codec(Path::new(b.name()), &e))?;
                if hash == w.content_hash {
                    right = Some(i);
                    break;
                }
            }
            let Some(i) = right else { return Ok(None) };
            self.bases[i] = self.bases[i].clone().optional();
            found.push(self.bases[i].clone());
        }
        Ok(Some(found))
    }
}

/// The files of a checkpoint that an index names, in the directory of the index; compressed ones where they are not
/// there as they are.
fn shards(index: &Path) -> Result<Vec<PathBuf>> {
    let source = Source::open(index, true)?;
    let bad = |why: &str| {
        Failure::at(index, format_args!("is no index of a checkpoint, as a base must be that ends in .json: {why}"))
    };
    if source.metadata().len() > MAX_INDEX {
        return Err(bad("it is too long"));
    }
    let text = std::io::read_to_string(source.stream()).map_err(|e| Failure::io(index, "cannot read", &e))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
    let map = json.get("weight_map").and_then(|m| m.as_object()).ok_or_else(|| bad("it has no \"weight_map\""))?;
    let names: Option<BTreeSet<&str>> = map.values().map(|v| v.as_str()).collect();
    let names = names.ok_or_else(|| bad("its \"weight_map\" has something else than names of files"))?;
    let mut found = Vec::new();
    for name in names {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(bad(&format!("{name:?} is not the name of a file beside it")));
        }
        let path = index.with_file_name(name);
        let compressed = index.with_file_name(format!("{name}.{SUFFIX}"));
        found.push(if !path.exists() && compressed.exists() { compressed } else { path });
    }
    Ok(found)
}

/// The failure of a delta without a base: what it was made from, and the command to run.
fn missing(path: &Path, first: &BaseInfo, n: usize, command: &[&str]) -> Failure {
    let also = if n > 1 { format!(" and {} more", n - 1) } else { String::new() };
    let name = if first.name.is_empty() { "OLD" } else { &first.name };
    let beside = path.with_file_name(name);
    // A name from the file is a name, not a way to somewhere else.
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

/// A base that a file names.
pub(crate) fn describe(base: &BaseInfo) -> String {
    let name = if base.name.is_empty() { "a file".to_owned() } else { Name::text(&base.name).to_string() };
    format!("{name} ({}, content hash {})", bytes(base.raw_size), hex(&base.content_hash))
}
