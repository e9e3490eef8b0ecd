"""Models whose tensors may share memory: `save_model` and `load_model`."""

import os
from typing import Any

import torch

from lmc._errors import UsageError
from lmc.torch._errors import TensorError
from lmc.torch._load import Device, load_file
from lmc.torch._save import save_file
from lmc.torch._sharing import names_to_leave_out


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
    *,
    base: Any = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves the tensors of a model; of those that share memory, only one.

    The metadata maps the names of the others to the one saved, unless it has such a key already. `force_contiguous`
    packs tensors that are not contiguous. Otherwise as `save_file`.

    Raises `RuntimeError` (`lmc.torch.TensorError`) when none of the tensors that share memory covers all of it.
    """
    tensors = dict(model.state_dict())
    metadata = None if metadata is None else dict(metadata)
    for kept, others in names_to_leave_out(tensors).items():
        for name in others:
            metadata = metadata or {}
            metadata.setdefault(name, kept)
            del tensors[name]
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        save_file(tensors, filename, metadata, base=base, level=level, threads=threads)
    except UsageError as e:
        if force_contiguous or isinstance(e, TensorError):
            raise
        raise UsageError(f"{e} Or use save_model(..., force_contiguous=True), which packs them.") from e


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: Device = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> tuple[list[str], list[str]]:
    """Loads the tensors of a `.lmc` or `.safetensors` file into a model. For tensors that share memory, the file may
    have any of their names.

    Returns the names missing in the file, and those in the file that are not in the model. With `strict` there must be
    neither.

    Raises `RuntimeError`: `lmc.torch.TensorError` when names do not match, or torch's own when shapes do not. Otherwise
    as `load_file`.
    """
    tensors = load_file(filename, device, backend=backend, base=base, threads=threads)
    left_out = names_to_leave_out(model.state_dict(), prefer=tensors)
    absent, unexpected = model.load_state_dict(tensors, strict=False)
    missing = set(absent)
    for name in (name for others in left_out.values() for name in others):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                lines.append(f"    {what} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names)))
        raise TensorError("\n".join(lines))
    return sorted(missing), unexpected
