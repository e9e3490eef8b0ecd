"""Tensors as the bytes of a data file, and back."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch

from lmc.torch._dtypes import NAMES, shape_in_file
from lmc.torch._memory import as_bytes

Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Chunk:
    """A chunk or value that is stored as one tensor of a data file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    #: Its bytes, on any device.
    flat: torch.Tensor

    def source(self) -> Memory | DeviceMemory:
        """Its bytes as `lmc.compress_tensors` takes them."""
        return DeviceMemory(self.flat) if is_remote(self.flat) else self.flat.numpy()


class DeviceMemory:
    """Memory of a device as a binary file: main memory holds only the part being compressed."""

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seeks to a byte, counted from the beginning or from the end."""
        self._at = offset + (len(self._flat) if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int, /) -> bytes:
        """Reads the next `size` bytes, or fewer at the end."""
        part = self._flat[self._at : self._at + size]
        self._at += len(part)
        return part.cpu().numpy().tobytes()


def is_remote(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is read in chunks."""
    return tensor.device.type == "cuda"


def chunk(name: str, tensor: torch.Tensor) -> Chunk:
    """Converts a tensor to a dense one; it is not copied if it is contiguous and in main memory or on a GPU."""
    plain = tensor.detach()
    if plain.layout != torch.strided or plain.is_quantized or plain.is_meta or plain.is_nested:
        kind = "quantized" if plain.is_quantized else str(plain.layout)
        kind = "meta" if plain.is_meta else "nested" if plain.is_nested else kind
        raise TypeError(f"{name}: cannot save a {kind} tensor; make it dense first")
    plain = plain if is_remote(plain) else plain.cpu()
    plain = plain.resolve_conj().resolve_neg().contiguous()
    if plain.device.type == "cuda":
        # It is read by other threads, whose streams do not wait for this one's.
        torch.cuda.current_stream(plain.device).synchronize()
    dtype = NAMES.get(plain.dtype)
    flat = as_bytes(plain)
    if dtype is None:
        return Chunk(name, "U8", (len(flat),), flat)
    return Chunk(name, dtype, shape_in_file(dtype, tuple(plain.shape)), flat)


def memory(tensor: torch.Tensor) -> Memory:
    """The memory of a contiguous tensor in main memory."""
    return as_bytes(tensor).numpy()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory holds exactly its elements, in order."""
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
    return dense and not tensor.is_conj() and not tensor.is_neg()
