"""New weights written to a model of vLLM: elements that changed, or all."""

# mypy: disable-error-code="import-not-found"

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch import Tensor
from vllm.model_executor.model_loader.checkpoint_weight_patch import (
    CheckpointWeightPatch,
    load_checkpoint_weight_patches,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from lmc._errors import UsageError
from lmc.sync import Patch, Update
from lmc.vllm._copy import by_tensor

# vLLM makes a tensor of NaN for each that has a patch, and this many bytes of them at once.
_GROUP: Final = 512 << 20
_FLOATS: Final = (torch.bfloat16, torch.float16, torch.float32)
# Of other methods the weights may be stored otherwise than they were loaded.
_AS_LOADED: Final = ("UnquantizedLinearMethod", "UnquantizedEmbeddingMethod")


def takes_patches(model: torch.nn.Module, model_config: Any) -> bool:
    """Whether single elements of the weights of a checkpoint can be written to a model.

    That is so where the model has them as they were loaded: not quantised, not packed for a kernel, and with nothing
    computed from them in advance.
    """
    if model_config.quantization is not None or model_config.use_mla:
        return False
    for module in model.modules():
        if not _as_loaded(module):
            return False
        # On CPUs a function which has packed weights.
        if getattr(getattr(module, "cpu_linear", None), "__closure__", None):
            return False
    return True


def patches_of(update: Update, tensors: dict[str, Tensor]) -> list[CheckpointWeightPatch] | None:
    """What changed, for vLLM; `None` where that cannot be written as patches."""
    patches = list[CheckpointWeightPatch]()
    for name, parts in by_tensor(update).items():
        tensor = tensors[name]
        if tensor.dtype not in _FLOATS:
            return None
        kind = torch.int32 if tensor.numel() <= torch.iinfo(torch.int32).max else torch.int64
        indices = torch.cat([_indices(part, kind) for part in parts])
        values = torch.cat([part.values for part in parts])
        # In patches NaN means that an element stays. vLLM leaves a patch written partly if it finds an error later.
        if values.isnan().any() or not (indices[1:] > indices[:-1]).all():
            return None
        patches.append(CheckpointWeightPatch(name, tuple(tensor.shape), tensor.dtype, values, indices))
    return patches


def _indices(part: Patch, kind: torch.dtype) -> Tensor:
    if part.indices is None:
        return torch.arange(part.start, part.stop, dtype=kind, device="cpu")
    indices: Tensor = part.indices
    return indices.to(kind)


def write(model: torch.nn.Module, device: torch.device, patches: list[CheckpointWeightPatch]) -> None:
    """Writes elements. Raises `NotImplementedError` when the model's loader does not allow that; other errors may be
    raised, too, and after each of them some elements are written."""
    for group in _groups(patches):
        on_device = [p._replace(values=p.values.to(device), indices=p.indices.to(device)) for p in group]
        load_checkpoint_weight_patches(model, on_device, max_chunk_bytes=_GROUP, validate_unique_indices=False)


def _groups(patches: list[CheckpointWeightPatch]) -> Iterator[list[CheckpointWeightPatch]]:
    group, size = list[CheckpointWeightPatch](), 0
    for patch in patches:
        nbytes = patch.dtype.itemsize * torch.Size(patch.shape).numel()
        if group and size + nbytes > _GROUP:
            yield group
            group, size = [], 0
        group.append(patch)
        size += nbytes
    if group:
        yield group


def reload(model: torch.nn.Module, model_config: Any, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Writes all weights, as `reload_weights` does. After an error some are written, and it can be called again."""
    initialize_layerwise_reload(model)
    try:
        loaded = model.load_weights(tensors)  # type: ignore[operator]
    finally:
        # Otherwise another reload would go on with this one.
        finalize_layerwise_reload(model, model_config)
    check_loaded(model, model_config, loaded)


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
