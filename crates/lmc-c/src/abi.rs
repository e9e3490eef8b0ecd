//! The functions of `include/lmc.h`.
//!
//! Their callers keep what the header asks for, which is what each `unsafe` block relies on: a pointer is null or valid
//! for its type and length until the call returns, a string ends with a zero byte, a buffer is the caller's alone
//! during the call, and a file was opened by `lmc_open` and not closed since.
#![allow(unsafe_code, reason = "these functions take the pointers of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::{ptr, slice};

use crate::failure::{Failure, last, status};
use crate::file::{self, Opened};

/// `lmc_tensor`.
#[repr(C)]
pub(crate) struct Tensor {
    name: *const c_char,
    dtype: *const c_char,
    shape: *const u64,
    rank: usize,
    offset: u64,
    size: u64,
}

/// A string of C.
///
/// # Safety
/// `text` is null, or a string that outlives `'a`.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::usage(format!("{what} is null")));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A path.
///
/// # Safety
/// `path` is null or a string.
unsafe fn path(path: *const c_char, what: &str) -> Result<PathBuf, Failure> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { text(path, what) }?.to_bytes();
    #[cfg(unix)]
    return Ok(PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)));
    #[cfg(not(unix))]
    match std::str::from_utf8(bytes) {
        Ok(name) => Ok(PathBuf::from(name)),
        Err(_) => Err(Failure::usage(format!("{what} is not UTF-8"))),
    }
}

/// The paths of bases.
///
/// # Safety
/// `bases` is null, or has `count` pointers, each null or a string.
unsafe fn paths(bases: *const *const c_char, count: usize) -> Result<Vec<PathBuf>, Failure> {
    if count == 0 {
        return Ok(vec![]);
    }
    if bases.is_null() {
        return Err(Failure::usage(format!("bases is null, and base_count {count}")));
    }
    // SAFETY: it is not null, and the caller promises the pointers.
    let bases = unsafe { slice::from_raw_parts(bases, count) };
    // SAFETY: the caller promises the strings.
    bases.iter().map(|&base| unsafe { path(base, "a base") }).collect()
}

/// The caller's buffer. Its bytes are arbitrary, and not undefined: no compiler sees what wrote them and this code.
///
/// # Safety
/// `buffer` is null, or has `size` bytes that nothing else uses during `'a`.
unsafe fn buffer<'a>(buffer: *mut c_void, size: usize) -> Result<&'a mut [u8], Failure> {
    match (buffer.is_null(), isize::try_from(size)) {
        (true, _) if size == 0 => Ok(&mut []),
        (true, _) => Err(Failure::usage("the buffer is null")),
        (_, Err(_)) => Err(Failure::usage(format!("no buffer has {size} bytes"))),
        // SAFETY: it is not null, fits the address space, and the caller promises its bytes.
        (false, Ok(_)) => Ok(unsafe { slice::from_raw_parts_mut(buffer.cast(), size) }),
    }
}

/// An open file.
///
/// # Safety
/// `file` is null, or open and not closed during `'a`.
unsafe fn opened<'a>(file: *const Opened) -> Result<&'a Opened, Failure> {
    // SAFETY: the caller promises it.
    unsafe { file.as_ref() }.ok_or_else(|| Failure::usage("the file is null"))
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `out` is null, or valid for writing a `T`.
unsafe fn give<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::usage("the pointer to the result is null"));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    unsafe { out.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn lmc_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn lmc_error() -> *const c_char {
    last()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_open(
    name: *const c_char,
    bases: *const *const c_char,
    base_count: usize,
    out: *mut *mut Opened,
) -> c_int {
    status(|| {
        // SAFETY: see the module; the same holds of all functions below.
        let (path, bases) = unsafe {
            give(out, ptr::null_mut())?;
            (path(name, "the path")?, paths(bases, base_count)?)
        };
        let file = Box::new(Opened::new(path, &bases)?);
        // SAFETY: as above; `lmc_close` frees the box.
        unsafe { give(out, Box::into_raw(file)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_close(file: *mut Opened) {
    if !file.is_null() {
        // SAFETY: `lmc_open` made it of a box, and it is closed once.
        let file = unsafe { Box::from_raw(file) };
        status(|| {
            drop(file);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_size(file: *const Opened) -> u64 {
    // SAFETY: see the module.
    unsafe { file.as_ref() }.map_or(0, Opened::size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_tensor_count(file: *const Opened) -> usize {
    let mut count = 0;
    status(|| {
        // SAFETY: see the module.
        count = unsafe { opened(file) }?.tensors().len();
        Ok(())
    });
    count
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_tensor_info(file: *const Opened, index: usize, out: *mut Tensor) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let tensor = unsafe { opened(file) }?.tensor(index)?;
        let (name, dtype, shape) = (tensor.name.as_ptr(), tensor.dtype.as_ptr(), tensor.shape.as_ptr());
        let (rank, offset, size) = (tensor.shape.len(), tensor.offset, tensor.size);
        // SAFETY: see the module. The pointers live as long as the file.
        unsafe { give(out, Tensor { name, dtype, shape, rank, offset, size }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_tensor_find(file: *const Opened, name: *const c_char, index: *mut usize) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let (file, name) = unsafe { (opened(file)?, text(name, "the name")?) };
        let found = file.find(&name.to_string_lossy())?;
        // SAFETY: see the module.
        unsafe { give(index, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_read_tensor(file: *const Opened, index: usize, memory: *mut c_void, size: usize) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let (file, out) = unsafe { (opened(file)?, buffer(memory, size)?) };
        file.read_tensor(index, out)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_read(file: *const Opened, offset: u64, memory: *mut c_void, size: usize) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let (file, out) = unsafe { (opened(file)?, buffer(memory, size)?) };
        file.read(offset, out)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_decompress(
    name: *const c_char,
    bases: *const *const c_char,
    base_count: usize,
    memory: *mut c_void,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let (path, bases, out) = unsafe { (path(name, "the path")?, paths(bases, base_count)?, buffer(memory, size)?) };
        file::decompress(&path, &bases, out)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lmc_decompress_file(
    name: *const c_char,
    bases: *const *const c_char,
    base_count: usize,
    output: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the module.
        let (from, bases, to) =
            unsafe { (path(name, "the path")?, paths(bases, base_count)?, path(output, "the output")?) };
        file::decompress_file(&from, &bases, &to)
    })
}
