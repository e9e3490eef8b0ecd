//! Positional reads and writes, for parallel and random access.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};

/// A source that is read at any offset, by several threads at once.
pub trait ReadAt: Sync {
    /// Fills `buf` with the bytes that start `offset` bytes into the source.
    ///
    /// # Errors
    /// `UnexpectedEof` when the source ends first, and whatever the source reports.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Length of the source in bytes.
    ///
    /// # Errors
    /// Whatever the source reports.
    fn size(&self) -> io::Result<u64>;

    /// Where it is in the file system, if it is a file: the names of tensors may be in another file of its directory. Nothing else depends
    /// on it.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Another file of its directory, for the names of tensors. `None` if there is none.
    fn beside(&self, name: &str) -> Option<Box<dyn ReadAt>> {
        let path = self.path()?.with_file_name(name);
        // Opening a FIFO would wait for a writer.
        let is_file = path.metadata().is_ok_and(|m| m.is_file());
        is_file.then(|| File::open(path).ok()).flatten().map(|file| Box::new(file) as Box<dyn ReadAt>)
    }

    /// All of the source, where it is in memory.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// The `len` bytes that start `offset` bytes into the source, where they are in memory in one place.
    fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.as_slice()?.get(usize::try_from(offset).ok()?..)?.get(..len)
    }

    /// Copies the elements of `width` bytes that start at these offsets, which ascend, to `out`, one after the other. Sources in memory
    /// need no copies of what is between.
    ///
    /// # Errors
    /// Those of [`Self::read_exact_at`].
    ///
    /// # Panics
    /// If `out` has room for another number of elements.
    fn read_elements_at(&self, width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        assert_eq!(out.len(), width * offsets.len(), "room for each element");
        match self.as_slice() {
            Some(slice) => gather(slice, width, offsets, out),
            None => read_windows(self, width, offsets, out),
        }
    }
}

/// Elements of a slice.
fn gather(from: &[u8], width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
    fn of<const W: usize>(from: &[u8], offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        for (&offset, to) in offsets.iter().zip(out.as_chunks_mut::<W>().0) {
            let element = usize::try_from(offset).ok().and_then(|o| from.get(o..)?.first_chunk());
            *to = *element.ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }
    match width {
        1 => of::<1>(from, offsets, out),
        2 => of::<2>(from, offsets, out),
        4 => of::<4>(from, offsets, out),
        8 => of::<8>(from, offsets, out),
        _ => offsets.iter().zip(out.chunks_mut(width.max(1))).try_for_each(|(&o, to)| from.read_exact_at(to, o)),
    }
}

/// Bytes that are read at once where elements are close to each other.
const WINDOW: usize = 4096;
/// Bytes from one element to the next above which they are read one by one: four cache lines.
const FAR: u64 = 256;

/// Elements of a source that is read by copies.
fn read_windows(from: &(impl ReadAt + ?Sized), width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return Ok(()) };
    let close = last.saturating_sub(first) / FAR <= offsets.len() as u64 && width <= WINDOW;
    let mut window = [0; WINDOW];
    // The offset of the bytes in it, and how many are valid.
    let (mut at, mut valid) = (0, 0);
    for (&offset, to) in offsets.iter().zip(out.chunks_mut(width.max(1))) {
        if !close {
            from.read_exact_at(to, offset)?;
            continue;
        }
        let mut within = offset.wrapping_sub(at);
        if within >= valid || (valid - within) < width as u64 {
            // Nothing behind the last element.
            valid = last.saturating_sub(offset).min((WINDOW - width) as u64) + width as u64;
            from.read_exact_at(&mut window[..valid as usize], offset)?;
            (at, within) = (offset, 0);
        }
        to.copy_from_slice(&window[within as usize..][..width]);
    }
    Ok(())
}

