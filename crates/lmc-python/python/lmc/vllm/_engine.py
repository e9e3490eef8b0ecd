"""The weight transfer backend `lmc`: a running engine gets another version of a store."""

# mypy: disable-error-code="import-not-found,misc"

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from lmc._errors import UsageError
from lmc._lmc import Snapshot, Store
from lmc.sync import Update
from lmc.vllm._copy import Copy, agreed, held, written
from lmc.vllm._ranks import check_replicas, find, gather, together
from lmc.vllm._write import check_finished, reload

_logger: Final = logging.getLogger("vllm.plugins.lmc")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """The argument of `init_weight_transfer_engine`, which need not be called if the load format is `lmc`."""

    store: str | None = None
    """The store; by default that of the load format."""
    step: int | None = None
    """The version that the safetensors files have which the engine was started on: they are compared with it."""
    verify: bool | None = None
    """Whether to compare the copy in memory with its hashes at each update; by default as before, and at first not."""
    threads: int | None = None
    """Threads that decode; by default as before, and at first one for each core."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """The argument of `update_weights`."""

    step: int | None = None
    """The version; by default the newest one."""
    store: str | None = None
    """The store; by default that of the version before."""
    full: bool = False
    """Whether to load the version whole, whatever the model holds: also another store's, or an earlier one."""
    stage: bool = False
    """Whether only to get it ready, in the background: the next call for this version then has a short pause."""

    def __post_init__(self) -> None:
        if self.stage and self.full:
            raise ValueError("a version that is loaded whole is not staged: leave out stage or full")


