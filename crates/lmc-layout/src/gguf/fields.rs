//! Reads the header of a GGUF file field by field.

/// The longest header that is read, in bytes: key-values and infos of tensors. Those of the largest vocabularies take 20 MB.
pub(super) const MAX_HEADER: usize = 1 << 26;

/// Why reading stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end before the header does.
    Short,
    /// This is not the header of a GGUF file, or one that is too long.
    Invalid,
}

/// Types of values.
pub(super) const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// The most arrays inside each other. llama.cpp writes no array of arrays.
const MAX_DEPTH: u32 = 4;

/// The bytes of a header that are not read yet.
pub(super) struct Fields<'a> {
    start: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(start: &'a [u8]) -> Self {
        Self { start, at: 0 }
    }

    /// Offset of the next field.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], Stop> {
        let n = usize::try_from(n).ok().filter(|&n| n <= MAX_HEADER).ok_or(Stop::Invalid)?;
        let bytes = self.start[self.at..].get(..n).ok_or(Stop::Short)?;
        self.at += n;
        Ok(bytes)
    }

    pub(super) fn skip(&mut self, n: u64) -> Result<(), Stop> {
        self.take(n).map(|_| ())
    }

    pub(super) fn u32(&mut self) -> Result<u32, Stop> {
        self.take(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Stop> {
        self.take(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
    }

    /// A string: a length and its bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.u64()?;
        self.take(len)
    }

    /// A string in UTF-8.
    pub(super) fn text(&mut self) -> Result<&'a str, Stop> {
        str::from_utf8(self.bytes()?).map_err(|_| Stop::Invalid)
    }

    /// Skips a value of this type.
    pub(super) fn skip_value(&mut self, kind: u32) -> Result<(), Stop> {
        self.skip_values(kind, 1, MAX_DEPTH)
    }

    /// Skips `count` values. Each step advances by at least eight bytes, or by all values at once.
    fn skip_values(&mut self, kind: u32, count: u64, depth: u32) -> Result<(), Stop> {
        match kind {
            STRING => (0..count).try_for_each(|_| self.bytes().map(|_| ())),
            ARRAY => (0..count).try_for_each(|_| {
                let depth = depth.checked_sub(1).ok_or(Stop::Invalid)?;
                let (kind, count) = (self.u32()?, self.u64()?);
                self.skip_values(kind, count, depth)
            }),
            _ => self.skip(width(kind).and_then(|w| count.checked_mul(w)).ok_or(Stop::Invalid)?),
        }
    }
}

/// Bytes of a value of this type, if all have as many.
fn width(kind: u32) -> Option<u64> {
    match kind {
        // U8, I8, BOOL
        0 | 1 | 7 => Some(1),
        // U16, I16
        2 | 3 => Some(2),
        // U32, I32, F32
        U32 | 5 | 6 => Some(4),
        // U64, I64, F64
        10..=12 => Some(8),
        _ => None,
    }
}
