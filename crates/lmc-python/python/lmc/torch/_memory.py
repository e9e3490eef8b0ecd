"""Memory of tensors as buffers."""

import ctypes
import sys

import torch
from torch import Tensor

from lmc._errors import LimitError, UnsupportedError


def check_byte_order() -> None:
    """Fails where elements in memory are not as files have them."""
    if sys.byteorder != "little":
        raise UnsupportedError("lmc.torch needs a little-endian machine; lmc.compress and lmc.decompress do not")


def memory(tensor: Tensor) -> "ctypes.Array[ctypes.c_ubyte] | bytearray":
    """The memory of a contiguous tensor on the CPU, as a writable buffer of bytes.

    It does not keep the tensor alive: whoever has it keeps the tensor, too.
    """
    size = tensor.nbytes
    return (ctypes.c_ubyte * size).from_address(tensor.data_ptr()) if size else bytearray()


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """A new tensor to be filled.

    Raises `LimitError` when there is no memory for it.
    """
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as e:
        # A CPU's allocator has no exception of its own; that of GPUs is raised as it is, for those who free memory and
        # try again.
        if isinstance(e, torch.OutOfMemoryError) or "allocate" not in str(e):
            raise
        raise LimitError(f"there is no memory for a tensor of shape {list(shape)} and {dtype}: {e}") from e


def as_bytes(tensor: Tensor) -> Tensor:
    """The same memory of a contiguous tensor, as a vector of `uint8`."""
    flat = tensor.detach().view(-1)
    # Strides of nothing are of any size.
    return flat.view(torch.uint8) if len(flat) else flat.new_empty(0, dtype=torch.uint8)
