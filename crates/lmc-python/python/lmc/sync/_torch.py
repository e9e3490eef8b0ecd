"""Tensors of torch that follow, or are published."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lmc._errors import UsageError
from lmc._lmc import Tensor as Entry
from lmc._safetensors import Given
from lmc.sync._library import Spec
from lmc.torch._dtypes import CARRIERS, NAMES, shape_in_file, torch_type
from lmc.torch._memory import check_byte_order, empty, memory, written
from lmc.torch._save import given
from lmc.torch._sharing import storage_of, tied


class Torch:
    """`Library` of torch."""

    def __init__(self) -> None:
        check_byte_order()

    def spec(self, name: str, tensor: Tensor) -> Spec:
        """Dtype and shape of a tensor."""
        dtype = NAMES.get(tensor.dtype)
        if dtype is None:
            raise UsageError(f"tensor {name!r} is of {tensor.dtype}, which safetensors lacks")
        if tensor.device.type != "cpu":
            raise UsageError(
                f"tensor {name!r} is on {tensor.device}: follow with tensors on the CPU, and write the patches of each"
                " update to it"
            )
        if not _is_plain(tensor):
            raise UsageError(f"tensor {name!r} is not contiguous: it cannot be changed in place")
        storage = tensor.untyped_storage().nbytes()
        if tensor.storage_offset() * tensor.itemsize + tensor.nbytes > storage:
            raise UsageError(
                f"tensor {name!r} has {tensor.nbytes} bytes, and its storage was resized to {storage}: give it its"
                " memory again"
            )
        return name, dtype, shape_in_file(dtype, tuple(tensor.shape))

    def memory(self, tensor: Tensor) -> Any:
        """The memory of a tensor."""
        return memory(tensor)

    def written(self, tensor: Tensor) -> None:
        """Counts a write."""
        written(tensor)

    def address(self, tensor: Tensor) -> tuple[int, int]:
        """Where a tensor begins, and its length in bytes."""
        return tensor.data_ptr(), tensor.nbytes

    def packed(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it is contiguous, or else a copy that is."""
        if storage_of(tensor) is None or tensor.layout != torch.strided or tensor.is_contiguous():
            return tensor
        return tensor.detach().contiguous()

    def place(self, tensor: Tensor) -> tuple[torch.device, int, int] | None:
        """Where a tensor is."""
        if storage_of(tensor) is None or tensor.layout != torch.strided or not tensor.nbytes:
            return None
        return tensor.device, tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes

    def version(self, tensor: Tensor) -> int | None:
        """How often a tensor was written to; those of inference mode do not count it."""
        return None if tensor.is_inference() else tensor._version

    def mark(self, tensor: Tensor) -> tuple[int | None, int, int]:
        """How often a tensor was written to, where it is, and how much memory that is."""
        return self.version(tensor), tensor.data_ptr(), tensor.untyped_storage().nbytes()

    def empty(self, entry: Entry, shape: tuple[int, ...]) -> Tensor:
        """A new tensor of the dtype of an entry."""
        dtype, shape = torch_type(entry.name, entry.dtype, shape)
        return empty(shape, dtype)

    def indices(self, data: bytes) -> Tensor:
        """A tensor of these integers of 64 bits."""
        # Of memory that may be written, as torch expects; it has no empty buffers.
        return torch.frombuffer(bytearray(data), dtype=torch.int64)

    def values(self, data: bytes, width: int, like: Tensor) -> Tensor:
        """A tensor of these elements."""
        bytes_of = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return bytes_of.view(like.dtype) if width == like.itemsize else bytes_of

    def write(self, tensor: Tensor, start: int, stop: int, indices: Tensor | None, values: Tensor) -> None:
        """Writes elements of a tensor, on any device."""
        if not _is_plain(tensor):
            raise UsageError("a tensor that is not contiguous cannot be changed in place")
        # Not every dtype can be indexed.
        carrier = CARRIERS[values.itemsize]
        flat = tensor.detach().view(-1).view(carrier)
        values = values.view(carrier).to(flat.device)
        if indices is None:
            flat[start:stop] = values
        else:
            flat[indices.to(flat.device)] = values

    def given(self, tensors: Mapping[str, Tensor]) -> tuple[list[Given], dict[str, str]]:
        """Tensors to be saved. Of tied ones one is, and the names of others are metadata, as in
        `safetensors.torch.save_model`. Tensors that only overlap are saved as they are."""
        left_out = tied(tensors)
        kept = {name: tensor for name, tensor in tensors.items() if name not in left_out}
        return [given(name, tensor.detach().contiguous()) for name, tensor in kept.items()], left_out


def _is_plain(tensor: Tensor) -> bool:
    """Whether the memory of a tensor has its elements in order, as they are."""
    return tensor.layout == torch.strided and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
