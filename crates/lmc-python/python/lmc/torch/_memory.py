"""Memory of tensors as buffers."""

import sys

import torch
from torch import Tensor

from lmc._errors import LimitError, UnsupportedError
from lmc._lmc import RawMemory


def check_byte_order() -> None:
    """Fails where elements in memory are not as files have them."""
    if sys.byteorder != "little":
        raise UnsupportedError("lmc.torch needs a little-endian machine; lmc.compress and lmc.decompress do not")


def memory(tensor: Tensor) -> RawMemory:
    """The memory of a contiguous tensor on the CPU, which it keeps, as a writable buffer of bytes.

    Whoever has it leaves the storage of the tensor as large as it is.
    """
    return RawMemory(tensor, tensor.data_ptr(), tensor.nbytes)


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
