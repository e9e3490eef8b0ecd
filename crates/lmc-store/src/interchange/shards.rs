//! The files of a delta: compressed tensors by name, with the checksums of the new tensors.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::checksum::Checksum;
use super::encoding::DeltaEncoding;
use super::header::Header;
use super::index::Kind;
use super::read::open_regular;
use super::version::Version;
use crate::error::{Error, Result};
use crate::files::sync_file;
use crate::ids::{Hash, Step};

/// Writes the files of a delta, each when it is full.
pub(super) struct Writer<'d> {
    directory: &'d Path,
    limit: u64,
    frames: Vec<(String, Vec<u8>)>,
    checksums: BTreeMap<String, String>,
    size: u64,
    /// Names of their tensors, and the hash of the header.
    files: Vec<(Vec<String>, Hash)>,
    written: u64,
}

/// The files of a delta.
#[derive(Default)]
pub(super) struct Written {
    /// The file of each tensor.
    pub(super) weight_map: BTreeMap<String, String>,
    /// The hash of each file's header.
    pub(super) files: BTreeMap<String, Hash>,
    /// Bytes of all files.
    pub(super) size: u64,
}

impl<'d> Writer<'d> {
    pub(super) fn new(directory: &'d Path, limit: u64) -> Self {
        let (frames, checksums, files) = Default::default();
        Self { directory, limit, frames, checksums, size: 0, files, written: 0 }
    }

    pub(super) fn add(&mut self, name: &str, frame: Vec<u8>, checksum: String) -> io::Result<()> {
        self.size += frame.len() as u64;
        self.frames.push((name.to_owned(), frame));
        self.checksums.insert(name.to_owned(), checksum);
        if self.size < self.limit { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let header =
            Header::of_bytes(self.frames.iter().map(|(name, frame)| (&name[..], frame.len())), &self.checksums);
        let mut file = File::create_new(self.part(self.files.len()))?;
        file.write_all(&header)?;
        self.frames.iter().try_for_each(|(_, frame)| file.write_all(frame))?;
        sync_file(&file, self.directory)?;
        self.written += header.len() as u64 + self.size;
        self.size = 0;
        self.checksums.clear();
        let names = self.frames.drain(..).map(|(name, _)| name).collect();
        self.files.push((names, Hash::of(&header)));
        Ok(())
    }

    fn part(&self, i: usize) -> PathBuf {
        self.directory.join(format!("{i}.part"))
    }

    /// Gives the files their names.
    pub(super) fn finish(mut self) -> io::Result<Written> {
        if !self.frames.is_empty() {
            self.flush()?;
        }
        let mut written = Written { size: self.written, ..Written::default() };
        for (i, (names, hash)) in self.files.iter().enumerate() {
            let file = format!("model-{i:05}-of-{:05}.safetensors", self.files.len());
            fs::rename(self.part(i), self.directory.join(&file))?;
            written.weight_map.extend(names.iter().map(|name| (name.clone(), file.clone())));
            written.files.insert(file, *hash);
        }
        Ok(written)
    }
}

/// A delta that can be applied, tensor by tensor.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) step: Step,
    directory: PathBuf,
    encoding: DeltaEncoding,
    checksum: Checksum,
    /// The file of each tensor, its place there, and the checksum of the new tensor.
    tensors: HashMap<String, (String, Range<u64>, String)>,
}

impl Delta {
    /// Opens the delta in a directory.
    pub(super) fn open(directory: PathBuf, version: &Version) -> Result<Self> {
        let Kind::Delta { version: step, encoding, checksum, .. } = version.index.kind else {
            return Err(Error::damaged(format!("{}: is no delta", directory.display())));
        };
        let mut tensors = HashMap::new();
        for (file, header) in &version.headers {
            let path = directory.join(file);
            let at = |e: Error| e.at(path.display());
            for t in &header.tensors {
                let expected = header.metadata.get(&t.name);
                let expected =
                    expected.ok_or_else(|| at(Error::damaged(format!("has no checksum of {:?}", t.name))))?.clone();
                let range = header.len() + t.range.start..header.len() + t.range.end;
                tensors.insert(t.name.clone(), (file.clone(), range, expected));
            }
        }
        Ok(Self { step, directory, encoding, checksum, tensors })
    }

    /// The names of the tensors that it changes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(|name| &name[..])
    }

    pub(crate) fn changes(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Bytes that applying it to a tensor of `len` bytes takes in memory, beside the tensor.
    pub(crate) fn memory(&self, name: &str, len: u64) -> u64 {
        let frame = self.tensors.get(name).map_or(0, |(_, range, _)| range.end - range.start);
        match self.encoding {
            DeltaEncoding::Xor => frame,
            DeltaEncoding::Overwrite => frame.saturating_add(len.saturating_mul(4)),
        }
    }

    /// Turns a tensor of the base into that of this version, and verifies it. Returns how many bytes were read.
    pub(crate) fn apply(&self, name: &str, tensor: &mut [u8]) -> Result<u64> {
        let Some((file, range, expected)) = self.tensors.get(name) else { return Ok(0) };
        let path = self.directory.join(file);
        let failed = |why: String| Error::damaged(format!("{}: {name:?}: {why}", path.display()));
        let len = range.end - range.start;
        if len > self.encoding.max_frame(tensor.len() as u64) {
            return Err(failed(format!("has a delta of {len} bytes, and itself {}", tensor.len())));
        }
        let mut frame = vec![0; len as usize];
        let (source, _) = open_regular(&path, false)?;
        lmc::ReadAt::read_exact_at(&source, &mut frame, range.start)
            .map_err(|e| Error::io(format_args!("{}: cannot read", path.display()), e))?;
        self.encoding.apply(&frame, tensor, self.checksum, expected).map_err(|why| {
            failed(format!(
                "{why}; either the delta is damaged, or what it was applied to is not version {}'s base",
                self.step
            ))
        })?;
        Ok(len)
    }
}
