"""Reading checkpoints."""

from __future__ import annotations

import dataclasses
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

import lmc
from lmc._options import check_threads
from lmc.dcp import _metadata, _stores
from lmc.dcp._tensors import is_plain, memory
from lmc.store import SnapshotReader
from lmc.torch._memory import empty, written

#: Bytes read at once and then copied to their destination. Data that fit their destination are read there directly.
_STAGED = 256 << 20


class Contents:
    """The chunks and values of a checkpoint, in the files of its snapshot."""

    def __init__(self, snapshot: SnapshotReader) -> None:
        self.snapshot = snapshot
        where = f"step {snapshot.snapshot.step}, {_metadata.NAME}"
        files = snapshot.files
        length = next((file.nbytes for file in files if file.name == _metadata.NAME), None)
        if length is None:
            raise lmc.UsageError(
                f"step {snapshot.snapshot.step} has no file {_metadata.NAME}: it is no checkpoint of lmc.dcp"
            )
        if length > _metadata.MAX_LEN:
            raise lmc.DamagedError(f"{where}: has {length} bytes, more than {_metadata.MAX_LEN}")
        self.metadata = _metadata.decode(snapshot.read_file(_metadata.NAME), where)
        self._tensors = {(file.name, tensor.name): tensor for file in files for tensor in file.tensors}

    def stored(self, index: MetadataIndex) -> tuple[str, lmc.Tensor]:
        """The file that has a chunk or value, and the tensor there.

        Raises `lmc.NotFoundError` when it was dropped with the state of the optimizer, `lmc.DamagedError` when there is
        none, or one of another size.
        """
        place = self.metadata.storage_data.get(index)
        tensor = self._tensors.get(place)
        if place is None or tensor is None:
            snapshot = self.snapshot.snapshot
            if place is not None and snapshot.dropped:
                raise lmc.NotFoundError(
                    f"{index.fqn}: step {snapshot.step} has only weights, the state of its optimizer was dropped to "
                    "save space: load only the model, or another step"
                )
            what = "it" if index.offset is None else f"its chunk at {list(index.offset)}"
            raise lmc.DamagedError(f"{index.fqn}: the snapshot does not have {what}")
        entry = self.metadata.state_dict_metadata[index.fqn]
        if isinstance(entry, TensorStorageMetadata):
            dtype, sizes = entry.properties.dtype, chunk_at(entry, index).sizes
            if math.prod(sizes) * dtype.itemsize != tensor.nbytes:
                raise lmc.DamagedError(
                    f"{index.fqn}: it has {tensor.nbytes} bytes in {place[0]}, not those of {dtype} {list(sizes)}"
                )
        return place[0], tensor

    def place(self, index: MetadataIndex) -> tuple[str, int]:
        """The file of a chunk or value, and the offset there: to read in this order."""
        file, tensor = self.stored(index)
        return file, tensor.offset

    def read(self, indexes: Iterable[MetadataIndex]) -> dict[MetadataIndex, torch.Tensor | io.BytesIO]:
        """Reads whole chunks and values."""
        found: dict[MetadataIndex, Any] = {}
        for index in indexes:
            entry = self.metadata.state_dict_metadata[index.fqn]
            if isinstance(entry, TensorStorageMetadata):
                self.stored(index)
                found[index] = empty(tuple(chunk_at(entry, index).sizes), entry.properties.dtype)
            else:
                found[index] = bytearray(self.stored(index)[1].nbytes)
        outs = {i: memory(data) if isinstance(data, torch.Tensor) else data for i, data in found.items()}
        self.snapshot.read_ranges_into((*self.place(index), out) for index, out in outs.items())
        return {i: data if isinstance(data, torch.Tensor) else io.BytesIO(data) for i, data in found.items()}


def chunk_at(tensor: TensorStorageMetadata, index: MetadataIndex) -> ChunkStorageMetadata:
    """The saved chunk that an index refers to.

    Raises `lmc.DamagedError` if there is none.
    """
    hint = index.index
    if hint is not None and hint < len(tensor.chunks) and tensor.chunks[hint].offsets == index.offset:
        return tensor.chunks[hint]
    for chunk in tensor.chunks:
        if chunk.offsets == index.offset:
            return chunk
    raise lmc.DamagedError(f"{index.fqn}: the checkpoint has no chunk at offset {index.offset}")


