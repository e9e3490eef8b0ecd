"""Tensors as the bytes of a data file, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lmc.torch._dtypes import NAMES, shape_in_file
from lmc.torch._memory import as_bytes


@dataclass(frozen=True)
class Chunk:
    """What is stored as one tensor of a data file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray[tuple[int], np.dtype[np.uint8]]


def chunk(name: str, tensor: torch.Tensor) -> Chunk:
    """A dense tensor, whose memory is not copied if it is contiguous and in main memory."""
    plain = tensor.detach()
    if plain.layout != torch.strided or plain.is_quantized or plain.is_meta:
        kind = "meta" if plain.is_meta else "quantized" if plain.is_quantized else str(plain.layout)
        raise TypeError(f"{name}: cannot save a {kind} tensor; make it dense first")
    plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
    dtype = NAMES.get(plain.dtype)
    data = memory(plain)
    if dtype is None:
        return Chunk(name, "U8", (len(data),), data)
    return Chunk(name, dtype, shape_in_file(dtype, tuple(plain.shape)), data)


def memory(tensor: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The memory of a contiguous tensor in main memory."""
    return as_bytes(tensor).numpy()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory holds its elements and nothing else, in order."""
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
    return dense and not tensor.is_conj() and not tensor.is_neg()
