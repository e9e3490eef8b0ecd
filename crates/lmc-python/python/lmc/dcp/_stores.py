"""Where checkpoints are, a store and a step; and the stores that this process saves to."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

import lmc
from lmc._lmc import is_url

#: The last component of a path that names a checkpoint. No step has more digits.
_STEP = re.compile(r"step-([0-9]{1,16})")

_Step = TypeVar("_Step")

# In the module, not in a writer: each save has a writer of its own, and `async_save` with processes sends a copy of it
# to the saving process, which is the same for all saves. By location, the one used last at the end.
_lock = threading.Lock()
_open: dict[str, tuple[int, lmc.Store]] = {}
#: How many stores stay open, with their caches.
_KEPT = 2


def split(path: str | os.PathLike[str], step: _Step) -> tuple[str, _Step | int]:
    """The location of the store, and the step, that a path and a step name. The path alone may name both.

    Raises `lmc.UsageError` when it does, and a step is given, too.
    """
    location = os.fspath(path)
    if not isinstance(location, str):
        raise TypeError(f"the path of a checkpoint must be str or os.PathLike, not {type(path).__name__}")
    head, slash, last = location.rstrip("/").rpartition("/")
    if named := _STEP.fullmatch(last):
        if step is not None:
            raise lmc.UsageError(f"{location} names a step, and step={step!r} is given, too: leave out one")
        return _absolute(head or slash or "."), int(named[1])
    return _absolute(location), step


def _absolute(location: str) -> str:
    # A process that saves may have another working directory.
    return location if is_url(location) else os.path.abspath(location)


def store_of(location: str, cache: int | None, grace_seconds: int) -> lmc.Store:
    """The store at a location, created if it is missing, with the raw bytes that this process saved there last."""
    size = _budget() if cache is None else cache
    # What was opened earlier may have been deleted since.
    where = "memory" if size else None
    now = lmc.Store.create(location, grace_seconds=grace_seconds, cache=where, cache_size=max(1, size))
    with _lock:
        before, store = _open.pop(location, (size, now))
        if (before, store.run) != (size, now.run):
            store = now
        _open[location] = size, store
        while len(_open) > _KEPT:
            del _open[next(iter(_open))]
    return store


def forget() -> None:
    """Closes the stores that this process saved to, with their caches."""
    with _lock:
        _open.clear()


def _budget() -> int:
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
