"""Dtypes of torch and their names in safetensors files."""

import reprlib
from typing import Final

import torch

from lmc._errors import UnsupportedError
from lmc._safetensors import ML_DTYPES, NUMPY_DTYPES

_NAMES: Final = NUMPY_DTYPES | ML_DTYPES | {"F4": "float4_e2m1fn_x2"}

# Older versions of torch lack some.
TORCH: Final[dict[str, torch.dtype]] = {name: getattr(torch, of) for name, of in _NAMES.items() if hasattr(torch, of)}
NAMES: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in TORCH.items()}

# Dtypes of equal size that torch can copy and index, whatever the elements mean.
CARRIERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def shape_in_file(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in the file: it counts elements, while `float4_e2m1fn_x2` has two in one."""
    return (*shape[:-1], 2 * shape[-1]) if dtype == "F4" else shape


def torch_type(name: str, dtype: str, shape: tuple[int, ...]) -> tuple[torch.dtype, tuple[int, ...]]:
    """The dtype and shape in torch of a tensor of a file.

    Raises `UnsupportedError` when it has none.
    """
    if dtype not in TORCH:
        raise UnsupportedError(f"tensor {reprlib.repr(name)}: torch {torch.__version__} has no dtype for {dtype}")
    if dtype != "F4":
        return TORCH[dtype], shape
    if not shape or shape[-1] % 2:
        raise UnsupportedError(
            f"tensor {reprlib.repr(name)} of shape {reprlib.repr(shape)}: torch packs two elements of F4 in one, "
            "and its last dimension is odd"
        )
    return TORCH[dtype], (*shape[:-1], shape[-1] // 2)
