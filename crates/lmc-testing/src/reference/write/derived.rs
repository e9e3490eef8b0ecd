//! Operands for derived tensors (§3.10) from a description.
//!
//! What they compute is shared with the reference decoder.

pub use super::super::derived::Derivation;

use super::super::derived::{CAST, CODES, FIELD, SCALES};
use super::super::dtypes::rounded;
use super::super::ranges::elements;
use super::range::{self, Range};
use super::stream::{Output, Stream};
use super::{grid, varint};

/// An operand that is computed from other data in another precision.
#[derive(Clone, Debug)]
pub struct Derived {
    pub derivation: Derivation,
    /// The ranges of elements; those of codes are followed by the ranges of scales, unless these are in a stream.
    pub data: Vec<Vec<Range>>,
    /// Scales that are not in ranges.
    pub scales: Option<Scales>,
}

/// Scales in a stream.
#[derive(Clone, Debug)]
pub struct Scales {
    /// As they are.
    pub bytes: Vec<u8>,
    pub width_code: u8,
    pub stream: Stream,
}

impl Derived {
    /// How many bytes each list of ranges, or scales in a stream, of a column of `n` elements of `width` bytes needs.
    ///
    /// # Panics
    /// When a field has a value that it cannot have.
    pub fn lengths(derivation: &Derivation, width: usize, n: usize) -> Vec<u128> {
        derivation.lengths(n, width)
    }

    /// The element of a dtype that the bits of a binary32 are rounded to, in its lowest bytes.
    ///
    /// # Panics
    /// When nothing is rounded to the dtype.
    pub fn rounded(dtype: u8, x: u32) -> [u8; 8] {
        rounded(dtype, x.into()).to_le_bytes()
    }

    /// The prediction of each of a column's `n` elements of `width` bytes.
    pub(super) fn predictions(&self, width: usize, n: usize) -> Result<Vec<u64>, String> {
        let mut lists: Vec<Vec<u8>> = self.data.iter().map(|ranges| range::bytes(ranges)).collect();
        lists.extend(self.scales.as_ref().map(|scales| scales.bytes.clone()));
        if !lists.iter().map(|list| list.len() as u128).eq(self.derivation.lengths(n, width)) {
            return Err("the ranges of an operand do not have its column's number of elements".into());
        }
        Ok(self.derivation.predictions(&lists, width))
    }

    pub(super) fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        let head = &mut output.head;
        match self.derivation {
            Derivation::Cast { from, to } => head.extend([CAST, from, to]),
            Derivation::Codes { from, to, operation, precision, scales, f, groups } => {
                head.extend([CODES, from, to, operation, precision, scales]);
                head.extend(f.to_le_bytes());
                grid::write(&groups, head);
            }
            Derivation::Scales { from, to, operation, precision, f, k } => {
                head.extend([SCALES, from, to, operation, precision]);
                head.extend(f.to_le_bytes());
                varint(head, k);
            }
            Derivation::Field { from, blocks, field } => head.extend([FIELD, from, blocks, field]),
        }
        self.data.iter().for_each(|ranges| range::write(ranges, head));
        let Some(Scales { bytes, width_code, stream }) = &self.scales else { return Ok(()) };
        range::write(&[], head);
        stream.encode(&elements(bytes, 1 << width_code), 1 << width_code, output)
    }
}
