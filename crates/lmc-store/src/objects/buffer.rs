//! Buffers that are reused and written whole.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Bytes whose length changes often. Shorter contents keep the memory. Longer contents get new zeroed memory from the
/// allocator: the old bytes are not copied, and pages from the system are not cleared twice.
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

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// The most bytes that a pool keeps for later: two buffers of the longest compressed chunks, and a little.
const KEPT: usize = 33 << 20;

/// Buffers for bytes that readers drop when they have read them. The buffers are reused, because the system clears new
/// pages first, which takes almost as long as writing them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// A vector with a capacity of `len` bytes or up to half as many more, and arbitrary contents.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |v: &Vec<u8>| (len..=len + len / 2).contains(&v.capacity());
        let best = (0..free.len()).filter(|&i| fits(&free[i])).min_by_key(|&i| free[i].capacity());
        best.map_or_else(|| Vec::with_capacity(len), |i| free.remove(i))
    }

    /// Takes a vector back.
    pub(crate) fn put(&self, vector: Vec<u8>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(vector);
        let mut surplus = 0;
        while free[surplus..].iter().map(Vec::capacity).sum::<usize>() > KEPT {
            surplus += 1;
        }
        let freed: Vec<Vec<u8>> = free.drain(..surplus).collect();
        // Freeing much memory takes long.
        drop(free);
        drop(freed);
    }

    /// The first `len` bytes of a vector, which comes back once they are dropped.
    pub(crate) fn lend(&self, vector: Vec<u8>, len: usize) -> Bytes {
        assert!(len <= vector.len(), "bytes of the vector");
        Bytes::from_owner(Lent { vector, len, pool: self.clone() })
    }

    /// The bytes of a vector. If they are a small part of its memory, they are copied, so that the memory is free
    /// again.
    pub(crate) fn bytes(&self, vector: Vec<u8>) -> Bytes {
        let len = vector.len();
        if len >= vector.capacity() / 3 {
            return self.lend(vector, len);
        }
        let bytes = Bytes::copy_from_slice(&vector);
        self.put(vector);
        bytes
    }
}

/// A vector whose bytes are read.
struct Lent {
    vector: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.vector[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.vector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_back_when_their_bytes_are_dropped() {
        let pool = Pool::default();
        let vector = vec![7; 1000];
        let memory = vector.as_ptr();
        let bytes = pool.lend(vector, 900);
        let part = bytes.slice(100..200);
        drop(bytes);
        assert_eq!((&part[..], pool.take(1000).len()), (&[7; 100][..], 0));
        drop(part);
        // It is neither too small nor far too large.
        assert_eq!((pool.take(1001).len(), pool.take(600).len()), (0, 0));
        let mut again = pool.take(800);
        assert_eq!((again.as_ptr(), again.len()), (memory, 1000));
        // Few bytes are copied.
        again.truncate(300);
        let bytes = pool.bytes(again);
        let again = pool.take(1000);
        assert_eq!((&bytes[..], again.as_ptr()), (&[7; 300][..], memory));
    }

    #[test]
    fn only_so_much_is_kept() {
        let pool = Pool::default();
        pool.put(vec![0; KEPT]);
        pool.put(vec![0; 100]);
        assert_eq!((pool.take(KEPT).len(), pool.take(100).len()), (0, 100));
    }

    #[test]
    fn every_length_after_every_other() {
        let mut buf = Buffer::default();
        for len in [0, 1, 100, 99, 5000, 0, 101] {
            buf.reset(len).fill(len as u8);
            assert_eq!(*buf, *vec![len as u8; len]);
        }
    }
}
