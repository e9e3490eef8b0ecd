//! Buffers that are reused and written whole.

/// Bytes whose length changes often. Shorter contents keep the memory; what must grow is allocated anew, as zeros of the allocator: its
/// bytes are not copied, and pages from the system are not cleared twice.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// `len` bytes, to be written by the caller.
    pub(crate) fn reset(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes = vec![0; len];
        }
        self.len = len;
        &mut self.bytes[..len]
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_after_every_other() {
        let mut buf = Buffer::default();
        for len in [0, 1, 100, 99, 5000, 0, 101] {
            buf.reset(len).fill(len as u8);
            assert_eq!(*buf, *vec![len as u8; len]);
        }
    }
}