@dataclass
class _Ready:
    """A version that is decoded and verified."""

    snapshot: Snapshot
    copy: Copy
    base: Snapshot
    """The version that the copy held."""
    update: Update | None
    """The changes since the version that the model holds; `None` for a copy of its own."""
    seconds: float

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors of the version."""
        return iter(self.copy.tensors.items()) if self.update is None else self.copy.with_changes(self.update)

    def commit(self) -> None:
        """Gets the copy to hold the version."""
        if self.update is not None:
            self.copy.commit(self.update, self.snapshot)


class Engine(WeightTransferEngine):
    """Gets a model of vLLM to another version.

    The version is decoded and verified by all workers before any writes to its model. If one fails while it writes, all
    write the version before again.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        check_replicas(vllm_config.parallel_config)
        super().__init__(config, vllm_config, device, model)
        self._info = InitInfo()
        self._staged: tuple[str, Future[_Ready]] | None = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Sets options, and finds out which version the model holds."""
        self._staged = None
        if init_info.step is not None:
            if init_info.store is None:
                raise UsageError("init_info with a step needs a store")
            if any(gather(self.model in written)):
                raise UsageError(
                    "the model does not hold the files any more that the engine was started on: leave the step out of"
                    ' init_info, or load a version whole with update_info {"full": true}'
                )
            store = together("opening the store", lambda: Store(init_info.store or ""))
            before = held.get(self.model)
            verify, threads = init_info.verify, init_info.threads
            if before is not None:
                # By default as before.
                verify = before.verify if verify is None else verify
                threads = before.threads if threads is None else threads
            copy = Copy(store, find(store, init_info.step), verify=bool(verify), threads=threads)
            copy.adopt(self.model_config.model)
            held[self.model] = copy
        elif (before := agreed(self.model)) is not None:
            together("setting the options", lambda: before.set_options(init_info.verify, init_info.threads))
        self._info = init_info

    def start_weight_update(self) -> None:
        """Nothing: until a version is verified the model stays as it is."""

    def finish_weight_update(self) -> None:
        """Nothing: a version is complete when it was received."""

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Gets a version ready, and writes it to the model unless only the former is asked for."""
        check_finished(self.model)
        copy = agreed(self.model)
        store = self._store(update_info, copy)
        snapshot = find(store, update_info.step)
        if update_info.full:
            self._staged = None
            ready = self._whole(store, snapshot)
        else:
            copy = self._base(copy, store, snapshot)
            if copy.snapshot.id == snapshot.id:
                return
            if update_info.stage:
                self._stage(copy, snapshot)
                return
            ready = self._changes(copy, snapshot)
        started = time.monotonic()
        self._write(ready)
        _logger.info(
            "lmc: step %d of %s, %s: decoded in %.3f s, written in %.3f s",
            snapshot.step,
            store.location,
            f"{ready.update.changed} elements changed" if ready.update else "whole",
            ready.seconds,
            time.monotonic() - started,
        )

    def shutdown(self) -> None:
        """Ends the work in the background."""
        self._staged = None

    def _store(self, info: UpdateInfo, copy: Copy | None) -> Store:
        location = info.store or self._info.store
        if location is None and copy is not None:
            return copy.store
        if location is None:
            raise UsageError("which store? Name it in update_info or init_info")
        if copy is not None and copy.store.location == location:
            return copy.store
        return together("opening the store", lambda: Store(location))

    def _base(self, copy: Copy | None, store: Store, snapshot: Snapshot) -> Copy:
        """The version that the model holds. Raises `lmc.UsageError` unless the new version can be made from it."""
        if copy is None:
            raise UsageError(
                "it is not known which version of the store the model holds: start with the load format lmc, or name"
                ' the step of its files in init_info, or load the version whole with "full": true'
            )
        if copy.store.location != store.location:
            raise UsageError(
                f"the model holds step {copy.snapshot.step} of {copy.store.location!r}, from which no version of"
                f' {store.location!r} is made: load it whole with "full": true'
            )
        if snapshot.step < copy.snapshot.step:
            raise UsageError(
                f"the model holds step {copy.snapshot.step}, and step {snapshot.step} is an earlier one: load it whole"
                ' with "full": true'
            )
        return copy

    def _whole(self, store: Store, snapshot: Snapshot) -> _Ready:
        started = time.monotonic()
        verify, threads, before = self._info.verify, self._info.threads, held.get(self.model)
        if before is not None:
            # They may be those of the load format.
            verify = before.verify if verify is None else verify
            threads = before.threads if threads is None else threads
        copy = Copy(store, snapshot, verify=bool(verify), threads=threads)
        copy.load()
        return _Ready(snapshot, copy, snapshot, None, time.monotonic() - started)

    def _stage(self, copy: Copy, snapshot: Snapshot) -> None:
        if self._staged is not None and self._staged[0] == snapshot.id:
            return
        pool = ThreadPoolExecutor(1, "lmc-stage")
        self._staged = snapshot.id, pool.submit(self._decode, copy, snapshot)
        pool.shutdown(wait=False)

    def _changes(self, copy: Copy, snapshot: Snapshot) -> _Ready:
        staged, self._staged = self._staged, None
        future = staged[1] if staged is not None and staged[0] == snapshot.id else None
        if all(gather(future is not None)):
            ready = together("decoding the version", lambda: future.result() if future else None)
            # Otherwise the weights were reloaded meanwhile.
            valid = ready is not None and ready.copy is copy and ready.base.id == copy.snapshot.id
            if all(gather(valid)) and ready is not None:
                return ready
        return together("decoding the version", lambda: self._decode(copy, snapshot))

    def _decode(self, copy: Copy, snapshot: Snapshot) -> _Ready:
        started = time.monotonic()
        base = copy.snapshot
        update = copy.stage(snapshot)
        return _Ready(snapshot, copy, base, update, time.monotonic() - started)

    def _write(self, ready: _Ready) -> None:
        """Writes a version, on all workers or on none."""
        before = held.pop(self.model, None)
        written.add(self.model)
        try:
            together("writing the weights", lambda: reload(self.model, self.model_config, ready.tensors()))
        except BaseException as e:
            self._restore(before, e)
            raise
        # If that fails the copy may have anything, and the next version is loaded whole.
        together("keeping the version in memory", ready.commit)
        held[self.model] = ready.copy
        if before is not None and before is not ready.copy:
            before.close()

    def _restore(self, before: Copy | None, error: BaseException) -> None:
        """Writes the version that the model held."""
        try:
            check_finished(self.model)
        except UsageError as e:
            _logger.error("lmc: %s", e)
            if isinstance(error, Exception):
                raise UsageError(f"{e} ({type(error).__name__}: {error})") from error
            return
        if before is None:
            _logger.error(
                "lmc: the weights are written partly, and it is not known what they were: load a version whole"
            )
            return
        try:
            together(
                "writing the version before", lambda: reload(self.model, self.model_config, before.tensors.items())
            )
        except Exception:
            _logger.exception("lmc: the weights are written partly, and were not restored: load a version whole")
        else:
            held[self.model] = before
            _logger.warning("lmc: the weights were not written, and are those of step %d again", before.snapshot.step)
