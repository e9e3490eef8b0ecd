//! Memory of Python objects: buffers to read, buffers to write, and `bytes` under construction. With `memory.rs` and `dlpack.rs` the only
//! `unsafe` of this crate.
//!
//! Other threads may write to a buffer while it is read without the GIL. So no reference is made to memory that can change: unless a
//! [`Buffer`] is a `bytes` object, the codec gets copies of a block at a time, made by [`load`]. Of bytes that change meanwhile each is
//! copied as it was at some time; the codec compares bytes that it reads twice.
//!
//! A buffer to be written belongs to the callee while it runs, as with `readinto`; callers must ensure it ([`Writable`]).

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use lmc::ReadAt;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::dlpack::{DlpackMemory, Imported};
use crate::errors::{Failure, Result};
use crate::memory::expect_writes;

/// A view of an object's memory, which keeps its address and size as long as the view lives.
struct View {
    start: *mut u8,
    len: usize,
    kept: Kept,
}

/// Keeps the memory in place.
enum Kept {
    Buffer(Box<ffi::Py_buffer>),
    Memory(#[expect(dead_code, reason = "it is kept, and not used")] Py<DlpackMemory>),
    Tensor(#[expect(dead_code, reason = "it is kept, and not used")] Imported),
}

// SAFETY: it is a pointer to memory that is kept in place until the view is dropped, and fields that never change. A `Py_buffer` is
// released in `drop`, while attached to the interpreter, by whatever thread; `Py` and `Imported` may be sent.
unsafe impl Send for View {}
// SAFETY: as above; the memory is accessed through `&View` only by the atomic loads of `Buffer`.
unsafe impl Sync for View {}

/// Why an object's memory is not used.
enum Refusal {
    /// The exporter's reason.
    Exporter(PyErr),
    /// Its elements are not plain data, but this.
    Holds(&'static str),
}

impl View {
    /// The memory of an object, unless its elements are not plain data.
    fn get(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> Result<Self, Refusal> {
        if let Ok(memory) = object.cast_exact::<DlpackMemory>() {
            let DlpackMemory(tensor) = memory.get();
            return Ok(Self::new(tensor.start(), tensor.len(), Kept::Memory(memory.clone().unbind())));
        }
        if object.is_exact_instance_of::<PyBytes>() {
            return Self::of_exporter(object, flags).map_err(Refusal::Exporter);
        }
        // Some exporters have no format for their elements, and export only when no format is requested.
        let (view, holds) = match Self::of_exporter(object, flags | ffi::PyBUF_ND | ffi::PyBUF_FORMAT) {
            Ok(view) => {
                let holds = view.format().and_then(no_data);
                (view, holds)
            }
            Err(_) => (Self::of_exporter(object, flags).map_err(Refusal::Exporter)?, has_objects(object)),
        };
        match holds {
            Some(what) => Err(Refusal::Holds(what)),
            None => Ok(view),
        }
    }

    /// The elements' format, in the syntax of Python's `struct`, if it was requested and given.
    fn format(&self) -> Option<&[u8]> {
        let Kept::Buffer(view) = &self.kept else { return None };
        // SAFETY: an exporter fills in null or a string that lives until the buffer is released.
        (!view.format.is_null()).then(|| unsafe { CStr::from_ptr(view.format) }.to_bytes())
    }

    fn of_exporter(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: `object` is alive, the interpreter is held, and `view` has room for a `Py_buffer`.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: zeros are a valid `Py_buffer`, and the call filled it in. A `Box` keeps the address, which exporters may have noted.
        let view: Box<ffi::Py_buffer> = unsafe { Box::from_raw(Box::into_raw(view).cast()) };
        Ok(Self::new(view.buf.cast(), usize::try_from(view.len).unwrap_or(0), Kept::Buffer(view)))
    }

    fn new(start: *mut u8, len: usize, kept: Kept) -> Self {
        // Exporters may give null for empty memory.
        let start = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { start };
        Self { start, len, kept }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn start(&self) -> *mut u8 {
        self.start
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.start().addr();
        start..start + self.len()
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.addresses(), other.addresses());
        a.start < b.end && b.start < a.end
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let Kept::Buffer(view) = &mut self.kept else { return };
        // Without an interpreter the buffer cannot be released.
        Python::try_attach(|_| {
            // SAFETY: it was filled in by `PyObject_GetBuffer` and is released once, while the interpreter is held.
            unsafe { ffi::PyBuffer_Release(&raw mut **view) }
        });
    }
}

const OBJECTS: &str = "Python objects";
const ADDRESSES: &str = "addresses";

/// The contents of elements of a format that are not plain data; `None` for plain data. Names of fields, between
/// colons, may contain any letters.
fn no_data(format: &[u8]) -> Option<&'static str> {
    let mut in_name = false;
    format.iter().find_map(|&c| {
        in_name ^= c == b':';
        match c {
            _ if in_name => None,
            b'O' => Some(OBJECTS),
            // Pointers to text, to the next element, and to functions.
            b'P' | b'z' | b'&' | b'X' => Some(ADDRESSES),
            _ => None,
        }
    })
}

/// Whether an array without a format has object fields.
fn has_objects(object: &Bound<'_, PyAny>) -> Option<&'static str> {
    let has = object.getattr("dtype").and_then(|dtype| dtype.getattr("hasobject")).and_then(|has| has.is_truthy());
    has.unwrap_or(false).then_some(OBJECTS)
}

/// Whether an object exports memory of any kind.
pub(crate) fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is alive, and the interpreter is held.
    object.is_exact_instance_of::<DlpackMemory>() || unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

fn refused(object: &Bound<'_, PyAny>, expected: &str, why: Refusal) -> Failure {
    let py = object.py();
    let class = object.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
    match why {
        Refusal::Holds(what) => Failure::usage(format!("{expected}; this {class} holds {what}, not data")),
        Refusal::Exporter(_) if !is_buffer(object) => PyTypeError::new_err(format!("{expected}, not {class}")).into(),
        Refusal::Exporter(e) => Failure::usage(format!("{expected}; this {class} is none: {}", e.value(py))),
    }
}

/// A C-contiguous buffer to read, of elements of any type, as bytes.
pub(crate) struct Buffer {
    view: View,
    /// Whether it is the memory of a `bytes` object, whose contents never change.
    immutable: bool,
}

impl Buffer {
    /// `expected` is the start of the error message.
    pub(crate) fn get(object: &Bound<'_, PyAny>, expected: &str) -> Result<Self> {
        Self::get_or(object, || expected.to_owned())
    }

    /// Reads the memory of a tensor of another library.
    pub(crate) fn of_tensor(tensor: Imported) -> Self {
        let (start, len) = (tensor.start(), tensor.len());
        Self { view: View::new(start, len, Kept::Tensor(tensor)), immutable: false }
    }

    /// [`Self::get`] with a message that is built only on error.
    pub(crate) fn get_or(object: &Bound<'_, PyAny>, expected: impl FnOnce() -> String) -> Result<Self> {
        let view = View::get(object, ffi::PyBUF_SIMPLE).map_err(|e| refused(object, &expected(), e))?;
        Ok(Self { view, immutable: is_of_bytes(object) })
    }

    pub(crate) fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether it shares memory with a buffer to be written.
    pub(crate) fn overlaps(&self, out: &Writable) -> bool {
        self.view.overlaps(&out.0)
    }
}

/// Whether a buffer is a `bytes` object, or a `memoryview` of one. Other read-only memory may be writable through another object.
fn is_of_bytes(object: &Bound<'_, PyAny>) -> bool {
    if !object.is_exact_instance_of::<PyMemoryView>() {
        return object.is_exact_instance_of::<PyBytes>();
    }
    object.getattr("obj").is_ok_and(|of| of.is_exact_instance_of::<PyBytes>())
}

/// Whether any two buffers share memory.
pub(crate) fn overlap<'b>(buffers: impl Iterator<Item = &'b Buffer>) -> bool {
    any_overlap(buffers.map(|b| &b.view))
}

fn any_overlap<'v>(views: impl Iterator<Item = &'v View>) -> bool {
    let mut ranges: Vec<_> = views.map(View::addresses).filter(|r| !r.is_empty()).collect();
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.windows(2).any(|two| two[1].start < two[0].end)
}

impl ReadAt for Buffer {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.len() as u64);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        // SAFETY: `offset` and as many bytes as `buf` has are within the view, which keeps the memory in place.
        unsafe { load(self.view.start().add(offset as usize), buf) };
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: it is memory of a `bytes` object, whose contents must not change while it has any reference but its maker's; the view has
        // one, or has one to the `memoryview` that has it.
        self.immutable.then(|| unsafe { std::slice::from_raw_parts(self.view.start(), self.len()) })
    }

