//! The tensors of all files of a save, as if the files were one, and which of them are rounded from which.

use lmc::{ReadAt, Segment};
use lmc_kernels::predict::derived::BLOCK;

use super::input::Input;
use super::repeats::Place;
use crate::error::{Error, Result};

/// A file with its segments.
pub(super) type Planned<'a> = (&'a Input<'a>, Vec<Segment>);

/// For each file and segment, the file and segment of the tensor that it is rounded from, or quantised in blocks.
pub(super) type Wide = Vec<Vec<Option<Place>>>;

pub(super) struct Together<'f> {
    pub(super) files: &'f [Planned<'f>],
    /// Their offsets count from the beginning of the first file on.
    pub(super) tensors: Vec<Segment>,
    /// Where each of them is.
    pub(super) places: Vec<Place>,
    /// Where each file begins.
    starts: Vec<u64>,
    /// Where the last one ends.
    end: u64,
}

impl ReadAt for Together<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.read(offset, buf).map_err(std::io::Error::other)
    }

    fn size(&self) -> std::io::Result<u64> {
        Ok(self.end)
    }
}

/// What a tensor is cut into: units of so many bits and elements.
pub(super) fn unit_of(s: &Segment) -> (u64, u64) {
    s.dtype.map_or((8, 1), |dtype| (dtype.bits().into(), if dtype.is_block() { BLOCK as u64 } else { 1 }))
}

impl<'f> Together<'f> {
    pub(super) fn new(files: &'f [Planned<'f>]) -> Result<Self> {
        let mut together = Self { files, tensors: vec![], places: vec![], starts: vec![], end: 0 };
        let mut end = 0;
        for (file, (_, segments)) in files.iter().enumerate() {
            together.starts.push(end);
            for (i, s) in segments.iter().enumerate().filter(|(_, s)| s.dtype.is_some()) {
                let (name, shape) = (s.name.clone(), s.shape.clone());
                together.tensors.push(Segment::new(name, s.dtype, shape, end + s.offset, s.len).map_err(Error::codec)?);
                together.places.push((file, i));
            }
            end += segments.last().map_or(0, Segment::end);
        }
        together.end = end;
        Ok(together)
    }

    pub(super) fn segment(&self, (file, segment): Place) -> &'f Segment {
        &self.files[file].1[segment]
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.starts.partition_point(|&start| start <= offset) - 1;
        let input = self.files[file].0;
        input.read_exact_at(buf, offset - self.starts[file]).map_err(|e| e.at(&input.name))
    }

    /// Compares samples of all 32- and 16-bit tensors, and of others with those that they may be copies of.
    pub(super) fn rounded_from(&self) -> Result<Wide> {
        let mut found = lmc::internals::rounded_from(&self.tensors, |offset, buf| self.read(offset, buf))?;
        lmc::internals::copied_from(&self.tensors, self, &mut found).map_err(Error::codec)?;
        let mut wide: Wide = self.files.iter().map(|(_, segments)| vec![None; segments.len()]).collect();
        for (&(file, segment), found) in self.places.iter().zip(found) {
            wide[file][segment] = found.map(|i| self.places[i]);
        }
        Ok(wide)
    }
}
