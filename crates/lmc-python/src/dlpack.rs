//! DLPack capsules (<https://dmlc.github.io/dlpack/latest/c_api.html>): those of tensors that share a block of memory, and those of
//! tensors of other libraries.
//!
//! An array library turns a capsule into a tensor with its own storage in one call, much faster than it allocates one.
//! And a capsule passes the memory of a tensor without addresses in Python code: only native code makes capsules.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use lmc::Dtype;
use lmc::layout::tensor_len;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::memory::Block;

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

/// Tensors in a block. The block lives as long as one of them.
pub(crate) struct Tensors {
    /// The capsules' structs. The owner of a tensor may write to its struct.
    tensors: Box<[UnsafeCell<DLManagedTensor>]>,
    /// Shape and strides of each tensor, which the structs point to. Not a `Box`: moving one would invalidate pointers into it.
    _dims: Vec<i64>,
    _block: Block,
}

// SAFETY: it gives access to its fields through pointers alone, each to a separate tensor, owned by the holder of the pointer.
unsafe impl Send for Tensors {}
// SAFETY: as above.
unsafe impl Sync for Tensors {}

/// A contiguous tensor in a block, starting at byte `start`.
pub(crate) struct Place<'a> {
    pub(crate) start: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [u64],
}

impl Tensors {
    /// # Panics
    /// If a tensor is empty or not within the block, or if its dtype is unknown to [`bytes_of`].
    pub(crate) fn new(block: Block, places: &[Place<'_>]) -> Self {
        let mut dims = vec![0; 2 * places.iter().map(|p| p.shape.len()).sum::<usize>()];
        let (mut rest, mut tensors) = (&mut dims[..], Vec::with_capacity(places.len()));
        for p in places {
            let (Some(dtype), Some(len)) = (type_of(p.dtype), bytes_of(p.dtype, p.shape)) else {
                panic!("no size is known for a tensor of {:?} and shape {:?}", p.dtype, p.shape)
            };
            assert!(0 < len && len <= block.len() && p.start <= block.len() - len, "a tensor is outside of its block");
            let (own, others) = rest.split_at_mut(2 * p.shape.len());
            rest = others;
            let (sizes, strides) = own.split_at_mut(p.shape.len());
            let mut stride = 1;
            for ((size, to), &n) in sizes.iter_mut().zip(strides.iter_mut()).zip(p.shape).rev() {
                (*size, *to) = (n as i64, stride);
                stride *= n as i64;
            }
            let dl_tensor = DLTensor {
                // SAFETY: it is within the block.
                data: unsafe { block.start().add(p.start) }.as_ptr().cast(),
                device: DLDevice { device_type: CPU, device_id: 0 },
                ndim: p.shape.len() as i32,
                dtype,
                shape: sizes.as_mut_ptr(),
                strides: strides.as_mut_ptr(),
                byte_offset: 0,
            };
            let none = std::ptr::null_mut();
            tensors.push(UnsafeCell::new(DLManagedTensor { dl_tensor, manager_ctx: none, deleter: Some(delete) }));
        }
        Self { tensors: tensors.into_boxed_slice(), _dims: dims, _block: block }
    }

    /// A capsule per tensor, in order. The consumer of a capsule owns its tensor from then on.
    pub(crate) fn into_capsules(self, py: Python<'_>) -> impl Iterator<Item = Result<Bound<'_, PyAny>>> {
        let all = Arc::new(self);
        (0..all.tensors.len()).map(move |i| {
            let managed = all.tensors[i].get();
            // SAFETY: this tensor has no other owner: there is one iterator, which yields it once.
            unsafe { (*managed).manager_ctx = Arc::into_raw(all.clone()).cast_mut().cast() };
            // SAFETY: the interpreter is held, the pointer is not null, and the name is static. Only its destructor or
            // the consumer deletes the tensor that it points to: by DLPack, the consumer renames the capsule.
            let made = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(drop_capsule)) };
            if made.is_null() {
                // SAFETY: it was given an owner above, and no capsule has it.
                unsafe { delete(managed) };
                return Err(PyErr::fetch(py).into());
            }
            // SAFETY: it is a new reference.
            Ok(unsafe { Bound::from_owned_ptr(py, made) })
        })
    }
}

/// Name of a capsule whose tensor was not taken yet.
const NAME: &CStr = c"dltensor";
/// Its name afterwards, which the destructors of other libraries know.
const USED: &CStr = c"used_dltensor";

const CPU: i32 = 1;
/// Main memory that CUDA or ROCm has pinned.
const PINNED: [i32; 2] = [3, 11];

/// Code and bits of a dtype that DLPack has had from the start, or for long enough.
fn type_of(dtype: Dtype) -> Option<DLDataType> {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const COMPLEX: u8 = 5;
    const BOOL: u8 = 6;
    let code = match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => INT,
        Dtype::U8 => UINT,
        Dtype::F16 | Dtype::F32 | Dtype::F64 => FLOAT,
        Dtype::Bf16 => BFLOAT,
        Dtype::C64 => COMPLEX,
        Dtype::Bool => BOOL,
        _ => return None,
    };
    Some(DLDataType { code, bits: u8::try_from(dtype.bits()).ok()?, lanes: 1 })
}

/// Size in bytes of a contiguous tensor; `None` if its dtype is not supported, or if the size overflows.
pub(crate) fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<usize> {
    type_of(dtype)?;
    usize::try_from(tensor_len(dtype, shape)?).ok()
}

/// Deletes a tensor. Callable by any thread, with or without the interpreter.
///
/// # Safety
/// `tensor` is one of [`Tensors`] that has an owner, and is not used again.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
    // SAFETY: the caller's promise: the pointer comes from `Arc::into_raw`; this is its only reference, and it keeps
    // `tensor` in place until it is read.
    unsafe { drop(Arc::from_raw((*tensor).manager_ctx.cast::<Tensors>())) };
}

/// Deletes the tensor of a capsule unless it was taken.
///
/// # Safety
/// The interpreter is held, and `capsule` was made by [`Tensors::into_capsules`].
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller's promise. Of a capsule of this name the tensor is still there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

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