    fn read_elements_at(&self, width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        assert_eq!(out.len(), width * offsets.len(), "room for each element");
        match width {
            2 => self.load_elements::<2>(offsets, out),
            4 => self.load_elements::<4>(offsets, out),
            8 => self.load_elements::<8>(offsets, out),
            _ => offsets.iter().zip(out.chunks_mut(width.max(1))).try_for_each(|(&o, to)| self.read_exact_at(to, o)),
        }
    }
}

impl Buffer {
    /// Elements of `W` bytes at these offsets.
    fn load_elements<const W: usize>(&self, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        for (&offset, to) in offsets.iter().zip(out.as_chunks_mut::<W>().0) {
            let end = offset.checked_add(W as u64).filter(|&end| end <= self.len() as u64);
            end.ok_or(io::ErrorKind::UnexpectedEof)?;
            // SAFETY: all bytes of the element are within the view, which keeps the memory in place.
            unsafe { load_element(self.view.start().add(offset as usize), to) };
        }
        Ok(())
    }
}

/// Copies an element of memory that may change concurrently: at once if it is aligned, as those of tensors are.
///
/// # Safety
/// That of [`load_bytes`].
#[inline(always)]
unsafe fn load_element<const W: usize>(from: *const u8, to: &mut [u8; W]) {
    macro_rules! at_once {
        ($atomic:ty) => {
            if from.cast::<$atomic>().is_aligned() {
                // SAFETY: the caller's promise, and it is aligned. A relaxed atomic load of at most a word may read read-only memory.
                let element = unsafe { (*from.cast::<$atomic>()).load(Ordering::Relaxed) };
                to.copy_from_slice(&element.to_ne_bytes());
                return;
            }
        };
    }
    match W {
        2 => at_once!(AtomicU16),
        4 => at_once!(AtomicU32),
        8 => at_once!(AtomicU64),
        _ => {}
    }
    // SAFETY: the caller's promise.
    unsafe { load_bytes(from, to) };
}

