"""Memory of tensors as buffers."""

import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import dlpack

from lmc._errors import LimitError, UnsupportedError
from lmc._lmc import DlpackMemory

# It exports tensors that require gradients, too, and takes less time than the method.
to_dlpack: Final[Callable[[Tensor], Any]] = getattr(dlpack, "to_dlpack", Tensor.__dlpack__)
"""A DLPack capsule of a tensor."""


def check_byte_order() -> None:
    """Fails on big-endian machines: elements in memory would differ from those in files."""
    if sys.byteorder != "little":
        raise UnsupportedError("lmc.torch needs a little-endian machine; lmc.compress and lmc.decompress do not")


def memory(tensor: Tensor) -> DlpackMemory:
    """The memory of a contiguous tensor on the CPU as a writable buffer of bytes, which keeps it alive.

    The tensor's storage must not be resized meanwhile.
    """
    # As bytes, because older versions of torch export fewer dtypes.
    return DlpackMemory(to_dlpack(as_bytes(tensor)))


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """A new tensor to be filled.

    Raises `LimitError` when memory runs out.
    """
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as e:
        # The CPU allocator has no exception of its own; that of GPUs is passed on for callers that free memory and
        # retry.
        if isinstance(e, torch.OutOfMemoryError) or "allocate" not in str(e):
            raise
        raise LimitError(f"out of memory for a tensor of shape {list(shape)} and {dtype}: {e}") from e


def written(tensor: Tensor) -> None:
    """Lets autograd know that the memory of a tensor was written to: it may have saved the tensor."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor as a vector of `uint8`."""
    flat = tensor.detach().view(-1)
    # Empty tensors may have any strides.
    return flat.view(torch.uint8) if len(flat) else flat.new_empty(0, dtype=torch.uint8)
