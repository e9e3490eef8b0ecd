//! Layouts: the segments that a format suggests for a file, from its beginning.

use std::borrow::Cow;
use std::path::Path;

use super::account::{Account, Tensors};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::io::{ReadAt, read_at};
use crate::segment::{Name, Segment};

/// Suggested segments of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The format's name, as the index records it.
    pub name: &'static str,
    /// In order and without gaps from offset 0. The file may end earlier, or later.
    pub segments: Vec<Segment>,
    /// Dtype of the bytes after the segments, of any length.
    pub tail: Option<Dtype>,
    /// The tensors that the format declares, and that are no segments.
    pub account: Account,
}

/// The name of the layout of bytes whose segments the caller gave.
pub(super) const SEGMENTS: &str = "segments";

impl Layout {
    /// The layout of `len` bytes whose segments the caller knows.
    ///
    /// # Errors
    /// `Usage` when they do not cover the bytes, or when one is invalid.
    pub fn of_segments(segments: &[Segment], len: u64) -> Result<Self> {
        let mut at = 0;
        for s in segments {
            s.check()?;
            if s.offset != at {
                return Err(Error::usage(format!(
                    "a segment starts at byte {}, and the one before it ends at {at}",
                    s.offset
                )));
            }
            at = s.offset.checked_add(s.len).ok_or_else(|| {
                Error::usage(format!("a segment of {} bytes at byte {} ends above 2^64", s.len, s.offset))
            })?;
        }
        if at != len {
            return Err(Error::usage(format!("the segments have {at} bytes in all, and the data {len}")));
        }
        Ok(Self::new(SEGMENTS, segments.to_vec(), Account::default()))
    }

    /// The layout of a file in a format, whose account this is.
    pub fn new(name: &'static str, segments: Vec<Segment>, account: Account) -> Self {
        Self { name, segments, tail: None, account }
    }

    /// The tensors of a file of `total` bytes whose names begin with `prefix`.
    pub(super) fn tensors(mut self, total: u64, prefix: &str) -> Tensors {
        for s in self.segments.iter().filter(|s| s.end() > total) {
            if let Some(name) = &s.name {
                self.account.missing(&**name, "the file ends before it does");
            }
        }
        let segments = self.covering(total).into_owned();
        self.account.tensors(self.name, &segments, prefix)
    }

    /// Whether the bytes of files with a layout of this name say what their segments are.
    pub fn is_in_the_bytes(name: &str) -> bool {
        ![SEGMENTS, RAW].contains(&name)
    }

    /// The segments of a file that has `total` bytes: they cover it exactly.
    ///
    /// A tensor that the file does not hold whole becomes opaque.
    pub fn covering(&self, total: u64) -> Cow<'_, [Segment]> {
        if self.segments.last().is_some_and(|s| s.end() == total) {
            return Cow::Borrowed(&self.segments);
        }
        let whole = self.segments.partition_point(|s| s.end() <= total);
        let mut segments = self.segments[..whole].to_vec();
        let start = segments.last().map_or(0, Segment::end);
        let rest = total - start;
        let mut typed = 0;
        if let Some(dtype) = self.tail.filter(|_| whole == self.segments.len()) {
            // The fewest elements of whole bytes: 4 of 6 bits, 2 of 4 bits, 1 of any other width.
            let elements = u64::from(8 / gcd(8, dtype.bits()));
            let bytes = elements * u64::from(dtype.bits()) / 8;
            typed = rest - rest % bytes;
            if typed > 0 {
                let shape = [typed / bytes * elements].into();
                segments.push(Segment::tensor(Name::default(), dtype, shape, start, typed));
            }
        }
        if rest > typed {
            segments.push(Segment::opaque(start + typed, rest - typed));
        }
        segments.into()
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A file whose layout is detected.
pub trait Prefix {
    /// The first `n` bytes; fewer only if the file has no more.
    fn get(&mut self, n: usize) -> Result<&[u8]>;

    /// All of the file. `None` for a stream: only its beginning is known.
    fn whole(&self) -> Option<Whole<'_>> {
        None
    }
}

impl Prefix for &[u8] {
    fn get(&mut self, n: usize) -> Result<&[u8]> {
        Ok(&self[..n.min(self.len())])
    }
    fn whole(&self) -> Option<Whole<'_>> {
        Some(Whole { src: self, size: self.len() as u64, what: "the input" })
    }
}

/// A file that is read at any offset.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    src: &'a dyn ReadAt,
    size: u64,
    /// The file's name in messages.
    what: &'static str,
}

impl<'a> Whole<'a> {
    /// A file that describes another one; `None` if it cannot be read.
    pub(super) fn of(src: &'a dyn ReadAt) -> Option<Self> {
        Some(Self { src, size: src.size().ok()?, what: "a file beside the input" })
    }