/// Copies memory that may change concurrently.
///
/// # Safety
/// From `from` on there are as many readable bytes as `to` has. They may be written to by other threads.
#[cfg(target_arch = "x86_64")]
unsafe fn load(from: *const u8, to: &mut [u8]) {
    const LINE: usize = 64;
    let (lines, rest) = to.split_at_mut(to.len() / LINE * LINE);
    if !lines.is_empty() {
        // SAFETY: the caller's promise; all registers and flags that change are named. Concurrent writes of another
        // thread make no difference to the instructions, which read bytes as they are, nor to the compiler, which does
        // not know of the reads. So it is as if each byte were loaded atomically and relaxed. Only `lines` is written,
        // which is ours.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {count}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) lines.as_mut_ptr() => _,
                count = inout(reg) lines.len() / LINE => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    // SAFETY: all lines are within the caller's range, and `rest` follows them.
    unsafe { load_bytes(from.add(lines.len()), rest) };
}

/// [`load`] a word at a time.
///
/// # Safety
/// That of [`load_bytes`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn load(mut from: *const u8, to: &mut [u8]) {
    const WORD: usize = size_of::<u64>();
    let (head, rest) = to.split_at_mut(from.align_offset(WORD).min(to.len()));
    // SAFETY: the caller's promise.
    unsafe { load_bytes(from, head) };
    // SAFETY: within the caller's range.
    from = unsafe { from.add(head.len()) };
    let (lines, rest) = rest.as_chunks_mut::<{ 8 * WORD }>();
    for line in lines {
        let word = |i| {
            // SAFETY: the caller's promise; `from` is aligned to a word, and a line has eight. A relaxed atomic load of at most a word may
            // read read-only memory.
            unsafe { (*from.cast::<AtomicU64>().add(i)).load(Ordering::Relaxed) }
        };
        let words: [u64; 8] = std::array::from_fn(word);
        for (to, word) in line.as_chunks_mut::<WORD>().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        // SAFETY: within the caller's range.
        from = unsafe { from.add(line.len()) };
    }
    // SAFETY: the rest of the caller's range.
    unsafe { load_bytes(from, rest) };
}

