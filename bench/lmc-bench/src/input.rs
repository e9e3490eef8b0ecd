//! The data to measure with, and the types of its elements.

use std::path::Path;

use lmc::{Base, Error, ErrorKind, Result, Segment};

use crate::planes::{Run, cover};

/// A file in memory.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) raw: Vec<u8>,
    /// Its tensors, and what lies between them.
    pub(crate) segments: Vec<Segment>,
    pub(crate) runs: Vec<Run>,
}

impl Input {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let raw = read(path)?;
        if raw.is_empty() {
            return Err(Error::new(ErrorKind::Usage, format!("{name} is empty: nothing to measure")));
        }
        let segments = Base::new(&raw[..])?.segments().to_vec();
        let typed = segments.iter().filter_map(|s| {
            let (start, len) = (s.offset as usize, s.len as usize);
            Some(Run { bytes: start..start + len, width: s.dtype?.coding_width() })
        });
        let runs = cover(raw.len(), typed);
        Ok(Self { name, raw, segments, runs })
    }
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::io(format!("cannot read {}", path.display()), e))
}
