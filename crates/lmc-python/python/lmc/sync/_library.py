"""The operations of torch or numpy that following and publishing need."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from lmc._lmc import Tensor as Entry

Spec: TypeAlias = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a tensor as the store has them."""


class Library(Protocol):
    """The tensors of a library."""

    def spec(self, name: str, tensor: Any) -> Spec:
        """Dtype and shape of a tensor. Raises `UsageError` when it cannot be changed in place."""

    def memory(self, tensor: Any) -> Any:
        """The memory of a tensor, as a writable buffer."""

    def written(self, tensor: Any) -> None:
        """Notes that the memory of a tensor was written to."""

    def address(self, tensor: Any) -> tuple[int, int]:
        """Where a tensor begins, and its length in bytes."""

    def packed(self, tensor: Any) -> Any:
        """The tensor itself if it is contiguous, or else a copy that is."""

    def place(self, tensor: Any) -> tuple[Any, int, int] | None:
        """Where a contiguous tensor is: the device, the first byte, and past the last one. `None` without memory."""

    def version(self, tensor: Any) -> int | None:
        """A number that changes when the tensor is written to; `None` where that is not counted."""

    def mark(self, tensor: Any) -> Any:
        """What differs after the tensor was written to, where that is counted, or got other memory."""

    def empty(self, entry: Entry, shape: tuple[int, ...]) -> Any:
        """A new tensor of the dtype of an entry."""

    def indices(self, data: bytes) -> Any:
        """A tensor of these integers of 64 bits."""

    def values(self, data: bytes, width: int, like: Any) -> Any:
        """A tensor of these elements, of the dtype of `like` or, if `width` is another, of bytes."""

    def write(self, tensor: Any, start: int, stop: int, indices: Any | None, values: Any) -> None:
        """Writes elements of a tensor, counted through all of it."""

    def given(self, tensors: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
        """Tensors to be saved as a safetensors file, and the metadata of the file."""