/// A few bytes, by atomic loads.
///
/// # Safety
/// From `from` on there are as many readable bytes as `to` has. They may be written to by other threads.
unsafe fn load_bytes(from: *const u8, to: &mut [u8]) {
    for (i, byte) in to.iter_mut().enumerate() {
        // SAFETY: the caller's promise. A relaxed atomic load of at most a word may read read-only memory.
        *byte = unsafe { (*from.add(i).cast::<AtomicU8>()).load(Ordering::Relaxed) };
    }
}

/// A writable C-contiguous buffer, of elements of any type, as bytes.
///
/// A caller must not touch a buffer passed to a function of this package until the function returns; each function documents it. Otherwise
/// the contents are unspecified, or the function fails. It is still safe: no length, index or branch that safety depends on is read back
/// from the buffer.
pub(crate) struct Writable(View);

impl Writable {
    pub(crate) fn get(object: &Bound<'_, PyAny>) -> Result<Self> {
        let expected = "out must be a writable C-contiguous buffer";
        View::get(object, ffi::PyBUF_WRITABLE).map(Self).map_err(|e| refused(object, expected, e))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// [`Self::as_mut_slice`], for callers that overwrite all of it.
    pub(crate) fn expecting_writes(&mut self) -> &mut [u8] {
        let memory = self.as_mut_slice();
        expect_writes(memory);
        memory
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the view keeps the memory in place, the exporter said that it may be written, and all of it has values. No other
        // reference to it is made here: callers check that buffers of one call do not overlap, and the caller of ours leaves it alone
        // meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.len()) }
    }
}

/// Fails if two buffers to be written share memory.
pub(crate) fn check_disjoint(outs: &[Writable]) -> Result<()> {
    if any_overlap(outs.iter().map(|o| &o.0)) {
        return Err(Failure::usage("two of the buffers to be written share memory"));
    }
    Ok(())
}

/// A `bytes` object under construction, not visible to Python yet.
pub(crate) struct FreshBytes {
    object: Py<PyBytes>,
    start: *mut u8,
    len: usize,
}

// SAFETY: it points into its own object, which is never moved; `Py` may be sent.
unsafe impl Send for FreshBytes {}

impl FreshBytes {
    /// # Errors
    /// `LimitError` when memory runs out.
    pub(crate) fn new(py: Python<'_>, len: u64) -> Result<Self> {
        let too_much = || {
            let why = format!("out of memory for {len} bytes: decompress to a file, or read parts");
            Failure::Other("LimitError", why)
        };
        let size = ffi::Py_ssize_t::try_from(len).map_err(|_| too_much())?;
        // SAFETY: the interpreter is held. With a null pointer it makes an object whose contents are to be filled in.
        let object = unsafe { ffi::PyBytes_FromStringAndSize(std::ptr::null(), size) };
        if object.is_null() {
            drop(PyErr::take(py));
            return Err(too_much());
        }
        // SAFETY: it is a new reference to a `bytes` object.
        let object = unsafe { Bound::from_owned_ptr(py, object).cast_into_unchecked::<PyBytes>() };
        // SAFETY: it is a `bytes` object.
        let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast();
        let mut fresh = Self { object: object.unbind(), start, len: size as usize };
        expect_writes(fresh.as_mut_slice());
        Ok(fresh)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: no other code has seen the object (the empty one, which is shared, has no bytes to write). Its memory
        // comes from an allocator that Rust does not know: its bytes have some values, which the codec overwrites
        // before it reads them.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The finished object.
    pub(crate) fn finish(self) -> Py<PyBytes> {
        self.object
    }
}
