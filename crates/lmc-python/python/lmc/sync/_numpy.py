"""Arrays of numpy that follow, or are published."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmc._errors import UsageError
from lmc._lmc import Tensor as Entry
from lmc._lmc import TensorList
from lmc.numpy import Array, dtype_of, given, name_of
from lmc.sync._library import Spec


class Numpy:
    """`Library` of numpy."""

    def spec(self, name: str, tensor: Array) -> Spec:
        """Dtype and shape of an array."""
        kind, swapped = name_of(tensor.dtype)
        if kind is None:
            raise UsageError(f"tensor {name!r}: safetensors has no dtype {tensor.dtype.name}")
        if swapped or not tensor.flags.c_contiguous or not tensor.flags.writeable:
            what = "big-endian" if swapped else "read-only" if not tensor.flags.writeable else "not contiguous"
            raise UsageError(f"tensor {name!r} is {what}: it cannot be changed in place")
        return name, kind, tensor.shape

    def memory(self, tensor: Array) -> Any:
        """The memory of an array."""
        # Arrays of dtypes that numpy lacks export no buffer.
        return tensor.reshape(-1).view(np.uint8)

    def written(self, tensor: Array) -> None:
        """Not counted."""

    def address(self, tensor: Array) -> tuple[int, int]:
        """Where an array begins, and its length in bytes."""
        return tensor.ctypes.data, tensor.nbytes

    def packed(self, tensor: Array) -> Array:
        """The array itself if it is contiguous, or else a copy that is."""
        return tensor if tensor.flags.c_contiguous else np.ascontiguousarray(tensor)

    def place(self, tensor: Array) -> tuple[str, int, int] | None:
        """Where an array is. Scalars have memory of their own, and cannot be written to."""
        if not isinstance(tensor, np.ndarray) or not tensor.nbytes:
            return None
        return "cpu", tensor.ctypes.data, tensor.ctypes.data + tensor.nbytes

    def version(self, tensor: Array) -> None:
        """Not counted."""

    def mark(self, tensor: Array) -> tuple[int, int]:
        """Where an array is: writes are not counted."""
        return self.address(tensor)

    def empty(self, entry: Entry, shape: tuple[int, ...]) -> Array:
        """A new array of the dtype of an entry."""
        return np.empty(shape, dtype_of(entry.dtype))

    def indices(self, data: bytes) -> Array:
        """An array of these integers of 64 bits."""
        return np.frombuffer(data, np.int64)

    def values(self, data: bytes, width: int, like: Array) -> Array:
        """An array of these elements."""
        return np.frombuffer(data, like.dtype if width == like.itemsize else np.uint8)

    def write(self, tensor: Array, start: int, stop: int, indices: Array | None, values: Array) -> None:
        """Writes elements of an array."""
        if not tensor.flags.c_contiguous or not tensor.flags.writeable:
            what = "read-only" if not tensor.flags.writeable else "not contiguous"
            raise UsageError(f"an array that is {what} cannot be changed in place")
        tensor.reshape(-1).view(values.dtype)[slice(start, stop) if indices is None else indices] = values

    def given(self, tensors: Mapping[str, Array]) -> tuple[TensorList, dict[str, str]]:
        """Arrays to be saved."""
        return given(tensors), {}