    /// Opens another file of the same directory. `None` if there is none.
    pub(super) fn beside(&self, name: &str) -> Option<Box<dyn ReadAt + 'a>> {
        self.src.beside(name)
    }
}

impl Whole<'_> {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Where it is in the file system.
    pub(super) fn path(&self) -> Option<&Path> {
        self.src.path()
    }

    /// Fills `buf` with the bytes at `offset`; false if the file ends before.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size) {
            return Ok(false);
        }
        read_at(self.src, self.what, buf, offset)?;
        Ok(true)
    }

    /// The `len` bytes at `offset`; `None` if the file ends before.
    pub(super) fn bytes(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        Ok(self.read(&mut bytes, offset)?.then_some(bytes))
    }
}

/// A file that is read at any offset, and its beginning.
pub struct Start<'a> {
    file: Whole<'a>,
    bytes: Vec<u8>,
}

impl<'a> Start<'a> {
    /// A file of `size` bytes, which errors call `what`.
    pub fn new(src: &'a dyn ReadAt, size: u64, what: &'static str) -> Self {
        Self { file: Whole { src, size, what }, bytes: Vec::new() }
    }
}

impl Prefix for Start<'_> {
    fn get(&mut self, n: usize) -> Result<&[u8]> {
        let n = n.min(usize::try_from(self.file.size).unwrap_or(usize::MAX));
        let have = self.bytes.len();
        if n > have {
            self.bytes.resize(n, 0);
            let Whole { src, what, .. } = self.file;
            read_at(src, what, &mut self.bytes[have..], have as u64)?;
        }
        Ok(&self.bytes[..n])
    }

    fn whole(&self) -> Option<Whole<'_>> {
        Some(self.file)
    }
}

/// Segments of a file whose first `start` bytes are opaque: the tensors in order, and opaque bytes between them. `None` if
/// two overlap or one ends above 2^63.
pub(super) fn cover(start: u64, mut tensors: Vec<Segment>) -> Option<Vec<Segment>> {
    tensors.sort_by_key(|t| (t.offset, t.len));
    let mut segments = Vec::with_capacity(1 + tensors.len());
    if start > 0 {
        segments.push(Segment::opaque(0, start));
    }
    let mut at = start;
    for tensor in tensors {
        if tensor.offset < at || tensor.offset.checked_add(tensor.len)? > u64::MAX / 2 {
            return None;
        }
        if tensor.offset > at {
            segments.push(Segment::opaque(at, tensor.offset - at));
        }
        at = tensor.end();
        segments.push(tensor);
    }
    Some(segments)
}

/// A host format.
pub(super) trait Format: Sync {
    /// The layout, or `None` if the file is not of this format, or not well-formed.
    ///
    /// # Errors
    /// Only those of reading the file.
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>>;
}

/// The name of the layout of files in no known format.
pub const RAW: &str = "raw";

/// Most memory of suggested segments, in bytes: enough for all tensors of the longest header of safetensors, of which one takes at most
/// four bytes for a byte of the header (a dimension eight for two).
pub(super) const MAX_COST: usize = 400 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_that_the_file_lacks_is_opaque() {
        let tensor = |at| Segment::tensor(Name::default(), Dtype::F32, [24].into(), at, 96);
        let layout = Layout::new("test", vec![Segment::opaque(0, 10), tensor(10), tensor(106)], Account::default());
        let covering = |total| layout.covering(total).iter().map(|s| (s.dtype.is_some(), s.len)).collect::<Vec<_>>();
        assert_eq!(covering(0), []);
        assert_eq!(covering(9), [(false, 9)]);
        assert_eq!(covering(10), [(false, 10)]);
        assert_eq!(covering(105), [(false, 10), (false, 95)]);
        assert_eq!(covering(107), [(false, 10), (true, 96), (false, 1)]);
        assert_eq!(covering(202), [(false, 10), (true, 96), (true, 96)]);
        assert_eq!(covering(300), [(false, 10), (true, 96), (true, 96), (false, 98)]);
    }

    #[test]
    fn a_tail_is_whole_elements() {
        let covering = |dtype, total| {
            let layout = Layout { tail: Some(dtype), ..Layout::new(RAW, vec![], Account::default()) };
            layout.covering(total).iter().map(|s| (s.shape.to_vec(), s.len)).collect::<Vec<_>>()
        };
        assert_eq!(covering(Dtype::F32, 11), [(vec![2], 8), (vec![], 3)]);
        assert_eq!(covering(Dtype::F4, 3), [(vec![6], 3)]);
        assert_eq!(covering(Dtype::F6E2M3, 7), [(vec![8], 6), (vec![], 1)]);
    }
}
