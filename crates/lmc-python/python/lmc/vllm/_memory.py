"""Tensors of a checkpoint in the memory of a machine, shared by the workers of an engine that run there."""

import logging
import os
import secrets
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lmc._lmc import Tensor as Entry
from lmc.torch._dtypes import torch_type
from lmc.vllm._ranks import gather, rank, together

_ALIGNMENT: Final = 64
_SHARED: Final = Path("/dev/shm")
_logger: Final = logging.getLogger("vllm.plugins.lmc")


class Memory:
    """Tensors without values, on the CPU. One of the workers of a machine, the `leader`, is to fill them."""

    def __init__(self, entries: list[Entry]) -> None:
        size = sum(_aligned(entry.nbytes) for entry in entries)
        with torch.inference_mode(False):
            storage, self.leader = _storage(size)
            self.tensors = dict[str, Tensor]()
            offset = 0
            for entry in entries:
                dtype, shape = torch_type(entry.name, entry.dtype, entry.shape)
                self.tensors[entry.name] = storage[offset : offset + entry.nbytes].view(dtype).view(shape)
                offset += _aligned(entry.nbytes)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _storage(size: int) -> tuple[Tensor, bool]:
    """This many bytes, and whether this worker is the one to fill them."""
    machines = gather(_machine())
    first = machines.index(machines[rank()])
    leader = first == rank()
    shared = size > 0 and machines.count(machines[rank()]) > 1
    path = gather(_new_file(size) if leader and shared else None)[first]
    try:
        return together("allocating memory", lambda: _mapped(path, size)), leader or path is None
    finally:
        # It lives as long as it is mapped.
        if leader and path is not None:
            os.unlink(path)


def _machine() -> tuple[str, int]:
    """The same for processes that share files of `/dev/shm`."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(), _SHARED.stat().st_dev
    except OSError:
        return f"{os.uname().nodename} {os.getpid()}", rank()


def _new_file(size: int) -> str | None:
    path = _SHARED / f"lmc-vllm-{secrets.token_hex(16)}"
    try:
        with open(path, "xb") as file:
            os.chmod(path, 0o600)
            # Not just its length: writing to a page that there is no memory for would kill the process.
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as e:
        _logger.warning(
            "%s has no %d bytes for the weights (%s): each worker of the machine keeps its own copy", _SHARED, size, e
        )
        path.unlink(missing_ok=True)
        return None
    return str(path)


def _mapped(path: str | None, size: int) -> Tensor:
    if path is None:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8, device="cpu")
