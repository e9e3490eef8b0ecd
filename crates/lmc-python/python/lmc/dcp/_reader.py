"""Checkpoints read."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

import lmc
from lmc.dcp import _bases
from lmc.dcp._files import Files, chunk_at, tensor_name
from lmc.dcp._storage import storage_of
from lmc.dcp._tensors import is_plain, memory

#: Bytes that are read at once and then copied to where they belong. What fits its destination is read there directly.
_STAGED = 256 << 20


class Reader(FileSystemReader):
    """Reads checkpoints that `lmc.dcp.Writer` wrote, and those that PyTorch's `FileSystemWriter` wrote, for `dcp.load`.

    Any number of ranks reads what any number wrote. Every block of the data is checked.

    Args:
        path: the checkpoint; a directory, or a URL that fsspec knows, which is given `options`.
        threads: threads that decompress; `None` for as many as the machine has.

    Raises:
        lmc.UsageError: there can be no such number of threads.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int | None = None, **options: Any) -> None:
        super().__init__(path if "://" not in os.fspath(path) else "")
        if threads is not None and threads < 0:
            raise lmc.UsageError(f"threads is a number, or None for as many as there are cores, not {threads}")
        self._options = options
        self._threads = threads
        self._metadata: Metadata | None = None
        self.fs, self._storage, self.path = storage_of(path, options)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)
        if checkpoint_id:
            self.fs, self._storage, self.path = storage_of(checkpoint_id, self._options)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        try:
            return super().read_metadata(*args, **kwargs)
        except FileNotFoundError as e:  # which may say nothing, as that of S3
            path = self._get_metadata_path(kwargs.get("rank"))
            raise lmc.MissingFileError(f"{self.path} is no complete checkpoint: {path} is not there") from e

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)
        self._metadata = metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        ours: dict[str, dict[str, list[ReadItem]]] = {}
        others = []
        for item in plan.items:
            place = self.storage_data[item.storage_index]
            name = tensor_name(place)
            if name is None:
                others.append(item)
            else:
                ours.setdefault(place.relative_path, {}).setdefault(name, []).append(item)
        if others:
            super().read_data(dataclasses.replace(plan, items=others), planner).wait()
        for name, chunks in ours.items():
            with Files(self._storage, os.fspath(self.path)) as files:
                self._read(files.reading(name, self._threads), chunks, planner)
        _bases.remember(self._storage.parent(os.fspath(self.path)), os.fspath(self.path))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, file: lmc.File, chunks: dict[str, list[ReadItem]], planner: LoadPlanner) -> None:
        """Reads what is wanted of a data file."""
        staged: list[_Staged] = []
        wanted: list[Any] = []
        size = 0

        def finish() -> None:
            for apart in _apart(wanted):
                file.read_many_into(apart)
            for one in staged:
                one.deliver(planner)

        # In the order of the file, so that a block is decoded once for all that is in it.
        order = {t.name: (t.offset, t.nbytes) for t in file.tensors()}
        for name in sorted(chunks, key=lambda name: order[name] if name in order else (0, 0)):
            _, nbytes = order[name] if name in order else (0, file.tensor(name).nbytes)
            one = self._staged(chunks[name], nbytes, planner)
            size += one.extra
            wanted.append((name, one.out))
            staged.append(one)
            if size >= _STAGED:
                finish()
                staged.clear()
                wanted.clear()
                size = 0
        finish()

    def _staged(self, items: list[ReadItem], nbytes: int, planner: LoadPlanner) -> _Staged:
        first = items[0]
        if first.type == LoadItemType.BYTE_IO:
            return _Bytes(items, bytearray(nbytes), nbytes)
        dtype, sizes = self._chunk(first.storage_index)
        if len(items) == 1 and tuple(first.lengths) == tuple(sizes):
            target = planner.resolve_tensor(first)
            whole = target.detach()
            if whole.dtype == dtype and is_plain(whole) and whole.numel() * whole.element_size() == nbytes:
                return _Direct(items, memory(whole), 0, target)
        chunk = torch.empty(sizes, dtype=dtype)
        if chunk.numel() * chunk.element_size() != nbytes:
            raise lmc.FormatError(
                f"{first.storage_index.fqn}: the data file has {nbytes} bytes of it, not those of {dtype} {list(sizes)}"
            )
        return _Copied(items, memory(chunk), nbytes, chunk)

    def _chunk(self, index: MetadataIndex) -> tuple[torch.dtype, torch.Size]:
        """The type and the sizes of a chunk that was saved."""
        assert self._metadata is not None, "the reader is set up before it reads"
        tensor = self._metadata.state_dict_metadata[index.fqn]
        if not isinstance(tensor, TensorStorageMetadata):
            raise lmc.FormatError(f"{index.fqn}: the checkpoint says that it is no tensor")
        return tensor.properties.dtype, chunk_at(tensor, index).sizes


def _apart(wanted: list[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Parts of what is wanted, in each of which no two buffers share memory, as those of tied weights do."""
    left = sorted(((np.frombuffer(out, np.uint8).ctypes.data, one) for one in wanted if len(out := one[1])), key=_first)
    while left:
        end, now, later = 0, [], []
        for start, one in left:
            if start < end:
                later.append((start, one))
            else:
                now.append(one)
                end = start + len(one[1])
        yield now
        left = later


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


@dataclasses.dataclass
class _Staged:
    """Something that is being read."""

    items: list[ReadItem]
    #: Where its bytes go.
    out: Any
    #: Memory that it takes beside the destination.
    extra: int

    def deliver(self, planner: LoadPlanner) -> None:
        raise NotImplementedError


@dataclasses.dataclass
class _Bytes(_Staged):
    def deliver(self, planner: LoadPlanner) -> None:
        for item in self.items:
            planner.load_bytes(item, io.BytesIO(self.out))


@dataclasses.dataclass
class _Direct(_Staged):
    """A whole chunk, read where it belongs."""

    target: torch.Tensor

    def deliver(self, planner: LoadPlanner) -> None:
        planner.commit_tensor(self.items[0], self.target)


@dataclasses.dataclass
class _Copied(_Staged):
    """A chunk of which parts are wanted, or whose destination is elsewhere."""

    chunk: torch.Tensor

    def deliver(self, planner: LoadPlanner) -> None:
        for item in self.items:
            part = narrow_tensor_by_index(self.chunk, item.storage_offsets, item.lengths)
            target = planner.resolve_tensor(item).detach()
            if target.size() != part.size():
                raise lmc.UsageError(
                    f"{item.storage_index.fqn}: {list(part.size())} cannot be loaded to {list(target.size())}"
                )
            target.copy_(part)
            planner.commit_tensor(item, target)
