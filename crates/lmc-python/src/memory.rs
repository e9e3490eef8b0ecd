//! Memory for many tensors. It is returned to the system in [`BLOCK`]s, each once its last tensor is gone. And advice to the system about
//! memory.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

/// Size of the blocks returned to the system: a huge page.
pub(crate) const BLOCK: usize = 2 << 20;

/// Zeroed memory from the system, owned exclusively. Blocks begin at multiples of [`BLOCK`].
pub(crate) struct Memory(Block);

impl Memory {
    /// # Errors
    /// `LimitError` when memory runs out.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let too_much = || Failure::Other("LimitError", format!("out of memory for tensors of {len} bytes"));
        // Room to align to a huge page.
        let room = if len > BLOCK { len.checked_add(BLOCK).ok_or_else(too_much)? } else { len.max(1) };
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: it asks for new memory, wherever there is some.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
        let start = NonNull::new(start).filter(|s| s.as_ptr() != libc::MAP_FAILED).ok_or_else(too_much)?;
        let mut whole = Block { start: start.cast(), len: room };
        if len > BLOCK {
            let head = whole.start.align_offset(BLOCK);
            if head > 0 {
                drop(whole.split_off_front(head));
            }
        }
        let mut memory = Self(whole);
        expect_writes(&mut memory.as_mut_slice()[..len]);
        Ok(memory)
    }

    /// At least the requested number of bytes.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped, readable and writable, has values from the start, and belongs to `self`, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }

    /// Splits it into blocks; the last one may be smaller or larger.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        let (mut rest, mut blocks) = (self.0, Vec::new());
        while rest.len > BLOCK {
            blocks.push(rest.split_off_front(BLOCK));
        }
        blocks.push(rest);
        blocks
    }
}

/// A part of a mapping, unmapped when dropped.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns memory that no thread is bound to, and gives no access by itself.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Splits off `len` bytes, whole pages, from the front.
    fn split_off_front(&mut self, len: usize) -> Self {
        assert!(0 < len && len < self.len);
        let front = Self { start: self.start, len };
        // SAFETY: it is within the mapping.
        self.start = unsafe { self.start.add(len) };
        self.len -= len;
        front
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: these pages were mapped by `Memory::new`, belong to this block alone, and users of the memory keep its owner alive. The
        // block begins at a page: a mapping does, and `split_off_front` takes whole pages.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Memory of at least this size uses huge pages: faulting in small pages takes longer than decoding into them.
const LARGE: usize = 4 << 20;

/// Advises the kernel to use huge pages for large memory that is about to be overwritten. Contents do not change, and errors are ignored.
pub(crate) fn expect_writes(memory: &mut [u8]) {
    #[cfg(target_os = "linux")]
    if memory.len() >= LARGE {
        // Whole pages only: partial ones are shared with other memory.
        const HUGE: usize = 2 << 20;
        let head = memory.as_ptr().align_offset(HUGE);
        let whole = memory.len().saturating_sub(head) / HUGE * HUGE;
        if let Some(inner) = memory.get_mut(head..).and_then(|rest| rest.get_mut(..whole)) {
            // SAFETY: the pages are within `inner`, which is borrowed; the advice changes neither their contents nor
            // their protection.
            unsafe { libc::madvise(inner.as_mut_ptr().cast(), inner.len(), libc::MADV_HUGEPAGE) };
        }
    }
}

/// A block as a writable buffer of bytes. Arrays that use it keep it alive.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct SharedMemory(pub(crate) Block);

#[pymethods]
impl SharedMemory {
    fn __len__(&self) -> usize {
        self.0.len
    }

    /// # Safety
    /// That of `PyObject_GetBuffer`: `view` is null, or there is room for a buffer.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Block { start, len } = slf.get().0;
        // SAFETY: the caller's promise; the interpreter is held. The memory stays in place as long as the object
        // exists, to which the buffer has a reference; Rust has no reference into the memory.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.as_ptr().cast(), len as isize, 0, flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
