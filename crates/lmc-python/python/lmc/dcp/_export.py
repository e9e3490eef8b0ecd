"""Checkpoints that do not need lmc."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

import lmc
from lmc.dcp._reader import Contents, Reader

#: Bytes of chunks that are read at once: small ones share block sets of the store.
_AHEAD = 256 << 20


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    step: int | str | None = None,
    threads: int | None = None,
) -> None:
    """Writes a checkpoint as PyTorch's own `FileSystemWriter` does, with the same chunks.

    Values that are not tensors are copied, not unpickled.

    Args:
        path: the store, or the store and the step, as for `Reader`.
        directory: a directory, which must not exist yet or be empty.
        step: the step; the last one, or `"latest"`, if neither the path nor this names one.
        threads: threads that decompress; `None` for one per core.

    Raises:
        lmc.ExistsError: the directory is not empty.
        lmc.Error: the checkpoint is damaged, or not there.
    """
    reader = Reader(path, step=step, threads=threads)
    reader.read_metadata()
    folder = Path(directory)
    if folder.exists() and any(folder.iterdir()):
        raise lmc.ExistsError(f"{folder} holds files: export to a new directory")
    # It takes the chunks in the order of the plan if it copies none ahead.
    writer = FileSystemWriter(folder, per_thread_copy_ahead=0)
    save({}, storage_writer=writer, planner=_Copy(reader.contents), no_dist=True)


class _Copy(SavePlanner):
    """Plans a save of what a snapshot has."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        # The writer takes values first, then tensors; in the order of the files, so that little is read twice.
        place = contents.place
        self._items = sorted(_items(contents), key=lambda item: (item.tensor_data is not None, *place(item.index)))
        #: By item: what was read and is not written yet.
        self._ahead: dict[MetadataIndex, torch.Tensor | io.BytesIO] = {}

    def set_up_planner(
        self, state_dict: Any, storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """All is known."""

    def create_local_plan(self) -> SavePlan:
        return SavePlan(self._items)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return all_plans, dataclasses.replace(self._contents.metadata, storage_data=None)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        if write_item.index not in self._ahead:
            size, group = 0, list[MetadataIndex]()
            for item in self._items[self._items.index(write_item) :]:
                size += self._contents.stored(item.index)[1].nbytes
                if group and size > _AHEAD:
                    break
                group.append(item.index)
            self._ahead = self._contents.read(group)
        return self._ahead.pop(write_item.index)


def _items(contents: Contents) -> Iterator[WriteItem]:
    for fqn, entry in contents.metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            for i, chunk in enumerate(entry.chunks):
                data = TensorWriteData(chunk, entry.properties, entry.size)
                yield WriteItem(MetadataIndex(fqn, chunk.offsets, i), WriteItemType.SHARD, tensor_data=data)
        else:
            yield WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)
