//! DLPack capsules (<https://dmlc.github.io/dlpack/latest/c_api.html>) of tensors of other libraries: they pass the memory of a tensor
//! without addresses in Python code, as only native code makes capsules.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

#[repr(C)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    dl_tensor: DLTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// Name of a capsule whose tensor was not taken yet.
const NAME: &CStr = c"dltensor";
/// Its name afterwards, which the destructors of other libraries know.
const USED: &CStr = c"used_dltensor";

const CPU: i32 = 1;
/// Main memory that CUDA or ROCm has pinned.
const PINNED: [i32; 2] = [3, 11];

/// A contiguous tensor of another library in main memory, which keeps its memory until it is dropped.
pub(crate) struct Imported {
    tensor: NonNull<DLManagedTensor>,
    start: *mut u8,
    len: usize,
}

// SAFETY: it owns its tensor, whose fields it only reads. DLPack binds a tensor to no thread; its deleter is called with the interpreter.
unsafe impl Send for Imported {}
// SAFETY: as above; `&Imported` gives no access to the memory.
unsafe impl Sync for Imported {}

impl Imported {
    /// Takes the tensor of a capsule, which is then used up.
    ///
    /// # Errors
    /// `TypeError` if it is no capsule of DLPack, or one that is used up; `UsageError` for a tensor that is not in main memory or not
    /// contiguous. The capsule then stays as it was.
    pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> Result<Self> {
        // SAFETY: the interpreter is held, the object is alive, and the name is static.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) } == 0 {
            let class = capsule.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
            let why = format!("expected a DLPack capsule \"dltensor\" that was not used before, not {class}");
            return Err(PyTypeError::new_err(why).into());
        }
        // SAFETY: as above; the capsule is valid.
        let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
        let Some(tensor) = NonNull::new(found.cast::<DLManagedTensor>()) else {
            return Err(PyErr::fetch(capsule.py()).into());
        };
        // SAFETY: Python code makes no capsules, so native code made this one, and a capsule of this name has a tensor that is valid until
        // it is taken. The interpreter is held, so no other code takes it meanwhile.
        let (start, len) = unsafe { extent(&tensor.as_ref().dl_tensor) }.map_err(Failure::usage)?;
        // SAFETY: the capsule is valid, and the name is static. From now on its destructor leaves the tensor alone, and
        // no other code takes it: it is ours.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()).into());
        }
        Ok(Self { tensor, start, len })
    }

    /// Where its memory is: [`Self::len`] bytes that are valid as long as `self`. Null is possible where there are none, and, for tensors
    /// that have no memory of their own, where there should be some: then it is no tensor to read.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes of its elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn shape(&self) -> Vec<u64> {
        // SAFETY: the tensor is ours and valid.
        let shape = unsafe { sizes(&self.tensor.as_ref().dl_tensor) };
        // `extent` has checked that none is negative.
        shape.iter().map(|&n| n.unsigned_abs()).collect()
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // Without an interpreter, objects that own the memory cannot be released.
        Python::try_attach(|_| {
            let tensor = self.tensor.as_ptr();
            // SAFETY: the tensor is ours, and is not used again. DLPack permits a deleter that is null.
            unsafe {
                if let Some(delete) = (*tensor).deleter {
                    delete(tensor);
                }
            }
        });
    }
}

/// The dimensions of a tensor.
///
/// # Safety
/// `shape` points to `ndim` numbers that do not change as long as the tensor is borrowed.
unsafe fn sizes(tensor: &DLTensor) -> &[i64] {
    match usize::try_from(tensor.ndim) {
        Ok(n) if n > 0 && !tensor.shape.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(tensor.shape, n) }
        }
        _ => &[],
    }
}

/// Start and size of the memory of a tensor, or an error message.
///
/// # Safety
/// The tensor is valid, as DLPack defines it.
unsafe fn extent(tensor: &DLTensor) -> Result<(*mut u8, usize), String> {
    let DLDevice { device_type, .. } = tensor.device;
    if device_type != CPU && !PINNED.contains(&device_type) {
        return Err(format!("a DLPack tensor must be in main memory, not on a device of type {device_type}"));
    }
    // SAFETY: a valid tensor has `ndim` dimensions.
    let shape = unsafe { sizes(tensor) };
    let DLDataType { bits, lanes, .. } = tensor.dtype;
    let bits = usize::from(bits) * usize::from(lanes);
    let count = shape.iter().try_fold(1_usize, |count, &n| count.checked_mul(usize::try_from(n).ok()?));
    let len = count.and_then(|n| n.checked_mul(bits / 8)).filter(|&len| isize::try_from(len).is_ok());
    let Some(len) = len.filter(|_| bits > 0 && bits.is_multiple_of(8) && tensor.ndim >= 0) else {
        return Err(format!("a DLPack tensor of shape {shape:?} and {bits} bits each has no size in bytes"));
    };
    if len > 0 && !tensor.strides.is_null() && !shape.is_empty() {
        // SAFETY: a valid tensor has as many strides as dimensions, or none.
        let strides = unsafe { std::slice::from_raw_parts(tensor.strides, shape.len()) };
        let mut expected = 1_i64;
        for (&n, &stride) in shape.iter().zip(strides).rev() {
            if n != 1 && stride != expected {
                return Err(format!("a DLPack tensor must be contiguous: shape {shape:?} has strides {strides:?}"));
            }
            // Less than `len`.
            expected *= n;
        }
    }
    let data = tensor.data.cast::<u8>();
    let start = match usize::try_from(tensor.byte_offset) {
        Ok(offset) if !data.is_null() => data.wrapping_add(offset),
        _ => data,
    };
    Ok((start, len))
}

/// The memory of a tensor of another library, to be read or written like a buffer; it keeps the memory, and is faster to make than a buffer
/// of numpy. The library must have exported it as writable, and must not resize it meanwhile.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct DlpackMemory(pub(crate) Imported);

#[pymethods]
impl DlpackMemory {
    #[new]
    #[pyo3(signature = (capsule, /))]
    fn new(capsule: &Bound<'_, PyAny>) -> Result<Self> {
        let tensor = Imported::take(capsule)?;
        if tensor.start().is_null() && tensor.len() > 0 {
            return Err(Failure::usage(format!("a DLPack tensor of {} bytes has no memory", tensor.len())));
        }
        Ok(Self(tensor))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
