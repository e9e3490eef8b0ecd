"""The changes of a tensor."""

from dataclasses import dataclass
from typing import Any

from lmc._errors import UsageError
from lmc.sync._library import Library


@dataclass(frozen=True, repr=False)
class Patch:
    """Elements of a tensor that changed, with their new values, as `update.patches()` returns them.

    Elements are counted through the whole tensor, the last dimension contiguous. Those of fewer than 8 bits are counted
    in bytes.
    """

    name: str
    """The tensor's name."""
    start: int
    """The first element that it covers."""
    stop: int
    """The element after the last one."""
    indices: Any | None
    """The elements that changed, ascending, as integers of 64 bits; `None` for all that it covers."""
    values: Any
    """Their new values."""
    _library: Library
    _like: Any

    def write(self, tensor: Any) -> None:
        """Writes the values to a contiguous tensor of the same dtype and shape, on any device.

        Raises `lmc.UsageError` for any other one.
        """
        if tensor.dtype != self._like.dtype or tensor.shape != self._like.shape:
            raise UsageError(
                f"tensor {self.name!r} is {self._like.dtype} of shape {list(self._like.shape)}, and what the patch is"
                f" to be written to {tensor.dtype} of shape {list(tensor.shape)}"
            )
        self._library.write(tensor, self.start, self.stop, self.indices, self.values)

    def __repr__(self) -> str:
        return f"Patch(name={self.name!r}, {len(self.values)} elements of {self.start}..{self.stop})"