/// A destination that is written at any offset, by several threads at once.
///
/// A [`File`] should be empty and not open for appending: bytes behind those that are written stay, and Linux appends whatever the offset
/// is. One that was also opened for reading can be [read back](Self::read_back).
///
/// Bytes may be written before they are checked: after an error, what was written is not to be used.
pub trait WriteAt: Sync {
    /// Writes all of `buf`, starting `offset` bytes into the destination, which grows as needed.
    ///
    /// # Errors
    /// Whatever the destination reports.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `buf` with the bytes written from `offset` on. Files whose blocks depend on earlier ones are restored faster if
    /// they can be read back from where they are written to.
    ///
    /// # Errors
    /// `Unsupported` where this is not possible, and whatever the destination reports.
    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        _ = (buf, offset);
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|o| self.get(o..)).and_then(|s| s.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<const N: usize> ReadAt for [u8; N] {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self[..].read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(N as u64)
    }
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self[..].read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        self[..].size()
    }
    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// Reads what a pointer points to.
macro_rules! read_through {
    ($pointer:ty $(, $bound:ident)?) => {
        impl<T: ReadAt $(+ $bound)? + ?Sized> ReadAt for $pointer {
            fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_exact_at(buf, offset)
            }
            fn size(&self) -> io::Result<u64> {
                (**self).size()
            }
            fn path(&self) -> Option<&Path> {
                (**self).path()
            }
            fn beside(&self, name: &str) -> Option<Box<dyn ReadAt>> {
                (**self).beside(name)
            }
            fn as_slice(&self) -> Option<&[u8]> {
                (**self).as_slice()
            }
            fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
                (**self).slice_at(offset, len)
            }
            fn read_elements_at(&self, width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
                (**self).read_elements_at(width, offsets, out)
            }
        }
    };
}

read_through!(&T);
read_through!(Arc<T>, Send);

impl<T: WriteAt + ?Sized> WriteAt for &T {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        (**self).write_all_at(buf, offset)
    }
    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_back(buf, offset)
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        positioned::read_exact(self, buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        let metadata = self.metadata()?;
        // Pipes and devices have the length 0.
        let other = || io::Error::new(io::ErrorKind::Unsupported, "it is not a regular file; read it as a stream");
        if metadata.is_file() { Ok(metadata.len()) } else { Err(other()) }
    }
}

#[cfg(unix)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    /// The system's error of reading a file that was opened only for writing: `EBADF`.
    pub(super) const NOT_READABLE: i32 = 9;

    pub(super) fn read_exact(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(buf, offset)
    }

    pub(super) fn write_all(file: &File, buf: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(buf, offset)
    }
}

/// These move the position of the file, which nothing that reads or writes at offsets uses.
#[cfg(windows)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;

    /// The system's error of reading a file that was opened only for writing: `ERROR_ACCESS_DENIED`.
    pub(super) const NOT_READABLE: i32 = 5;

    pub(super) fn read_exact(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match file.seek_read(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => (buf, offset) = (&mut buf[n..], offset + n as u64),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn write_all(file: &File, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match file.seek_write(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => (buf, offset) = (&buf[n..], offset + n as u64),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl WriteAt for File {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        positioned::write_all(self, buf, offset)
    }
    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset).map_err(|e| match e.raw_os_error() {
            Some(positioned::NOT_READABLE) => io::ErrorKind::Unsupported.into(),
            _ => e,
        })
    }
}

/// Memory for `len` bytes, or an error where there is none. Pages are touched only when they are written.
pub fn zeroed(len: u64) -> Result<Vec<u8>> {
    let too_much = || Error::limit(format!("there is no memory for {len} bytes; restore to a file instead"));
    let len = usize::try_from(len).map_err(|_| too_much())?;
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| too_much())?;
    Ok(vec![0; len])
}

/// The first `len` bytes of a reused buffer, with arbitrary contents. One that is too short is freed before another is allocated, of
/// exactly that length: growing it would take twice the memory.
pub fn scratch(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buf.len() < len {
        *buf = Vec::new();
        *buf = vec![0; len];
    }
    &mut buf[..len]
}

