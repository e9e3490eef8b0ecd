"""Versions that several ranks publish together."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmc._errors import UsageError
from lmc.sync._libraries import library_of
from lmc.sync._stream import Collected

# The file that says which file has which tensor, for loaders of checkpoints.
INDEX: Final = "model.safetensors.index.json"


@dataclass(frozen=True, eq=False)
class Part:
    """The part of a version that one rank saved: `Publisher.save_part` makes it, and `Publisher.publish_parts` a
    version of all.

    It is small, and can be pickled: ranks send it to the one that publishes.
    """

    step: int
    rank: int
    world_size: int
    run: str
    """The id of the store's run."""
    attempt: str
    """The argument `attempt` of `save_part`."""
    base_step: int | None
    """The last step of the store when it was saved; `None` if there was none."""
    shards: tuple[str, ...]
    files: dict[str, tuple[str, ...]]
    """The names of the tensors of each file."""
    raw_size: int
    """Bytes of the files."""
    tensor_size: int
    """Bytes of the tensors in them."""
    document_size: int
    """Bytes of the documents that say where they are."""
    elements: int
    changed: int | None
    """How many elements changed since the version before; `None` where the deltas do not say it."""
    seconds: float
    phases: dict[str, float]


def in_files(weights: Mapping[str, Any] | Iterable[tuple[str, Any]], file_size: int) -> Iterator[dict[str, Any]]:
    """Tensors by name, in dictionaries of `file_size` bytes or a little more.

    Each is emptied when the next one is asked for: nothing is in memory that was saved. Raises `UsageError` where they
    are no such tensors, and where a generator wrote to one that is not saved yet.
    """
    names = set[str]()
    # Tensors of a mapping are there all the time; pairs may be made one by one, in memory that is used again.
    collected = None if isinstance(weights, Mapping) else Collected()
    tensors, size = dict[str, Any](), 0
    for name, tensor in _pairs(weights):
        if name in names:
            raise UsageError(f"two tensors have the name {name!r}")
        names.add(name)
        library = library_of({name: tensor})
        tensors[name] = tensor if collected is None else collected.add(library, name, tensor)
        size += tensor.nbytes
        del tensor
        if size >= file_size:
            if collected is not None:
                collected.check()
            yield tensors
            tensors.clear()
            collected = None if collected is None else Collected()
            size = 0
    if tensors:
        if collected is not None:
            collected.check()
        yield tensors


def _pairs(weights: Any) -> Iterator[tuple[str, Any]]:
    """The pairs of a mapping, or pairs that are given."""
    expected = "weights must be tensors by name, or pairs of name and tensor"
    if isinstance(weights, str | bytes | bytearray | memoryview | os.PathLike) or not isinstance(weights, Iterable):
        raise UsageError(f"{expected}, not {_short(weights)}")
    for pair in weights.items() if isinstance(weights, Mapping) else weights:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(f"{expected}, and {_short(pair)} is none")
        yield pair[0], pair[1]
        # The generator may make the next tensor in memory that this one leaves.
        del pair


def _short(value: Any) -> str:
    """A value for a message: its type, and its text if that is short."""
    kind = type(value).__name__
    return f"{kind} {value!r:.60}" if isinstance(value, str | bytes | os.PathLike) else kind


def file_of(tensors: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """Tensors to be saved as a file, and their names and bytes; of tied ones, one is saved."""
    given, left_out = library_of(tensors).given(tensors)
    return (given, left_out), {name: tensor.nbytes for name, tensor in tensors.items() if name not in left_out}


def unwritten(tensors: Mapping[str, Any]) -> Callable[[], None]:
    """Returns a function that raises `UsageError` if one of these was written to since, as far as that is counted."""
    library = library_of(tensors)
    before = {name: library.version(tensor) for name, tensor in tensors.items()}

    def check() -> None:
        for name, version in before.items():
            if library.version(tensors[name]) != version:
                raise UsageError(
                    f"tensor {name!r} was written to while it was saved: nothing is published; save it again"
                )

    return check


def check_together(parts: list[Part]) -> None:
    """Raises `UsageError` unless these are the parts of all ranks, and no tensor is in two files."""
    if not parts:
        raise UsageError("there are no parts to publish")
    for what in ("step", "world_size", "run", "attempt"):
        given = {getattr(part, what) for part in parts}
        if len(given) > 1:
            raise UsageError(f"the parts have more than one {what}: {', '.join(map(repr, sorted(given)))}")
    world_size = parts[0].world_size
    ranks = Counter(part.rank for part in parts)
    if missing := [rank for rank in range(world_size) if rank not in ranks]:
        raise UsageError(f"step {parts[0].step}: the parts of ranks {missing} of {world_size} are missing")
    if twice := [rank for rank, n in ranks.items() if n > 1]:
        raise UsageError(f"step {parts[0].step}: there are several parts of ranks {twice}")
    of = dict[str, str]()
    for file, names in (file for part in parts for file in part.files.items()):
        for name in names:
            if of.setdefault(name, file) != file:
                raise UsageError(f"tensor {name!r} is in {of[name]} and in {file}: each rank saves tensors of its own")


def index_of(parts: list[Part]) -> bytes:
    """The index of the files, as loaders of checkpoints read it."""
    weight_map = {name: file for part in parts for file, names in part.files.items() for name in names}
    total_size = sum(part.tensor_size for part in parts)
    index = {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(weight_map.items()))}
    return json.dumps(index, indent=2).encode()
