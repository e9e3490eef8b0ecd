"""Tensors that share memory, by the rules of safetensors.

Two tensors share memory when they have the same storage and overlap in it. (These rules compare each tensor only with
the one that begins before it.)
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from lmc.torch._errors import TensorError


def storage_of(tensor: Tensor) -> tuple[torch.device, int, int] | None:
    """Identifies a storage; `None` for one without memory."""
    if tensor.device.type == "meta":
        return None
    storage = tensor.untyped_storage()
    try:
        start, size = storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        # A tensor subclass that wraps others, such as a DTensor.
        return None
    return (tensor.device, start, size) if start and size else None


def _range(tensor: Tensor) -> tuple[int, int]:
    """Addresses of the first byte and past the last byte."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.itemsize


def shared_tensors(tensors: Mapping[str, Tensor]) -> list[set[str]]:
    """Groups names of tensors that share memory; tensors without memory are left out."""
    by_storage = defaultdict(list)
    for name, tensor in tensors.items():
        storage = storage_of(tensor)
        if storage is not None:
            by_storage[storage].append((*_range(tensor), name))
    groups: list[set[str]] = []
    for ranges in by_storage.values():
        last = -1
        for start, end, name in sorted(ranges):
            if start >= last:
                groups.append({name})
            else:
                groups[-1].add(name)
            last = end
    return groups


def tied(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each tensor that is the same memory, seen in the same way, as one of an earlier name, that name.

    Tensors that only overlap are not tied: they differ.
    """
    first = dict[tuple[object, ...], str]()
    others = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        storage = storage_of(tensor)
        if storage is None or tensor.layout != torch.strided or not tensor.numel():
            continue
        seen = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        kept = first.setdefault((storage, *seen), name)
        if kept != name:
            others[name] = kept
    return others


def _is_whole(tensor: Tensor) -> bool:
    """Whether a tensor covers its whole storage."""
    storage = tensor.untyped_storage()
    return tensor.data_ptr() == storage.data_ptr() and tensor.nbytes == storage.nbytes()


def names_to_leave_out(tensors: Mapping[str, Tensor], prefer: Collection[str] = ()) -> dict[str, list[str]]:
    """For each group that shares memory, the name to keep (one of `prefer` if possible), and those to drop.

    Raises `TensorError` when no tensor of a group covers the storage: the dropped ones could not be restored from the
    kept one.
    """
    left_out = {}
    for names in shared_tensors(tensors):
        whole = sorted(name for name in names if _is_whole(tensors[name]))
        if not whole:
            raise TensorError(
                f"none of {sorted(names)} covers their storage, and could be saved for all of them: "
                "save copies (`tensor.clone()`); see https://huggingface.co/docs/safetensors/torch_shared_tensors"
            )
        kept = next((name for name in whole if name in prefer), whole[0])
        rest = sorted(names - {kept})
        if rest:
            left_out[kept] = rest
    return left_out
