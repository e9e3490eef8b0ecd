"""Saving: `save_file` and `save`."""

import os
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

import lmc
from lmc._errors import UsageError
from lmc._lmc import TensorList
from lmc._safetensors import Given
from lmc.torch._dtypes import NAMES, shape_in_file
from lmc.torch._errors import TensorError
from lmc.torch._memory import check_byte_order, memory, to_dlpack
from lmc.torch._sharing import shared_tensors

_DTYPE, _LAYOUT, _IS_CPU = map(attrgetter, ("dtype", "layout", "is_cpu"))
_SHARING = "https://huggingface.co/docs/safetensors/torch_shared_tensors"


def given(name: str, tensor: Tensor, what: str | None = None) -> Given:
    """Converts a tensor for `lmc.compress_tensors`: CPU tensors are used in place, others are copied to the CPU. `what`
    names it in errors.

    Raises `UsageError` or `TensorError` when it cannot be saved.
    """
    what = what or f"tensor {name!r}"
    here = _on_cpu(what, tensor)
    dtype = NAMES.get(here.dtype)
    if dtype is None:
        raise UsageError(f"{what} is of {here.dtype}, which safetensors lacks: convert it before saving")
    if dtype == "F4" and not here.shape:
        raise UsageError(
            f"{what} is of {here.dtype}, which safetensors has in pairs along a dimension: `.view(1)` gives it one"
        )
    return name, dtype, shape_in_file(dtype, tuple(here.shape)), memory(here)


def _on_cpu(what: str, tensor: Tensor) -> Tensor:
    """A contiguous tensor on the CPU, without a copy where possible.

    Raises `TensorError` when it has no memory.
    """
    tensor = tensor.detach()
    if tensor.device.type == "meta":
        raise TensorError(f"{what}: Cannot copy out of meta tensor; it has no values that could be saved")
    if tensor.device.type != "cpu":
        tensor = tensor.to("cpu")
    # Lazily computed values, such as conjugates, differ from the memory.
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.numel() and not _has_memory(tensor):
        kind = type(tensor).__name__
        raise TensorError(f"{what}: a {kind} has no memory of its own: save what it is made of (as `.to_local()`)")
    return tensor


def _has_memory(tensor: Tensor) -> bool:
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False


def _ordinary(tensors: dict[str, Tensor]) -> TensorList | None:
    """The fast path: tensors on the CPU that are contiguous and do not overlap, as nearly all are.

    Returns `None` when one may not be; then `_checked` takes longer, and reports what is wrong, if anything is. Each
    check runs over all tensors at a time, which for many small ones is much faster than one by one.
    """
    names, given = list(tensors), list(tensors.values())
    if not (set(map(type, names)) <= {str} and set(map(type, given)) <= {Tensor, Parameter}):
        return None
    try:
        dtypes = [NAMES.get(dtype) for dtype in map(_DTYPE, given)]
        kinds = set(dtypes)
        if None in kinds or "F4" in kinds or ("C64" in kinds and any(map(Tensor.is_conj, given))):
            return None
        dense = all(layout is torch.strided for layout in set(map(_LAYOUT, given)))
        if not (dense and all(map(_IS_CPU, given)) and all(map(Tensor.is_contiguous, given))):
            return None
        if any(map(Tensor.is_neg, given)):
            return None
        made = TensorList()
        # Empty tensors may lie within others, and tensors without address have no memory.
        if not made.add_all(zip(names, dtypes, map(to_dlpack, given), strict=True)):
            return None
    except (RuntimeError, BufferError):
        # A tensor subclass that wraps others, or a dtype that this version of torch does not export.
        return None
    # Overlapping memory of several storages is accepted, as in safetensors.
    return None if made.overlap() else made


def _checked(tensors: Any) -> TensorList | list[Given]:
    """Checks and converts tensors. What safetensors rejects is rejected, with the same hints."""
    check_byte_order()
    if type(tensors) is dict:
        ordinary = _ordinary(tensors)
        if ordinary is not None:
            return ordinary
    if not isinstance(tensors, dict):
        raise UsageError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"names of tensors must be str, not {type(name).__name__}: {name!r}")
        if not isinstance(tensor, Tensor):
            raise UsageError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    nested = [name for name, tensor in tensors.items() if tensor.is_nested]
    if nested:
        raise TensorError(f"nested tensors have no shape that could be saved: {nested}; save what `.unbind()` gives")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise UsageError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    shared = sorted(sorted(names) for names in shared_tensors(tensors) if len(names) > 1)
    if shared:
        raise TensorError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when"
            f" loading them again: {shared}. A potential way to correctly save your model is to use `save_model`."
            f" More information at {_SHARING}"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise UsageError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either means you"
                " are trying to save tensors which are reference of each other in which case it's recommended to save"
                " only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to"
                " pack it before saving."
            )
    return [given(name, tensor) for name, tensor in tensors.items()]


def save_file(
    tensors: dict[str, Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    base: Any = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves tensors as a `.lmc` file, which holds what `safetensors.torch.save_file` writes for them, byte for byte.

    Tensors must be dense and contiguous, of any shape and device, and of a dtype that safetensors has; those on the CPU
    are not copied. `metadata` is text by key. With `base` (a path, a buffer, an open `lmc.File`, or a list of those)
    the file is a delta: it is small where the base is similar, and needs the base to be loaded. The file appears under
    its name only when complete and on disk. `level` and `threads` are those of `lmc.compress`.

    Do not write to the tensors meanwhile: the file could hold a mix of old and new values. If a storage is resized
    meanwhile, as by FSDP, its memory is gone, and the process ends.

    Raises `ValueError` (`lmc.UsageError`) for anything but a dict of tensors, and for tensors that are sparse, not
    contiguous or of another dtype; `RuntimeError` (`lmc.torch.TensorError`) for tensors that share memory, or have
    none; `OSError` when the file cannot be written.
    """
    made = _checked(tensors)
    lmc.compress_tensors_file(made, filename, metadata=metadata, base=base, level=level, threads=threads)


def save(
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
    *,
    base: Any = None,
    level: str = "default",
    threads: int | None = None,
) -> bytes:
    """Saves tensors as a `.lmc` file in memory, as `save_file` writes it."""
    made = _checked(tensors)
    return lmc.compress_tensors(made, metadata=metadata, base=base, level=level, threads=threads)
