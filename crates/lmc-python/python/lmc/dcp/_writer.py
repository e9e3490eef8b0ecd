"""Writing checkpoints."""

from __future__ import annotations

import dataclasses
import io
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StoragePrefix
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

import lmc
from lmc._lmc import TensorList
from lmc._options import check_level, check_threads
from lmc.dcp import _metadata, _stores
from lmc.dcp._tensors import Chunk, chunk


class Writer(BlockingAsyncStager, StorageWriter):
    """Writes checkpoints for `dcp.save` and `dcp.async_save` as snapshots of a store.

    The store gets a file of tensors from each rank, and the metadata. The checkpoint exists once all of them are there.

    Args:
        path: the store, a directory or the URL of a bucket, which is created if it is missing; or the store and the
            step, `STORE/step-N`. `dcp.save(checkpoint_id=…)` takes the place of this path.
        step: the step of the run, unless the path names it.
        overwrite: whether a checkpoint that the step has already, with other contents, is replaced. It ends before the
            new one appears.
        keep_last: after each save, only so many checkpoints stay, of the largest steps, and this one.
        keep_every: of each multiple of it, the first step from it on stays, too. What goes is deleted after the store's
            grace period, by later saves.
        drop_state: whether the others stay with their weights, and only the states of their optimizers go.
        metadata: text and numbers by name, which `lmc.Store.snapshots` and `lmc snapshot list` show.
        anchor_every: after so many deltas a chunk is stored whole; 1 for no deltas.
        level: `"fast"`, `"default"` or `"max"`.
        threads: threads that compress; `None` for one per core.
        cache: bytes of main memory for caching the last save of a process, so that the next save need not read it;
            `None` for a quarter of the machine's memory shared by its ranks.
        grace_seconds: for a store that is created: how long what no checkpoint needs stays. A save may take half of it.

    Raises:
        lmc.ExistsError: the step has a checkpoint of other contents.
        lmc.Error: nothing can be compressed or written.
        TypeError: a tensor is sparse, nested, quantized or without data.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        step: int | None = None,
        overwrite: bool = False,
        keep_last: int = 0,
        keep_every: int | None = None,
        drop_state: bool = False,
        metadata: Mapping[str, str | float] | None = None,
        anchor_every: int = 16,
        level: str = "default",
        threads: int | None = None,
        cache: int | None = None,
        grace_seconds: int = 1800,
        cache_staged_state_dict: bool = False,
    ) -> None:
        super().__init__(cache_staged_state_dict=cache_staged_state_dict)
        check_level(level)
        check_threads(threads)
        self._location, self._step = _stores.split(path, step)
        self._overwrite = overwrite
        self._keep: dict[str, Any] = {"keep_last": keep_last, "keep_every": keep_every, "drop_state": drop_state}
        self._metadata = metadata
        self._options: dict[str, Any] = {"level": level, "threads": threads, "anchor_every": anchor_every}
        self._cache = cache
        self._grace_seconds = grace_seconds
        self._store: lmc.Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The staged state is sent separately.
        return self.__dict__ | {"state_dict_cache": None, "_store": None}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return isinstance(_stores.split(checkpoint_id, None)[1], int)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._location, self._step = _stores.split(checkpoint_id, None)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise lmc.UsageError(
                "ranks that save without collectives are not supported, since one of them publishes the checkpoint of "
                "all: leave out use_collectives=False, or let each rank save to a store of its own with no_dist=True"
            )
        if self._step is None:
            raise lmc.UsageError(f"no step is given: Writer({self._location!r}, step=N), or STORE/step-N")
        self._number: int = self._step
        self._store = None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # PyTorch's own class, since its planner keeps plans for all writers of a process.
        return [dataclasses.replace(p, storage_data=_StoragePrefix(f"__{i}_")) for i, p in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan, planner) if plan.items else [])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        written = [result for of_rank in results for result in of_rank]
        shards = list(dict.fromkeys(result.storage_data.shard for result in written))
        document = _metadata.encode(metadata, {result.index: result.storage_data.file for result in written})
        shards.append(self._save(_metadata.NAME, document))
        if self._publish(shards, overwrite=False):
            self._prune()

    def _opened(self) -> lmc.Store:
        """The store, opened once in a save."""
        if self._store is None:
            self._store = _stores.store_of(self._location, self._cache, self._grace_seconds)
        return self._store

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        tensors, sizes = TensorList(), []
        for item in plan.items:
            c = self._resolve(item, planner)
            tensors.add(c.name, c.dtype, c.shape, c.source())
            sizes.append(len(c.flat))
        name = f"rank-{plan.storage_data.prefix.strip('_')}.safetensors"
        written = _Written(name, self._save(name, tensors))
        return [WriteResult(item.index, size, written) for item, size in zip(plan.items, sizes, strict=True)]

    def _resolve(self, item: WriteItem, planner: SavePlanner) -> Chunk:
        data = planner.resolve_data(item)
        if isinstance(data, io.BytesIO):
            raw = bytearray(data.getbuffer())
            flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8, device="cpu")
            return Chunk(item.index.fqn, "U8", (len(raw),), flat)
        assert item.tensor_data is not None, "an item that is not bytes is a tensor"
        place = item.tensor_data
        return chunk(_metadata.chunk_name(item.index.fqn, place.chunk, place.size), data)

    def _save(self, name: str, contents: TensorList | bytes) -> str:
        saved = self._opened().save_shard({name: contents}, step=self._number, **self._options)
        for note in saved.notes:
            warnings.warn(f"lmc: {note}", stacklevel=2)
        return saved.shard

    def _publish(self, shards: list[str], *, overwrite: bool) -> bool:
        """Publishes a checkpoint; `False` if the step has it already."""
        store = self._opened()
        try:
            store.publish(self._number, shards, metadata=self._metadata, overwrite=overwrite)
        except lmc.ExistsError as e:
            # Several groups of ranks that have the same state may all save it.
            if store.has_shards(self._number, shards):
                return False
            if overwrite:
                raise
            if not self._overwrite:
                raise lmc.ExistsError(f"{e}, or replace it with overwrite=True") from None
            return self._publish(shards, overwrite=True)
        return True

    def _prune(self) -> None:
        if not self._keep["keep_last"] and self._keep["keep_every"] is None:
            return
        try:
            # A run that went back saves steps that are not the last.
            self._opened().prune(keep_steps=[self._number], threads=self._options["threads"], **self._keep)
            self._opened().gc()
        except (lmc.Error, OSError) as e:
            warnings.warn(f"lmc: step {self._step} is saved, but older ones were not all removed: {e}", stacklevel=2)


@dataclass(frozen=True)
class _Written:
    """The file that a rank wrote, and its shard."""

    file: str
    shard: str
