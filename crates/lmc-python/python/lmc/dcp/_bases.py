"""What a new checkpoint is made from: an earlier one, and what of it is still in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import lmc
from lmc.dcp._storage import METADATA, Storage

Image = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Kept:
    """The raw bytes of a data file that this process wrote."""

    checkpoint: str
    name: str
    image: Image
    #: As the file has it. The image has another if somebody changed the tensors while they were saved.
    content_hash: str
    depth: int


# Of every run, which is a folder of checkpoints. In the module, and not in a writer: `async_save` with processes
# sends a copy of the writer to the process that saves, which stays the same from save to save.
_lock = threading.Lock()
_saving: dict[str, threading.Lock] = {}
_kept: dict[str, Kept] = {}
_last: dict[str, str] = {}


def saving(run: str) -> threading.Lock:
    """Held while a run's checkpoint is written: what is kept is replaced at the end."""
    with _lock:
        return _saving.setdefault(run, threading.Lock())


def remember(run: str, checkpoint: str) -> None:
    """Notes that a process saved or loaded a checkpoint: the next one is likely to resemble it."""
    with _lock:
        _last[run] = checkpoint


def newest(storage: Storage, run: str) -> str | None:
    """The checkpoint to make the next one of a run from, if there is any.

    It is the one that this process saved or loaded last, if that is complete, and otherwise the newest.
    """
    with _lock:
        last = _last.get(run)
    if last is not None and storage.fs.exists(storage.join(last, METADATA)):
        return last
    return max(storage.checkpoints(run), default=(0.0, None))[1]


def kept(run: str, checkpoint: str, name: str) -> Kept | None:
    """The raw bytes of a data file, if they are still in memory."""
    with _lock:
        found = _kept.get(run)
    return found if found is not None and (found.checkpoint, found.name) == (checkpoint, name) else None


def keep(run: str, budget: int, header: bytes, tensors: Sequence[tuple[lmc.Tensor, torch.Tensor]]) -> Image | None:
    """The raw bytes of a data file just written, from its header and its tensors; `None` if the budget is less.

    What was kept of the run goes.
    """
    size = len(header) + sum(len(data) for _, data in tensors)
    with _lock:
        before = _kept.pop(run, None)
        if size > budget:
            return None
        # It is that of the process, whatever runs it saves: what was kept longest goes first.
        while sum(len(other.image) for other in _kept.values()) + size > budget:
            del _kept[next(iter(_kept))]
    # Memory that was touched before is written to in a third of the time.
    image = before.image if before is not None and len(before.image) == size else np.empty(size, np.uint8)
    image[: len(header)] = np.frombuffer(header, np.uint8)
    whole = torch.from_numpy(image)
    for place, data in tensors:
        if len(data):
            # PyTorch copies with several threads, and without the interpreter's lock.
            whole[place.offset : place.offset + place.nbytes].copy_(data)
    return image


def put(run: str, kept: Kept) -> None:
    """Keeps it for the next save of a run."""
    with _lock:
        _kept[run] = kept


def forget(run: str | os.PathLike[str] | None = None) -> None:
    """Lets go of what is kept in memory of a run, or of all."""
    with _lock:
        if run is None:
            _kept.clear()
            _last.clear()
        else:
            _kept.pop(os.fspath(run), None)
            _last.pop(os.fspath(run), None)


def default_budget() -> int:
    """A quarter of the machine's memory, or of the container's, shared by its ranks."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):  # there is none
            continue
    return total // 4 // _ranks_here()


def _ranks_here() -> int:
    """How many ranks this machine has, at most."""
    # Of torchrun, Open MPI and MPICH.
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        ranks = os.environ.get(name, "")
        if ranks.isdecimal() and int(ranks):
            return int(ranks)
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    # One for each GPU, where there are any.
    return max(1, min(world, torch.cuda.device_count() or world))
