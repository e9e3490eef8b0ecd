//! The data to measure with, and the types of its elements.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use lmc::{CompressOptions, DecompressOptions, Dtype, Error, ErrorKind, Reader, Result};
use lmc_inspect::{ColumnDescription, describe_block};

use super::planes::{self, Run};
use crate::fs::handles::InputFile;
use crate::ui::format::Name;

/// A file in memory.
pub(super) struct Input {
    pub(super) name: String,
    pub(super) raw: Vec<u8>,
    /// The host format that `lmc` recognised.
    pub(super) layout: String,
    /// Dtype to pass to `lmc`, for data in no known format.
    pub(super) dtype: Option<Dtype>,
    pub(super) runs: Vec<Run>,
    /// Clusters of the compressed file (level default) that have a table.
    pub(super) tables: usize,
    typed: Vec<(Range<usize>, Dtype)>,
    pub(super) tensors: usize,
    /// Bytes of each dtype; bytes without one are opaque.
    pub(super) bytes_by_dtype: BTreeMap<String, usize>,
}

impl Input {
    /// Reads a file.
    pub(super) fn load(path: &Path, dtype: Option<Dtype>) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let mut raw = Vec::new();
        let read = InputFile::open(path).and_then(|file| file.stream().read_to_end(&mut raw));
        read.map_err(|e| Error::io(format!("cannot read {}", Name::text(&name)), e))?;
        if raw.is_empty() {
            return Err(Error::new(ErrorKind::Usage, format!("{} is empty; nothing to measure", Name::text(&name))));
        }
        Self::parse(name, raw, dtype)
    }

    fn parse(name: String, raw: Vec<u8>, dtype: Option<Dtype>) -> Result<Self> {
        let options = CompressOptions::default().with_dtype(dtype);
        let reader = Reader::open(lmc::compress(&raw, &options)?, &DecompressOptions::default())?;
        let mut typed = Vec::new();
        let mut tensors = 0;
        let mut bytes_by_dtype = BTreeMap::new();
        for segment in reader.segments() {
            let (start, len) = (segment.offset as usize, segment.len as usize);
            tensors += usize::from(segment.name.is_some());
            *bytes_by_dtype.entry(segment.dtype.as_ref().map_or("opaque", Dtype::name).to_owned()).or_default() += len;
            typed.extend(segment.dtype.map(|d| (start..start + len, d)));
        }
        let mut runs: Vec<_> =
            typed.iter().map(|(bytes, d)| Run { bytes: bytes.clone(), width: d.coding_width() }).collect();
        let mut tables = 0;
        for (i, block) in reader.blocks().enumerate() {
            let columns = describe_block(&reader, i as u64)?.columns;
            tables += columns.iter().flat_map(|p| &p.clusters).filter(|g| g.coder != "none").count();
            if typed.is_empty()
                && let [ColumnDescription { width: Some(width), .. }] = columns[..]
            {
                // Data without types: the width that the codec found in each block.
                let start = block.raw_offset as usize;
                runs.push(Run { bytes: start..start + block.raw_len as usize, width });
            }
        }
        let runs = planes::cover(raw.len(), runs);
        let layout = reader.layout().to_owned();
        Ok(Self { name, raw, layout, dtype, runs, tables, typed, tensors, bytes_by_dtype })
    }

    /// The most common dtype and its elements, joined.
    pub(super) fn elements(&self) -> Option<(Dtype, Vec<u8>)> {
        let common = self.bytes_by_dtype.iter().filter(|(d, _)| *d != "opaque").max_by_key(|(_, n)| **n);
        let dtype = common.and_then(|(d, _)| d.parse::<Dtype>().ok())?;
        let of_dtype = self.typed.iter().filter(|(_, d)| *d == dtype);
        Some((dtype, of_dtype.flat_map(|(bytes, _)| &self.raw[bytes.clone()]).copied().collect()))
    }

    /// The elements of the most common dtype alone, repeated or cut to `size` bytes.
    pub(super) fn resized(&self, size: usize) -> Result<Self> {
        let Some((dtype, elements)) = self.elements() else {
            let message = format!("{}: --size needs typed data; give its dtype with --dtype", Name::text(&self.name));
            return Err(Error::new(ErrorKind::Usage, message));
        };
        self.repeated(dtype, &elements, size)
    }

    /// Some elements of the file, repeated or cut to `size` bytes.
    pub(super) fn repeated(&self, dtype: Dtype, elements: &[u8], size: usize) -> Result<Self> {
        let width = dtype.coding_width();
        let size = size - size % width;
        if size == 0 {
            return Err(Error::new(ErrorKind::Usage, format!("--size must be at least {width} bytes")));
        }
        if elements.is_empty() {
            let message = format!("{}: --size needs elements, and its tensors have none", Name::text(&self.name));
            return Err(Error::new(ErrorKind::Usage, message));
        }
        Self::parse(format!("{} ({dtype} only, {size} bytes)", self.name), repeat(width, elements, size), Some(dtype))
    }
}

/// Elements of `width` bytes, at least one, repeated or cut to `size` bytes: all of them first, then every third, every
/// fifth and so on, cyclically. So neighbours stay near each other, and no sequence occurs twice, which the encoder
/// would find.
pub(super) fn repeat(width: usize, bytes: &[u8], size: usize) -> Vec<u8> {
    let elements = bytes.len() / width;
    let mut out = Vec::with_capacity(size);
    let mut steps = (1..).step_by(2).filter(|&step| gcd(step, elements) == 1);
    while out.len() < size {
        let step = steps.next().expect("numbers without an end");
        let count = elements.min((size - out.len()) / width);
        for i in 0..count {
            let at = i * step % elements * width;
            out.extend_from_slice(&bytes[at..at + width]);
        }
    }
    out
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_data_is_repeated_in_whole_elements() {
        let raw: Vec<u8> = (0..100u32).flat_map(|i| i.to_le_bytes()).collect();
        let input = Input::parse("x".into(), raw.clone(), Some(Dtype::F32)).unwrap().resized(1003).unwrap();
        assert_eq!(input.raw.len(), 1000);
        assert_eq!(input.raw[..400], raw[..]);
        let of = |n: u32, step: u32| (0..n).flat_map(move |i| (i * step % 100).to_le_bytes());
        assert!(input.raw[400..].iter().copied().eq(of(100, 3).chain(of(50, 7))));
        assert_eq!(input.runs, [Run { bytes: 0..1000, width: 4 }]);
    }
}