/// Fills `buf` with bytes of a source that messages call `what`.
pub fn read_at(src: &dyn ReadAt, what: &str, buf: &mut [u8], offset: u64) -> Result<()> {
    src.read_exact_at(buf, offset).map_err(|e| match e.downcast::<Error>() {
        // The source is decoded itself.
        Ok(e) => e.after(&format!("cannot read {what}: ")),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Error::io(format!("{what} became shorter while it was read"), e).at_offset(offset)
        }
        Err(e) => Error::io(format!("cannot read {what}"), e).at_offset(offset),
    })
}

/// Fills `buf` from a stream as far as the stream goes; the number of bytes read.
pub fn read_full(src: &mut dyn io::Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match src.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Appends up to `n` bytes of a stream to `buf`; the number of bytes read, less than `n` only at the end.
///
/// Memory is allocated as bytes arrive, so that a forged length costs nothing.
pub fn append(src: &mut dyn io::Read, buf: &mut Vec<u8>, n: usize) -> io::Result<usize> {
    const STEP: usize = 1 << 20;
    let start = buf.len();
    while buf.len() - start < n {
        let from = buf.len();
        let to = (start + n).min(buf.capacity().max(from + STEP));
        buf.resize(to, 0);
        let got = read_full(src, &mut buf[from..])?;
        buf.truncate(from + got);
        if from + got < to {
            break;
        }
    }
    Ok(buf.len() - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_refuse_what_they_do_not_have() {
        let s = [1u8, 2, 3];
        let mut b = [0; 2];
        s[..].read_exact_at(&mut b, 1).unwrap();
        assert_eq!(b, [2, 3]);
        assert!(s[..].read_exact_at(&mut b, 2).is_err());
        assert!(s[..].read_exact_at(&mut b, u64::MAX).is_err());
        assert!(s[..].read_exact_at(&mut [], 3).is_ok());
    }

    /// A source that is read by copies, which notes how many.
    struct Copied<'a>(&'a [u8], std::sync::atomic::AtomicUsize);

    impl ReadAt for Copied<'_> {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0.read_exact_at(buf, offset)
        }
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
    }

    #[test]
    fn elements_are_read_from_slices_and_by_copies() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * i / 7) as u8).collect();
        for width in [1, 2, 3, 4, 8, 5000] {
            let last = bytes.len() - width;
            for every in [1, 2, 7, 100, 250, 256, 300, 3000, 19_000] {
                if width > WINDOW && every < 100 {
                    continue;
                }
                // Offsets need not be multiples of the width.
                let offsets: Vec<u64> = (1..last).step_by(every).chain([last]).map(|o| o as u64).collect();
                let expected: Vec<u8> = offsets.iter().flat_map(|&o| &bytes[o as usize..][..width]).copied().collect();
                let copied = Copied(&bytes, 0.into());
                let (slice, file) = (&&bytes[..], &copied);
                for source in [slice as &dyn ReadAt, file] {
                    let mut out = vec![0; expected.len()];
                    source.read_elements_at(width, &offsets, &mut out).unwrap();
                    assert!(out == expected, "width {width}, every {every}");
                    source.read_elements_at(width, &[], &mut []).unwrap();
                    // Behind the end.
                    for bad in [last as u64 + 1, u64::MAX] {
                        let mut out = vec![0; 2 * width];
                        let e = source.read_elements_at(width, &[0, bad], &mut out).unwrap_err();
                        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
                    }
                }
                let copies = copied.1.into_inner();
                let few = bytes.len() / (WINDOW - width.min(WINDOW - 1)) + 5;
                assert!(every > FAR as usize || width > WINDOW || copies <= few, "{copies} copies, every {every}");
            }
        }
    }

    #[test]
    fn append_allocates_what_arrives() {
        let mut v = vec![9];
        assert_eq!(append(&mut &[1u8, 2][..], &mut v, 1 << 40).unwrap(), 2);
        assert_eq!(v, [9, 1, 2]);
        assert!(v.capacity() < 1 << 22);
        let long = vec![7u8; 3 << 20];
        assert_eq!(append(&mut &long[..], &mut v, (2 << 20) + 5).unwrap(), (2 << 20) + 5);
        assert_eq!(v.len(), 3 + (2 << 20) + 5);
    }
}
