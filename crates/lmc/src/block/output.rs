//! The buffer that blocks are encoded into.

/// Writes to the front of a vector whose old contents serve as initialised memory: a vector that is used again is neither
/// cleared nor filled with zeros. [`Output::finish`] cuts it to what was written.
pub(crate) struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    len: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, len: 0 }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next `n` bytes, to be written by the caller; they hold anything.
    pub(crate) fn grow(&mut self, n: usize) -> &mut [u8] {
        let end = self.len + n;
        if self.bytes.len() < end {
            // As much again as a growing vector would take, so that many small blocks do not each fill a little.
            self.bytes.resize(end.max(self.bytes.capacity().min(2 * end)), 0);
        }
        let start = std::mem::replace(&mut self.len, end);
        &mut self.bytes[start..end]
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Writes over bytes that were written before.
    pub(crate) fn replace(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[..self.len][at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// What was written from `at` on.
    pub(crate) fn since(&self, at: usize) -> &[u8] {
        &self.bytes[at..self.len]
    }

    /// Forgets what was written from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }

    pub(crate) fn finish(self) {
        self.bytes.truncate(self.len);
    }
}
