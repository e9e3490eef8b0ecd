"""The load format `lmc`: weights from a store."""

# mypy: disable-error-code="import-not-found,misc"

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from lmc._errors import UsageError
from lmc._lmc import Snapshot, Store
from lmc.vllm._copy import Copy, agreed, held, written
from lmc.vllm._ranks import check_replicas, find, together
from lmc.vllm._write import check_finished, check_loaded

_EXTRA: Final = {"store", "step", "verify", "threads"}


class Loader(BaseModelLoader):
    """Loads a version of a store; the model's directory has its configuration and the tokenizer.

    All of it is decoded and verified before the model gets the first tensor. If the engine has the weight transfer
    backend `lmc`, the version stays in memory for later ones.
    """

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        extra = load_config.model_loader_extra_config
        if not isinstance(extra, dict) or not isinstance(extra.get("store"), str):
            raise UsageError(
                'load format lmc: model_loader_extra_config must be {"store": LOCATION}, and may have "step"'
            )
        if unknown := extra.keys() - _EXTRA:
            raise UsageError(f"load format lmc: model_loader_extra_config has unknown keys {sorted(unknown)}")
        self._location: str = extra["store"]
        self._step: int | None = extra.get("step")
        self._verify: bool = extra.get("verify", False)
        self._threads: int | None = extra.get("threads")

    def download_model(self, model_config: Any) -> None:
        """Nothing: data are read when weights are loaded."""

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Loads a model. Raises `lmc.UsageError` when the store lacks weights of it."""
        loaded = model.load_weights(self.get_all_weights(model_config, model))  # type: ignore[operator]
        check_loaded(model, model_config, loaded)

    def get_all_weights(self, model_config: Any, model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
        """The weights of a version, by names of the checkpoint. Raises before the first one if any is damaged."""
        config = get_current_vllm_config_or_none()
        if config is not None:
            check_replicas(config.parallel_config)
        if model in written:
            check_finished(model)
        written.add(model)
        before = agreed(model)
        store = together("opening the store", lambda: Store(self._location))
        snapshot = find(store, self._step)
        follows = before is not None and before.store.location == store.location
        if before is not None and follows and snapshot.step >= before.snapshot.step and _fit(before, snapshot):
            copy = before
            update = (
                together("decoding the version", lambda: copy.stage(snapshot))
                if snapshot.id != copy.snapshot.id
                else None
            )
            # While they are handed over the model holds neither version.
            held.pop(model, None)
            if update is not None:
                together("keeping the version in memory", lambda: copy.commit(update, snapshot))
        else:
            copy = Copy(store, snapshot, verify=self._verify, threads=self._threads)
            copy.load()
            held.pop(model, None)
        return _handed_over(copy, model)


def _fit(copy: Copy, snapshot: Snapshot) -> bool:
    return together("reading the store", lambda: copy.fits(snapshot))


def _handed_over(copy: Copy, model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    if not _stays():
        copy.close()
        tensors = copy.tensors
        del copy
        yield from tensors.items()
        return
    yield from copy.tensors.items()
    held[model] = copy


def _stays() -> bool:
    config = get_current_vllm_config_or_none()
    transfer = None if config is None else config.weight_transfer_config
    return transfer is not None and transfer.backend == "lmc"
