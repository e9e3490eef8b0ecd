//! The files of a delta: compressed tensors by name, with the checksums of the new tensors.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lmc::Dtype;
use lmc::layout::safetensors::header;

use crate::error::{Error, Result};
use crate::format::ids::Hash;
use crate::objects::files::sync_file;

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

    pub(super) fn add(&mut self, name: &str, frame: Vec<u8>, checksum: String) -> Result<()> {
        self.size += frame.len() as u64;
        self.frames.push((name.to_owned(), frame));
        self.checksums.insert(name.to_owned(), checksum);
        if self.size < self.limit { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        let shapes: Vec<_> = self.frames.iter().map(|(name, frame)| (&name[..], [frame.len() as u64])).collect();
        let tensors = shapes.iter().map(|(name, shape)| (*name, Dtype::U8, &shape[..]));
        let header = header(tensors, Some(&self.checksums)).map_err(Error::codec)?;
        let written = File::create_new(self.part(self.files.len())).and_then(|mut file| {
            file.write_all(&header)?;
            self.frames.iter().try_for_each(|(_, frame)| file.write_all(frame))?;
            sync_file(&file, self.directory)
        });
        written.map_err(|e| self.failed(e))?;
        self.written += header.len() as u64 + self.size;
        self.size = 0;
        self.checksums.clear();
        let names = self.frames.drain(..).map(|(name, _)| name).collect();
        self.files.push((names, Hash::of(&header)));
        Ok(())
    }

    fn failed(&self, e: io::Error) -> Error {
        Error::io(format_args!("{}: cannot write", self.directory.display()), e)
    }

    fn part(&self, i: usize) -> PathBuf {
        self.directory.join(format!("{i}.part"))
    }

    /// Gives the files their names.
    pub(super) fn finish(mut self) -> Result<Written> {
        if !self.frames.is_empty() {
            self.flush()?;
        }
        let mut written = Written { size: self.written, ..Written::default() };
        for (i, (names, hash)) in self.files.iter().enumerate() {
            let file = format!("model-{i:05}-of-{:05}.safetensors", self.files.len());
            fs::rename(self.part(i), self.directory.join(&file)).map_err(|e| self.failed(e))?;
            written.weight_map.extend(names.iter().map(|name| (name.clone(), file.clone())));
            written.files.insert(file, *hash);
        }
        Ok(written)
    }
}
