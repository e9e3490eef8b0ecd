//! Memory that many tensors are in, and the DLPack capsules that hand it to other packages (<https://dmlc.github.io/dlpack/latest/c_api.html>).
//!
//! An array package makes of a capsule a tensor with a storage of its own, of the tensor's size, in one call, and for a fraction of what an allocation costs.
//! Memory goes back to the system a [`BLOCK`] at a time, once no tensor has any of it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use lmc::{Dtype, tensor_len};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::expect_writes;
use crate::errors::{Failure, Result};

/// Bytes of memory that go back to the system together: a huge page.
pub(crate) const BLOCK: usize = 2 << 20;

/// Memory of the system's, zeros at first, that nobody else has. Blocks of it begin at each multiple of [`BLOCK`].
pub(crate) struct Memory(Block);

impl Memory {
    /// # Errors
    /// `LimitError` when there is no memory for it.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let too_much = || Failure::Other("LimitError", format!("there is no memory for tensors of {len} bytes"));
        // Room to begin where a huge page does.
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

    /// At least as many bytes as were asked for.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped, readable and writable, has values from the start, and belongs to `self`, which is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }

    /// Its blocks, the last of which may have fewer bytes, or more.
    pub(crate) fn into_blocks(self) -> Vec<Arc<Block>> {
        let (mut rest, mut blocks) = (self.0, Vec::new());
        while rest.len > BLOCK {
            blocks.push(Arc::new(rest.split_off_front(BLOCK)));
        }
        blocks.push(Arc::new(rest));
        blocks
    }
}

/// A part of a mapping, which ends with it.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns memory that no thread is bound to, and gives nobody access by itself.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Takes fewer bytes than there are, whole pages, from the front.
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
        // SAFETY: these pages were mapped by `Memory::new`, belong to this block alone, and whoever uses them has an `Arc` of it. It begins with a page: a
        // mapping does, and what is split off ends with one.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

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

/// What a capsule points to. The first field is what others see of it.
#[repr(C)]
struct Managed {
    tensor: DLManagedTensor,
    /// Dimensions, then strides.
    dims: Box<[i64]>,
    /// What keeps the memory.
    block: Arc<Block>,
}

/// Of a capsule that nobody has taken the tensor from.
const NAME: &CStr = c"dltensor";
const CPU: i32 = 1;

/// Code and bits of a dtype that DLPack has had from the start, or long enough.
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

/// Bytes of a contiguous tensor; `None` for a dtype that no capsule is made of, and for sizes that make no sense.
pub(crate) fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<usize> {
    type_of(dtype)?;
    usize::try_from(tensor_len(dtype, shape)?).ok()
}

/// A capsule of the contiguous tensor that begins at byte `start` of a block.
///
/// # Panics
/// If the tensor has no bytes, is not within the block, or [`bytes_of`] knows no size of it.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    block: &Arc<Block>,
    start: usize,
    dtype: Dtype,
    shape: &[u64],
) -> Result<Bound<'py, PyAny>> {
    let (Some(dtype), Some(len)) = (type_of(dtype), bytes_of(dtype, shape)) else { panic!("it has no size") };
    assert!(0 < len && len <= block.len && start <= block.len - len, "the tensor is in the block");
    let mut dims = vec![0; 2 * shape.len()].into_boxed_slice();
    let (sizes, strides) = dims.split_at_mut(shape.len());
    let mut stride = 1;
    for ((size, to), &n) in sizes.iter_mut().zip(strides).zip(shape).rev() {
        (*size, *to) = (n as i64, stride);
        stride *= n as i64;
    }
    let dl_tensor = DLTensor {
        // SAFETY: it is within the block.
        data: unsafe { block.start.add(start) }.as_ptr().cast(),
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let tensor = DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(delete) };
    let managed = Box::into_raw(Box::new(Managed { tensor, dims, block: block.clone() }));
    // SAFETY: it was made above, and nobody else has it. There are twice as many dimensions as the shape has.
    unsafe {
        let dims = (*managed).dims.as_mut_ptr();
        (*managed).tensor.dl_tensor.shape = dims;
        (*managed).tensor.dl_tensor.strides = dims.add(shape.len());
    }
    // SAFETY: the interpreter is held, the pointer is not null, and the name is static. Nobody but its destructor or who takes the tensor deletes what it
    // points to: DLPack has it that who takes it renames the capsule.
    let made = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(drop_capsule)) };
    if made.is_null() {
        // SAFETY: it was made above, and there is no capsule that has it.
        drop(unsafe { Box::from_raw(managed) });
        return Err(PyErr::fetch(py).into());
    }
    // SAFETY: it is a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, made) })
}

/// Deletes a tensor. Any thread may call it, with or without the interpreter.
///
/// # Safety
/// `tensor` is that of a `Managed` which is a box's, and is not used again.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
    // SAFETY: the caller's promise; it is the first field.
    drop(unsafe { Box::from_raw(tensor.cast::<Managed>()) });
}

/// Deletes the tensor of a capsule unless somebody took it.
///
/// # Safety
/// The interpreter is held, and `capsule` was made by [`capsule`].
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller's promise. Of a capsule of this name the tensor is still there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
