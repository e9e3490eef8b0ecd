//! Compares windows of a tensor with what it may be.

use crate::block::DerivedFrom;
use crate::format::bases::SourceRange;
use crate::refs::base::Base;
use lmc_kernels::predict::derived::BLOCK;
use lmc_layout::error::Result;
use lmc_layout::segment::Segment;

/// Where windows are, in parts of a tensor: not at edges of attention heads, where rows are in their places in any order. Elements of each.
const WINDOWS: [u64; 5] = [0, 4, 9, 13, 17];
const PARTS: u64 = 19;
const WINDOW: u64 = 256;
/// A tensor is derived if at most one byte in this many of the windows is another one; the search ends at one in that many.
const OTHERS: u64 = 8;
const FEW: u64 = 64;

/// What comes of a comparison.
pub(super) enum Outcome {
    /// Another tensor, or nothing is known.
    Other,
    /// Its beginning is the same, and nothing else.
    Begins,
    /// So many bytes of a megabyte are others.
    Near(u64),
    /// Nearly all are the same.
    Same,
}

/// The windows of a tensor.
pub(super) struct Trial<'t> {
    segment: &'t Segment,
    bases: &'t [&'t Base<'t>],
    read: &'t mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    /// Windows that tell something: where they begin, in bytes, and their bytes.
    windows: Option<Vec<(u64, Vec<u8>)>>,
}

impl<'t> Trial<'t> {
    pub(super) fn new(
        segment: &'t Segment,
        bases: &'t [&'t Base<'t>],
        read: &'t mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Self {
        Self { segment, bases, read, windows: None }
    }

    /// Compares the tensor with what it would be.
    pub(super) fn compare(&mut self, from: &DerivedFrom) -> Outcome {
        let windows = match self.windows.take() {
            Some(windows) => windows,
            None => self.windows(),
        };
        let (mut apart, mut seen, mut begins) = (0, 0, false);
        for (i, (at, bytes)) in windows.iter().enumerate() {
            let others = self.others(from, *at, bytes);
            // Most tensors are told apart by their first window.
            if i == 0 && others * OTHERS > bytes.len() as u64 {
                self.windows = Some(windows);
                return Outcome::Other;
            }
            begins |= i == 0 && *at == 0;
            (apart, seen) = (apart + others, seen + bytes.len() as u64);
        }
        self.windows = Some(windows);
        match apart {
            _ if seen == 0 => Outcome::Other,
            apart if apart * FEW <= seen => Outcome::Same,
            apart if apart * OTHERS <= seen => Outcome::Near((apart << 20) / seen),
            _ if begins => Outcome::Begins,
            _ => Outcome::Other,
        }
    }

    /// Whether the elements from number `element` on are what they would be.
    pub(super) fn is_at(&mut self, from: &DerivedFrom, element: u64) -> bool {
        let at = element / self.unit().0 * self.unit().1;
        let window = self.window(at);
        window.is_some_and(|bytes| self.others(from, at, &bytes) * OTHERS <= bytes.len() as u64)
    }

    /// The least number of elements that can be computed alone, and their bytes.
    fn unit(&self) -> (u64, u64) {
        match self.segment.dtype {
            Some(d) if d.is_block() => (BLOCK as u64, u64::from(d.bits() / 8)),
            d => (1, d.map_or(1, |d| d.coding_width() as u64)),
        }
    }

    /// Windows whose bytes are not all the same.
    fn windows(&mut self) -> Vec<(u64, Vec<u8>)> {
        let (elements, bytes) = self.unit();
        let units = self.segment.len / bytes;
        let of_window = (WINDOW / elements).min(units);
        // Even numbers of elements, which pairs of codes have.
        let starts = WINDOWS.map(|part| (units - of_window) * part / PARTS / 2 * 2 * bytes);
        let mut starts = starts.to_vec();
        starts.dedup();
        starts.into_iter().filter_map(|at| Some((at, self.window(at)?))).collect()
    }

    /// The bytes of the window from byte `at` on, unless all are the same.
    fn window(&mut self, at: u64) -> Option<Vec<u8>> {
        let (elements, bytes) = self.unit();
        let len = ((WINDOW / elements) * bytes).min(self.segment.len.checked_sub(at)?) / bytes * bytes;
        let mut window = vec![0; len as usize];
        (self.read)(self.segment.offset + at, &mut window).ok()?;
        window.iter().any(|&b| b != window[0]).then_some(window)
    }

    /// How many of the bytes from byte `at` on are others than they would be.
    fn others(&mut self, from: &DerivedFrom, at: u64, bytes: &[u8]) -> u64 {
        let mut expected = vec![];
        let (bases, read) = (self.bases, &mut *self.read);
        let mut read = |range: &SourceRange, to: &mut [u8]| read_range(range, bases, read, to);
        match from.bytes(self.segment.dtype, at, bytes.len(), &mut read, &mut expected) {
            Ok(()) => bytes.iter().zip(&expected).filter(|(a, b)| a != b).count() as u64,
            // What cannot be read now is noticed when it is needed.
            Err(_) => bytes.len() as u64,
        }
    }
}

/// Fills `to` with the bytes of a range: of the file itself, or of a base.
fn read_range(
    range: &SourceRange,
    bases: &[&Base<'_>],
    read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    to: &mut [u8],
) -> Result<()> {
    match range.source {
        0 => read(range.offset, to),
        source => bases[source as usize - 1].read(range.offset, to),
    }
}
