"""New weights written to a model of vLLM."""

# mypy: disable-error-code="import-not-found"

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO

from lmc._errors import UsageError
from lmc.vllm._ranks import gather

# Of other methods the weights may be stored otherwise than they were loaded.
_AS_LOADED: Final = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod")


def reload(model: torch.nn.Module, model_config: Any, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Writes all weights as `reload_weights` does.

    After an error some are written, and `check_finished` says whether it can be called again.
    """
    initialize_layerwise_reload(model)
    try:
        loaded = model.load_weights(tensors)  # type: ignore[operator]
    finally:
        # Otherwise another reload would go on with this one.
        finalize_layerwise_reload(model, model_config)
    check_loaded(model, model_config, loaded)


def check_finished(model: torch.nn.Module) -> None:
    """Raises `lmc.UsageError` on all workers if a reload of a model did not complete on one: vLLM keeps weights that
    were for it, and would go on with them in the next one."""
    unfinished = any(
        info.can_load() for info in (LAYERWISE_INFO.get(module) for module in model.modules()) if info is not None
    )
    if any(gather(unfinished)):
        raise UsageError(
            "the weights of the model are written partly, and vLLM cannot write them again: start the engine again"
        )


def check_loaded(model: torch.nn.Module, model_config: Any, loaded: set[str] | None) -> None:
    """Raises `lmc.UsageError` when a store lacks weights of a model, where that is known."""
    if model_config.quantization is not None or loaded is None:
        return
    missing = {name for name, _ in model.named_parameters()} - loaded
    for prefix, module in model.named_modules():
        # Such as scales of the cache, which not every checkpoint has.
        if not _as_loaded(module):
            missing -= {f"{prefix}.{name}" for name, _ in module.named_parameters(recurse=False)}
    if missing:
        names = ", ".join(sorted(missing)[:3])
        raise UsageError(f"the store lacks weights of the model: {names}{', …' if len(missing) > 3 else ''}")


def _as_loaded(module: torch.nn.Module) -> bool:
    method = getattr(module, "quant_method", None)
    return method is None or type(method).__name__ in _AS_LOADED
