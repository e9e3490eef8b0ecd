//! The buffer that blocks are encoded into.

/// A write buffer over memory with arbitrary contents: a reused vector is neither cleared nor filled with zeros.
/// [`Output::finish`] truncates it to the bytes written.
pub struct Output<'a> {
    memory: Memory<'a>,
    len: usize,
}

enum Memory<'a> {
    Vec(&'a mut Vec<u8>),
    Slice(&'a mut [u8]),
    /// The slice was too short: the vector has all bytes written.
    Spilled(Vec<u8>, &'a mut [u8]),
}

impl<'a> Output<'a> {
    /// An output that replaces what a vector holds.
    pub fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { memory: Memory::Vec(bytes), len: 0 }
    }

    /// An output to a slice, which it may exceed until [`Self::finish`].
    pub(crate) fn to_slice(slice: &'a mut [u8]) -> Self {
        Self { memory: Memory::Slice(slice), len: 0 }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Vec(v) => v,
            Memory::Slice(s) => s,
            Memory::Spilled(v, _) => v,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Vec(v) => v,
            Memory::Slice(s) => s,
            Memory::Spilled(v, _) => v,
        }
    }

    /// Ensures memory for at least `end` bytes.
    fn make_room(&mut self, end: usize) {
        if let Memory::Slice(slice) = &mut self.memory
            && slice.len() < end
        {
            let slice = std::mem::take(slice);
            self.memory = Memory::Spilled(slice[..self.len].to_vec(), slice);
        }
        let v = match &mut self.memory {
            Memory::Slice(_) => return,
            Memory::Vec(v) => &mut **v,
            Memory::Spilled(v, _) => v,
        };
        if v.len() < end {
            // At least double, as growing vectors do, so that many small blocks are not many small fills.
            v.resize(end.max(v.capacity().min(2 * end)), 0);
        }
    }

    /// The next `n` bytes, for the caller to write; their contents are arbitrary.
    pub(crate) fn grow(&mut self, n: usize) -> &mut [u8] {
        let end = self.len + n;
        // Only the bytes written before survive a change of memory.
        self.make_room(end);
        let start = std::mem::replace(&mut self.len, end);
        &mut self.bytes_mut()[start..end]
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Overwrites bytes written before.
    pub(crate) fn replace(&mut self, at: usize, bytes: &[u8]) {
        let len = self.len;
        self.bytes_mut()[..len][at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes written from `at` on.
    pub(crate) fn since(&self, at: usize) -> &[u8] {
        &self.bytes()[at..self.len]
    }

    /// Discards the bytes from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }

    /// Truncates a vector to the bytes written; copies them into a slice if they fit.
    pub fn finish(self) {
        match self.memory {
            Memory::Vec(v) => v.truncate(self.len),
            Memory::Slice(_) => {}
            Memory::Spilled(v, slice) => {
                if let Some(place) = slice.get_mut(..self.len) {
                    place.copy_from_slice(&v[..self.len]);
                }
            }
        }
    }
}

impl std::io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
