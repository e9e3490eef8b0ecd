"""Tensors that come one by one, and are saved when there are enough of them."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Any

from lmc._errors import UsageError
from lmc.sync._library import Library


class Collected:
    """The tensors of a file that is not complete yet.

    A generator of tensors may write the next one to the memory of the one before. What was collected would
    change, without a trace in the file: so that is refused.
    """

    def __init__(self) -> None:
        # By device: where each begins, in order, and for each place the end of the tensor, its name and itself.
        self._starts = defaultdict[Any, list[int]](list)
        self._at = dict[tuple[Any, int], tuple[int, str, Any]]()
        self._versions = list[tuple[str, Library, Any, int | None]]()

    def add(self, library: Library, name: str, tensor: Any) -> Any:
        """The tensor to be saved: this one, or a copy in order.

        Raises `UsageError` when it overlaps one that was added, unless it is the same one, and whether that was written
        to is known.
        """
        packed = library.packed(tensor)
        version = library.version(packed)
        self._versions.append((name, library, packed, version))
        place = library.place(packed)
        if place is None:
            return packed
        device, start, stop = place
        starts = self._starts[device]
        after = bisect_right(starts, start)
        # Added tensors do not overlap: the one before this place, and the one after it, are enough.
        for other in starts[max(after - 1, 0) : after + 1]:
            other_stop, other_name, other_tensor = self._at[device, other]
            if other < stop and start < other_stop:
                if other_tensor is packed and version is not None:
                    return packed
                raise UsageError(
                    f"tensor {name!r} is in the memory of {other_name!r}, which is not saved yet: give new tensors, or"
                    " copies of them (or a mapping, if none of them is written to)"
                )
        starts.insert(bisect_left(starts, start), start)
        self._at[device, start] = stop, name, packed
        return packed

    def check(self) -> None:
        """Raises `UsageError` when one was written to since it was added."""
        for name, library, tensor, version in self._versions:
            if library.version(tensor) != version:
                raise UsageError(
                    f"tensor {name!r} was written to after it was given, and before it was saved: give a copy of it, or"
                    " new tensors"
                )
