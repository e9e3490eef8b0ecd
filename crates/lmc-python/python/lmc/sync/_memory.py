"""The memory of tensors that follow: who else wrote to it, and which names share it."""

from collections.abc import Mapping, Set
from typing import Any, TypeAlias

from lmc._errors import UsageError
from lmc._lmc import TensorFollower
from lmc.sync._library import Library, Spec

RowSpec: TypeAlias = tuple[str, str, tuple[int, ...], int | None]
"""Name, dtype and shape of a tensor, and its first row unless it has all."""


class Memory:
    """Tensors that follow, in the order in which the native follower has them, and what they were like when it wrote to
    them last."""

    def __init__(self, library: Library, rows: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.tensors = dict[str, Any]()
        self._library = library
        self._rows = rows or {}
        self._specs = dict[str, RowSpec]()
        self._marks = dict[str, Any]()
        # Other names of their memory: the tensor of each, and the name that follows.
        self._others = dict[str, tuple[Any, str]]()
        # Names of tensors that hold nothing of the version.
        self._empty = set[str]()

    def specs(self, tensors: Mapping[str, Any]) -> list[RowSpec]:
        """Tensors for the native follower. Raises `UsageError` when one cannot be changed in place."""
        return [self._spec(name, tensor) for name, tensor in tensors.items()]

    def add(self, tensors: Mapping[str, Any]) -> None:
        """Adds tensors that hold nothing."""
        self._specs.update((spec[0], spec) for spec in self.specs(tensors))
        self.tensors.update(tensors)
        self._empty.update(tensors)
        self._marks.update((name, self._library.mark(tensor)) for name, tensor in tensors.items())

    def tie(self, native: TensorFollower, tensors: Mapping[str, Any], others: Mapping[str, str]) -> None:
        """Adds tensors by the names of those whose memory they share."""
        numbers = {name: number for number, name in enumerate(self.tensors)}
        native.tie([(name, numbers[kept]) for name, kept in others.items()])
        self._others.update((name, (tensors[name], kept)) for name, kept in others.items())

    def buffers(self) -> list[Any]:
        """The memory of all, for the native follower."""
        return [self._library.memory(tensor) for tensor in self.tensors.values()]

    def hold(self) -> None:
        """Says that all hold a version now."""
        self._empty.clear()
        self._marks = {name: self._library.mark(tensor) for name, tensor in self.tensors.items()}

    @property
    def is_held(self) -> bool:
        """Whether all hold a version, as far as `notice` found out."""
        return not self._empty

    def notice(self, native: TensorFollower) -> list[str]:
        """Finds tensors that somebody else wrote to, or that got other memory, and tells the native follower. Returns
        their names, without those that held nothing before.

        Raises `UsageError` when one is not what it was any more.
        """
        marks = {name: self._library.mark(tensor) for name, tensor in self.tensors.items()}
        changed = [name for name, mark in marks.items() if mark != self._marks[name]]
        if changed or self._others:
            self.check(changed)
        lost = [name for name in changed if name not in self._empty]
        if lost:
            numbers = {name: number for number, name in enumerate(self.tensors)}
            native.forget([numbers[name] for name in lost])
            self._empty.update(lost)
        self._marks = marks
        return lost

    def check(self, names: list[str] | None = None) -> None:
        """Raises `UsageError` unless tensors, by default all, have the dtype and shape that they had, and the same ones
        share their memory."""
        for name in self.tensors if names is None else names:
            if self._spec(name, self.tensors[name]) != self._specs[name]:
                _, dtype, shape, _ = self._specs[name]
                raise UsageError(
                    f"tensor {name!r} was {dtype} of shape {list(shape)} when it began to follow, and is not any more:"
                    " begin a new lmc.sync.Follower"
                )
        for name, (tensor, kept) in self._others.items():
            if self._library.address(tensor) != self._library.address(self.tensors[kept]):
                raise UsageError(
                    f"tensor {name!r} does not share the memory of {kept!r} any more: begin a new lmc.sync.Follower"
                )
        if names is None or names:
            check_apart(self.tensors, self._library)

    def _spec(self, name: str, tensor: Any) -> RowSpec:
        spec: Spec = self._library.spec(name, tensor)
        rows, shape = self._rows.get(name), spec[2]
        if rows is None:
            return (*spec, None)
        start, stop = rows
        if not shape or start < 0 or stop - start != shape[0]:
            raise UsageError(f"rows={rows} of {name!r}, and the tensor has the shape {list(shape)}")
        return (*spec, start)


def without_aliases(
    tensors: Mapping[str, Any], library: Library, stored: Set[str], rows: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Each memory once, under a name that the store has if it has one; and the other names, with that name.

    Raises `UsageError` when memory is shared otherwise than by tensors of one dtype and shape.
    """
    names = dict[Any, str]()
    keys = dict[str, Any]()
    for name, tensor in tensors.items():
        spec = library.spec(name, tensor)
        address = library.address(tensor)
        # Empty tensors may be anywhere.
        key = keys[name] = (*address, *spec[1:], rows.get(name)) if address[1] else name
        if key not in names or (names[key] not in stored and name in stored):
            names[key] = name
    kept = {name: tensor for name, tensor in tensors.items() if names[keys[name]] == name}
    check_apart(kept, library)
    return kept, {name: names[keys[name]] for name in tensors if name not in kept}


def check_apart(tensors: Mapping[str, Any], library: Library) -> None:
    """Raises `UsageError` when two tensors overlap."""
    places = sorted((*library.address(tensor), name) for name, tensor in tensors.items())
    end, last = 0, ""
    for start, size, name in places:
        if size and start < end:
            raise UsageError(
                f"tensors {last!r} and {name!r} overlap in memory, and are not of one dtype, shape and rows: follow"
                " with only one of them, or with memory of its own for each"
            )
        if size:
            end, last = start + size, name