class Reader(StorageReader):
    """Reads checkpoints that `lmc.dcp.Writer` wrote, for `dcp.load`.

    Any number of ranks reads what any number wrote. Everything read is verified.

    Args:
        path: the store, a directory or an `s3://` URL; or the store and the step, `STORE/step-N`.
            `dcp.load(checkpoint_id=…)` takes the place of this path.
        step: the step, or the id of a snapshot; the last one, or `"latest"`, if neither the path nor this names one.
        threads: threads that decompress; `None` for one per core.

    Raises:
        lmc.NotFoundError: there is no such store or step.
        lmc.DamagedError: what is stored is not what was saved.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, step: int | str | None = None, threads: int | None = None
    ) -> None:
        super().__init__()
        check_threads(threads)
        self._location, self._step = _stores.split(path, step)
        self._threads = threads
        self._contents: Contents | None = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return bool(_stores.split(checkpoint_id, None)[0])

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._location, self._step = _stores.split(checkpoint_id, None)

    @property
    def contents(self) -> Contents:
        """What `read_metadata` opened."""
        assert self._contents is not None, "the metadata are read first"
        return self._contents

    def read_metadata(self, *args: Any, **_: Any) -> Metadata:
        self._contents = Contents(lmc.Store(self._location).open_snapshot(self._step, threads=self._threads))
        return self._contents.metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **_: Any) -> None:
        """All is open."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return dataclasses.replace(plan, storage_data=self.contents.snapshot.snapshot)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        # Each rank looked for the last snapshot itself.
        steps = {plan.storage_data.id: plan.storage_data.step for plan in plans}
        if len(steps) > 1:
            found = " and ".join(map(str, sorted(steps.values())))
            raise lmc.UsageError(f"ranks found different checkpoints, of steps {found}: say which to load")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        stored = [(*self.contents.stored(item.storage_index), item) for item in plan.items]
        # In the order of the files, so that each block set is decoded once.
        stored.sort(key=lambda one: (one[0], one[1].offset))
        pieces: list[_Piece] = []
        size = 0
        for file, tensor, item in stored:
            for piece in self._pieces(item, file, tensor, planner):
                if size and size + piece.extra > _STAGED:
                    self._finish(pieces)
                    pieces, size = [], 0
                pieces.append(piece)
                size += piece.extra
        self._finish(pieces)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _finish(self, pieces: list[_Piece]) -> None:
        for apart in _apart(pieces):
            self.contents.snapshot.read_ranges_into((piece.file, piece.offset, piece.out) for piece in apart)
        for piece in pieces:
            piece.deliver()

    def _pieces(self, item: ReadItem, file: str, place: lmc.Tensor, planner: LoadPlanner) -> Iterator[_Piece]:
        """The reads for an item: rows that are stored contiguously.

        They are read to their destination directly, or else through a buffer, some at a time.
        """
        if item.type == LoadItemType.BYTE_IO:
            data = bytearray(place.nbytes)
            yield _Piece(file, place.offset, data, place.nbytes, lambda: planner.load_bytes(item, io.BytesIO(data)))
            return
        entry = self.contents.metadata.state_dict_metadata[item.storage_index.fqn]
        if not isinstance(entry, TensorStorageMetadata):
            raise lmc.DamagedError(f"{item.storage_index.fqn}: it is not a tensor in the checkpoint")
        dtype, chunk = entry.properties.dtype, chunk_at(entry, item.storage_index).sizes
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
            yield _Piece(file, first, memory(target), 0, lambda: _commit(item, resolved, planner))
        else:
            step = max(1, _STAGED // row)
            for at in range(0, rows, step):
                some = target[at : at + step]
                whole = torch.empty((len(some), *sizes[1:]), dtype=dtype, device="cpu")
                yield _Piece(
                    file,
                    first + at * row,
                    memory(whole),
                    whole.nbytes,
                    _Delivery(some, whole, (0, *offsets[1:]), at + step >= rows, item, resolved, planner),
                )


def _commit(item: ReadItem, resolved: torch.Tensor, planner: LoadPlanner) -> None:
    """Ends the load of a tensor whose memory was read to directly."""
    written(resolved)
    planner.commit_tensor(item, resolved)


@dataclasses.dataclass
class _Piece:
    """Bytes of a file that are read to one place."""

    file: str
    #: Where they begin.
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
