"""The base of a new checkpoint: how it is selected, and a cache of its raw bytes."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.distributed as dist

import lmc
from lmc.dcp._storage import Storage
from lmc.dcp._tensors import Memory


@dataclass(frozen=True)
class Base:
    """A checkpoint, its data files, and the chunks in each."""

    checkpoint: str
    chunks: dict[str, list[str]]


@dataclass(frozen=True)
class DataFile:
    """A data file of a checkpoint."""

    checkpoint: str
    name: str
    #: Length of its chain: files to be decoded before this one.
    depth: int


@dataclass(frozen=True)
class Kept(DataFile):
    """The raw bytes of a data file that this process wrote.

    They differ from the file's if the tensors changed while they were saved.
    """

    image: Memory


# By run, a folder of checkpoints. In the module, not in a writer: `async_save` with processes sends a copy of the
# writer to the saving process, which is the same for all saves.
_lock = threading.Lock()
_saving: dict[str, threading.Lock] = {}
# By kind of data file: the tensors saved of a run under the same names.
_kept: dict[tuple[str, frozenset[str]], Kept] = {}
#: The checkpoints that this process saved or loaded, the latest first.
_recent: dict[str, list[str]] = {}
#: How many recent checkpoints are remembered.
_REMEMBERED = 4
#: How many checkpoints are examined for being of the same kind as the new one.
_LOOKED_AT = 16


def saving(run: str) -> threading.Lock:
    """Held while a run's checkpoint is written: the cache is replaced at the end."""
    with _lock:
        return _saving.setdefault(run, threading.Lock())


def remember(run: str, checkpoint: str) -> None:
    """Records that a process saved or loaded a checkpoint: the next one is likely to resemble it."""
    with _lock:
        others = [c for c in _recent.get(run, []) if c != checkpoint]
        _recent[run] = [checkpoint, *others][:_REMEMBERED]


def find(storage: Storage, run: str, wanted: Set[str]) -> Base | None:
    """Selects the base for the next checkpoint of a run: one with the wanted chunks; `None` if there is none.

    Those that this process saved or loaded last come first, then the newest. A folder may hold checkpoints of several
    kinds, such as of a model alone and of the whole training state: one is of the same kind if the data files with the
    wanted chunks hold mostly those.
    """
    best = (0.0, cast(Base | None, None))
    unreadable = []
    for checkpoint in itertools.islice(_candidates(storage, run), _LOOKED_AT):
        try:
            chunks = storage.chunks_of(checkpoint)
        except FileNotFoundError:  # incomplete, or deleted meanwhile
            continue
        except (lmc.Error, OSError) as e:
            unreadable.append((checkpoint, e))
            continue
        alike = _likeness(chunks, wanted)
        if alike >= 0.5 and alike > best[0]:
            best = (alike, Base(checkpoint, chunks))
        if alike > 0.9:
            break
    for checkpoint, why in unreadable:
        what = f"{checkpoint} is left out as a base" if best[1] else "saving without a base"
        warnings.warn(f"lmc: {what}, since {checkpoint} cannot be used: {why}", stacklevel=2)
    return best[1]


def _candidates(storage: Storage, run: str) -> Iterator[str]:
    with _lock:
        recent = list(_recent.get(run, ()))
    yield from recent
    # Only now, as listing many takes a while.
    for _, checkpoint in sorted(storage.checkpoints(run), reverse=True):
        if checkpoint not in recent:
            yield checkpoint


def _likeness(chunks: dict[str, list[str]], wanted: Set[str]) -> float:
    """How well data files match the wanted chunks, and hold nothing else, between 0 and 1."""
    there = set[str]().union(*(found for found in chunks.values() if not wanted.isdisjoint(found)))
    return len(there & wanted) / max(1, len(there | wanted))


def kept(run: str, checkpoint: str, name: str) -> Kept | None:
    """The raw bytes of a data file, if they are cached."""
    with _lock:
        found = [k for (of, _), k in _kept.items() if of == run and (k.checkpoint, k.name) == (checkpoint, name)]
    return found[0] if found else None


def keep(
    run: str, budget: int, file: DataFile, header: bytes, tensors: Sequence[tuple[lmc.Tensor, torch.Tensor]]
) -> None:
    """Caches the raw bytes of a data file just written, from its header and its tensors, if the budget allows.

    They replace those of the same kind of data file. The caller holds the lock of `saving`.
    """
    kind = (run, frozenset(place.name for place, _ in tensors))
    size = len(header) + sum(len(data) for _, data in tensors)
    with _lock:
        before = _kept.pop(kind, None)
        if size > budget:
            return
        # The budget is shared by all runs of the process: the oldest entries are evicted first.
        while sum(len(other.image) for other in _kept.values()) + size > budget:
            del _kept[next(iter(_kept))]
    # Writing to memory that was touched before takes a third of the time. Other memory is freed before more is taken.
    image = before.image if before is not None and len(before.image) == size else None
    del before
    if image is None:
        image = np.empty(size, np.uint8)
    image[: len(header)] = np.frombuffer(header, np.uint8)
    whole = torch.from_numpy(image)
    for place, data in tensors:
        if len(data):
            # PyTorch copies with several threads, and without the GIL.
            whole[place.offset : place.offset + place.nbytes].copy_(data)
    with _lock:
        _kept[kind] = Kept(**vars(file), image=image)


def forget(run: str | os.PathLike[str] | None = None) -> None:
    """Clears the cache of a run, or of all."""
    with _lock:
        if run is None:
            _kept.clear()
            _recent.clear()
            return
        for kind in [k for k in _kept if k[0] == os.fspath(run)]:
            del _kept[kind]
        _recent.pop(os.fspath(run), None)


def default_budget() -> int:
    """A quarter of the machine's memory, or of the container's, shared by its ranks."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):  # no such limit
            continue
    return total // 4 // _ranks_here()


def _ranks_here() -> int:
    """The number of ranks on this machine, at most."""
    # Variables of torchrun, Open MPI and MPICH.
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        ranks = os.environ.get(name, "")
        if ranks.isdecimal() and int(ranks):
            return int(ranks)
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    # One per GPU, if there are any.
    return max(1, min(world, torch.cuda.device_count() or world))
