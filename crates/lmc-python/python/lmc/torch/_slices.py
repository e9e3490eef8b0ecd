"""Slices of a tensor; only the blocks that hold them are decoded."""

import operator
from numbers import Integral
from types import EllipsisType
from typing import Any, Final

import torch
from torch import Tensor

from lmc._lmc import Tensor as Entry
from lmc.torch._dtypes import CARRIERS, torch_type
from lmc.torch._file import TensorFile
from lmc.torch._memory import empty

# About a block, the least that can be decoded: a gap between two rows is skipped if it is at least as long.
_BLOCK: Final = 1 << 20
# Bytes that are decoded at once to select elements from.
_PIECE: Final = 64 << 20


class TensorSlice:
    """A tensor that is read by indexing: `safe_open.get_slice(name)[:, 4:8]`."""

    def __init__(self, file: TensorFile, entry: Entry, device: torch.device) -> None:
        self._file = file
        self._entry = entry
        self._device = device
        self._dtype, self._shape = torch_type(entry.name, entry.dtype, entry.shape)

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor in elements, as in the file."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """The dtype as in the file, such as `"BF16"`."""
        return self._entry.dtype

    def __getitem__(self, index: Any) -> Tensor:
        """Reads `tensor[index]` into a new contiguous tensor on the device that the file was opened for.

        Integers, slices, `...` and `None` take memory for the result and at most 64 MiB more; for any other index of
        torch the whole tensor is decoded. Raises what torch raises for an invalid index, such as `IndexError`.
        """
        self._file.entries()  # fails once it is closed
        index = _with_ints(index)
        carrier = CARRIERS[self._dtype.itemsize]
        if _is_basic(index):
            # A tensor without memory: torch computes the strides, and rejects invalid indices.
            view = torch.empty(self._shape, dtype=carrier, device="meta")[index]
            part = empty(tuple(view.shape), carrier)
            self._fill(part, view)
        else:
            whole = empty(self._shape, carrier)
            self._file.read([(self._entry, whole)])
            part = whole[_on_cpu(index)]
            # A view would keep the whole tensor's memory alive.
            part = part.clone() if part.untyped_storage().nbytes() > part.nbytes else part.contiguous()
        return part.view(self._dtype).to(self._device)

    def _fill(self, part: Tensor, view: Tensor) -> None:
        """Reads the elements of a view of the whole tensor."""
        if not part.numel():
            return
        gaps = [(n - 1) * stride for n, stride in zip(view.shape, view.stride(), strict=True)]
        extent, size = 1 + sum(gaps), part.itemsize
        if extent == part.numel() and view.is_contiguous() and part.is_contiguous():
            self._file.read_elements(self._entry, int(view.storage_offset()), part)
            return
        outermost = max(range(view.dim()), key=gaps.__getitem__)
        rows, stride = view.shape[outermost], view.stride(outermost)
        skipped = stride - (extent - gaps[outermost])
        if rows > 1 and (extent * size > _PIECE or skipped * size >= _BLOCK):
            half = rows // 2
            for start, length in ((0, half), (half, rows - half)):
                self._fill(part.narrow(outermost, start, length), view.narrow(outermost, start, length))
            return
        piece = empty((extent,), part.dtype)
        self._file.read_elements(self._entry, int(view.storage_offset()), piece)
        part.copy_(piece.as_strided(view.shape, view.stride()))


def _on_cpu(index: Any) -> Any:
    """Moves tensors in an index to the CPU, as a tensor on the CPU cannot be indexed by others."""
    if isinstance(index, tuple):
        return tuple(map(_on_cpu, index))
    if isinstance(index, list):
        return list(map(_on_cpu, index))
    return index.cpu() if isinstance(index, Tensor) else index


def _with_ints(index: Any) -> Any:
    """An index with integers of any library as those of Python; a boolean is none."""
    if isinstance(index, tuple):
        return tuple(map(_with_ints, index))
    return operator.index(index) if isinstance(index, Integral) and not isinstance(index, bool) else index


def _is_basic(index: Any) -> bool:
    """Whether an index selects a grid of elements."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or type(part) is int or isinstance(part, slice | EllipsisType) for part in parts)
