//! DLPack capsules of tensors that share a block of memory (<https://dmlc.github.io/dlpack/latest/c_api.html>).
//!
//! An array library turns a capsule into a tensor with its own storage in one call, much faster than it allocates one.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use lmc::{Dtype, tensor_len};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::Result;
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

    /// A capsule per tensor, in order. Whoever takes a capsule owns its tensor from then on.
    pub(crate) fn into_capsules(self, py: Python<'_>) -> impl Iterator<Item = Result<Bound<'_, PyAny>>> {
        let all = Arc::new(self);
        (0..all.tensors.len()).map(move |i| {
            let managed = all.tensors[i].get();
            // SAFETY: this tensor has no other owner: there is one iterator, which yields it once.
            unsafe { (*managed).manager_ctx = Arc::into_raw(all.clone()).cast_mut().cast() };
            // SAFETY: the interpreter is held, the pointer is not null, and the name is static. Nobody but its destructor or who takes the
            // tensor deletes what it points to: DLPack has it that who takes it renames the capsule.
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
const CPU: i32 = 1;

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
    // SAFETY: the caller's promise: it comes from `Arc::into_raw`, of which this is the one reference, and which keeps `tensor` where it is
    // until it is read.
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
