"""Reading checkpoints."""

from __future__ import annotations

import dataclasses
import io
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

import lmc
from lmc._lmc import is_url
from lmc._options import check_threads
from lmc.dcp import _bases
from lmc.dcp._files import Files, chunk_at, tensor_name
from lmc.dcp._storage import StorageOptions, metadata_name, storage_of
from lmc.dcp._tensors import is_plain, memory
from lmc.dcp._unpickle import Trust, trusted
from lmc.torch._memory import written

#: Bytes read at once and then copied to their destination. Data that fit their destination are read there directly.
_STAGED = 256 << 20


class Reader(FileSystemReader):
    """Reads checkpoints that `lmc.dcp.Writer` wrote, and those that PyTorch's `FileSystemWriter` wrote, for `dcp.load`.

    Any number of ranks reads what any number wrote. Every block of data is verified.

    Args:
        path: the checkpoint; a directory, or a URL that fsspec knows, which is given `storage_options`.
        threads: threads that decompress; `None` for one per core.
        trust: names such as `"module.name"` that `.metadata` may contain beside those of PyTorch's metadata; `True` for
            any. They are called with arguments from the checkpoint: this can do whatever the process can.

    Raises:
        lmc.UsageError: the number of threads is invalid, or `trust` is not a list of names.
        lmc.FormatError: the metadata are damaged, or contain a name that is not trusted: nothing was executed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        trust: Trust = (),
        storage_options: StorageOptions = None,
    ) -> None:
        super().__init__("" if is_url(path) else path)
        check_threads(threads)
        self._options = storage_options
        self._threads = threads
        self._trust = trusted(trust)
        self._metadata: Metadata | None = None
        self.fs, self._storage, self.path = storage_of(path, storage_options, self._trust)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)
        if checkpoint_id:
            self.fs, self._storage, self.path = storage_of(checkpoint_id, self._options, self._trust)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        # Not PyTorch's own, which unpickles anything.
        metadata = self._storage.read_metadata(os.fspath(self.path), metadata_name(kwargs.get("rank")))
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

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
            for name in {self.storage_data[item.storage_index].relative_path for item in others}:
                self._storage.check_regular(self._storage.join(os.fspath(self.path), name))
            super().read_data(dataclasses.replace(plan, items=others), planner).wait()
        for name, chunks in ours.items():
            with Files(self._storage, os.fspath(self.path)) as files:
                self._read(files.reading(name, self._threads), chunks, planner)
        _bases.remember(self._storage.parent(os.fspath(self.path)), os.fspath(self.path))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, file: lmc.File, chunks: dict[str, list[ReadItem]], planner: LoadPlanner) -> None:
        """Reads the wanted parts of a data file."""
        pieces: list[_Piece] = []
        size = 0

        def finish() -> None:
            for apart in _apart(pieces):
                file.read_ranges_into((piece.offset, piece.out) for piece in apart)
            for piece in pieces:
                piece.deliver()

        # In the order of the file, so that each block is decoded once.
        places = {t.name: t for t in file.tensors() if t.name in chunks}
        for name in sorted(chunks, key=lambda name: places[name].offset if name in places else 0):
            place = places[name] if name in places else file.tensor(name)
            for item in chunks[name]:
                for piece in self._pieces(item, place, planner):
                    if size and size + piece.extra > _STAGED:
                        finish()
                        pieces.clear()
                        size = 0
                    pieces.append(piece)
                    size += piece.extra
        finish()

    def _pieces(self, item: ReadItem, place: lmc.Tensor, planner: LoadPlanner) -> Iterator[_Piece]:
        """The reads for an item: rows that are stored contiguously.

        They are read to their destination directly, or else through a buffer, some at a time.
        """
        if item.type == LoadItemType.BYTE_IO:
            data = bytearray(place.nbytes)
            yield _Piece(place.offset, data, place.nbytes, lambda: planner.load_bytes(item, io.BytesIO(data)))
            return
        dtype, chunk = self._chunk(item.storage_index)
        if math.prod(chunk) * dtype.itemsize != place.nbytes:
            raise lmc.FormatError(
                f"{item.storage_index.fqn}: it has {place.nbytes} bytes in the data file, "
                f"not those of {dtype} {list(chunk)}"
            )
        resolved = planner.resolve_tensor(item)
        target = resolved.detach()
        if target.size() != torch.Size(item.lengths):
            raise lmc.UsageError(
                f"{item.storage_index.fqn}: {list(item.lengths)} cannot be loaded into {list(target.size())}"
            )
        # A scalar counts as a row.
        sizes, offsets = tuple(chunk) or (1,), tuple(item.storage_offsets) or (0,)
        target = target if target.dim() else target.view(1)
        row = place.nbytes // max(1, sizes[0])
        first, rows = place.offset + offsets[0] * row, len(target)
        if not target.numel():
            planner.commit_tensor(item, resolved)
        elif target.size()[1:] == sizes[1:] and target.dtype == dtype and is_plain(target):
            yield _Piece(first, memory(target), 0, lambda: _commit(item, resolved, planner))
        else:
            step = max(1, _STAGED // row)
            for at in range(0, rows, step):
                some = target[at : at + step]
                whole = torch.empty((len(some), *sizes[1:]), dtype=dtype, device="cpu")
                yield _Piece(
                    first + at * row,
                    memory(whole),
                    whole.nbytes,
                    _Delivery(some, whole, (0, *offsets[1:]), at + step >= rows, item, resolved, planner),
                )

    def _chunk(self, index: MetadataIndex) -> tuple[torch.dtype, torch.Size]:
        """The type and the sizes of a saved chunk."""
        assert self._metadata is not None, "the reader is set up before it reads"
        tensor = self._metadata.state_dict_metadata[index.fqn]
        if not isinstance(tensor, TensorStorageMetadata):
            raise lmc.FormatError(f"{index.fqn}: it is not a tensor in the checkpoint")
        return tensor.properties.dtype, chunk_at(tensor, index).sizes


def _commit(item: ReadItem, resolved: torch.Tensor, planner: LoadPlanner) -> None:
    """Ends the load of a tensor whose memory was read to directly."""
    written(resolved)
    planner.commit_tensor(item, resolved)


@dataclasses.dataclass
class _Piece:
    """Bytes of a data file that are read to one place."""

    #: Range in the raw file.
    offset: int
    #: Their destination.
    out: Any
    #: Memory that this takes beside the destination.
    extra: int
    deliver: Callable[[], object]


@dataclasses.dataclass
class _Delivery:
    """Copies rows of a chunk, or a part of each, to their destination."""

    target: torch.Tensor
    rows: torch.Tensor
    offsets: tuple[int, ...]
    is_last: bool
    item: ReadItem
    resolved: torch.Tensor
    planner: LoadPlanner

    def __call__(self) -> None:
        # Tensors created in inference mode can only be written to in that mode.
        with torch.inference_mode():
            self.target.copy_(narrow_tensor_by_index(self.rows, self.offsets, self.target.size()))
        if self.is_last:
            self.planner.commit_tensor(self.item, self.resolved)


def _apart(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """Splits reads into batches without buffers that share memory, as those of tied weights do."""
    with_bytes = (piece for piece in pieces if len(piece.out))
    left = sorted(((np.frombuffer(piece.out, np.uint8).ctypes.data, piece) for piece in with_bytes), key=_first)
    while left:
        end, now, later = 0, [], []
        for start, piece in left:
            if start < end:
                later.append((start, piece))
            else:
                now.append(piece)
                end = start + len(piece.out)
        yield now
        left = later


def _first(pair: tuple[int, _Piece]) -> int:
    return pair[0]
